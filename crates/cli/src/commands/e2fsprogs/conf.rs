//! `mke2fs.conf`: sections of settings, of which `[fs_types]` has one for each type of file system
//! and of use. The format is that of the manual page mke2fs.conf(5).

use crate::failure::{Failure, Outcome};
use extant::Escaped;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where the file is if nothing says otherwise.
const PLACE: &str = "/etc/mke2fs.conf";
/// A file that is larger is none.
const LEN_MAX: u64 = 1 << 20;
/// Groups in groups.
const DEPTH_MAX: usize = 8;

/// What holds where there is no file.
const BUILT_IN: &str = "
[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
default_mntopts = acl,user_xattr
enable_periodic_fsck = 0
blocksize = 4096
inode_size = 256
inode_ratio = 16384
[fs_types]
ext3 = {
features = has_journal
}
ext4 = {
features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
small = {
blocksize = 1024
inode_ratio = 4096
}
floppy = {
blocksize = 1024
inode_ratio = 8192
}
big = {
inode_ratio = 32768
}
huge = {
inode_ratio = 65536
}
news = {
inode_ratio = 4096
}
largefile = {
inode_ratio = 1048576
blocksize = -1
}
largefile4 = {
inode_ratio = 4194304
blocksize = -1
}
";

/// A setting, or a group of them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(String),
    Group(Vec<Item>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    name: String,
    value: Value,
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conf {
    sections: Vec<Item>,
}

impl Conf {
    /// Reads the file that `MKE2FS_CONFIG` names, or the system's; where that is not there, what is
    /// built in holds.
    pub(super) fn read() -> Outcome<Self> {
        let named = std::env::var_os("MKE2FS_CONFIG");
        let path = named.map_or_else(|| PathBuf::from(PLACE), PathBuf::from);
        let shown = Escaped::path(&path);
        let text = match text_at(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => BUILT_IN.to_owned(),
            Err(e) => return Err(Failure::new(format!("{shown} cannot be read: {e}"))),
        };
        Self::parse(&text)
            .map_err(|(line, why)| Failure::new(format!("{shown}, line {line}: {why}")))
    }

    /// Reads the text of such a file; an error has the number of its line.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, &'static str)> {
        let mut sections: Vec<Item> = Vec::new();
        // Groups that are open, the section first.
        let mut open: Vec<Item> = Vec::new();
        let mut last = 0;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            last = at + 1;
            let wrong = |why| Err((at + 1, why));
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                let Some((name, _)) = name.split_once(']') else {
                    return wrong("a section's name has no `]` behind it");
                };
                match open.len() {
                    0 => {}
                    1 => sections.extend(open.pop()),
                    _ => return wrong("a group has no `}` before the next section"),
                }
                open.push(group(name));
                continue;
            }
            if line.starts_with('}') {
                let closed = if open.len() > 1 { open.pop() } else { None };
                let Some(closed) = closed else {
                    return wrong("there is no group that `}` could end");
                };
                put(&mut open, closed);
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return wrong("this is no setting: write NAME = VALUE");
            };
            let (name, value) = (name.trim().trim_end_matches('*'), value.trim());
            if open.is_empty() {
                return wrong("this setting is in no section");
            }
            if name.is_empty() {
                return wrong("this setting has no name");
            }
            if value == "{" {
                if open.len() > DEPTH_MAX {
                    return wrong("there are too many groups in groups");
                }
                open.push(group(name));
                continue;
            }
            let value = if let Some(quoted) = value.strip_prefix('"') {
                match unquoted(quoted) {
                    Some(value) => value,
                    None => return wrong("a text has no quotation mark at its end"),
                }
            } else {
                value.to_owned()
            };
            let name = name.to_owned();
            let value = Value::Text(value);
            put(&mut open, Item { name, value });
        }
        if open.len() > 1 {
            return Err((last, "a group has no `}` at its end"));
        }
        sections.extend(open.pop());
        Ok(Self { sections })
    }

    /// A setting in a section itself.
    pub(super) fn setting(&self, section: &str, name: &str) -> Option<&str> {
        self.sections(section).find_map(|items| text(items, name))
    }

    /// The settings of a group in a section.
    fn group(&self, section: &str, group: &str) -> Option<&[Item]> {
        self.sections(section).find_map(|items| {
            items.iter().find_map(|item| match &item.value {
                Value::Group(items) if item.name == group => Some(&**items),
                _ => None,
            })
        })
    }

    /// A setting of a group in a section.
    pub(super) fn setting_in(&self, section: &str, group: &str, name: &str) -> Option<&str> {
        text(self.group(section, group)?, name)
    }

    /// Whether there is a type of this name.
    pub(super) fn has_type(&self, name: &str) -> bool {
        self.group("fs_types", name).is_some()
    }

    fn sections(&self, name: &str) -> impl Iterator<Item = &[Item]> {
        self.sections
            .iter()
            .filter_map(move |item| match &item.value {
                Value::Group(items) if item.name == name => Some(&**items),
                _ => None,
            })
    }
}

