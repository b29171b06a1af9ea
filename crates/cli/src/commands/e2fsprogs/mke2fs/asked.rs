//! The options of mke2fs, each checked by itself.

use super::super::getopt::{self, Line};
use super::super::number::{Length, integer};
use super::super::text_of;
use crate::commands::mkfs::parse_uuid;
use crate::failure::{Failure, Outcome, say};
use extant_format::superblock::ErrorsBehaviour;
use extant_mkfs::FormatOptions;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The letters that there are.
const LETTERS: &str = "b:cd:e:f:g:i:jl:m:no:qr:s:t:vz:C:DE:FG:I:J:KL:M:N:O:R:ST:U:V";
/// Most bytes of a label.
const LABEL_MAX: usize = 16;

/// The size of blocks that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockSizeAsked {
    This(u64),
    AtLeast(u64),
}

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    Usual,
    All,
}

/// What was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) device: PathBuf,
    pub(super) length: Option<Length>,
    pub(super) fs_type: Option<String>,
    pub(super) usage: Option<String>,
    pub(super) block_size: Option<BlockSizeAsked>,
    pub(super) cluster_size: Option<u64>,
    pub(super) blocks_per_group: Option<u64>,
    pub(super) groups_per_flex: Option<u64>,
    pub(super) inode_size: Option<u64>,
    pub(super) inode_ratio: Option<u64>,
    pub(super) inodes: Option<u64>,
    pub(super) reserved_percent: Option<f64>,
    pub(super) errors: Option<ErrorsBehaviour>,
    pub(super) label: Vec<u8>,
    pub(super) last_mounted: Vec<u8>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) features: Vec<String>,
    pub(super) extended: Vec<String>,
    pub(super) has_journal: bool,
    /// MiB of the journal.
    pub(super) journal_size: Option<u64>,
    pub(super) root: Option<PathBuf>,
    pub(super) is_forced: bool,
    pub(super) is_dry: bool,
    pub(super) keeps_blocks: bool,
    pub(super) told: Told,
}

impl Asked {
    /// Reads a command line; `None` if it asks for the version alone.
    pub(super) fn read(args: impl IntoIterator<Item = OsString>) -> Outcome<Option<Self>> {
        let Line { options, operands } = getopt::read(LETTERS, args)?;
        let mut asked = Self::nothing();
        for (letter, value) in options {
            if letter == 'V' {
                return Ok(None);
            }
            asked.take(letter, value)?;
        }
        let mut operands = operands.into_iter();
        asked.device = PathBuf::from(operands.next().ok_or_else(|| Failure::usage(USAGE))?);
        if let Some(text) = operands.next() {
            let shown = text.to_string_lossy();
            let length = text.to_str().and_then(Length::parse);
            asked.length = Some(length.ok_or_else(|| {
                let device = extant::Escaped::path(&asked.device);
                Failure::new(format!("invalid blocks '{shown}' on device '{device}'"))
            })?);
        }
        match operands.next() {
            None => Ok(Some(asked)),
            Some(_) => Err(Failure::usage(USAGE)),
        }
    }

    fn nothing() -> Self {
        Self {
            device: PathBuf::new(),
            length: None,
            fs_type: None,
            usage: None,
            block_size: None,
            cluster_size: None,
            blocks_per_group: None,
            groups_per_flex: None,
            inode_size: None,
            inode_ratio: None,
            inodes: None,
            reserved_percent: None,
            errors: None,
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid: None,
            features: Vec::new(),
            extended: Vec::new(),
            has_journal: false,
            journal_size: None,
            root: None,
            is_forced: false,
            is_dry: false,
            keeps_blocks: false,
            told: Told::Usual,
        }
    }

    fn take(&mut self, letter: char, value: Option<OsString>) -> Outcome {
        if let Some(why) = refused(letter) {
            return Err(Failure::usage(format!("-{letter}: {why}")));
        }
        match letter {
            'd' => self.root = value.map(PathBuf::from),
            'j' => self.has_journal = true,
            'n' => self.is_dry = true,
            'q' => self.told = Told::Nothing,
            'v' => self.told = Told::All,
            'F' => self.is_forced = true,
            'K' => self.keeps_blocks = true,
            // What is written is on the disk when the program ends, with or without.
            'D' => {}
            'L' => self.label = label(value.unwrap_or_default().as_bytes()),
            'M' => self.last_mounted = value.unwrap_or_default().as_bytes().to_vec(),
            _ => self.take_text(letter, &text_of(letter, value)?)?,
        }
        Ok(())
    }

