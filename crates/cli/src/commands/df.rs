//! `extant df`.

use crate::args::{Df, DfBy, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::size::human;
use extant::{Bulkstat, FileType, Filesystem, Metadata};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// What is in use, and what is not. Space in bytes.
#[derive(Debug, Serialize)]
struct Usage {
    size: u64,
    used: u64,
    available: u64,
    used_percent: u64,
    inodes: u64,
    used_inodes: u64,
    free_inodes: u64,
    used_inodes_percent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<Vec<Part>>,
}

/// What one owner, group, project or type has.
#[derive(Debug, Serialize)]
struct Part {
    key: String,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Sum {
    files: u64,
    space: u64,
    bytes: u64,
}

pub(super) fn run(args: &Df, location: &Whereabouts) -> Outcome {
    let from = ImagePath::parse(&args.image)?;
    if !from.is_root() {
        return Err(Failure::usage(
            "df shows a whole image: give it without a path; `find IMAGE:/path --json` lists sizes below one",
        ));
    }
    let fs = from.open(location)?;
    let stat = fs.statfs().map_err(|e| from.failure(&e))?;
    let block = u64::from(stat.block_size.bytes());
    let used = stat.blocks.saturating_sub(stat.free);
    let used_inodes = stat.inodes.saturating_sub(stat.free_inodes);
    let mut usage = Usage {
        size: stat.blocks.saturating_mul(block),
        used: used.saturating_mul(block),
        available: stat.available.saturating_mul(block),
        used_percent: percent(used, used.saturating_add(stat.available)),
        inodes: stat.inodes,
        used_inodes,
        free_inodes: stat.free_inodes,
        used_inodes_percent: percent(used_inodes, stat.inodes),
        by: None,
        parts: None,
    };
    let mut all_read = true;
    if let Some(by) = args.by {
        let (parts, errors) = divide(&fs, by);
        for e in errors.iter() {
            say(in_image(&from.image, e));
            all_read = false;
        }
        usage.by = Some(name(by));
        usage.parts = Some(parts);
    }
    let mut output = Output::new();
    if args.json {
        output.json_pretty(&usage)?
    } else {
        print(&mut output, &usage)?
    }
    output.finish()?;
    if all_read { Ok(()) } else { Err(Failure::Said) }
}

/// How much of `whole` a part is, rounded up, as `df` does.
fn percent(part: u64, whole: u64) -> u64 {
    let percent = (u128::from(part) * 100).div_ceil(u128::from(whole.max(1)));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

/// Errors of a walk that are told one by one; a damaged image has any number of them.
const MOST_ERRORS: usize = 20;

/// All files by `by`, largest space first, and what went wrong.
fn divide(fs: &Filesystem, by: DfBy) -> (Vec<Part>, Vec<extant::Error>) {
    type State = (BTreeMap<u32, Sum>, Vec<extant::Error>);
    let own = own_inodes(fs);
    let add = |(sums, errors): &mut State, found: extant::Result<Metadata>| match found {
        Ok(file) if own(file.ino()) => {}
        Ok(file) => {
            let sum = sums.entry(key(by, &file)).or_default();
            sum.files += 1;
            sum.space = sum.space.saturating_add(file.blocks().saturating_mul(512));
            sum.bytes = sum.bytes.saturating_add(file.len());
        }
        Err(e) if errors.len() < MOST_ERRORS => errors.push(e),
        Err(_) => {}
    };
    let states = fs.bulkstat_fold(Bulkstat::default(), State::default, add);
    let (mut sums, mut errors) = (BTreeMap::<u32, Sum>::new(), Vec::new());
    for (part, failed) in states {
        for (key, more) in part {
            let sum = sums.entry(key).or_default();
            sum.files += more.files;
            sum.space = sum.space.saturating_add(more.space);
            sum.bytes = sum.bytes.saturating_add(more.bytes);
        }
        errors.extend(failed);
    }
    errors.truncate(MOST_ERRORS);
    let mut parts: Vec<Part> = sums
        .into_iter()
        .map(|(key, sum)| Part {
            key: match by {
                DfBy::Type => TYPES[key as usize].1.to_owned(),
                _ => key.to_string(),
            },
            sum,
        })
        .collect();
    parts.sort_by_key(|part| std::cmp::Reverse((part.sum.space, part.sum.files)));
    (parts, errors)
}

/// Whether an inode is one of the file system's own, which are no files: the journal, the inode
/// that keeps room for descriptors, quota files, the orphan file.
fn own_inodes(fs: &Filesystem) -> impl Fn(u32) -> bool + Sync {
    let superblock = fs.engine().superblock();
    let first = superblock.first_ino().get();
    let others: Vec<u32> = superblock
        .quota_inodes()
        .into_iter()
        .chain([superblock.orphan_file_ino()])
        .flatten()
        .map(extant_format::Ino::get)
        .collect();
    move |ino| (ino < first && ino != ROOT) || others.contains(&ino)
}

/// The number of the root directory.
const ROOT: u32 = 2;

const TYPES: [(FileType, &str); 7] = [
    (FileType::Regular, "file"),
    (FileType::Directory, "directory"),
    (FileType::Symlink, "symbolic link"),
    (FileType::CharDevice, "character device"),
    (FileType::BlockDevice, "block device"),
    (FileType::Fifo, "pipe"),
    (FileType::Socket, "socket"),
];

/// What a file belongs to; of types the place in [`TYPES`].
fn key(by: DfBy, file: &Metadata) -> u32 {
    match by {
        DfBy::Owner => file.uid(),
        DfBy::Group => file.gid(),
        DfBy::Project => file.project().unwrap_or_default(),
        DfBy::Type => {
            let place = TYPES.iter().position(|(t, _)| *t == file.file_type());
            place.unwrap_or_default() as u32
        }
    }
}

fn name(by: DfBy) -> &'static str {
    match by {
        DfBy::Owner => "owner",
        DfBy::Group => "group",
        DfBy::Type => "type",
        DfBy::Project => "project",
    }
}

fn print(output: &mut Output, usage: &Usage) -> Outcome {
    let row = |output: &mut Output, cells: [&str; 5]| {
        let [what, all, used, free, percent] = cells;
        writeln!(
            output,
            "{what:<8} {all:>12} {used:>12} {free:>12} {percent:>5}"
        )
    };
    row(output, ["", "size", "used", "available", "use"])?;
    row(
        output,
        [
            "space",
            &human(usage.size),
            &human(usage.used),
            &human(usage.available),
            &format!("{}%", usage.used_percent),
        ],
    )?;
    row(
        output,
        [
            "inodes",
            &usage.inodes.to_string(),
            &usage.used_inodes.to_string(),
            &usage.free_inodes.to_string(),
            &format!("{}%", usage.used_inodes_percent),
        ],
    )?;
    let (Some(by), Some(parts)) = (usage.by, &usage.parts) else {
        return Ok(());
    };
    writeln!(
        output,
        "\n{by:<18} {:>12} {:>12} {:>12}",
        "files", "space", "bytes"
    )?;
    for Part { key, sum } in parts {
        writeln!(
            output,
            "{key:<18} {:>12} {:>12} {:>12}",
            sum.files,
            human(sum.space),
            human(sum.bytes)
        )?;
    }
    Ok(())
}
