//! Extended options: `-E`, and `options` in `mke2fs.conf`.

use super::super::number::{Length, integer};
use crate::failure::{Failure, Outcome};
use extant_mkfs::words;

/// Seconds between two writes of multiple-mount protection: what is built.
const MMP_INTERVAL: u64 = 5;

/// What extended options ask for; `None` where none does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) stride: Option<u16>,
    pub(super) stripe_width: Option<u32>,
    pub(super) offset: Option<u64>,
    pub(super) resize: Option<Length>,
    pub(super) backups: Option<u32>,
    pub(super) lazy_tables: Option<bool>,
    pub(super) root_owner: Option<(u32, u32)>,
    pub(super) root_mode: Option<u16>,
    pub(super) hash_seed: Option<[u8; 16]>,
    pub(super) discards: Option<bool>,
    /// Quota files of users, groups and projects, where the feature is on.
    pub(super) quotas: Option<[bool; 3]>,
}

impl Extended {
    /// Takes a list of options, over those that were taken before.
    pub(super) fn take(&mut self, list: &str) -> Outcome {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            self.take_one(word)
                .map_err(|why| Failure::usage(format!("Bad option(s) specified: {word}: {why}")))?;
        }
        Ok(())
    }

    /// Takes a setting of `mke2fs.conf` that means what the option of its name does.
    pub(super) fn take_setting(&mut self, name: &str, text: &str) -> Outcome {
        self.take_one(&format!("{name}={text}"))
            .map_err(|why| Failure::new(format!("mke2fs.conf: {name} = {text}: {why}")))
    }

    fn take_one(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let number = || value.and_then(integer).ok_or("this is no number");
        match name {
            "stride" => {
                let stride = u16::try_from(number()?).map_err(|_| "use 0 to 65535")?;
                self.stride = Some(stride);
            }
            "stripe-width" | "stripe_width" => {
                let width = u32::try_from(number()?).map_err(|_| "use 0 to 4294967295")?;
                self.stripe_width = Some(width);
            }
            "offset" => {
                let offset = value.and_then(Length::parse_bytes);
                self.offset = Some(offset.ok_or("this is no number of bytes")?);
            }
            "resize" => {
                let length = value.and_then(Length::parse).ok_or("this is no size")?;
                self.resize = Some(length);
            }
            "num_backup_sb" => match number()? {
                backups @ 0..=2 => self.backups = Some(backups as u32),
                _ => return Err("use 0, 1 or 2".to_owned()),
            },
            "quotatype" => self.quotas = Some(words::quotas(value.unwrap_or_default())?),
            "lazy_itable_init" => self.lazy_tables = Some(is_on(value)?),
            "discard" => self.discards = Some(true),
            "nodiscard" => self.discards = Some(false),
            "root_owner" => self.root_owner = Some(owner(value)?),
            "root_perms" => {
                let digits = value.unwrap_or_default();
                let mode = u16::from_str_radix(digits, 8).ok();
                let mode = mode.filter(|mode| *mode <= 0o7777);
                self.root_mode = Some(mode.ok_or("write octal digits, such as 755")?);
            }
            "hash_seed" => {
                let seed = crate::commands::mkfs::parse_uuid(value.unwrap_or_default())?;
                self.hash_seed = Some(seed);
            }
            "encoding" if value.is_some_and(is_utf8) => {}
            "encoding" => return Err("only utf8 (utf8-12.1) is made".to_owned()),
            "encoding_flags" if value == Some("nostrict") => {}
            "encoding_flags" => return Err("strict names are not made".to_owned()),
            "mmp_update_interval" if [0, MMP_INTERVAL].contains(&number()?) => {}
            "mmp_update_interval" => return Err(format!("it is {MMP_INTERVAL} seconds")),
            // Journals are written in whole, and what reads as zero is known, with or without.
            "lazy_journal_init" | "assume_storage_prezeroed" => {
                is_on(value)?;
            }
            "packed_meta_blocks" if !is_on(value)? => {}
            _ => return Err(unknown(name).to_owned()),
        }
        Ok(())
    }
}

/// Why an option that is left is refused.
fn unknown(name: &str) -> &'static str {
    match name {
        "packed_meta_blocks" => "metadata lies where flex_bg has it",
        "test_fs" => "file systems that are marked for tests are not made",
        "desc-size" | "desc_size" => "the size of descriptors follows from the feature 64bit",
        "orphan_file_size" => "the size of the orphan file follows from that of the file system",
        "no_copy_xattrs" => "attributes of files are copied",
        "android_sparse" => "`extant mkfs --format simg` makes sparse images of Android",
        "revision" => "only revision 1 is made",
        _ => {
            "there is no such option; there are stride, stripe-width, offset, resize, \
             num_backup_sb, lazy_itable_init, lazy_journal_init, packed_meta_blocks, root_owner, \
             root_perms, hash_seed, encoding, encoding_flags, mmp_update_interval, quotatype, \
             discard, nodiscard, assume_storage_prezeroed"
        }
    }
}

fn is_utf8(encoding: &str) -> bool {
    ["utf8", "utf8-12.1"].contains(&encoding)
}

/// A switch, which is on where it has no value.
fn is_on(value: Option<&str>) -> Result<bool, String> {
    match value.map(integer) {
        None => Ok(true),
        Some(Some(number)) => Ok(number != 0),
        Some(None) => Err("use 0 or 1".to_owned()),
    }
}

/// An owner; without one, that of this process.
fn owner(value: Option<&str>) -> Result<(u32, u32), String> {
    let Some(value) = value else {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        return Ok((uid.as_raw(), gid.as_raw()));
    };
    let wrong = || format!("{value:?} is no owner: write UID:GID");
    let (uid, gid) = value.split_once(':').ok_or_else(wrong)?;
    let id = |text: &str| integer(text).and_then(|id| u32::try_from(id).ok());
    Option::zip(id(uid), id(gid)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_one_over_the_other() {
        let mut extended = Extended::default();
        extended.take("stride=4,stripe-width=16,nodiscard").unwrap();
        extended
            .take("stride=8,root_owner=3:4,lazy_itable_init,offset=1M,resize=10G,encoding=utf8")
            .unwrap();
        let expected = Extended {
            stride: Some(8),
            stripe_width: Some(16),
            discards: Some(false),
            root_owner: Some((3, 4)),
            lazy_tables: Some(true),
            offset: Some(1 << 20),
            resize: Some(Length::Bytes(10 << 30)),
            ..Extended::default()
        };
        assert_eq!(extended, expected);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (list, said) in [
            ("stride=1,zz", "zz: there is no such option"),
            ("stride=x", "stride=x: "),
            ("stride", "stride: "),
            ("stride=70000", "stride=70000: "),
            ("num_backup_sb=3", "num_backup_sb=3: "),
            ("packed_meta_blocks=1", "packed_meta_blocks=1: "),
            ("quotatype=all", "quotatype=all: "),
            ("quotatype", "quotatype: "),
            ("root_owner=3", "root_owner=3: "),
            ("encoding=latin1", "encoding=latin1: "),
            ("encoding_flags=strict", "encoding_flags=strict: "),
            ("mmp_update_interval=9", "mmp_update_interval=9: "),
        ] {
            let refused = Extended::default().take(list);
            let Err(Failure::Usage(text)) = refused else {
                panic!("{list}: {refused:?}");
            };
            assert!(text.contains(said), "{text}");
        }
    }
}