    fn take_text(&mut self, letter: char, text: &str) -> Outcome {
        let invalid = |what: &str| Failure::usage(format!("invalid {what} - {text}"));
        match letter {
            'b' => self.block_size = Some(block_size(text).ok_or_else(|| invalid("block size"))?),
            'C' => {
                let size = Length::parse_bytes(text).ok_or_else(|| invalid("cluster size"))?;
                self.cluster_size = Some(size);
            }
            'g' => {
                let blocks = integer(text).ok_or_else(|| invalid("blocks per group"))?;
                self.blocks_per_group = Some(blocks);
            }
            'G' => {
                let groups = integer(text).ok_or_else(|| invalid("flex_bg size"))?;
                self.groups_per_flex = Some(groups);
            }
            'i' => {
                let ratio = Length::parse_bytes(text).filter(|n| (1024..=1 << 26).contains(n));
                let ratio = ratio.ok_or_else(|| {
                    let limits = "(min 1024/max 67108864)";
                    Failure::usage(format!("invalid inode ratio {text} {limits}"))
                })?;
                self.inode_ratio = Some(ratio);
            }
            'I' => self.inode_size = Some(integer(text).ok_or_else(|| invalid("inode size"))?),
            'N' => {
                let bad = || Failure::usage(format!("bad num inodes - {text}"));
                // None means as many as there usually are.
                self.inodes = Some(integer(text).ok_or_else(bad)?).filter(|n| *n > 0);
            }
            'm' => {
                let percent = text.parse().ok().filter(|p| (0.0..=50.0).contains(p));
                let bad = || invalid("reserved blocks percent");
                self.reserved_percent = Some(percent.ok_or_else(bad)?);
            }
            'e' => self.errors = Some(errors_behaviour(text)?),
            't' => once(&mut self.fs_type, letter, text)?,
            'T' => once(&mut self.usage, letter, text)?,
            'U' => self.uuid = uuid(text)?,
            'O' => self.features.push(text.to_owned()),
            'E' => self.extended.push(text.to_owned()),
            'J' => self.take_journal(text)?,
            'o' if ["linux", "0"].contains(&&*text.to_ascii_lowercase()) => {}
            'o' => {
                let why = "only file systems of Linux are made";
                return Err(Failure::usage(format!("-o {text}: {why}")));
            }
            'r' if text == "1" => {}
            'r' => {
                let why = "only revision 1 is made";
                return Err(Failure::usage(format!("-r {text}: {why}")));
            }
            _ => return Err(Failure::usage(format!("invalid option -- '{letter}'"))),
        }
        Ok(())
    }

    fn take_journal(&mut self, text: &str) -> Outcome {
        self.has_journal = true;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let why = match (name, integer(value)) {
                ("size", Some(size)) => {
                    self.journal_size = Some(size);
                    continue;
                }
                ("size", None) => "this is no number of MiB",
                ("device", _) => "a journal on another device is not made",
                ("location", _) => "where the journal lies is not chosen",
                ("fast_commit_size", _) => "the room for fast commits is a 64th of the journal",
                ("lazy_init", _) => "-E lazy_journal_init says it",
                _ => "there is no such journal option; there is size=MIB",
            };
            return Err(Failure::usage(format!("-J {word}: {why}")));
        }
        Ok(())
    }
}

/// Why an option is not understood, though the real program has it.
fn refused(letter: char) -> Option<&'static str> {
    Some(match letter {
        'c' | 'l' => "bad blocks are not looked for and not left out: use a sound disk",
        'f' => "blocks have no fragments",
        'R' => "this old option is called -E now",
        's' => "this old option is -O sparse_super now, and -O ^sparse_super",
        'S' => "superblocks alone are not written: `extant repair` finds a backup",
        'z' => "there is no undo file of what a new file system writes over",
        _ => return None,
    })
}

fn once(place: &mut Option<String>, letter: char, text: &str) -> Outcome {
    if place.replace(text.to_owned()).is_some() {
        let text = format!("The -{letter} option may only be used once");
        return Err(Failure::usage(text));
    }
    Ok(())
}

fn block_size(text: &str) -> Option<BlockSizeAsked> {
    let is_size = |bytes: &u64| (1024..=65_536).contains(bytes) && bytes.is_power_of_two();
    match text.strip_prefix('-') {
        Some(least) => Length::parse_bytes(least)
            .filter(is_size)
            .map(BlockSizeAsked::AtLeast),
        None => Length::parse_bytes(text)
            .filter(is_size)
            .map(BlockSizeAsked::This),
    }
}

