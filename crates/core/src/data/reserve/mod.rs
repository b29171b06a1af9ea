//! Space that a file is to get when it is written back.
//!
//! | file | owns |
//! |---|---|
//! | `promises` | places promised for delayed blocks, and for the nodes that will map them |
//! | `nodes` | how many nodes mapping delayed blocks takes |
//! | `preallocation` | blocks of a file as the allocator gives them |
//! | `places` | places that writes chose, of blocks that are not mapped yet |
//! | `clusters` | places where a cluster is more than a block |

pub(super) mod clusters;
pub(super) mod nodes;
pub(super) mod places;
pub(crate) mod preallocation;
pub(super) mod promises;
