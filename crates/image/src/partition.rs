//! A partition by its number or its label.

use extant_blockdev::{
    DeviceError, DeviceResult, PartitionTable, SharedDevice, TableKind, list_partitions,
    open_partition,
};
use std::fmt;
use std::sync::Arc;

/// Most labels that an error lists.
const LISTED: usize = 16;

/// A partition of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PartitionName {
    /// The number that Linux gives it.
    Number(u32),
    /// The name that a GPT has for it.
    Label(String),
}

impl PartitionName {
    /// Reads what stands behind the `#`: digits are a number, whatever else is a label. `None` for
    /// nothing at all.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let number = Some(text)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok());
        Some(match number {
            Some(number) => Self::Number(number),
            None => Self::Label(text.to_owned()),
        })
    }

    /// Returns the number of the partition on a disk.
    ///
    /// # Errors
    /// `NoPartitionTable`, `BadPartitionTable`, or what reading gives; `Refused` when the table has
    /// no labels, none of this name, or several.
    pub fn number_on(&self, disk: &SharedDevice) -> DeviceResult<u32> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Label(label) => by_label(label, &list_partitions(&**disk)?, &disk.name()),
        }
    }

    /// Opens the partition of a disk.
    ///
    /// # Errors
    /// As for [`PartitionName::number_on`]; `NoSuchPartition`; `BadWindow` where the disk is too
    /// short for it.
    pub fn open(&self, disk: SharedDevice) -> DeviceResult<SharedDevice> {
        let number = self.number_on(&disk)?;
        Ok(Arc::new(open_partition(disk, number)?))
    }
}

fn by_label(label: &str, table: &PartitionTable, disk: &str) -> DeviceResult<u32> {
    let refused = |reason: String| DeviceError::Refused {
        place: disk.to_owned(),
        reason,
    };
    if table.kind == TableKind::Mbr {
        return Err(refused(format!(
            "its partitions have no labels, since it has an MBR: write the number of one instead \
             of {label:?}, such as #1"
        )));
    }
    let named = |part: &extant_blockdev::Partition| part.name.as_deref() == Some(label);
    let found: Vec<u32> = table
        .partitions
        .iter()
        .filter(|part| named(part))
        .map(|part| part.number)
        .collect();
    match *found {
        [number] => Ok(number),
        [] => Err(refused(format!(
            "it has no partition with the label {label:?}: {}",
            present(table)
        ))),
        _ => {
            let numbers: Vec<String> = found.iter().map(|number| format!("#{number}")).collect();
            Err(refused(format!(
                "several partitions have the label {label:?}: write the number of one, {}",
                numbers.join(" or ")
            )))
        }
    }
}

/// The labels that exist, as a clause.
fn present(table: &PartitionTable) -> String {
    if table.partitions.is_empty() {
        return "its partition table is empty".to_owned();
    }
    let named = table.partitions.iter().take(LISTED);
    let mut listed: Vec<String> = named
        .map(
            |part| match part.name.as_deref().filter(|name| !name.is_empty()) {
                Some(name) => format!("{} ({name:?})", part.number),
                None => format!("{} (without a label)", part.number),
            },
        )
        .collect();
    if table.partitions.len() > LISTED {
        listed.push(format!("{} more", table.partitions.len() - LISTED));
    }
    format!("it has {}", listed.join(", "))
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Label(label) => f.write_str(&crate::uri::shown(label.as_bytes())),
        }
    }
}
