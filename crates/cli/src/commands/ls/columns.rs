//! The columns of the long form.

use super::Row;
use super::text::{Text, digits};
use crate::names::Table;
use crate::record::mode_letters;
use crate::size::short;
use crate::time;
use extant::Metadata;
use std::sync::Arc;

/// Widths of the columns.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) inode: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
    is_human: bool,
}

impl Columns {
    pub(super) fn of(rows: &[Row<'_>], is_human: bool) -> Self {
        let mut columns = Self {
            is_human,
            ..Self::default()
        };
        let widen = |width: &mut usize, length: usize| *width = length.max(*width);
        // Those of one directory mostly have one owner.
        let mut last = None;
        for row in rows {
            let metadata = &row.metadata;
            widen(&mut columns.inode, digits(metadata.ino().into()));
            widen(&mut columns.links, digits(metadata.nlink().into()));
            let owners = Some((Arc::as_ptr(&row.names), metadata.uid(), metadata.gid()));
            if owners != last {
                widen(&mut columns.user, width(&row.names.users, metadata.uid()));
                widen(&mut columns.group, width(&row.names.groups, metadata.gid()));
                last = owners;
            }
            let size = match special_size(metadata, is_human) {
                Some(text) => text.len(),
                None => digits(metadata.len()),
            };
            widen(&mut columns.size, size);
        }
        columns
    }

    pub(super) fn write(&self, row: &Row<'_>, numbers: bool, text: &mut Text) {
        let metadata = &row.metadata;
        text.bytes.extend_from_slice(&mode_letters(metadata));
        text.bytes.push(b' ');
        text.number(metadata.nlink().into(), self.links);
        text.bytes.push(b' ');
        owner(text, &row.names.users, metadata.uid(), numbers, self.user);
        owner(text, &row.names.groups, metadata.gid(), numbers, self.group);
        match special_size(metadata, self.is_human) {
            Some(size) => {
                text.spaces(self.size.saturating_sub(size.len()));
                text.bytes.extend_from_slice(size.as_bytes());
            }
            None => text.number(metadata.len(), self.size),
        }
        text.bytes.push(b' ');
        time::push_short(metadata.mtime(), &mut text.bytes);
        text.bytes.push(b' ');
    }
}

/// How many bytes an owner takes.
fn width(names: &Table, number: u32) -> usize {
    names
        .name(number)
        .map_or_else(|| digits(number.into()), <[u8]>::len)
}

/// The owner, with the name that the image has for it. Numbers that are asked for stand at the
/// right, all else at the left.
fn owner(text: &mut Text, names: &Table, number: u32, numbers: bool, width: usize) {
    let missing = width.saturating_sub(self::width(names, number));
    if numbers {
        text.spaces(missing);
    }
    match names.name(number) {
        Some(name) => text.name(name),
        None => text.number(number.into(), 0),
    }
    if !numbers {
        text.spaces(missing);
    }
    text.bytes.push(b' ');
}

/// What stands in the place of the size, if it is not its number: a device's number, or a size with
/// its unit.
fn special_size(metadata: &Metadata, is_human: bool) -> Option<String> {
    match metadata.rdev() {
        Some(number) => Some(format!("{}, {}", number.major, number.minor)),
        None => is_human.then(|| short(metadata.len())),
    }
}
