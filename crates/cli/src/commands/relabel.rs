//! `extant relabel`.

use crate::args::{Relabel, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::{change_each, change_tree};
use extant::{Escaped, Filesystem, WalkEntry};
use extant_mkfs::tables::Contexts;
use std::collections::HashMap;
use std::ffi::OsString;

/// The attribute that holds a context, with a NUL byte at its end.
const ATTRIBUTE: &str = "security.selinux";

pub(super) fn run(args: &Relabel, location: &Whereabouts) -> Outcome {
    let mut contexts = Contexts::read(&args.contexts).map_err(Failure::new)?;
    let whole = |text: &OsString| {
        let mut text = text.clone();
        // An image alone is all of it.
        if !ImagePath::parse(&text)?.has_path {
            text.push(":/");
        }
        Ok(text)
    };
    let paths = args.paths.iter().map(whole).collect::<Outcome<Vec<_>>>()?;
    change_each(&paths, location, |fs, at, problems| {
        let mut labels = Labels {
            contexts: &mut contexts,
            several: HashMap::new(),
            failed: None,
        };
        let done = change_tree(fs, at, &at.path, problems, |entry| labels.give(fs, entry));
        // It is the table's fault, and holds for what follows as well.
        labels.failed.map_or(done, Err)
    })
}

/// Contexts, and what is known of a file system.
struct Labels<'c> {
    contexts: &'c mut Contexts,
    /// The values of files with several names: the first name decides.
    several: HashMap<u32, Vec<u8>>,
    failed: Option<Failure>,
}

impl Labels<'_> {
    /// Labels one file by the path of one of its names.
    fn give(&mut self, fs: &Filesystem, entry: &WalkEntry) -> extant::Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        let kind = entry.file_type();
        let found = match self.contexts.lookup(entry.path_bytes(), kind) {
            Ok(found) => found,
            Err(e) => {
                self.failed = Some(Failure::new(e));
                return Ok(());
            }
        };
        let Some(context) = found else {
            return Ok(());
        };
        let value = [context, b"\0"].concat();
        let metadata = entry.metadata();
        if metadata.nlink() > 1 && !metadata.is_dir() {
            let first = self
                .several
                .entry(metadata.ino())
                .or_insert_with(|| value.clone());
            if *first != value {
                say(format_args!(
                    "warning: {} has another name with another context, which it keeps",
                    Escaped(entry.path_bytes())
                ));
                return Ok(());
            }
        }
        if fs.get_xattr(entry.path(), ATTRIBUTE)? == Some(value.clone()) {
            return Ok(());
        }
        fs.set_xattr(entry.path(), ATTRIBUTE, value)
    }
}
