//! `e2fsck`, and `fsck.ext2`, `fsck.ext3` and `fsck.ext4`.

use super::log::Log;
use super::place::Place;
use super::{getopt, usage, version};
use crate::args::Repair;
use crate::commands::check::{self, Bars};
use crate::commands::exit_codes::{ERRORS, OPERATIONAL};
use crate::commands::{repair, tune};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{ImagePath, how, whole_image};
use crate::output::Output;
use crate::time::{seconds_now, seconds_now_32};
use extant::Escaped;
use extant_format::Pblk;
use extant_format::superblock::{State, Superblock};
use extant_fsck::{Report, Severity};
use std::ffi::OsString;
use std::io::Write;
use std::time::Instant;

/// Everything that was wrong was mended.
const MENDED: u8 = 1;
/// Seconds of a day.
const DAY: u64 = 86_400;
/// How it is called.
const USAGE: &str = "\
Usage: e2fsck [-panyfrtvFV] [-b superblock] [-B blocksize] [-C fd]
\t[-E extended-options] device";

/// What is done about what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It is told.
    Tells,
    /// It is mended, unless something would be lost.
    Preens,
    /// It is mended.
    Mends,
}

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    mode: Option<Mode>,
    is_forced: bool,
    is_verbose: bool,
    is_timed: bool,
    superblock: Option<u64>,
    block_size: Option<u64>,
}

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> Outcome {
    match check(args) {
        // A failure is no finding, and 1 means that all was mended.
        Err(Failure::Failed(text)) => {
            say(text);
            Err(Failure::Code(OPERATIONAL))
        }
        Err(Failure::Said) => Err(Failure::Code(OPERATIONAL)),
        done => done,
    }
}

fn check(args: impl IntoIterator<Item = OsString>) -> Outcome {
    let line = getopt::read("panyrcC:B:dE:fvtFVM:b:j:P:l:L:N:SsDkz:", args)?;
    let mut asked = Asked::default();
    for (letter, value) in line.options {
        if letter == 'V' {
            version("e2fsck");
            return Ok(());
        }
        asked.take(letter, value)?;
    }
    let mut operands = line.operands.into_iter();
    let place = Place::of(operands.next().ok_or_else(|| usage(USAGE))?)?;
    if operands.next().is_some() {
        return Err(usage(USAGE));
    }
    let Some(mode) = asked.mode else {
        say("need terminal for interactive repairs: give -n, -p or -y");
        return Err(Failure::Code(OPERATIONAL));
    };
    if mode != Mode::Preens {
        version("e2fsck");
    }
    let begun = Instant::now();
    let done = look(&place, &asked, mode);
    if asked.is_timed {
        let seconds = begun.elapsed().as_secs_f64();
        say(format_args!("time: {seconds:.2}"));
    }
    done
}

impl Asked {
    fn take(&mut self, letter: char, value: Option<OsString>) -> Outcome {
        let value = value.unwrap_or_default();
        let text = value.to_string_lossy();
        let number = || {
            super::number::integer(&text)
                .ok_or_else(|| Failure::usage(format!("-{letter} {text}: this is no number")))
        };
        let why = match letter {
            'n' => return self.choose(Mode::Tells),
            'p' | 'a' => return self.choose(Mode::Preens),
            'y' => return self.choose(Mode::Mends),
            'f' => {
                self.is_forced = true;
                return Ok(());
            }
            'v' => {
                self.is_verbose = true;
                return Ok(());
            }
            't' => {
                self.is_timed = true;
                return Ok(());
            }
            'b' => {
                self.superblock = Some(number()?);
                return Ok(());
            }
            'B' => {
                self.block_size = Some(number()?);
                return Ok(());
            }
            // No progress is written to a descriptor, hidden at first (below zero) or not.
            'C' => {
                let descriptor = text.strip_prefix('-').unwrap_or(&text);
                let wrong = || Failure::usage(format!("-C {text}: this is no number"));
                return super::number::integer(descriptor)
                    .map(|_| ())
                    .ok_or_else(wrong);
            }
            // Nothing is kept in buffers.
            'F' | 'r' => return Ok(()),
            'D' => {
                // Image builders always ask for it; nothing is wrong without.
                say("-D: directories stay as they are");
                return Ok(());
            }
            'E' => return extended(&text),
            'c' | 'k' | 'l' | 'L' => "bad blocks are not looked for",
            'j' => "`extant check --journal DEVICE` checks with a journal on another device",
            'd' => "what is done is not shown",
            'z' => "undo files of e2undo are not written: `extant repair` writes its own",
            _ => return Err(usage(USAGE)),
        };
        Err(Failure::usage(format!("-{letter}: {why}")))
    }