/// The settings that hold for a list of types: of the last that says something, or else the
/// defaults.
#[derive(Debug, Clone)]
pub(super) struct Settings<'c> {
    pub(super) conf: &'c Conf,
    pub(super) types: Vec<String>,
}

impl Settings<'_> {
    /// A setting as it is written.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let types = self.types.iter().rev();
        let of_types = types.filter_map(|kind| self.conf.setting_in("fs_types", kind, name));
        of_types.chain(self.conf.setting("defaults", name)).next()
    }

    /// What each of the types says, in their order.
    pub(super) fn of_each(&self, name: &str) -> impl Iterator<Item = &str> {
        self.types
            .iter()
            .filter_map(move |kind| self.conf.setting_in("fs_types", kind, name))
    }

    /// A setting that is read in some way.
    pub(super) fn value<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Outcome<Option<T>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let wrong = || Failure::new(format!("mke2fs.conf: {name} = {text} makes no sense"));
        read(text).map(Some).ok_or_else(wrong)
    }

    /// A setting that is yes or no.
    pub(super) fn flag(&self, name: &str) -> Outcome<Option<bool>> {
        self.value(name, flag)
    }
}

fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" | "t" | "1" | "on" => Some(true),
        "n" | "no" | "false" | "nil" | "0" | "off" => Some(false),
        _ => None,
    }
}

fn text<'i>(items: &'i [Item], name: &str) -> Option<&'i str> {
    items.iter().find_map(|item| match &item.value {
        Value::Text(text) if item.name == name => Some(&**text),
        _ => None,
    })
}

fn group(name: &str) -> Item {
    Item {
        name: name.trim().to_owned(),
        value: Value::Group(Vec::new()),
    }
}

/// Puts something into the innermost group that is open.
fn put(open: &mut [Item], item: Item) {
    if let Some(Item {
        value: Value::Group(items),
        ..
    }) = open.last_mut()
    {
        items.push(item);
    }
}

/// A text behind its quotation mark, up to the next.
fn unquoted(text: &str) -> Option<String> {
    let mut unquoted = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some(unquoted),
            '\\' => unquoted.push(match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                other => other,
            }),
            other => unquoted.push(other),
        }
    }
}

fn text_at(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(LEN_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > LEN_MAX {
        let why = format!("it has more than {LEN_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings<'c>(conf: &'c Conf, types: &[&str]) -> Settings<'c> {
        Settings {
            conf,
            types: types.iter().map(|&kind| kind.to_owned()).collect(),
        }
    }

    #[test]
    fn the_last_type_that_says_something_is_heard() {
        let conf = Conf::parse(BUILT_IN).unwrap();
        let of = |types: &[&str], name| settings(&conf, types).text(name).map(str::to_owned);
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(of(&["ext4", "small"], "blocksize"), is("1024"));
        assert_eq!(of(&["ext4", "default"], "blocksize"), is("4096"));
        assert_eq!(of(&["ext4", "small", "largefile"], "blocksize"), is("-1"));
        assert_eq!(of(&["ext4", "small"], "inode_size"), is("256"));
        assert_eq!(of(&["ext4"], "cluster_size"), None);
        let periodic = settings(&conf, &["ext4"]).flag("enable_periodic_fsck");
        assert!(matches!(periodic, Ok(Some(false))));
        assert!(settings(&conf, &[]).flag("blocksize").is_err());
        assert!(conf.has_type("ext3") && !conf.has_type("ext2"));
    }

    #[test]
    fn texts_may_be_quoted_and_lines_may_be_comments() {
        let text = "# a\n; b\n[defaults]\n\ta = \"x \\\"y\\\"\" z\nb=1\n[o]\ng = {\n h = {\n i=2\n}\n}\n[defaults]\nc*=3\n";
        let conf = Conf::parse(text).unwrap();
        assert_eq!(conf.setting("defaults", "a"), Some("x \"y\""));
        assert_eq!(conf.setting("defaults", "b"), Some("1"));
        assert_eq!(conf.setting("defaults", "c"), Some("3"));
        assert_eq!(conf.setting_in("o", "g", "i"), None);
    }

    #[test]
    fn what_is_no_setting_is_named_with_its_line() {
        for (text, line) in [
            ("a = 1", 1),
            ("[x\n", 1),
            ("[x]\n}\n", 2),
            ("[x]\na = {\n[y]\n", 3),
            ("[x]\na = {\n", 2),
            ("[x]\nword\n", 2),
            ("[x]\na = \"b\n", 2),
            ("[x]\n = b\n", 2),
        ] {
            assert_eq!(Conf::parse(text).map_err(|e| e.0), Err(line), "{text}");
        }
        let deep = format!("[x]\n{}", "a = {\n".repeat(20));
        assert!(Conf::parse(&deep).is_err());
    }
}
