//! Test fixtures: kernel mounts, external oracles, torture trees and tree comparison.
