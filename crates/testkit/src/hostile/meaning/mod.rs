//! Mutants by meaning: images in which one thing is changed to a value that says something, and
//! nothing else.
//!
//! | module | owns |
//! |---|---|
//! | `kinds` | the kinds of image that are changed, and how each is made |
//! | `linux` | what Linux does to some of them first |
//! | `places` | which structures of an image stand for their like, and which of their fields are changed |
//! | `values` | what is written over a field: boundaries, flags one at a time, addresses and numbers of others |
//! | `graph` | changes of several places that belong together: circles, exchanges, copies, shared blocks |
//!
//! The changes of an image are a numbered list, which depends on the image alone. All checksums
//! that a change concerns are put right, also those that begin with what it changes; changes that
//! leave one wrong say so.

mod graph;
mod kinds;
mod linux;
mod places;
mod values;

pub use kinds::{Kind, kinds};

use super::anatomy::{Anatomy, Kind as Structure, Site};
use super::bytes::put;
use super::fields::{Field, Role, big_endian, value_of};
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::path::Path;

/// A valid image and the changes that can be made to it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What kind of image it is.
    pub kind: Kind,
    /// The file system, and behind it the device of its journal where that is another.
    bytes: Vec<u8>,
    /// Where the journal's device begins.
    journal_at: Option<usize>,
    anatomy: Anatomy,
    changes: Vec<Change>,
}

/// An image with one change.
#[derive(Clone, Debug)]
pub struct MeantMutant {
    /// The name of the kind of image.
    pub kind: &'static str,
    /// Which change of that kind.
    pub number: usize,
    /// What is changed, without values: `superblock s_first_ino`.
    pub class: String,
    /// What is changed, in a line.
    pub story: String,
    /// The file system.
    pub image: Vec<u8>,
    /// The device of its journal where that is another.
    pub journal: Option<Vec<u8>>,
}

/// Which checksums are put right after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reseal {
    /// Those of the structures that are changed.
    Changed,
    /// All: the change says how they are made.
    All,
    /// None: a wrong one is the change.
    Nothing,
}

/// A change of an image.
#[derive(Clone, Debug)]
enum Change {
    /// A field of a structure, by its place in the anatomy.
    Field {
        site: usize,
        field: Field,
        value: u64,
        meaning: String,
    },
    /// Bytes here and there.
    Bytes {
        class: String,
        story: String,
        writes: Vec<(usize, Vec<u8>)>,
        sites: Vec<usize>,
        reseal: Reseal,
    },
}

impl Subject {
    /// Makes the image of this kind in `dir`, or takes the one that is there, and lists its
    /// changes.
    ///
    /// # Panics
    ///
    /// When tools or the kernel refuse.
    #[must_use]
    pub fn new(kind: Kind, dir: &Path) -> Self {
        let (mut bytes, journal) = kind.load(dir);
        let mut anatomy = Anatomy::of(&bytes);
        let journal_at = journal.map(|journal| {
            let at = bytes.len();
            bytes.extend(journal);
            anatomy.add_journal(&bytes, at);
            at
        });
        let mut subject = Self {
            kind,
            bytes,
            journal_at,
            anatomy,
            changes: Vec::new(),
        };
        let mut changes = places::changes(&subject);
        changes.extend(graph::changes(&subject));
        changes.retain(|change| subject.is_one(change));
        subject.changes = changes;
        subject
    }

    /// Whether anything is another than before.
    fn is_one(&self, change: &Change) -> bool {
        match change {
            Change::Field { .. } => true,
            Change::Bytes { writes, .. } => writes
                .iter()
                .any(|(at, new)| self.bytes[*at..*at + new.len()] != new[..]),
        }
    }

    /// Returns how many changes there are.
    #[must_use]
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Returns the numbers of `count` changes in whose class `text` is, so that all these classes
    /// have about as many; or of all.
    #[must_use]
    pub fn choose(&self, count: usize, text: &str, rng: &mut Rng) -> Vec<usize> {
        let mut classes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, change) in self.changes.iter().enumerate() {
            let class = self.class_of(change);
            if class.contains(text) {
                classes.entry(class).or_default().push(number);
            }
        }
        let mut classes: Vec<_> = classes.into_values().collect();
        classes.iter_mut().for_each(|class| rng.shuffle(class));
        rng.shuffle(&mut classes);
        let mut chosen = Vec::new();
        while chosen.len() < count && !classes.is_empty() {
            chosen.extend(classes.iter_mut().filter_map(Vec::pop));
            classes.retain(|class| !class.is_empty());
        }
        chosen.truncate(count);
        chosen
    }

    /// Returns the image unchanged, as a mutant.
    #[must_use]
    pub fn unchanged(&self) -> MeantMutant {
        let bytes = self.bytes.clone();
        self.mutant_of(usize::MAX, "nothing".into(), "nothing".into(), bytes)
    }

    /// Returns the image with change `number`.
    ///
    /// # Panics
    ///
    /// When there are not so many.
    #[must_use]
    pub fn mutant(&self, number: usize) -> MeantMutant {
        let change = &self.changes[number];
        let mut bytes = self.bytes.clone();
        let (story, sites, reseal) = match change {
            Change::Field {
                site,
                field,
                value,
                meaning,
            } => {
                let place = &self.anatomy.sites[*site];
                let record = &mut bytes[place.at..place.at + place.len];
                let old = value_of(place.kind, record, *field);
                let mut new = value.to_le_bytes();
                let new = &mut new[..field.width];
                if big_endian(place.kind) {
                    new.reverse();
                }
                put(record, field.at, new);
                let name = name_of(*field);
                let story = format!(
                    "{} {name} := {value:#x}{meaning} (was {old:#x})",
                    self.name(place)
                );
                (story, vec![*site], reseal_after(*field))
            }
            Change::Bytes {
                story,
                writes,
                sites,
                reseal,
                ..
            } => {
                for (at, new) in writes {
                    put(&mut bytes, *at, new);
                }
                (story.clone(), sites.clone(), *reseal)
            }
        };
        match reseal {
            Reseal::Nothing => {}
            Reseal::All => self.anatomy.repair_all(&mut bytes),
            Reseal::Changed => {
                for site in sites {
                    self.anatomy.repair(&mut bytes, &self.anatomy.sites[site]);
                }
            }
        }
        self.mutant_of(number, self.class_of(change), story, bytes)
    }

    fn mutant_of(
        &self,
        number: usize,
        class: String,
        story: String,
        mut bytes: Vec<u8>,
    ) -> MeantMutant {
        let journal = self.journal_at.map(|at| bytes.split_off(at));
        MeantMutant {
            kind: self.kind.name(),
            number,
            class,
            story,
            image: bytes,
            journal,
        }
    }

    fn class_of(&self, change: &Change) -> String {
        match change {
            Change::Bytes { class, .. } => class.clone(),
            Change::Field { site, field, .. } => {
                let site = &self.anatomy.sites[*site];
                let of = match site.kind {
                    Structure::Inode if site.owner < 11 => " of the file system",
                    _ => "",
                };
                format!("{}{of} {}", title(site.kind), field.name)
            }
        }
    }

    fn name(&self, site: &Site) -> String {
        let owner = site.owner;
        match site.kind {
            Structure::Superblock | Structure::Mmp | Structure::JournalSuperblock => {
                title(site.kind).to_owned()
            }
            Structure::Descriptor | Structure::BlockBitmap | Structure::InodeBitmap => {
                format!("{} of group {owner}", title(site.kind))
            }
            Structure::Inode => format!("inode {owner}"),
            _ => {
                let block = site.at / self.anatomy.layout.block;
                format!("{} {block} of inode {owner}", title(site.kind))
            }
        }
    }
}

