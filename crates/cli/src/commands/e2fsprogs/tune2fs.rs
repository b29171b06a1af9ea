//! `tune2fs`.

use super::e2label::cut;
use super::number::integer;
use super::place::Place;
use super::{getopt, header, text_of, usage, version_of};
use crate::commands::journal_device::JournalDevice;
use crate::commands::mkfs::parse_uuid;
use crate::commands::tune;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::size;
use crate::time::{parse_date, seconds_now};
use extant::Escaped;
use extant_format::features::{Compat, Feature};
use extant_format::superblock::{ErrorsBehaviour, Superblock};
use extant_fsck::repair::tune::Settings;
use extant_mkfs::FormatOptions;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// How it is called.
const USAGE: &str = "\
Usage: tune2fs [-c max_mounts_count] [-e errors_behavior] [-f] [-g group]
\t[-i interval[d|m|w]] [-j] [-J journal_options] [-l]
\t[-m reserved_blocks_percent] [-o [^]mount_options[,...]]
\t[-r reserved_blocks_count] [-u user] [-C mount_count]
\t[-L volume_label] [-M last_mounted_dir] [-O [^]feature[,...]]
\t[-Q quota_options] [-E extended-option[,...]]
\t[-T last_check_time] [-U UUID] [-I new_inode_size] device";

/// Settings in the order in which they are told of, whatever the order of options.
const ORDER: &str = "cCegimrTu";

/// Seconds of a day.
const DAY: u64 = 86_400;

/// What was asked for.
#[derive(Debug, Default)]
struct Asked {
    lists: bool,
    is_forced: bool,
    adds_journal: bool,
    percent: Option<f64>,
    /// Where the journal is to lie: a block, or bytes with a unit.
    location: Option<String>,
    /// The device of the journal.
    journal: Option<String>,
    settings: Settings,
    /// What is told of the settings.
    told: Vec<(char, String)>,
}

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> Outcome {
    let line = getopt::read("c:e:fg:i:jlm:o:r:s:u:z:C:E:I:J:L:M:O:Q:T:U:", args)?;
    // This one says it where it says everything.
    let mut output = Output::new();
    writeln!(output, "{}", version_of("tune2fs"))?;
    output.finish()?;
    let asks = !line.options.is_empty();
    let mut asked = Asked::default();
    for (letter, value) in line.options {
        asked.take(letter, value)?;
    }
    let mut operands = line.operands.into_iter();
    let place = Place::of(operands.next().ok_or_else(|| usage(USAGE))?)?;
    if !asks || operands.next().is_some() {
        return Err(usage(USAGE));
    }
    let sb = tune::opened_superblock(place.image(), &place.location)?;
    if asked.adds_journal {
        if sb.has_compat(Compat::HAS_JOURNAL) {
            return Err(Failure::new("The filesystem already has a journal."));
        }
        let journal = Feature::Compat(Compat::HAS_JOURNAL);
        asked.settings.features.push((journal, true));
    }
    if asked.settings.clear_mmp && !asked.is_forced {
        let why = "Error in using clear_mmp. It must be used with -f";
        return Err(Failure::new(why));
    }
    let lists = asked.lists;
    asked.change(&place, &sb)?;
    if !lists {
        return Ok(());
    }
    let sb = tune::opened_superblock(place.image(), &place.location)?;
    let mut output = Output::new();
    header::write(&mut output, &sb)?;
    output.finish()
}

impl Asked {
    fn take(&mut self, letter: char, value: Option<OsString>) -> Outcome {
        if let Some(why) = refused(letter) {
            return Err(Failure::usage(format!("-{letter}: {why}")));
        }
        match letter {
            'l' => self.lists = true,
            'j' => self.adds_journal = true,
            // What is refused stays so, but for `clear_mmp`.
            'f' => self.is_forced = true,
            'L' => self.settings.label = Some(cut(value.unwrap_or_default().as_bytes())),
            'M' => {
                let dir = value.unwrap_or_default().as_bytes().to_vec();
                self.settings.last_mounted = Some(dir);
            }
            _ => self.take_text(letter, &text_of(letter, value)?)?,
        }
        Ok(())
    }

