//! Space that a file is to get when it is written back.
//!
//! | file | owns |
//! |---|---|
//! | `promises` | places promised for delayed blocks, and for the nodes that will map them |
//! | `nodes` | how many nodes mapping delayed blocks takes |
//! | `clusters` | places where a cluster is more than a block |

pub(super) mod clusters;
pub(super) mod nodes;
pub(super) mod promises;