/// A label, cut to what there is room for, which is said.
fn label(given: &[u8]) -> Vec<u8> {
    let cut = given.get(..LABEL_MAX).unwrap_or(given);
    if cut.len() < given.len() {
        let cut = extant::Escaped(cut);
        say(format_args!(
            "Warning: label too long; will be truncated to '{cut}'"
        ));
    }
    cut.to_vec()
}

pub(super) fn errors_behaviour(text: &str) -> Outcome<ErrorsBehaviour> {
    Ok(match text {
        "continue" => ErrorsBehaviour::Continue,
        "remount-ro" => ErrorsBehaviour::RemountReadOnly,
        "panic" => ErrorsBehaviour::Panic,
        _ => return Err(Failure::usage(format!("bad error behavior - {text}"))),
    })
}

/// A UUID; `None` if any will do.
fn uuid(text: &str) -> Outcome<Option<[u8; 16]>> {
    Ok(match text {
        "clear" | "null" => Some([0; 16]),
        "random" | "time" => Some(FormatOptions::new(1 << 30, 0).uuid),
        _ => {
            let parsed = parse_uuid(text);
            let wrong = |_| Failure::usage(format!("could not parse UUID: {text}"));
            Some(parsed.map_err(wrong)?)
        }
    })
}

/// How it is called.
pub(super) const USAGE: &str = "\
Usage: mke2fs [-b block-size] [-C cluster-size] [-i bytes-per-inode]
\t[-I inode-size] [-J journal-options] [-G flex-group-size]
\t[-N number-of-inodes] [-d directory|tarball]
\t[-m reserved-blocks-percentage] [-g blocks-per-group]
\t[-L volume-label] [-M last-mounted-directory] [-O feature[,...]]
\t[-E extended-option[,...]] [-t fs-type] [-T usage-type] [-U UUID]
\t[-e errors-behavior] [-jnqvDFKV] device [blocks-count]";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Asked, String> {
        match Asked::read(args.iter().map(OsString::from)) {
            Ok(Some(asked)) => Ok(asked),
            Ok(None) => Err("the version".to_owned()),
            Err(Failure::Usage(text) | Failure::Failed(text)) => Err(text),
            Err(other) => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn options_are_read_as_mke2fs_does() {
        let asked = read(&[
            "-Fqtext4", "-b4k", "-m", "1.5", "img", "-L", "abc", "-Ofoo", "-O^bar", "20480s", "-e",
            "panic", "-J", "size=8", "-U", "clear", "-D",
        ])
        .unwrap();
        assert_eq!(asked.fs_type.as_deref(), Some("ext4"));
        assert_eq!(asked.block_size, Some(BlockSizeAsked::This(4096)));
        assert_eq!(asked.length, Some(Length::Bytes(10 << 20)));
        assert_eq!(asked.features, ["foo", "^bar"]);
        assert_eq!(asked.journal_size, Some(8));
        assert_eq!(asked.uuid, Some([0; 16]));
        assert_eq!((asked.is_forced, asked.told), (true, Told::Nothing));
        assert_eq!(asked.errors, Some(ErrorsBehaviour::Panic));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (args, said) in [
            (&["-b", "3000", "x"][..], "invalid block size - 3000"),
            (&["-b", "-100", "x"], "invalid block size - -100"),
            (&["-i", "3", "x"], "invalid inode ratio 3"),
            (&["-m", "80", "x"], "invalid reserved blocks percent - 80"),
            (&["-m", "NaN", "x"], "invalid reserved blocks percent - NaN"),
            (&["-N", "x", "x"], "bad num inodes - x"),
            (&["-e", "x", "x"], "bad error behavior - x"),
            (&["-U", "x", "x"], "could not parse UUID: x"),
            (&["-t", "ext4", "-text3", "x"], "may only be used once"),
            (&["-J", "device=/dev/x", "x"], "-J device=/dev/x: "),
            (&["-J", "foo", "x"], "-J foo: "),
            (&["-S", "x"], "-S: "),
            (&["-cc", "x"], "-c: "),
            (&["-o", "hurd", "x"], "-o hurd: "),
            (&["-r", "0", "x"], "-r 0: "),
            (&["x", "10X"], "invalid blocks '10X' on device 'x'"),
            (&[], "Usage: "),
            (&["x", "1", "2"], "Usage: "),
            (&["-V", "x"], "the version"),
        ] {
            let error = read(args).unwrap_err();
            assert!(error.contains(said), "{args:?}: {error}");
        }
    }
}
