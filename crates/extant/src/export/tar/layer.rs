//! What differs between two trees, as a layer of a container image.
//!
//! Source: the image specification of the Open Container Initiative, "Image Layer Filesystem
//! Changeset" (`layer.md`).
//!
//! The trees are compared first; then what the layer has is gone through in the order of names. A
//! file with several names comes with all of them if one of them changed, so that no program has to
//! find a name of an older layer for it.

use super::{Archive, Header, Next, TarReport, is_about_the_name, kind, next_of};
use crate::compare::{Aspects, CompareOptions, Exclude, Side, What, Which, compare};
use crate::export::{Progress, data_limit};
use crate::read_dir::join;
use crate::{Cause, Error, FileType, Filesystem, Result, WalkEntry};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a name begins with that takes another one away, and the name that takes away all that a
/// directory had.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// How [`to_layer`] works. Made with [`LayerOptions::default`], changed field by field.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct LayerOptions<'a> {
    /// Threads that compare; 0 for one per processor, and more where a device is far.
    pub threads: usize,
    /// What is left out of the comparison, and of the layer.
    pub exclude: Option<Exclude<'a>>,
    /// Called as the archive is written.
    pub progress: Option<&'a dyn Fn(Progress)>,
}

impl std::fmt::Debug for LayerOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerOptions")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// What a layer is to hold, by paths of the new tree.
#[derive(Default)]
struct Wanted {
    /// Files that changed, and directories of which something else than names did.
    changed: HashSet<PathBuf>,
    /// What is new with all that is below it.
    whole: HashSet<PathBuf>,
    /// Directories in the place of something that was none.
    opaque: HashSet<PathBuf>,
    /// Names that are gone, by their directories.
    gone: HashMap<PathBuf, BTreeSet<Vec<u8>>>,
    /// Directories on the way to what is wanted.
    above: HashSet<PathBuf>,
    /// Files of which one of several names is wanted.
    linked: HashSet<u32>,
}

/// Writes what makes the tree at `path` of the file system out of `base`, as a layer of a container
/// image: a tar archive in the pax format, with a member for each file that is new or differs in
/// any way, and whiteouts for what is gone.
///
/// Members are named from the start on (`etc/hostname`). Directories on the way to a member come
/// before it; where nothing differs the start is the only member. Kept is what
/// [`to_tar`](super::to_tar) keeps; holes are written as zeros, as the specification asks, unless a
/// file has more than a gibibyte of them. The same two trees give the same bytes.
///
/// # Errors
/// When one of the two starts does not exist or is no directory, anything cannot be read, a name is
/// one that layers keep for whiteouts (`.wh.`), of what is gone as well, or writing fails. The
/// archive is then without its end.
pub fn to_layer(
    base: &Side,
    fs: &Filesystem,
    path: impl AsRef<Path>,
    writer: impl Write,
    options: &LayerOptions<'_>,
) -> Result<TarReport> {
    let path = path.as_ref();
    // A link at its end is followed, as it is in the comparison.
    let start = path.join(".");
    let start: &Path = if path == Path::new("/") { path } else { &start };
    let wanted = Wanted::new(base, fs, start, options)?;
    let mut layer = Layer {
        archive: Archive {
            fs: fs.fs(),
            mount: fs.mount(),
            partial: false,
            buffer: Vec::new(),
            writer,
            written: 0,
            linked: HashMap::new(),
            ahead: HashMap::new(),
            data_left: data_limit(fs.fs()),
            without_list: HashSet::new(),
            report: TarReport::default(),
            #[cfg(feature = "verity")]
            verify: false,
            fills_holes: true,
        },
        start,
        wanted: &wanted,
        exclude: options.exclude,
        above: Vec::new(),
        whole: None,
        progress: options.progress,
    };
    let mut walk = fs.walk(start)?.whole();
    while let Some(next) = next_of(&mut walk) {
        match next {
            Next::LeftOut(e) if !is_about_the_name(&e) => return Err(e),
            Next::LeftOut(e) => layer.archive.report.leave_out(e),
            Next::Member(entry) => {
                if !layer.entry(entry)? {
                    walk.skip_children();
                }
            }
        }
    }
    if layer.archive.report.members == 0 {
        layer.make_way_to_start(fs)?;
    }
    // A layer of which anything is missing would take files away.
    if let Some(e) = layer.archive.report.incomplete.pop() {
        return Err(e);
    }
    layer.archive.finish()
}

