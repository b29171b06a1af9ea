//! `extant relabel`.

use super::owners::mount_point;
use crate::args::{Relabel, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::{change_each, change_tree};
use extant::{Escaped, Filesystem, WalkEntry};
use extant_mkfs::tables::contexts::{Contexts, Label, Names};
use std::collections::HashMap;
use std::ffi::OsString;

/// The attribute that holds a context, with a NUL byte at its end.
const ATTRIBUTE: &str = "security.selinux";

pub(super) fn run(args: &Relabel, location: &Whereabouts) -> Outcome {
    let mut contexts = Contexts::read(&args.contexts).map_err(Failure::new)?;
    let mount_point = mount_point(args.mount_point.as_ref())?;
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
            mount_point: &mount_point,
            several: HashMap::new(),
            names: Names::default(),
            failed: None,
        };
        let done = change_tree(fs, at, &at.path, problems, |entry| labels.give(fs, entry));
        for warning in labels.names.sentences() {
            say(format_args!("warning: {warning}"));
        }
        // It is the table's fault, and holds for what follows as well.
        labels.failed.map_or(done, Err)
    })
}

/// Contexts, and what is known of a file system.
struct Labels<'c> {
    contexts: &'c mut Contexts,
    /// What paths begin with.
    mount_point: &'c [u8],
    /// What is said of the first name of files with several.
    several: HashMap<u32, Option<Label>>,
    names: Names,
    failed: Option<Failure>,
}

impl Labels<'_> {
    /// Labels one file by the path of one of its names.
    fn give(&mut self, fs: &Filesystem, entry: &WalkEntry) -> extant::Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        let path = entry.path_bytes();
        let there = match (self.mount_point, path) {
            ([], path) => path.to_vec(),
            (at, b"/") => at.to_vec(),
            (at, path) => [at, path].concat(),
        };
        let found = match self.contexts.label(&there, entry.file_type()) {
            Ok(found) => found,
            Err(e) => {
                self.failed = Some(Failure::new(e));
                return Ok(());
            }
        };
        let metadata = entry.metadata();
        let mut only = None;
        let first = if metadata.nlink() > 1 && !metadata.is_dir() {
            self.several.entry(metadata.ino()).or_default()
        } else {
            &mut only
        };
        let is_first = self.names.note(first, found, || Escaped(path).to_string());
        let (true, Label::Context(context)) = (is_first, found) else {
            return Ok(());
        };
        let value = [self.contexts.text(context), b"\0"].concat();
        if fs.get_xattr(entry.path(), ATTRIBUTE)? == Some(value.clone()) {
            return Ok(());
        }
        fs.set_xattr(entry.path(), ATTRIBUTE, value)
    }
}