/// Which checksums a change of this field concerns.
fn reseal_after(field: Field) -> Reseal {
    let is_seed = ["s_uuid", "s_checksum_seed", "i_generation"].contains(&field.name);
    if field.role == Role::Features || is_seed {
        Reseal::All
    } else {
        Reseal::Changed
    }
}

fn name_of(field: Field) -> String {
    match field.nth {
        Some(n) => format!("{} {n}", field.name),
        None => field.name.to_owned(),
    }
}

/// What a structure is called.
const fn title(kind: Structure) -> &'static str {
    match kind {
        Structure::Superblock => "superblock",
        Structure::Descriptor => "descriptor",
        Structure::BlockBitmap => "block bitmap",
        Structure::InodeBitmap => "inode bitmap",
        Structure::Inode => "inode",
        Structure::ExtentNode => "extent node",
        Structure::Indirect => "indirect block",
        Structure::DirLeaf => "directory block",
        Structure::DirRoot => "index root",
        Structure::DirNode => "index node",
        Structure::XattrBlock => "attribute block",
        Structure::Symlink => "target",
        Structure::JournalSuperblock => "journal superblock",
        Structure::JournalDescriptor => "journal descriptor",
        Structure::JournalRevoke => "journal revoke block",
        Structure::JournalCommit => "journal commit block",
        Structure::OrphanFile => "orphan file block",
        Structure::Quota => "quota block",
        Structure::EaValue => "attribute value",
        Structure::Mmp => "mmp block",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::OnceLock;

    /// Some that need no kernel.
    fn subjects() -> &'static [Subject] {
        static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
        SUBJECTS.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let names = ["ext4-1k-groups", "ext3-128", "quotas", "descriptors-128"];
            let kinds = kinds()
                .into_iter()
                .filter(|kind| names.contains(&kind.name()));
            kinds.map(|kind| Subject::new(kind, dir.path())).collect()
        })
    }

    /// The proof that structures are sealed as the features say: doing so again changes nothing.
    #[test]
    fn resealing_all_of_a_valid_image_changes_no_byte() {
        for subject in subjects() {
            let mut bytes = subject.bytes.clone();
            subject.anatomy.repair_all(&mut bytes);
            assert!(bytes == subject.bytes, "{}", subject.kind.name());
        }
    }

    #[test]
    fn a_number_always_makes_the_same_mutant_and_another_image_than_before() {
        for subject in subjects() {
            let mut rng = Rng::new(1);
            let chosen = subject.choose(60, "", &mut rng);
            assert_eq!(chosen.len(), 60);
            let mut others = 0;
            for number in chosen {
                let (a, b) = (subject.mutant(number), subject.mutant(number));
                assert!(a.image == b.image && a.story == b.story);
                others += usize::from(a.image != subject.bytes);
            }
            // But where all that is not zero was the checksum.
            assert!(others > 57, "{}: {others}", subject.kind.name());
        }
    }

    #[test]
    fn changes_are_chosen_from_all_classes() {
        for subject in subjects() {
            let of = |number: &usize| subject.class_of(&subject.changes[*number]);
            let all: BTreeSet<String> = (0..subject.changes()).map(|n| of(&n)).collect();
            let chosen = subject.choose(all.len(), "", &mut Rng::new(2));
            let chosen: BTreeSet<String> = chosen.iter().map(of).collect();
            assert_eq!(chosen, all);
            for class in ["superblock s_first_ino", "list of orphans", "inode i_flags"] {
                assert!(all.contains(class), "{class}");
            }
        }
    }

    #[test]
    fn there_are_more_than_twenty_kinds_with_names_of_their_own() {
        let names: BTreeSet<&str> = kinds().into_iter().map(Kind::name).collect();
        assert_eq!(names.len(), kinds().len());
        assert!(names.len() > 20);
    }
}