impl Wanted {
    fn new(base: &Side, fs: &Filesystem, start: &Path, options: &LayerOptions<'_>) -> Result<Self> {
        let mut aspects = Aspects::ALL;
        // There is no place for them in a layer.
        (aspects.projects, aspects.flags) = (false, false);
        let mut how = CompareOptions::new(aspects);
        how.threads = options.threads;
        how.exclude = options.exclude;
        let mut wanted = Self::default();
        let report = compare(base, &Side::image(fs, start), &how, |difference| {
            wanted.note(difference.path, &difference.what);
            ControlFlow::Continue(())
        })?;
        if let Some((_, problem)) = report.problems.into_iter().next() {
            return Err(problem);
        }
        if wanted.whole.contains(Path::new("/")) {
            let cause = Cause::NotKept("a layer is made of two directories");
            return Err(Error::new(start, cause));
        }
        wanted.note_links(fs, start, options.exclude)?;
        Ok(wanted)
    }

    fn note(&mut self, path: PathBuf, what: &What) {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let above = parent.ancestors().map(Path::to_owned);
        // What is above a directory that is known is known, too.
        for dir in above {
            if !self.above.insert(dir) {
                break;
            }
        }
        match what {
            What::OnlyIn(Which::First, _) => self.note_gone(parent, &path),
            What::OnlyIn(Which::Second, _) => {
                self.whole.insert(path);
            }
            What::Kind(_, second) => {
                match second {
                    FileType::Directory => {
                        self.opaque.insert(path.clone());
                    }
                    // No member takes the place of what it was.
                    FileType::Socket => self.note_gone(parent, &path),
                    _ => {}
                }
                self.whole.insert(path);
            }
            _ => {
                self.changed.insert(path);
            }
        }
    }

    fn note_gone(&mut self, parent: &Path, path: &Path) {
        let name = path.file_name().unwrap_or_default();
        let gone = self.gone.entry(parent.to_owned()).or_default();
        gone.insert(name.as_bytes().to_vec());
    }

    /// Finds the files of which one of several names is wanted.
    fn note_links(
        &mut self,
        fs: &Filesystem,
        start: &Path,
        exclude: Option<Exclude<'_>>,
    ) -> Result<()> {
        let mut linked = HashSet::new();
        let at = |path: &Path| join_below(start, path);
        for path in &self.changed {
            let found = fs.symlink_metadata(at(path))?;
            if found.nlink() > 1 && !found.is_dir() {
                linked.insert(found.ino());
            }
        }
        for path in &self.whole {
            let mut walk = fs.walk(at(path))?;
            while let Some(entry) = walk.next() {
                // What cannot be read is told when it is to be written.
                let Ok(entry) = entry else { continue };
                if is_excluded(exclude, &entry, &compared(start, &entry)) {
                    walk.skip_children();
                    continue;
                }
                let found = entry.metadata();
                if found.nlink() > 1 && !found.is_dir() {
                    linked.insert(found.ino());
                }
            }
        }
        self.linked = linked;
        Ok(())
    }
}

/// A path below the start, as compared.
fn join_below(start: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(below) if !below.as_os_str().is_empty() => join(start, below.as_os_str().as_bytes()),
        _ => start.to_owned(),
    }
}

/// The path of an entry as it was compared.
fn compared(start: &Path, entry: &WalkEntry) -> PathBuf {
    let start = start.as_os_str().as_bytes();
    let below = entry.path_bytes().get(start.len()..).unwrap_or(&[]);
    let below = below.strip_prefix(b"/").unwrap_or(below);
    join(Path::new("/"), below)
}

/// Whether the comparison left an entry out, or would have, had it gone there.
fn is_excluded(exclude: Option<Exclude<'_>>, entry: &WalkEntry, path: &Path) -> bool {
    let is_dir = entry.file_type() == FileType::Directory;
    let below = path.strip_prefix("/").unwrap_or(path);
    let is_start = below.as_os_str().is_empty();
    !is_start && exclude.is_some_and(|exclude| exclude(below, is_dir))
}

