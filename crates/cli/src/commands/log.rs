//! `extant log`.

use super::rescue;
use crate::args::{Log, Whereabouts};
use crate::failure::Outcome;
use crate::image_path::whole_image;
use crate::output::Output;
use crate::record::{lossless, uuid};
use crate::time::rfc3339;
use extant_format::inode::Timestamp;
use extant_format::jbd2::{BlockType, CompatFeatures, IncompatFeatures, JournalSuperblock};
use extant_format::{Pblk, Tid};
use extant_rescue::{FastCommitTag, ImageView, JournalView, LogState, TransactionView};
use serde::Serialize;
use std::io::Write;

pub(super) fn run(args: &Log, location: &Whereabouts) -> Outcome {
    let image = whole_image(&args.image)?;
    let opened = rescue::open(&image, location)?;
    let view = opened
        .log(args.tid.map(Tid::new), args.block.map(Pblk::new))
        .map_err(|e| rescue::named(&image, e))?;
    let mut output = Output::new();
    if args.json {
        output.json_line(&JournalLine::of(&view.journal))?;
        for found in &view.transactions {
            output.json_line(&TransactionLine::of(found))?;
        }
        for found in &view.fast_commits {
            output.json_line(&FastCommitLine::of(found))?;
        }
    } else {
        journal(&mut output, &view.journal)?;
        for found in &view.transactions {
            transaction(&mut output, found, args.brief)?;
        }
        fast_commits(&mut output, &view.fast_commits, args.brief)?;
    }
    output.finish()
}

#[derive(Serialize)]
struct JournalLine<'a> {
    journal: Superblock<'a>,
}

#[derive(Serialize)]
struct Superblock<'a> {
    external: bool,
    features: Vec<String>,
    uuid: String,
    block_size: u32,
    blocks: u32,
    first: u32,
    sequence: u32,
    start: u32,
    error: i32,
    fast_commit_blocks: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<&'a str>,
}

impl<'a> JournalLine<'a> {
    fn of(view: &'a JournalView) -> Self {
        let sb = &view.superblock;
        let area = sb.area();
        Self {
            journal: Superblock {
                external: view.is_external,
                features: features(sb),
                uuid: uuid(sb.uuid),
                block_size: sb.block_size.bytes(),
                blocks: sb.max_len,
                first: sb.first,
                sequence: sb.sequence.get(),
                start: sb.start,
                error: sb.errno,
                fast_commit_blocks: area.fast_commit_end - area.fast_commit_first,
                damage: view.damage.as_deref(),
            },
        }
    }
}

#[derive(Serialize)]
struct TransactionLine {
    tid: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
    records: Vec<RecordLine>,
    blocks: Vec<ImageLine>,
    revoked: Vec<u64>,
}

#[derive(Serialize)]
struct RecordLine {
    at: u32,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<&'static str>,
    entries: u32,
}

#[derive(Serialize)]
struct ImageLine {
    block: u64,
    at: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<&'static str>,
    escaped: bool,
    used_for: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl TransactionLine {
    fn of(view: &TransactionView) -> Self {
        let records = view.records.iter().map(|record| RecordLine {
            at: record.block,
            kind: record_kind(record.kind),
            checksum: checksum(record.check),
            entries: record.entries,
        });
        Self {
            tid: view.tid.get(),
            state: state(view.state),
            committed: view.committed.map(moment),
            records: records.collect(),
            blocks: view.images.iter().map(ImageLine::of).collect(),
            revoked: view.revoked.iter().map(|block| block.get()).collect(),
        }
    }
}

impl ImageLine {
    fn of(view: &ImageView) -> Self {
        let (path, path_hex) = match view.path.as_deref().map(lossless) {
            Some((text, hex)) => (Some(text), hex),
            None => (None, None),
        };
        Self {
            block: view.image.home.get(),
            at: view.image.at,
            checksum: checksum(view.image.check),
            escaped: view.image.escaped,
            used_for: rescue::used_for(&view.used_for),
            inode: view.used_for.ino().map(extant_format::Ino::get),
            path,
            path_hex,
        }
    }
}

#[derive(Serialize)]
struct FastCommitLine<'a> {
    fast_commit: &'static str,
    at: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode_block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<&'a str>,
}

impl FastCommitLine<'_> {
    fn of(tag: &FastCommitTag) -> Self {
        let (name, name_hex) = tag.entry.as_deref().map(lossless).unzip();
        Self {
            fast_commit: tag.name,
            at: tag.block,
            tid: tag.tid.map(Tid::get),
            inode: tag.ino.map(extant_format::Ino::get),
            parent: tag.parent.map(extant_format::Ino::get),
            name,
            name_hex: name_hex.flatten(),
            inode_block: tag.blocks.map(|(lblk, _)| lblk),
            blocks: tag.blocks.map(|(_, len)| len),
            start: tag.start.map(Pblk::get),
            checksum: tag
                .is_right
                .map(|right| if right { "right" } else { "wrong" }),
        }
    }
}

