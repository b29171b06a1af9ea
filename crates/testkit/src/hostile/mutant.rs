//! Choosing structures and changes from a seed.

use super::anatomy::{Anatomy, Kind, Site};
use super::bytes::put;
use super::fields::{Field, big_endian, fields_of, new_value, value_of};
use super::specimen::Specimen;
use crate::rng::Rng;
use std::ops::Range;

/// A specimen with a few structures changed.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The specimen it was made from.
    pub specimen: String,
    /// The whole image.
    pub image: Vec<u8>,
    /// What was changed, a line per change.
    pub story: Vec<String>,
    /// Where superblock, descriptors, bitmaps and inodes lie, in bytes; nothing where what was
    /// changed may have moved them.
    pub fixed: Vec<Range<usize>>,
}

impl Specimen {
    /// Returns the mutant of this specimen that `seed` decides.
    pub fn mutant(&self, seed: u64) -> Mutant {
        let mut rng = Rng::new(seed);
        let mut mutant = Mutant {
            specimen: self.name.clone(),
            image: self.image.clone(),
            story: Vec::new(),
            fixed: Vec::new(),
        };
        let mut moved = false;
        // Mostly one change: several would hide behind the first that is noticed.
        let changes = if rng.one_in(2) { 1 } else { rng.between(2, 6) };
        let kinds = self.kinds();
        for _ in 0..changes {
            // By kind first: there are many more inodes than journal superblocks.
            let kind = *rng.pick(&kinds);
            let sites: Vec<&Site> = self
                .anatomy
                .sites
                .iter()
                .filter(|s| s.kind == kind)
                .collect();
            let site = *rng.pick(&sites);
            moved |= says_where_all_is(kind);
            change(&self.anatomy, site, &sites, &mut mutant, &mut rng);
        }
        if !moved {
            let fixed = self.anatomy.sites.iter().filter(|site| is_fixed(site.kind));
            mutant.fixed = fixed.map(|site| site.at..site.at + site.len).collect();
        }
        mutant
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.anatomy.sites.iter().map(|site| site.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

/// Whether a structure says where others lie, or brings another one in its place when it is
/// replayed.
fn says_where_all_is(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Superblock
            | Kind::Descriptor
            | Kind::JournalSuperblock
            | Kind::JournalDescriptor
            | Kind::JournalRevoke
            | Kind::JournalCommit
    )
}

fn is_fixed(kind: Kind) -> bool {
    let bitmap = matches!(kind, Kind::BlockBitmap | Kind::InodeBitmap);
    bitmap || matches!(kind, Kind::Superblock | Kind::Descriptor | Kind::Inode)
}

fn change(anatomy: &Anatomy, site: &Site, same: &[&Site], mutant: &mut Mutant, rng: &mut Rng) {
    let record = &mut mutant.image[site.at..site.at + site.len];
    let mut story = format!("{:?} of {} at byte {}", site.kind, site.owner, site.at);
    match rng.below(20) {
        0 => {
            record.fill(0);
            story += ": zeroed";
        }
        1 => {
            let byte = rng.next_u64() as u8;
            let from = rng.below(site.len as u64) as usize;
            let len = rng.between(1, 64) as usize;
            let to = (from + len).min(site.len);
            record[from..to].fill(byte);
            story += &format!(": bytes {from}..{to} = {byte:#x}");
        }
        2 => {
            let from = rng.below(site.len as u64) as usize;
            let to = (from + rng.between(1, 16) as usize).min(site.len);
            rng.fill(&mut record[from..to]);
            story += &format!(": noise in {from}..{to}");
        }
        3 => {
            let other = **rng.pick(same);
            let copy = mutant.image[other.at..other.at + other.len].to_vec();
            put(&mut mutant.image, site.at, &copy);
            story += &format!(": copied from byte {}", other.at);
        }
        4 => {
            let fields = fields_of(site.kind, record);
            if let Some((a, b)) = two_of_one_width(&fields, rng) {
                let (x, y) = (a.at..a.at + a.width, b.at..b.at + b.width);
                let first = record[x.clone()].to_vec();
                record.copy_within(y.clone(), x.start);
                put(record, y.start, &first);
                story += &format!(": swapped {:#x} and {:#x}", a.at, b.at);
            }
        }
        5 => {
            // Every number of one width the same: an indirect block of itself, an endless chain.
            let fields = fields_of(site.kind, record);
            if let Some((first, _)) = two_of_one_width(&fields, rng) {
                let old = value_of(site.kind, record, first);
                let new = new_value(anatomy, site, first, old, rng);
                let width = first.width;
                for field in fields.into_iter().filter(|field| field.width == width) {
                    write(site.kind, record, field, new);
                }
                story += &format!(": all of width {width} are {new:#x}");
            }
        }
        _ => {
            let fields = fields_of(site.kind, record);
            if !fields.is_empty() {
                let field = *rng.pick(&fields);
                let old = value_of(site.kind, record, field);
                let new = new_value(anatomy, site, field, old, rng);
                write(site.kind, record, field, new);
                story += &format!(": {:#x} was {old:#x}, is {new:#x}", field.at);
            }
        }
    }
    if rng.one_in(10) {
        story += " (checksum left wrong)";
    } else {
        anatomy.repair(&mut mutant.image, site);
    }
    mutant.story.push(story);
}

fn write(kind: Kind, record: &mut [u8], field: Field, value: u64) {
    let mut bytes = value.to_le_bytes();
    let bytes = &mut bytes[..field.width];
    if big_endian(kind) {
        bytes.reverse();
    }
    put(record, field.at, bytes);
}

fn two_of_one_width(fields: &[Field], rng: &mut Rng) -> Option<(Field, Field)> {
    if fields.is_empty() {
        return None;
    }
    let a = *rng.pick(fields);
    let same: Vec<Field> = fields
        .iter()
        .filter(|f| f.width == a.width)
        .copied()
        .collect();
    Some((a, *rng.pick(&same)))
}
