//! The public interface, used as a program would.

mod export;
mod files;
mod paths;
mod support;
mod walking;