fn journal(output: &mut Output, view: &JournalView) -> std::io::Result<()> {
    let sb = &view.superblock;
    let area = sb.area();
    let place = if view.is_external {
        "on a device of its own"
    } else {
        "in the file system"
    };
    writeln!(
        output,
        "journal {place}: {} blocks of {} bytes, log in blocks {} to {}",
        sb.max_len,
        sb.block_size.bytes(),
        area.first,
        area.end - 1
    )?;
    let features = features(sb);
    if !features.is_empty() {
        writeln!(output, "features: {}", features.join(" "))?;
    }
    match sb.start {
        0 => writeln!(
            output,
            "clean; the next transaction is {} at least",
            sb.sequence.get()
        )?,
        start => writeln!(
            output,
            "not clean: recovery begins with transaction {} in block {start}",
            sb.sequence.get()
        )?,
    }
    if sb.errno != 0 {
        writeln!(output, "the journal was stopped by error {}", sb.errno)?;
    }
    if let Some(damage) = &view.damage {
        writeln!(output, "damaged: {damage}")?;
    }
    Ok(())
}

fn transaction(output: &mut Output, view: &TransactionView, brief: bool) -> std::io::Result<()> {
    let first = view.records.first().map_or(0, |record| record.block);
    let when = view
        .committed
        .map_or_else(|| "not committed".to_owned(), moment);
    let wrong = view
        .records
        .iter()
        .filter(|r| checksum(r.check) == Some("wrong"));
    let wrong = wrong.count()
        + view
            .images
            .iter()
            .filter(|i| checksum(i.image.check) == Some("wrong"))
            .count();
    write!(
        output,
        "transaction {} ({}), {when}, from journal block {first}: {} blocks",
        view.tid.get(),
        state(view.state),
        view.images.len()
    )?;
    if !view.revoked.is_empty() {
        write!(output, ", {} revoked", view.revoked.len())?;
    }
    if wrong > 0 {
        write!(output, ", {wrong} checksums wrong")?;
    }
    writeln!(output)?;
    if brief {
        return Ok(());
    }
    for record in &view.records {
        writeln!(
            output,
            "  {:>8}  {}{}",
            record.block,
            record_kind(record.kind),
            note(checksum(record.check))
        )?;
    }
    for image in &view.images {
        write!(
            output,
            "  {:>8}  block {}: {}{}",
            image.image.at,
            image.image.home.get(),
            rescue::used_for(&image.used_for),
            note(checksum(image.image.check))
        )?;
        if let Some(path) = &image.path {
            output.write_all(b" ")?;
            output.name(path)?;
        }
        writeln!(output)?;
    }
    for block in &view.revoked {
        writeln!(output, "            block {} revoked", block.get())?;
    }
    Ok(())
}

fn fast_commits(output: &mut Output, tags: &[FastCommitTag], brief: bool) -> std::io::Result<()> {
    if tags.is_empty() {
        return Ok(());
    }
    writeln!(output, "fast commits: {} records", tags.len())?;
    for tag in tags.iter().filter(|tag| !brief && tag.name != "pad") {
        write!(output, "  {:>8}  {}", tag.block, tag.name)?;
        if let Some(tid) = tag.tid {
            write!(output, " of transaction {}", tid.get())?;
        }
        if let Some(ino) = tag.ino {
            write!(output, " inode {}", ino.get())?;
        }
        if let Some((lblk, len)) = tag.blocks {
            write!(
                output,
                " blocks {lblk} to {}",
                u64::from(lblk) + u64::from(len).saturating_sub(1)
            )?;
        }
        if let Some(start) = tag.start {
            write!(output, " at {}", start.get())?;
        }
        if let (Some(parent), Some(name)) = (tag.parent, &tag.entry) {
            write!(output, " in directory {}: ", parent.get())?;
            output.name(name)?;
        }
        if tag.is_right == Some(false) {
            write!(output, ", checksum wrong")?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// What is said of a checksum behind other things.
fn note(checksum: Option<&str>) -> &'static str {
    match checksum {
        Some("wrong") => ", checksum wrong",
        _ => "",
    }
}

fn moment((seconds, nanos): (u64, u32)) -> String {
    rfc3339(Timestamp {
        secs: i64::try_from(seconds).unwrap_or(i64::MAX / 2),
        nanos: nanos.min(999_999_999),
    })
}

const fn state(state: LogState) -> &'static str {
    match state {
        LogState::Waiting => "waiting",
        LogState::Old => "old",
        LogState::Incomplete => "incomplete",
    }
}

const fn record_kind(kind: BlockType) -> &'static str {
    match kind {
        BlockType::Descriptor => "descriptor",
        BlockType::Commit => "commit",
        BlockType::Revoke => "revoke",
        BlockType::SuperblockV1 | BlockType::SuperblockV2 => "superblock",
    }
}

const fn checksum(check: extant_rescue::Check) -> Option<&'static str> {
    match check {
        extant_rescue::Check::Right => Some("right"),
        extant_rescue::Check::Wrong => Some("wrong"),
        extant_rescue::Check::Absent => None,
    }
}

fn features(sb: &JournalSuperblock) -> Vec<String> {
    let bits = (0..32).map(|n| 1_u32 << n);
    let compat = bits.clone().filter(|bit| sb.compat.bits() & bit != 0);
    let incompat = bits.filter(|bit| sb.incompat.bits() & bit != 0);
    let name = |name: Option<&'static str>, bit: u32| {
        name.map_or_else(|| format!("{bit:#x}"), str::to_owned)
    };
    compat
        .map(|bit| name(CompatFeatures::bit_name(bit), bit))
        .chain(incompat.map(|bit| name(IncompatFeatures::bit_name(bit), bit)))
        .collect()
}
