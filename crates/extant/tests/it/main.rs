//! The public interface, used as a program would.

mod allocating;
mod callers;
mod changing;
mod direct;
mod exercise;
mod export;
mod files;
mod full;
mod model;
mod paths;
mod stress;
mod support;
mod walking;
