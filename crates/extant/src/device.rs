//! What an implementation of [`BlockDevice`] is made of: requests, buffers and completions.

pub use extant_blockdev::{
    AlignedBuf, BUFFER_ALIGN, BlockDevice, Completion, DirectMemory, Done, OverlayDevice,
    PendingBatch, Request, SharedDevice, WindowDevice, WriteBuf,
};
