//! Chores of the workspace: `cargo xtask tidy`, `cargo xtask hostile`.

fn main() {}
