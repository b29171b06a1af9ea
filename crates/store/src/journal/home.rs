//! Writing images to where they belong.

use super::queue::Image;
use crate::Result;
use extant_blockdev::{Request, SharedDevice};
use extant_format::BlockSize;
use std::io::IoSlice;

/// Most blocks that one write carries.
const MOST_BLOCKS: usize = 256;
/// Most writes that are under way together, whose content is in memory twice.
const MOST_REQUESTS: usize = 1024;

/// Writes images, ascending by block, with one request for those that lie side by side; all of them
/// are under way together where each would take a round trip. Does not flush.
pub(super) fn write(device: &SharedDevice, size: BlockSize, images: &[Image]) -> Result<()> {
    write_then(device, size, images, None).map(drop)
}

/// Writes images as [`write`] does. With a `flush`, that may be done along with the last of them;
/// returns whether it was.
pub(super) fn write_then(
    device: &SharedDevice,
    size: BlockSize,
    images: &[Image],
    flush: Option<Request>,
) -> Result<bool> {
    let is_far = device.in_flight() > 1;
    let mut flush = flush.filter(|_| is_far);
    let mut has_flushed = false;
    let mut requests = Vec::new();
    let mut rest = images;
    while let Some((first, _)) = rest.split_first() {
        let together = rest
            .iter()
            .zip(0u64..)
            .take_while(|(image, step)| first.block.checked_add(*step) == Some(image.block))
            .take(MOST_BLOCKS)
            .count();
        let (now, later) = rest.split_at(together.max(1));
        let slices: Vec<_> = now.iter().map(|image| IoSlice::new(&image.bytes)).collect();
        let offset = size.offset_of(first.block).unwrap_or(u64::MAX);
        if is_far {
            requests.push(Request::write_copy(offset, &slices));
        } else {
            device.write_vectored_at(offset, &slices)?;
        }
        rest = later;
        if rest.is_empty() && !requests.is_empty() {
            has_flushed = flush.is_some();
            requests.extend(flush.take());
        }
        if requests.len() >= MOST_REQUESTS || rest.is_empty() && !requests.is_empty() {
            device.submit(std::mem::take(&mut requests)).wait_all()?;
        }
    }
    Ok(has_flushed)
}
