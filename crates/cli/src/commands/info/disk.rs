//! What a whole disk holds: its partitions, and what is in each.

use crate::failure::Outcome;
use crate::output::Output;
use crate::record::lossless;
use crate::size::human;

use super::other::{Carried, word};
use extant::{Content, Escaped, Filesystem, MountOptions, SharedDevice};
use extant_blockdev::open_partition;
use extant_blockdev::{Partition, PartitionTable, PartitionType, TableKind, list_partitions};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

/// A disk.
#[derive(Debug, Serialize)]
pub(super) struct Disk {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<Carried>,
    table: &'static str,
    sector_size: u32,
    from_backup: bool,
    size: u64,
    partitions: Vec<Part>,
}

/// One of its partitions.
#[derive(Debug, Serialize)]
struct Part {
    number: u32,
    start: u64,
    size: u64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The kind of file system, where it can be read here.
    #[serde(skip_serializing_if = "Option::is_none")]
    filesystem: Option<&'static str>,
    /// The kind of content, as far as its marks say.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_hex: Option<String>,
}

impl Disk {
    /// The partitions of a device, if it has a table that names any.
    pub(super) fn of(device: &SharedDevice) -> Option<Self> {
        let table = list_partitions(&**device).ok()?;
        if table.partitions.is_empty() {
            return None;
        }
        let parts = table.partitions.iter();
        Some(Self {
            container: None,
            table: match table.kind {
                TableKind::Gpt => "gpt",
                TableKind::Mbr => "mbr",
            },
            sector_size: table.sector,
            from_backup: table.from_backup,
            size: device.size(),
            partitions: parts.map(|part| Part::of(device, &table, part)).collect(),
        })
    }

    pub(super) fn print(&self, output: &mut Output) -> Outcome {
        if let Some(container) = &self.container {
            container.print(output)?;
        }
        writeln!(
            output,
            "A disk of {} with {} partitions ({}{}); choose one with IMAGE#N.",
            human(self.size),
            self.partitions.len(),
            self.table,
            if self.from_backup {
                ", from its backup: the first table is damaged"
            } else {
                ""
            }
        )?;
        writeln!(
            output,
            "\n{:>3} {:>14} {:>10}  {:<10} {:<16} {:<20} type",
            "N", "start", "size", "holds", "label", "name"
        )?;
        for part in &self.partitions {
            let shown = |text: &Option<String>| match text {
                Some(text) => Escaped(text.as_bytes()).to_string(),
                None => "-".to_owned(),
            };
            writeln!(
                output,
                "{:>3} {:>14} {:>10}  {:<10} {:<16} {:<20} {}",
                part.number,
                part.start,
                human(part.size),
                part.filesystem.or(part.content.as_deref()).unwrap_or("-"),
                shown(&part.label),
                shown(&part.name),
                part.kind
            )?;
        }
        Ok(())
    }
}

impl Part {
    fn of(device: &SharedDevice, table: &PartitionTable, part: &Partition) -> Self {
        let window = open_partition(Arc::clone(device), part.number).ok();
        let content = window.as_ref().and_then(|window| Content::on(window).ok());
        let fs = window.and_then(|window| {
            let options = MountOptions::read_only();
            Filesystem::open_device(Arc::new(window), options).ok()
        });
        let superblock = fs.as_ref().map(|fs| fs.engine().superblock());
        let label = superblock.map(extant_format::superblock::Superblock::label);
        let label = label.filter(|label| !label.is_empty()).map(lossless);
        let (label, label_hex) = label.unzip();
        Self {
            number: part.number,
            start: part.start,
            size: part.len,
            kind: match &part.kind {
                PartitionType::Guid(guid) => guid.clone(),
                PartitionType::Byte(byte) => format!("0x{byte:02x}"),
            },
            name: part
                .name
                .clone()
                .filter(|name| !name.is_empty() && table.kind == TableKind::Gpt),
            filesystem: superblock.map(|superblock| super::kind(superblock.features())),
            content: content
                .filter(|content| !matches!(content, Content::Zeros | Content::Unknown))
                .map(word),
            label,
            label_hex: label_hex.flatten(),
        }
    }
}
