//! The way from a device to a file system, and back.
//!
//! | file | owns |
//! |---|---|
//! | `background` | what the journal's thread does in a turn |
//! | `close` | closing, for good or for a while, and marking as in use |

mod background;
mod close;
