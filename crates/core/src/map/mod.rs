//! Mapping logical to physical blocks: extent trees and indirect maps.