struct Layer<'a, W> {
    archive: Archive<'a, W>,
    start: &'a Path,
    wanted: &'a Wanted,
    exclude: Option<Exclude<'a>>,
    /// The directories down to the next file, and whether they are in the layer.
    above: Vec<(WalkEntry, bool)>,
    /// How deep the directory lies of which everything is wanted.
    whole: Option<usize>,
    progress: Option<&'a dyn Fn(Progress)>,
}

impl<W: Write> Layer<'_, W> {
    /// Comes to a file. Whether what is below it may be wanted.
    fn entry(&mut self, entry: WalkEntry) -> Result<bool> {
        let depth = entry.depth();
        let is_dir = entry.file_type() == FileType::Directory;
        let path = compared(self.start, &entry);
        if is_excluded(self.exclude, &entry, &path) {
            return Ok(false);
        }
        self.above.truncate(depth);
        if self.whole.is_some_and(|whole| depth <= whole) {
            self.whole = None;
        }
        if self.whole.is_none() && self.wanted.whole.contains(&path) {
            self.whole = Some(depth);
        }
        let found = entry.metadata();
        let is_linked = !is_dir && self.wanted.linked.contains(&found.ino());
        let is_wanted = self.whole.is_some() || is_linked || self.wanted.changed.contains(&path);
        if !is_dir {
            if is_wanted {
                self.make_way()?;
                self.member(&entry)?;
            }
            return Ok(true);
        }
        self.above.push((entry, false));
        let gone = self.wanted.gone.get(&path);
        if is_wanted || gone.is_some() {
            self.make_way()?;
        }
        if self.wanted.opaque.contains(&path) {
            self.whiteout(&path, OPAQUE)?;
        }
        for name in gone.into_iter().flatten() {
            if name.starts_with(WHITEOUT) {
                let at = join_below(self.start, &join(&path, name));
                let cause = Cause::NotKept(
                    "it is gone, and its name is one by which layers take others away, so no layer \
                     can say so",
                );
                return Err(Error::new(at, cause));
            }
            self.whiteout(&path, &[WHITEOUT, name].concat())?;
        }
        Ok(self.whole.is_some()
            || !self.wanted.linked.is_empty()
            || self.wanted.above.contains(&path))
    }

    /// Puts the directories on the way into the layer.
    fn make_way(&mut self) -> Result<()> {
        for index in 0..self.above.len() {
            let Some((dir, is_there)) = self.above.get_mut(index) else {
                break;
            };
            if !std::mem::replace(is_there, true) {
                let dir = dir.clone();
                self.member(&dir)?;
            }
        }
        Ok(())
    }

    /// Puts the start into a layer in which nothing else is: an archive of nothing is taken for no
    /// archive by some programs.
    fn make_way_to_start(&mut self, fs: &Filesystem) -> Result<()> {
        match fs.walk(self.start)?.next() {
            Some(start) => self.member(&start?),
            None => Ok(()),
        }
    }

    fn member(&mut self, entry: &WalkEntry) -> Result<()> {
        let is_start = entry.depth() == 0;
        if !is_start && entry.file_name().as_bytes().starts_with(WHITEOUT) {
            let cause = Cause::NotKept(
                "its name is one by which layers take others away, so no layer can hold it",
            );
            return Err(Error::new(entry.path(), cause));
        }
        let path = compared(self.start, entry);
        let below = path.strip_prefix("/").unwrap_or(&path);
        let mut name = below.as_os_str().as_bytes().to_vec();
        if is_start {
            name.push(b'.');
        }
        if entry.file_type() == FileType::Directory {
            name.push(b'/');
        }
        let before = self.archive.written;
        self.archive.member(entry, &name)?;
        if let Some(tell) = self.progress {
            let bytes = self.archive.written - before;
            tell(Progress::Done { files: 1, bytes });
        }
        Ok(())
    }

    /// Writes an empty file that takes names of a directory away.
    fn whiteout(&mut self, dir: &Path, name: &[u8]) -> Result<()> {
        let path = join(dir, name);
        let below = path.strip_prefix("/").unwrap_or(&path);
        let header = Header {
            path: below.as_os_str().as_bytes(),
            link: b"",
            kind: kind::FILE,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: 0,
            device: (0, 0),
        };
        self.archive.bare(&header)
    }
}
