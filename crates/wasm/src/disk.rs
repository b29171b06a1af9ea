//! From a file to a device: raw, whole disks, and formats of images.

use crate::budget::{self, Budget};
use crate::cached::Cached;
use crate::failure::{Failure, NOT_EXT4, Told};
use crate::gzip::Gzip;
use crate::image::Progress;
use crate::qcow2::Qcow2;
use crate::unpacked::{self, Packing};
use crate::{simg, vhd, vmdk};
use extant_blockdev::{Content, SharedDevice, list_partitions, open_partition};
use std::sync::Arc;

/// Formats in each other that are opened: a qcow2 image that is compressed has two.
const MOST_FORMATS: usize = 3;

/// A partition of a disk.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) name: Option<String>,
    /// What is in it, in words.
    pub(crate) holds: &'static str,
}

/// Where the file system is.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) device: SharedDevice,
    /// What the file is, from the outside in.
    pub(crate) formats: Vec<&'static str>,
    /// The partition that was chosen.
    pub(crate) partition: Option<u32>,
    pub(crate) partitions: Vec<Part>,
}

/// Opens what is in a file: the partition of this number, or else the file system at its beginning
/// or in the first partition that has one.
pub(crate) fn open(
    file: SharedDevice,
    partition: Option<u32>,
    progress: &dyn Progress,
) -> Told<Disk> {
    open_within(file, partition, progress, &Budget::new(budget::MOST))
}

/// Opens as [`open`] does, with so much memory for what is kept of all layers.
pub(crate) fn open_within(
    file: SharedDevice,
    partition: Option<u32>,
    progress: &dyn Progress,
    budget: &Budget,
) -> Told<Disk> {
    let mut device: SharedDevice = Arc::new(Cached::new(file));
    let mut formats = Vec::new();
    let mut content = Content::on(&*device)?;
    loop {
        let inner = Arc::clone(&device);
        let (disk, format): (SharedDevice, _) = match content {
            Content::Gzip => (
                Arc::new(Gzip::open(inner, progress, budget.share())?),
                "gzip",
            ),
            Content::Zstd => {
                let share = budget.share();
                (
                    unpacked::open(inner, Packing::Zstd, progress, share)?,
                    "zstd",
                )
            }
            Content::Xz => {
                let share = budget.share();
                (unpacked::open(inner, Packing::Xz, progress, share)?, "xz")
            }
            Content::Qcow => (Arc::new(Qcow2::open(inner)?), "qcow2"),
            Content::AndroidSparse => (Arc::new(simg::open(inner)?), "simg"),
            Content::Vhd => vhd::open(inner)?,
            Content::Vmdk => (Arc::new(vmdk::open(inner)?), "vmdk-sparse"),
            Content::VmdkDescriptor => {
                return Err(Failure::unsupported(
                    "this is the description of a VMDK disk, whose bytes are in another file: open \
                     that (its name ends in -flat.vmdk)",
                ));
            }
            _ if vhd::is_fixed(&*inner)? => vhd::open(inner)?,
            _ => break,
        };
        if formats.len() >= MOST_FORMATS {
            return Err(Failure::unsupported("the file is packed too many times"));
        }
        formats.push(format);
        device = Arc::new(Cached::new(disk));
        content = Content::on(&*device)?;
    }
    let is_table = matches!(content, Content::Gpt | Content::Mbr);
    if !is_table && partition.is_none() {
        return Ok(Disk {
            device,
            formats,
            partition: None,
            partitions: Vec::new(),
        });
    }
    of_table(device, formats, partition)
}

/// Chooses a partition.
fn of_table(device: SharedDevice, formats: Vec<&'static str>, wanted: Option<u32>) -> Told<Disk> {
    let table = list_partitions(&*device)?;
    let mut partitions = Vec::new();
    let mut chosen = None;
    for found in table.partitions {
        // One that reaches behind the end of a disk that was cut is told of, and not opened.
        let part = open_partition(Arc::clone(&device), found.number);
        let content = match &part {
            Ok(part) => Content::on(part).unwrap_or(Content::Unknown),
            Err(_) => Content::Unknown,
        };
        let is_wanted = wanted.map_or(content.is_ext(), |wanted| wanted == found.number);
        if is_wanted && chosen.is_none() {
            chosen = Some((found.number, part?));
        }
        partitions.push(Part {
            number: found.number,
            start: found.start,
            len: found.len,
            name: found.name,
            holds: content.name(),
        });
    }
    match (chosen, wanted) {
        (Some((number, part)), _) => Ok(Disk {
            device: Arc::new(part),
            formats,
            partition: Some(number),
            partitions,
        }),
        // Says which there are.
        (None, Some(wanted)) => Err(open_partition(device, wanted)
            .map_or_else(Failure::from, |_| {
                Failure::invalid("the partition cannot be opened")
            })),
        (None, None) => Err(Failure::new(NOT_EXT4, nothing_in(&partitions))),
    }
}

/// Says that no partition holds such a file system, and what they hold.
fn nothing_in(partitions: &[Part]) -> String {
    let mut text = "no partition of the disk holds an ext4 file system".to_owned();
    for (count, part) in partitions.iter().take(8).enumerate() {
        let between = if count == 0 { ":" } else { "," };
        text.push_str(&format!("{between} {} is {}", part.number, part.holds));
    }
    text
}
