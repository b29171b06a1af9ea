//! Changing the size of files and whole ranges of them.
//!
//! | file | owns |
//! |---|---|
//! | `truncate` | setting the size, freeing blocks |
//! | `fallocate` | reserving blocks for a range |
//! | `collapse_insert` | punching holes, making ranges zeros, taking ranges out and putting them in |
//! | `reshape` | giving a file another kind of map |
//! | `seal` | what fs-verity has behind the content of a file |
//! | `zeros` | making zeros on the device |

pub(super) mod collapse_insert;
pub(super) mod fallocate;
pub(super) mod reshape;
pub(super) mod seal;
pub(super) mod truncate;
pub(super) mod zeros;