    fn choose(&mut self, mode: Mode) -> Outcome {
        if self.mode.is_some_and(|chosen| chosen != mode) {
            say("Only one of the options -p/-a, -n or -y may be specified.");
            return Err(Failure::Code(OPERATIONAL));
        }
        self.mode = Some(mode);
        Ok(())
    }
}

fn extended(list: &str) -> Outcome {
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (name, _) = word.split_once('=').unwrap_or((word, ""));
        // Those that ask for nothing to be done, or to be done sooner.
        let known = ["nodiscard", "no_optimize_extents", "readahead_kb"];
        if !known.contains(&name) {
            return Err(Failure::usage(format!(
                "Unknown extended option: {word}; there are {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// Checks, and does what is to be done.
fn look(place: &Place, asked: &Asked, mode: Mode) -> Outcome {
    check_backup(place, asked)?;
    let image = whole_image(place.image())?;
    let device = image.open(&how(&place.location, &image, false));
    drop(device.map_err(Failure::new)?);
    let sb = tune::opened_superblock(place.image(), &place.location);
    let why = match &sb {
        Ok(sb) => due(sb).or_else(|| due_within(place)),
        // A copy of it may be sound.
        Err(_) => Some("has no sound superblock, check forced".to_owned()),
    };
    let name = name_of(place, sb.as_ref().ok());
    if let (Ok(sb), None, false) = (&sb, &why, asked.is_forced) {
        return tell(&format!("{name}: clean, {}", sums(sb)));
    }
    if let Some(why) = why {
        tell(&format!("{name} {why}."))?;
    }
    match mode {
        Mode::Tells => only_tell(place, &name),
        _ => mend(place, asked, mode, &name),
    }
}

/// Refuses a block that has no copy of the superblock. Which copy is the best is found out from all
/// of them.
fn check_backup(place: &Place, asked: &Asked) -> Outcome {
    let Some(block) = asked.superblock else {
        return Ok(());
    };
    let image = whole_image(place.image())?;
    let device = image.open(&how(&place.location, &image, false));
    let device = device.map_err(Failure::new)?;
    let found = extant_fsck::superblock_in_block(&*device, Pblk::new(block));
    let found = found.map_err(Failure::new)?;
    let is_of_size = |size: u64| asked.block_size.is_none_or(|asked| asked == size);
    match found {
        Some((_, size)) if is_of_size(size.bytes().into()) => Ok(()),
        _ => Err(Failure::new(format!(
            "{}: there is no superblock in block {block}",
            place.shown()
        ))),
    }
}

/// Why a file system is to be checked though nobody says so.
fn due(sb: &Superblock) -> Option<String> {
    let raw = sb.raw();
    let (mounts, most) = (raw.mnt_count.get() as i16, raw.max_mnt_count.get() as i16);
    let interval = u64::from(raw.checkinterval.get());
    let since = seconds_now().saturating_sub(sb.last_check());
    Some(if sb.state().contains(State::ERRORS) {
        "contains a file system with errors, check forced".to_owned()
    } else if !sb.state().contains(State::CLEAN) || sb.needs_recovery() {
        "was not cleanly unmounted, check forced".to_owned()
    } else if most > 0 && mounts >= most {
        format!("has been mounted {mounts} times without being checked, check forced")
    } else if interval > 0 && since >= interval {
        let days = since / DAY;
        format!("has gone {days} days without being checked, check forced")
    } else {
        return None;
    })
}

/// Why a file system is to be checked though its superblock does not say so.
fn due_within(place: &Place) -> Option<String> {
    let mut location = place.location.clone();
    location.as_is = true;
    let image = whole_image(place.image()).ok()?;
    let Ok(fs) = ImagePath::root_of(image).open(&location) else {
        return Some("cannot be opened as it is, check forced".to_owned());
    };
    let why = match Log::read(fs.engine()) {
        // Linux notes in the log first why it stopped it.
        Ok(Some(log)) if log.superblock.errno != 0 => {
            "contains a file system with errors, check forced"
        }
        Ok(_) => return None,
        Err(_) => "has a journal that is not sound, check forced",
    };
    Some(why.to_owned())
}

/// The label, or else how the device is called.
fn name_of(place: &Place, sb: Option<&Superblock>) -> String {
    match sb.map(Superblock::label) {
        Some(label) if !label.is_empty() => Escaped(label).to_string(),
        _ => place.shown(),
    }
}

/// What is in use.
fn sums(sb: &Superblock) -> String {
    let inodes = sb.inodes_count();
    let used = inodes.saturating_sub(sb.free_inodes_count());
    let blocks = sb.blocks_count();
    let taken = blocks.saturating_sub(sb.free_blocks_count());
    format!("{used}/{inodes} files, {taken}/{blocks} blocks")
}

/// What is in use after a check, and how much of it is not in one piece.
fn all_sums(sb: &Superblock, report: &Report) -> String {
    let used = sb.inodes_count().saturating_sub(sb.free_inodes_count());
    let tenths = (10_000 * report.totals.fragmented / u64::from(used).max(1) + 5) / 10;
    let share = format!("({}.{}% non-contiguous)", tenths / 10, tenths % 10);
    sums(sb).replacen(" files", &format!(" files {share}"), 1)
}

fn tell(text: &str) -> Outcome {
    let mut output = Output::new();
    writeln!(output, "{text}")?;
    output.finish()
}

fn only_tell(place: &Place, name: &str) -> Outcome {
    let report = check::judge(place.image(), &place.location, false).map_err(Failure::new)?;
    let mut output = Output::new();
    for finding in &report.findings {
        writeln!(output, "{finding}")?;
    }
    let is_clean = report.is_clean();
    if !is_clean {
        writeln!(
            output,
            "\n{name}: ********** WARNING: Filesystem still has errors **********\n"
        )?;
    }
    if let Ok(sb) = tune::opened_superblock(place.image(), &place.location) {
        writeln!(output, "{name}: {}", all_sums(&sb, &report))?;
    }
    output.finish()?;
    if is_clean {
        Ok(())
    } else {
        Err(Failure::Code(ERRORS))
    }
}

/// Mends what is wrong, and notes that the file system was checked.
fn mend(place: &Place, asked: &Asked, mode: Mode, name: &str) -> Outcome {
    let args = Repair {
        image: place.image().to_owned(),
        dry_run: false,
        no_undo: true,
        allow_loss: mode == Mode::Mends,
        discard_journal: mode == Mode::Mends,
        revert: None,
        verbose: false,
        json: false,
        quiet: true,
    };
    let bars = Bars::new("repairing");
    let plan = repair::worked_out(&args, &place.location, &bars).map_err(Failure::new);
    bars.finish();
    let plan = plan?;
    let prefix = match mode {
        Mode::Preens => format!("{name}: "),
        _ => String::new(),
    };
    let mut output = Output::new();
    if plan.may_be_written().is_err() {
        for loss in &plan.losses {
            writeln!(output, "{name}: would be lost: {loss}")?;
        }
        writeln!(
            output,
            "\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\t(i.e., without -a or -p \
             options)"
        )?;
        output.finish()?;
        return Err(Failure::Code(ERRORS));
    }
    for fix in &plan.fixes {
        writeln!(output, "{prefix}{fix}")?;
    }
    for loss in &plan.losses {
        writeln!(output, "{prefix}LOST: {loss}")?;
    }
    let serious = |severity| severity > Severity::Warning;
    let left = plan.left.findings.iter();
    for finding in left.filter(|finding| serious(finding.severity())) {
        writeln!(output, "{prefix}left: {finding}")?;
    }
    output.finish()?;
    let changes = !plan.changes.is_empty().map_err(Failure::new)?;
    if changes {
        plan.apply().map_err(|e| {
            let name = place.shown();
            Failure::new(format!("{name}: {e}. A PART OF THE CHANGES IS WRITTEN"))
        })?;
    }
    // It holds the device.
    let left = plan.left.clone();
    drop(plan);
    ended(place, asked, mode, name, &left, changes)
}

/// Notes a check that left nothing wrong, and tells how it ended.
fn ended(
    place: &Place,
    asked: &Asked,
    mode: Mode,
    name: &str,
    left: &Report,
    changes: bool,
) -> Outcome {
    let is_complete = left.is_clean();
    if is_complete {
        let image = whole_image(place.image())?;
        let device = image.open(&how(&place.location, &image, true));
        let device = device.map_err(Failure::new)?;
        extant_fsck::repair::tune::note_check(&*device, seconds_now_32()).map_err(Failure::new)?;
    }
    let sb = tune::opened_superblock(place.image(), &place.location)?;
    let mut output = Output::new();
    if changes && mode == Mode::Mends {
        writeln!(output, "\n{name}: ***** FILE SYSTEM WAS MODIFIED *****")?;
    }
    if !is_complete {
        writeln!(
            output,
            "\n{name}: ********** WARNING: Filesystem still has errors **********\n"
        )?;
    }
    if asked.is_verbose {
        let totals = left.totals;
        writeln!(
            output,
            "{:>12} inodes used\n{:>12} directories\n{:>12} blocks used\n{:>12} non-contiguous files",
            totals.inodes, totals.directories, totals.blocks, totals.fragmented
        )?;
    }
    writeln!(output, "{name}: {}", all_sums(&sb, left))?;
    output.finish()?;
    match (is_complete, changes) {
        (true, false) => Ok(()),
        (true, true) => Err(Failure::Code(MENDED)),
        (false, _) => Err(Failure::Code(ERRORS)),
    }
}
