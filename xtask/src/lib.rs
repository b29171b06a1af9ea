//! What the chores do; the command line is in `main.rs`.
//!
//! Here is what tests of other crates call: [`tidy`], the house rules that a compiler does not
//! know, each as a small rule over the workspace's text; and [`install`].

pub mod install;
pub mod tidy;
