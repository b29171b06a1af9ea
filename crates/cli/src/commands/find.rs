//! `extant find`.

use crate::args::{Find, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::record::{Record, letter};
use crate::{glob, size};
use extant::{Bulkstat, FileType, Filesystem, Metadata, Walk, WalkEntry};
use std::collections::HashMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

pub(super) fn run(args: &Find, location: &Whereabouts) -> Outcome {
    let wanted = Wanted::new(args)?;
    let from = ImagePath::parse(&args.path)?;
    let fs = from.open(location)?;
    let mut walk = fs.walk(&from.path).map_err(|e| from.failure(&e))?;
    if from.is_root() && args.max_depth.is_none() && wanted.asks_inodes() {
        leave_out_others(&fs, &wanted, &mut walk);
    } else if args.max_depth.is_none() {
        walk = walk.whole();
    }
    let mut output = Output::new();
    let mut all_done = true;
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                say(in_image(&from.image, &e));
                all_done = false;
                continue;
            }
        };
        if args.max_depth.is_some_and(|most| entry.depth() >= most) {
            walk.skip_children();
        }
        if args.min_depth.is_some_and(|least| entry.depth() < least) || !wanted.takes(&entry) {
            continue;
        }
        if args.json {
            let target = match entry.file_type() {
                FileType::Symlink => Some(entry.read_link().map_err(|e| from.failure(&e))?),
                _ => None,
            };
            let record = Record::new(entry.path_bytes(), &entry.metadata(), target.as_deref());
            output.json_line(&record)?;
        } else if args.print0 {
            output.write_all(entry.path_bytes())?;
            output.write_all(b"\0")?;
        } else {
            output.name_line(entry.path_bytes())?;
        }
    }
    output.finish()?;
    if all_done { Ok(()) } else { Err(Failure::Said) }
}

/// The conditions, all of which must hold.
struct Wanted<'a> {
    args: &'a Find,
    size: Option<Size>,
    perm: Option<Perm>,
}

#[derive(Debug, PartialEq, Eq)]
enum Size {
    Exactly(u64),
    MoreThan(u64),
    LessThan(u64),
}

#[derive(Debug, PartialEq, Eq)]
enum Perm {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl<'a> Wanted<'a> {
    fn new(args: &'a Find) -> Outcome<Self> {
        if let Some(unknown) = args.types.iter().find(|c| !"fdlcbps".contains(**c)) {
            return Err(Failure::usage(format!(
                "--type {unknown} is unknown: use f (file), d (directory), l (symbolic link), c and b \
                 (devices), p (pipe) or s (socket)"
            )));
        }
        let option = |name: &str| {
            let name = name.to_owned();
            move |what: String| Failure::Usage(format!("{name}: {what}"))
        };
        let size = args.size.as_deref().map(parse_size).transpose();
        let perm = args.perm.as_deref().map(parse_perm).transpose();
        Ok(Self {
            args,
            size: size.map_err(option("--size"))?,
            perm: perm.map_err(option("--perm"))?,
        })
    }

    fn takes(&self, entry: &WalkEntry) -> bool {
        let Find {
            name, path_glob, ..
        } = self.args;
        name.as_ref()
            .is_none_or(|pattern| glob::matches(pattern.as_bytes(), entry.file_name().as_bytes()))
            && path_glob
                .as_ref()
                .is_none_or(|pattern| glob::matches(pattern.as_bytes(), entry.path_bytes()))
            && self.takes_inode(&entry.metadata())
    }

    /// Whether there is a condition that an inode answers without its name.
    fn asks_inodes(&self) -> bool {
        let Find {
            types,
            uid,
            gid,
            inum,
            ..
        } = self.args;
        !types.is_empty()
            || uid.or(*gid).or(*inum).is_some()
            || self.size.is_some()
            || self.perm.is_some()
    }

    /// Whether the inode meets the conditions that it alone answers.
    fn takes_inode(&self, metadata: &Metadata) -> bool {
        let Find {
            types,
            uid,
            gid,
            inum,
            ..
        } = self.args;
        // The letters are those of `ls -l`, but for files.
        let type_letter = match letter(metadata.file_type()) {
            '-' => 'f',
            letter => letter,
        };
        let mode = metadata.mode().permissions();
        (types.is_empty() || types.contains(&type_letter))
            && uid.is_none_or(|uid| metadata.uid() == uid)
            && gid.is_none_or(|gid| metadata.gid() == gid)
            && inum.is_none_or(|inum| metadata.ino() == inum)
            && self.size.as_ref().is_none_or(|size| match *size {
                Size::Exactly(size) => metadata.len() == size,
                Size::MoreThan(size) => metadata.len() > size,
                Size::LessThan(size) => metadata.len() < size,
            })
            && self.perm.as_ref().is_none_or(|perm| match *perm {
                Perm::Exactly(bits) => mode == bits,
                Perm::All(bits) => mode & bits == bits,
                Perm::Any(bits) => bits == 0 || mode & bits != 0,
            })
    }
}

/// Looks at all inodes first, which is fast, so that the walk need not read those that are not what
/// is searched. Those that are damaged the walk comes to, and tells where they are.
fn leave_out_others(fs: &Filesystem, wanted: &Wanted<'_>, walk: &mut Walk) {
    let others = fs.bulkstat_fold(Bulkstat::default(), Inodes::default, |others, inode| {
        if let Ok(inode) = inode
            && !inode.is_dir()
            && !wanted.takes_inode(&inode)
        {
            others.add(inode.ino());
        }
    });
    walk.leave_out(move |ino| others.iter().any(|others| others.has(ino)));
}

/// A set of inode numbers, which lie close together.
#[derive(Default)]
struct Inodes {
    /// By the number's upper bits: the lower ones.
    words: HashMap<u32, u64>,
}

impl Inodes {
    fn add(&mut self, ino: u32) {
        *self.words.entry(ino / 64).or_default() |= 1 << (ino % 64);
    }

    fn has(&self, ino: u32) -> bool {
        let word = self.words.get(&(ino / 64)).copied().unwrap_or_default();
        word & 1 << (ino % 64) != 0
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    Ok(match text.as_bytes() {
        [b'+', ..] => Size::MoreThan(size::parse(&text[1..])?),
        [b'-', ..] => Size::LessThan(size::parse(&text[1..])?),
        _ => Size::Exactly(size::parse(text)?),
    })
}

fn parse_perm(text: &str) -> Result<Perm, String> {
    let octal = |digits: &str| {
        u16::from_str_radix(digits, 8)
            .ok()
            .filter(|&bits| bits <= 0o7777)
            .ok_or_else(|| format!("{text:?} is not a mode: write octal digits, such as 755"))
    };
    Ok(match text.as_bytes() {
        [b'-', ..] => Perm::All(octal(&text[1..])?),
        [b'/', ..] => Perm::Any(octal(&text[1..])?),
        _ => Perm::Exactly(octal(text)?),
    })
}
