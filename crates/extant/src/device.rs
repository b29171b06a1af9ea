//! What an implementation of [`BlockDevice`] is made of: requests, buffers and completions.

pub use crate::gather::{read_gathered, write_gathered};
pub use crate::into_device::{IntoDevice, to_vec};
pub use extant_blockdev::{
    AlignedBuf, BUFFER_ALIGN, BlockDevice, Completion, DirectMemory, Done, MemoryDevice,
    OverlayDevice, PendingBatch, Request, SharedDevice, WindowDevice, WriteBuf,
};