    fn take_text(&mut self, letter: char, text: &str) -> Outcome {
        let bad = |what: &str| Failure::usage(format!("bad {what} - {text}"));
        match letter {
            'c' => {
                let mounts = text.parse().ok().filter(|mounts: &i16| *mounts >= -1);
                let mounts = mounts.ok_or_else(|| bad("mounts count"))?;
                // Never, by both numbers.
                let mounts = if mounts == 0 { -1 } else { mounts };
                self.settings.max_mounts = Some(mounts);
                self.tell('c', format!("Setting maximal mount count to {mounts}"));
            }
            'C' => {
                let mounts = text.parse().map_err(|_| bad("mounts count"))?;
                self.settings.mount_count = Some(mounts);
                self.tell('C', format!("Setting current mount count to {mounts}"));
            }
            'e' => self.take_errors(text)?,
            'i' => {
                let seconds = interval(text).ok_or_else(|| bad("interval"))?;
                self.settings.check_interval = Some(seconds);
                self.tell(
                    'i',
                    format!("Setting interval between checks to {seconds} seconds"),
                );
            }
            'm' => {
                let percent = text.parse().ok().filter(|p| (0.0..=50.0).contains(p));
                self.percent = Some(percent.ok_or_else(|| bad("reserved block ratio"))?);
            }
            'r' => {
                let blocks = integer(text).ok_or_else(|| bad("reserved blocks count"))?;
                self.settings.reserved_blocks = Some(blocks);
                self.tell('r', format!("Setting reserved blocks count to {blocks}"));
            }
            'u' => {
                let uid = id_of(text, "/etc/passwd").ok_or_else(|| bad("uid/user name"))?;
                self.settings.reserved_user = Some(uid);
                self.tell('u', format!("Setting reserved blocks uid to {uid}"));
            }
            'g' => {
                let gid = id_of(text, "/etc/group").ok_or_else(|| bad("gid/group name"))?;
                self.settings.reserved_group = Some(gid);
                self.tell('g', format!("Setting reserved blocks gid to {gid}"));
            }
            'T' => {
                let seconds = moment(text).ok_or_else(|| bad("date/time specifier"))?;
                self.settings.last_check = Some(seconds);
                let shown = header::date(seconds);
                self.tell(
                    'T',
                    format!("Setting time filesystem last checked to {shown}\n"),
                );
            }
            'U' => self.settings.uuid = Some(uuid(text)?),
            'I' => {
                let size = integer(text).and_then(|size| u32::try_from(size).ok());
                let size = size.filter(|size| size.is_power_of_two());
                let size = size.ok_or_else(|| bad("inode size"))?;
                self.settings.inode_size = Some(size);
                self.tell('I', format!("Setting inode size {size}"));
            }
            'o' => self.take_mount_options(text)?,
            'O' => self.take_features(text)?,
            'J' => self.take_journal(text)?,
            'Q' => {
                let kinds = tune::quotas(&[text.to_owned()]);
                self.settings.quotas = kinds.map_err(|_| bad("quota options"))?;
            }
            'E' => self.take_extended(text)?,
            _ => return Err(usage(USAGE)),
        }
        Ok(())
    }

    fn tell(&mut self, letter: char, text: String) {
        self.told.push((letter, text));
    }

    fn take_errors(&mut self, text: &str) -> Outcome {
        let errors = match text {
            "continue" => ErrorsBehaviour::Continue,
            "remount-ro" => ErrorsBehaviour::RemountReadOnly,
            "panic" => ErrorsBehaviour::Panic,
            _ => return Err(Failure::usage(format!("bad error behavior - {text}"))),
        };
        self.settings.errors = Some(errors);
        self.tell(
            'e',
            format!("Setting error behavior to {}", errors.to_raw()),
        );
        Ok(())
    }

    fn take_mount_options(&mut self, list: &str) -> Outcome {
        for (name, on) in tune::switches(&[list.to_owned()]) {
            let option = tune::mount_default(name);
            let option = option.ok_or_else(|| {
                let why = format!("Invalid mount option set: {list} ({name})");
                Failure::usage(why)
            })?;
            self.settings.mount_defaults.push((option, on));
        }
        Ok(())
    }

    fn take_features(&mut self, list: &str) -> Outcome {
        for (name, on) in tune::switches(&[list.to_owned()]) {
            let name = name.strip_prefix('+').unwrap_or(name);
            let feature = Feature::from_name(name).ok_or_else(|| {
                let why = format!("Invalid filesystem option set: {list} ({name})");
                Failure::usage(why)
            })?;
            self.settings.features.push((feature, on));
        }
        Ok(())
    }

