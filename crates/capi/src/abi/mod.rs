//! The functions that C calls. `include/extant.h` says what each does.
//!
//! | module | owns |
//! |---|---|
//! | `library` | the library as a whole, failures, tokens |
//! | `devices` | devices |
//! | `systems` | file systems: opening and closing them, and what is true of the whole |
//! | `names` | files by their names, and extended attributes |
//! | `owners` | access control lists and quotas |
//! | `files` | open files and directories, and walks |
//! | `upkeep` | making, checking and changing file systems that are not open |
//! | `arguments` | what several of them do with arguments and results |

mod arguments;
mod devices;
mod files;
mod library;
mod names;
mod owners;
mod systems;
mod upkeep;

pub use devices::*;
pub use files::*;
pub use library::*;
pub use names::*;
pub use owners::*;
pub use systems::*;
pub use upkeep::*;
