//! The public interface, used as a program would.

mod changing;
mod export;
mod files;
mod paths;
mod support;
mod walking;