    fn take_journal(&mut self, list: &str) -> Outcome {
        self.adds_journal = true;
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let bad = |why: &str| Failure::usage(format!("Bad journal option: {word}: {why}"));
            match word.split_once('=') {
                Some(("size", megabytes)) => {
                    let size = integer(megabytes).and_then(|size| size.checked_mul(1 << 20));
                    let size = size.ok_or_else(|| bad("write how many megabytes"))?;
                    self.settings.journal_size = Some(size);
                }
                Some(("device", device)) => self.journal = Some(device.to_owned()),
                Some(("location", place)) => self.location = Some(place.to_owned()),
                _ => {
                    return Err(bad(
                        "there are size=MEGABYTES, location=BLOCK and device=DEVICE",
                    ));
                }
            }
        }
        Ok(())
    }

    fn take_extended(&mut self, list: &str) -> Outcome {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let bad = |why: &str| Failure::usage(format!("Bad options specified: {word}: {why}"));
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "stride" => {
                    let stride = integer(value).and_then(|n| u16::try_from(n).ok());
                    let stride = stride.ok_or_else(|| bad("use 0 to 65535"))?;
                    self.settings.stride = Some(stride);
                    self.tell('E', format!("Setting stride size to {stride}"));
                }
                "stripe_width" | "stripe-width" => {
                    let width = integer(value).and_then(|n| u32::try_from(n).ok());
                    let width = width.ok_or_else(|| bad("use 0 to 4294967295"))?;
                    self.settings.stripe_width = Some(width);
                    self.tell('E', format!("Setting stripe width to {width}"));
                }
                "mount_opts" => {
                    self.settings.mount_options = Some(value.as_bytes().to_vec());
                    let shown = Escaped(value.as_bytes());
                    self.tell(
                        'E',
                        format!("Setting extended default mount options to '{shown}'"),
                    );
                }
                "test_fs" | "^test_fs" if value.is_empty() => {
                    let on = name == "test_fs";
                    self.settings.for_tests = Some(on);
                    let verb = if on { "Setting" } else { "Clearing" };
                    self.tell('E', format!("{verb} test filesystem flag"));
                }
                "mmp_update_interval" => {
                    let seconds = integer(value).and_then(|n| u16::try_from(n).ok());
                    let seconds = seconds.filter(|seconds| *seconds <= 300);
                    let seconds = seconds.ok_or_else(|| bad("use 0 to 300"))?;
                    // 0 is the usual one.
                    let seconds = if seconds == 0 { 5 } else { seconds };
                    self.settings.mmp_interval = Some(seconds);
                    let unit = if seconds == 1 { "second" } else { "seconds" };
                    self.tell(
                        'E',
                        format!(
                            "Setting multiple mount protection update interval to {seconds} {unit}"
                        ),
                    );
                }
                "hash_alg" => {
                    let hash = tune::hash_named(value);
                    let hash = hash.ok_or_else(|| bad("use legacy, half_md4 or tea"))?;
                    self.settings.hash = Some(hash);
                    self.tell('E', format!("Setting default hash algorithm to {value}"));
                }
                "orphan_file_size" => {
                    let size = crate::size::parse(value);
                    self.settings.orphan_file_size = Some(size.map_err(|e| bad(&e))?);
                }
                "encoding" if value.eq_ignore_ascii_case("utf8") => {}
                "clear_mmp" if value.is_empty() => self.settings.clear_mmp = true,
                "force_fsck" if value.is_empty() => {
                    self.settings.force_check = true;
                    let what = "Setting filesystem error flag to force fsck.";
                    self.tell('E', what.to_owned());
                }
                "encoding" | "encoding_flags" => {
                    return Err(bad("it is not changed"));
                }
                _ => {
                    return Err(bad(
                        "there is no such option; there are stride, stripe_width, mount_opts, \
                         test_fs and ^test_fs",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Makes the changes, and tells of them.
    fn change(mut self, place: &Place, sb: &Superblock) -> Outcome<()> {
        if let Some(percent) = self.percent {
            let blocks = (sb.blocks_count() as f64 * percent / 100.0) as u64;
            self.settings.reserved_blocks = Some(blocks);
            self.tell(
                'm',
                format!("Setting reserved blocks percentage to {percent}% ({blocks} blocks)"),
            );
        }
        if self.settings.inode_size == Some(sb.inode_size()) {
            let why = format!("The inode size is already {}", sb.inode_size());
            return Err(Failure::new(why));
        }
        if let Some(location) = &self.location {
            let shift = sb.block_size().log2();
            let block = integer(location).or_else(|| Some(size::parse(location).ok()? >> shift));
            let bad = || Failure::usage(format!("bad journal location - {location}"));
            self.settings.journal_location = Some(block.ok_or_else(bad)?);
        }
        let Self {
            mut settings,
            mut told,
            journal: device,
            is_forced,
            ..
        } = self;
        if settings == Settings::default() {
            return Ok(());
        }
        let journal = match &device {
            Some(path) => Some(JournalDevice::open(path.as_ref())?),
            None => JournalDevice::of(sb),
        };
        if let Some(journal) = journal.as_ref().filter(|_| device.is_some()) {
            tune::take_journal(&mut settings, journal, sb).map_err(Failure::new)?;
        }
        let has_journal = (Feature::Compat(Compat::HAS_JOURNAL), false);
        let goes = sb.has_external_journal() && settings.features.contains(&has_journal);
        if goes && journal.is_none() && !is_forced {
            return Err(Failure::new(
                "Cannot locate journal device. It was NOT removed\n\
                 Use -f option to remove missing journal device.",
            ));
        }
        tune::change(place.image(), &place.location, &settings, journal.as_ref())?;
        let mut output = Output::new();
        told.sort_by_key(|(letter, _)| ORDER.find(*letter).unwrap_or(ORDER.len()));
        for (_, line) in told {
            writeln!(output, "{line}")?;
        }
        output.finish()
    }
}

/// Why an option is not understood, though the real program has it.
fn refused(letter: char) -> Option<&'static str> {
    Some(match letter {
        's' => "this old option is -O sparse_super now",
        'z' => "undo files of e2undo are not written: `extant tune --undo` writes its own",
        _ => return None,
    })
}

/// Seconds of an interval of days, weeks or months.
fn interval(text: &str) -> Option<u32> {
    let (number, unit) = match text.chars().last()? {
        'd' | 'D' => (text.get(..text.len() - 1)?, DAY),
        'w' | 'W' => (text.get(..text.len() - 1)?, 7 * DAY),
        'm' | 'M' => (text.get(..text.len() - 1)?, 30 * DAY),
        's' | 'S' => (text.get(..text.len() - 1)?, 1),
        _ => (text, DAY),
    };
    u32::try_from(integer(number)?.checked_mul(unit)?).ok()
}

/// A number, or the one of a name in a table of users or groups.
fn id_of(text: &str, table: &str) -> Option<u32> {
    if let Some(number) = integer(text) {
        return u32::try_from(number).ok();
    }
    let table = std::fs::read_to_string(table).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(text);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

/// Seconds since 1970 of `now`, `YYYYMMDD` with `HH`, `MM` and `SS` behind it (UTC), or a number.
fn moment(text: &str) -> Option<u64> {
    if text == "now" {
        return Some(seconds_now());
    }
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits || !(8..=14).contains(&text.len()) || !text.len().is_multiple_of(2) {
        return None;
    }
    let part = |from: usize| text.get(from..from + 2).unwrap_or("00");
    let date = format!(
        "{}-{}-{} {}:{}:{}",
        text.get(..4)?,
        part(4),
        part(6),
        part(8),
        part(10),
        part(12)
    );
    u64::try_from(parse_date(&date).ok()?.secs).ok()
}

fn uuid(text: &str) -> Outcome<[u8; 16]> {
    match text {
        "clear" | "null" => Ok([0; 16]),
        "random" | "time" => Ok(FormatOptions::new(1 << 30, 0).uuid),
        _ => parse_uuid(text).map_err(|_| Failure::usage(format!("Invalid UUID format: {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_intervals_are_read() {
        assert_eq!(moment("19700102"), Some(86_400));
        assert_eq!(moment("20200101"), Some(1_577_836_800));
        assert_eq!(moment("20200101000130"), Some(1_577_836_890));
        for wrong in ["", "2020", "202001011", "20201301", "soon", "2020-01-01"] {
            assert_eq!(moment(wrong), None, "{wrong}");
        }
        assert_eq!(interval("2w"), Some(1_209_600));
        assert_eq!(interval("10"), Some(864_000));
        assert_eq!(interval("1m"), Some(2_592_000));
        for wrong in ["", "1x", "w", "99999999999"] {
            assert_eq!(interval(wrong), None, "{wrong}");
        }
        assert_eq!(id_of("root", "/etc/passwd"), Some(0));
        assert_eq!(id_of("7", "/etc/passwd"), Some(7));
        assert_eq!(id_of("no-such-user", "/etc/passwd"), None);
    }
}
