//! What the chores do; the command line is in `main.rs`.
//!
//! Only [`tidy`] is here, so that a test can call it: the house rules that a compiler does not
//! know, each as a small rule over the workspace's text.

pub mod tidy;
