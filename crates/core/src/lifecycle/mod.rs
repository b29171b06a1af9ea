//! The life of inodes: how they come, what becomes of their content, and how they go.
//!
//! Here is what needs inodes, maps and attributes together.
//!
//! | file | owns |
//! |---|---|
//! | `create`, `acl` | new inodes, and the access control lists they get from their directory |
//! | `symlink` | targets of symbolic links |
//! | `adopt` | records that fast commits hold |
//! | `delete` | the end of inodes that have no names |
//! | `recover_orphans` | orphans that a crash left |

mod acl;
mod adopt;
mod create;
mod delete;
mod recover_orphans;
mod symlink;
#[cfg(test)]
mod tests;

pub(crate) use acl::with_permissions;
pub use create::NewInode;
