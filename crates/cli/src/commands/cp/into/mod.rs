//! Into an image, from the host or from images.
//!
//! | file | owns |
//! |---|---|
//! | `node` | one file that is to be made, and where it comes from |
//! | `ahead` | files of the host that a thread looks at while the image is being opened |
//! | `plan` | what is to be made, and where: all sources walked before the first change |
//! | `rivals` | sources of which several want one place |
//! | `existing` | which files that are there stay |
//! | `fit` | whether there is room for it |
//! | `content` | the content of a file piece by piece, wherever it comes from |
//! | `large` | that of a large file of the host, for an image behind a server at hand |
//! | `make` | making one file and filling it, beside an older one if there is one |
//! | `threads` | how many threads make files |
//! | `attributes` | giving it what it had besides content |
//! | `tables` | what tables say that it shall have |
//!
//! Directories are made first, by one thread; then files, by all threads; then further names of
//! files that have several; and last the directories get their attributes, children before parents,
//! because making something in them changes their times.
//!
//! # Invariants
//!
//! - A new file is made under its final name and filled there. One that cannot be completed is
//!   removed again.
//! - What takes the place of an older file is made beside it and renamed once it is complete.
//!   Without -a and -p it keeps what the older one had besides content.
//! - A file whose content is there stays, whatever else it could not be given.
//! - What could not be done is said and counted; nothing is left out in silence.

mod ahead;
mod attributes;
mod content;
mod existing;
mod fit;
mod large;
mod make;
mod node;
pub(in crate::commands) mod plan;
mod rivals;
mod tables;
mod threads;

use super::STREAM;
use super::rules::{Exclusion, Follow, existing};
use crate::args::{Cp, Whereabouts};
use crate::commands::owners::Owners;
use crate::failure::{Failure, Outcome, in_image};
use crate::image_path::{ImagePath, shown};
use crate::images::{Images, Problems};
use crate::mode::ModeChange;
use crate::older::{Names, is_aside};
use crate::operands::{expand, expand_one};
use crate::owner::{Owner, OwnerSpec};
use crate::path::{destination, follow, is_dir};
use crate::progress::Bar;
use crate::verbose::Verbose;
use ahead::Ahead;
use extant::{Cause, Escaped, FileFlags, FileType, Filesystem};
use extant_core::ops;
use extant_image::Carrier;
use extant_mkfs::source;
use make::{Maker, Why};
use plan::{How, Link, Node, Plan, Start};
use rivals::Rivals;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use threads::Threads;

/// What is kept besides names, content, holes and symbolic links.
#[derive(Debug, Clone, Copy)]
struct Keep {
    /// Mode, owner and times; and what is in the way is replaced and not written into.
    attributes: bool,
    /// Hard links and devices.
    everything: bool,
    /// Extended attributes, access control lists among them.
    xattrs: bool,
    /// The owner to give in any case.
    owner: Option<Owner>,
    /// Whether permissions were asked for, which all files get that have any.
    sets_mode: bool,
    /// Whether a file in the way is removed before the new one is made.
    removes_first: bool,
}

pub(super) fn run(
    args: &Cp,
    location: &Whereabouts,
    sources: &[OsString],
    dest: &ImagePath,
    verbose: &Verbose,
) -> Outcome {
    let owner = OwnerSpec::of_options(args.owner.as_deref(), args.group.as_deref());
    let owner = owner.map_err(Failure::usage)?;
    let mode = args.mode.as_deref().map(ModeChange::parse).transpose();
    let mode = mode.map_err(Failure::usage)?;
    let streams = sources.iter().filter(|source| *source == STREAM).count();
    if streams > 1 || streams == 1 && !args.owners.is_empty() {
        return Err(Failure::usage(
            "standard input can be read once: name `-` once, and no tables with it",
        ));
    }
    let is_from_host =
        |source: &OsString| ImagePath::inside_if_any(source).map(|place| place.is_none());
    let from_host = sources
        .iter()
        .map(is_from_host)
        .collect::<Outcome<Vec<_>>>()?;
    if (args.archive || args.preserve) && from_host.contains(&true) {
        extant_host::refuse_if_unheard().map_err(Failure::new)?;
    }
    if !args.owners.is_empty() && (!args.archive || args.no_xattrs) {
        return Err(Failure::usage(
            "--owners, --map-ids and --contexts say what files have that -a keeps: give -a, and \
             not --no-xattrs",
        ));
    }
    let mut owners = Owners::read(&args.owners)?;
    let keep = Keep {
        attributes: args.archive || args.preserve,
        everything: args.archive,
        xattrs: args.archive && !args.no_xattrs,
        owner: None,
        sets_mode: mode.is_some(),
        removes_first: args.remove_destination,
    };
    let asked = Asked {
        args,
        owner,
        mode,
        exclusion: Exclusion::new(&args.exclude)?,
        verbose,
    };
    let mut images = Images::new(location);
    let done = all(&asked, keep, &mut owners, &mut images, sources, dest);
    images.close(done)
}

/// What was asked for, checked.
struct Asked<'a> {
    args: &'a Cp,
    owner: Option<OwnerSpec>,
    mode: Option<ModeChange>,
    exclusion: Exclusion,
    verbose: &'a Verbose,
}

fn all(
    asked: &Asked<'_>,
    mut keep: Keep,
    owners: &mut Owners,
    images: &mut Images<'_>,
    sources: &[OsString],
    dest: &ImagePath,
) -> Outcome {
    let mut ahead = looks_ahead(asked, sources, dest);
    // First, so that an image which is a source as well is opened once.
    let fs = images.writable(dest)?;
    let dest = &expand_one(&fs, dest)?;
    let args = asked.args;
    let into = is_dir(&fs, &dest.path).map_err(|e| dest.failure(&e))?;
    if args.target_directory.is_some() && !into {
        return Err(Failure::new(format!(
            "{} is no directory to copy into: make it first with `extant mkdir`",
            dest.shown(),
        )));
    }
    if let Some(spec) = &asked.owner {
        keep.owner = Some(spec.look_up(&fs).map_err(Failure::new)?);
    }
    let mut problems = Problems::default();
    let how = How {
        is_recursive: args.archive || args.recursive,
        follow: Follow::of(args),
        exclusion: &asked.exclusion,
        mode: asked.mode.as_ref(),
        spares: args.no_clobber.then_some(&fs),
    };
    let mut starts = Vec::new();
    for source in sources {
        match start(images, source, &fs, how.follow) {
            Ok(found) => starts.extend(found),
            Err(failure) => problems.note(failure),
        }
    }
    let count = starts.len().max(sources.len());
    if count > 1 && (args.no_target_directory || !into) {
        return Err(Failure::new(format!(
            "{} is not a directory, so it cannot take {count} files: make it first with `extant mkdir`",
            dest.shown(),
        )));
    }
    let threads = Threads::of(args.threads.count, &fs, &starts);
    let mut plan = Plan::new(how, keep, images.files());
    let place =
        |start: &Start| destination(&dest.path, into, args.no_target_directory, start.name());
    plan.meet(Rivals::of(
        starts.iter().map(place).collect(),
        existing(args),
    ));
    for start in starts {
        let planned = (|| {
            if into && !args.no_target_directory && matches!(start, Start::Input) {
                return Err(Failure::new(format!(
                    "standard input has no name of its own: write {}/NAME",
                    dest.shown()
                )));
            }
            let to = place(&start);
            refuse_into_itself(&fs, &start, dest, &to)?;
            plan.add(&start, to, &mut ahead, &mut problems)
        })();
        problems.check(planned);
    }
    existing::leave(&mut plan, &fs, existing(args));
    if !owners.is_empty() {
        // Tables are stronger than an owner for all.
        let owner = keep.owner.take().map(for_all).transpose()?;
        tables::tell(&mut plan, owners, owner, &fs, &dest.image)?;
    }
    fit::check(&plan, &fs, dest)?;
    ops::making_ahead(fs.engine(), plan.dirs.len(), plan.files.len());
    let copy = Copy {
        fs: &fs,
        dest,
        keep,
        plan: &plan,
        bar: Bar::new("copying"),
        stop: AtomicBool::new(false),
        tight: Mutex::new(()),
        names: Names::default(),
        failed: Mutex::default(),
        threads,
        verbose: asked.verbose,
        place_of: None,
    };
    copy.bar.total(plan.bytes);
    copy.run(&mut problems);
    copy.bar.finish();
    if !owners.is_empty() {
        let all = plan.dirs.iter().chain(&plan.files);
        let all = all.filter(|node| fs.symlink_metadata(&node.to).is_ok());
        set_flags(
            &fs,
            dest,
            all.map(|node| (node, node.to.clone())),
            &mut problems,
        );
    }
    problems.outcome()
}

/// Has a thread look at the sources while an image is being opened that is not at hand: `None`
/// where there is nothing to gain, or links may lead elsewhere.
fn looks_ahead(asked: &Asked<'_>, sources: &[OsString], dest: &ImagePath) -> Option<Ahead> {
    let is_recursive = asked.args.archive || asked.args.recursive;
    let is_at_hand =
        dest.image.path().is_some() || matches!(dest.image.carrier(), Carrier::Descriptor(_));
    if is_at_hand || !is_recursive || Follow::of(asked.args) != Follow::None {
        return None;
    }
    let is_of_host = |source: &&OsString| {
        *source != STREAM && matches!(ImagePath::inside_if_any(source), Ok(None))
    };
    let roots: Vec<PathBuf> = sources
        .iter()
        .filter(is_of_host)
        .map(PathBuf::from)
        .collect();
    if roots.is_empty() {
        return None;
    }
    Ahead::begin(roots, asked.exclusion.clone())
}

/// An owner as tables take it.
fn for_all(owner: Owner) -> Outcome<source::Owner> {
    match owner.uid {
        Some(uid) => Ok(source::Owner {
            uid,
            gid: owner.gid,
        }),
        None => Err(Failure::usage(
            "--group by itself does not go with tables: say --owner USER:GROUP",
        )),
    }
}

/// Files of trees that are put into an image.
pub(in crate::commands) struct OfTrees<'a> {
    pub(in crate::commands) fs: &'a Filesystem,
    pub(in crate::commands) dest: &'a ImagePath,
    /// Threads; 0 for as many as are worth having.
    pub(in crate::commands) threads: usize,
    pub(in crate::commands) verbose: &'a Verbose,
    /// What messages call the place of a file that goes elsewhere in the end.
    pub(in crate::commands) place_of: PlaceOf<'a>,
}

impl OfTrees<'_> {
    /// Makes what is planned. What could not be made is said.
    pub(in crate::commands) fn make(&self, plan: &Plan) -> Problems {
        ops::making_ahead(self.fs.engine(), plan.dirs.len(), plan.files.len());
        self.with(plan, |copy, problems| {
            copy.bar.total(plan.bytes);
            copy.run(problems);
        })
    }

    /// Gives the directories of a plan, which are there, what it says of them.
    pub(in crate::commands) fn describe(&self, plan: &Plan) -> Problems {
        let made = vec![Made::Found; plan.dirs.len()];
        self.with(plan, |copy, problems| {
            copy.directory_attributes(&made, problems)
        })
    }

    fn with(&self, plan: &Plan, work: impl FnOnce(&Copy<'_>, &mut Problems)) -> Problems {
        let mut problems = Problems::default();
        let copy = Copy {
            fs: self.fs,
            dest: self.dest,
            keep: Keep::all(),
            plan,
            bar: Bar::new("applying"),
            stop: AtomicBool::new(false),
            tight: Mutex::new(()),
            names: Names::default(),
            failed: Mutex::default(),
            threads: Threads::of(self.threads, self.fs, &[]),
            verbose: self.verbose,
            place_of: Some(self.place_of),
        };
        work(&copy, &mut problems);
        copy.bar.finish();
        problems
    }
}

/// Gives files the flags of `chattr` that trees say, once everything else is done: some forbid
/// every change.
pub(in crate::commands) fn set_flags<'n>(
    fs: &Filesystem,
    dest: &ImagePath,
    nodes: impl Iterator<Item = (&'n Node, PathBuf)>,
    problems: &mut Problems,
) {
    for (node, at) in nodes {
        let Some(told) = &node.told else {
            continue;
        };
        let flags = match told.tree.flags(told.id) {
            Ok(flags) => FileFlags::from_bits_retain(flags),
            Err(e) => {
                problems.note(Failure::new(e));
                continue;
            }
        };
        if flags.is_empty() || node.file_type == FileType::Symlink {
            continue;
        }
        if let Err(e) = fs.set_flags(&at, flags, FileFlags::empty()) {
            problems.note(dest.failure(&e));
        }
    }
}

impl Keep {
    /// All that there is.
    const fn all() -> Self {
        Self {
            attributes: true,
            everything: true,
            xattrs: true,
            owner: None,
            sets_mode: false,
            removes_first: false,
        }
    }
}

/// Where to start: at a file of the host, or at those in an image that a source stands for.
fn start(
    images: &mut Images<'_>,
    source: &OsString,
    dest: &Filesystem,
    links: Follow,
) -> Outcome<Vec<Start>> {
    if source == STREAM {
        return Ok(vec![Start::Input]);
    }
    let Some(at) = ImagePath::inside_if_any(source)? else {
        return Ok(vec![Start::Host(PathBuf::from(source))]);
    };
    let fs = images.readable(&at)?;
    let is_dest = Arc::ptr_eq(fs.engine(), dest.engine());
    let places = expand(&fs, &at)?.into_iter();
    places
        .map(|from| {
            let path = if links.follows_named() {
                // What a symbolic link leads to; its name is that of the link.
                follow(&fs, &from.path).map_err(|e| from.failure(&e))?
            } else {
                from.path.clone()
            };
            Ok(Start::Image {
                is_dest,
                from,
                fs: fs.clone(),
                path,
            })
        })
        .collect()
}

/// A directory cannot be copied into itself: there would be no end to it.
fn refuse_into_itself(fs: &Filesystem, start: &Start, dest: &ImagePath, to: &Path) -> Outcome {
    let Start::Image {
        path,
        is_dest: true,
        ..
    } = start
    else {
        return Ok(());
    };
    let fail = |e: extant::Error| dest.failure(&e);
    let source = fs.symlink_metadata(path).map_err(fail)?;
    if !source.is_dir() {
        return Ok(());
    }
    let mut at = if is_dir(fs, to).map_err(fail)? {
        to.to_owned()
    } else {
        to.parent().unwrap_or(Path::new("/")).to_owned()
    };
    loop {
        let number = match fs.metadata(&at) {
            Ok(found) => found.ino(),
            // Then nothing can be made there either, which is said when it is tried.
            Err(_) => return Ok(()),
        };
        if number == source.ino() {
            return Err(Failure::new(format!(
                "{} is not copied into itself",
                Escaped::path(path)
            )));
        }
        let above = at.join("..");
        if fs.metadata(&above).map_err(fail)?.ino() == number {
            return Ok(());
        }
        at = above;
    }
}

/// One copy on its way.
struct Copy<'a> {
    fs: &'a Filesystem,
    dest: &'a ImagePath,
    keep: Keep,
    plan: &'a Plan<'a>,
    bar: Bar,
    /// Set when going on makes no sense, such as on a full image.
    stop: AtomicBool,
    /// Held by a thread that takes what room is left.
    tight: Mutex<()>,
    /// Names of files of the image that have several.
    names: Names,
    threads: Threads,
    verbose: &'a Verbose,
    /// Places of files whose content was not copied.
    failed: Mutex<HashSet<PathBuf>>,
    /// What messages call the place of a file that goes elsewhere in the end.
    place_of: Option<PlaceOf<'a>>,
}

/// Gives the place that a file has in the end.
type PlaceOf<'a> = &'a (dyn Fn(&Path) -> PathBuf + Sync);

/// What became of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Not,
    New,
    Found,
}

impl Copy<'_> {
    fn run(&self, problems: &mut Problems) {
        let made = self.directories(problems);
        let todo: Vec<&Node> = self
            .plan
            .files
            .iter()
            .filter(|node| is_above_made(&made, node.parent))
            .collect();
        let (late, todo): (Vec<&Node>, Vec<&Node>) = todo.iter().partition(|node| node.late > 0);
        self.files(&todo, &made, problems);
        let links = self.plan.links.iter();
        let links = links.filter(|link| is_above_made(&made, link.parent));
        let (late_links, links): (Vec<&Link>, Vec<&Link>) = links.partition(|link| link.late > 0);
        for link in links {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.further_name(link, problems);
        }
        let mut late: Vec<(usize, Result<&Node, &Link>)> = late
            .into_iter()
            .map(|node| (node.late, Ok(node)))
            .chain(late_links.into_iter().map(|link| (link.late, Err(link))))
            .collect();
        late.sort_by_key(|(number, _)| *number);
        for (_, made_late) in late {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            match made_late {
                Ok(node) => self.files(&[node], &made, problems),
                Err(link) => self.further_name(link, problems),
            }
        }
        self.directory_attributes(&made, problems);
    }

    /// Gives a file one more name, if it has the first.
    fn further_name(&self, link: &Link, problems: &mut Problems) {
        // What may be there under the first name is another file.
        if self.failed().contains(&link.first) {
            self.problem(
                &link.to,
                Why::ImagePath("its content could not be copied under its first name"),
                problems,
            )
        } else {
            self.link(link, problems)
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        // Nothing is done under the lock that could leave it poisoned.
        self.failed.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn maker(&self) -> Maker<'_> {
        Maker::new(
            self.fs,
            self.keep,
            &self.bar,
            &self.tight,
            &self.names,
            self.threads.most(self.plan.files.len()),
        )
    }

    /// An error as one about a file of the destination.
    fn about(&self, to: &Path, e: &extant::Error) -> String {
        let (image, to) = (shown(&self.dest.image), Escaped::path(to));
        match e.cause() {
            Cause::Image(cause) => format!("{image}:{to}: {cause}"),
            _ => format!("{image}:{to}: {e}"),
        }
    }

    /// Says what could not be done, and whether to stop.
    fn problem(&self, to: &Path, why: Why, problems: &mut Problems) {
        if why.is_final() {
            self.stop.store(true, Ordering::Relaxed);
        }
        let made_at = to;
        let place = self.place_of.map(|place_of| place_of(to));
        let to = place.as_deref().unwrap_or(to);
        let is_elsewhere =
            |path: &Path| is_aside(path) || path != to && path.parent() == made_at.parent();
        problems.note(Failure::new(match why {
            // Made under another name first.
            Why::Image(e) if is_elsewhere(e.path()) => self.about(to, &e),
            Why::Image(e) => in_image(&self.dest.image, &e),
            Why::NoRoom(e, what) => format!("{}{}", self.about(to, &e), what.advice(self.fs)),
            Why::Incomplete(lacking) => format!(
                "{}:{}: copied without {}",
                shown(&self.dest.image),
                Escaped::path(to),
                lacking.what.join(", ")
            ),
            Why::Source(text) => text,
            Why::TooLarge(why) => {
                format!("{}:{}: {why}", shown(&self.dest.image), Escaped::path(to))
            }
            Why::ImagePath(text) => {
                format!("{}:{}: {text}", shown(&self.dest.image), Escaped::path(to))
            }
        }));
    }

    /// Makes all directories. What is below one that cannot be made is left out with it.
    fn directories(&self, problems: &mut Problems) -> Vec<Made> {
        let maker = self.maker();
        let mut made: Vec<Made> = Vec::with_capacity(self.plan.dirs.len());
        for node in &self.plan.dirs {
            let stopped = self.stop.load(Ordering::Relaxed);
            let how = if stopped || !is_above_made(&made, node.parent) {
                Made::Not
            } else {
                match maker.directory(node) {
                    Ok(true) => {
                        self.tell(node);
                        Made::New
                    }
                    Ok(false) => Made::Found,
                    Err(why) => {
                        self.problem(&node.to, why, problems);
                        Made::Not
                    }
                }
            };
            made.push(how);
        }
        made
    }

    /// Makes all files, by several threads.
    fn files(&self, todo: &[&Node], made: &[Made], problems: &mut Problems) {
        let next = AtomicUsize::new(0);
        let shared = Mutex::new(std::mem::take(problems));
        let work = || {
            let mut maker = self.maker();
            while !self.stop.load(Ordering::Relaxed) {
                let Some(node) = todo.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return;
                };
                let made = maker.file(node);
                if matches!(made, Ok(()) | Err(Why::Incomplete(_))) {
                    self.tell(node);
                }
                if let Err(why) = made {
                    if !matches!(why, Why::Incomplete(_)) {
                        self.failed().insert(node.to.clone());
                    }
                    // Nothing is done under the lock that could leave it poisoned.
                    let mut problems = shared.lock().unwrap_or_else(|e| e.into_inner());
                    self.problem(&node.to, why, &mut problems);
                }
                ops::write_behind(self.fs.engine());
            }
        };
        let threads = self
            .threads
            .for_files(todo.len(), || self.reads(todo, made));
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        *problems = shared.into_inner().unwrap_or_else(|e| e.into_inner());
    }

    /// How many blocks of directories that were there before are read for files at most.
    fn reads(&self, todo: &[&Node], made: &[Made]) -> usize {
        let mut files: HashMap<&Path, u64> = HashMap::new();
        let is_there = |node: &&&Node| !is_made_here(made, node.parent);
        for dir in todo
            .iter()
            .filter(is_there)
            .filter_map(|node| node.to.parent())
        {
            *files.entry(dir).or_default() += 1;
        }
        let block = u64::from(self.fs.engine().block_size().bytes());
        let blocks = |dir| self.fs.metadata(dir).map_or(1, |dir| dir.len() / block + 1);
        let reads = files.iter().map(|(dir, files)| blocks(dir).min(*files));
        reads.sum::<u64>().try_into().unwrap_or(usize::MAX)
    }

    /// Tells of a file that was made.
    fn tell(&self, node: &Node) {
        if self.verbose.is_on() {
            let (image, to) = (shown(&self.dest.image), Escaped::path(&node.to));
            self.verbose
                .tell(format_args!("{} -> {image}:{to}", node.shown_source()));
        }
    }

    /// Gives a file one more name.
    fn link(&self, link: &Link, problems: &mut Problems) {
        match self.maker().link(link) {
            Ok(()) => self.verbose.tell(format_args!(
                "{image}:{} => {image}:{}",
                Escaped::path(&link.to),
                Escaped::path(&link.first),
                image = shown(&self.dest.image)
            )),
            Err(why) => self.problem(&link.to, why, problems),
        }
    }

    /// Gives directories what they had, children before parents.
    fn directory_attributes(&self, made: &[Made], problems: &mut Problems) {
        let maker = self.maker();
        for (node, made) in self.plan.dirs.iter().zip(made).rev() {
            if *made == Made::Not || self.stop.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(why) = maker.directory_attributes(node, *made == Made::New) {
                self.problem(&node.to, why, problems);
            }
        }
    }
}

/// Whether the directory that something goes into was made by this copy.
fn is_made_here(made: &[Made], parent: Option<usize>) -> bool {
    let made = parent.and_then(|parent| made.get(parent));
    made.is_some_and(|made| *made == Made::New)
}

/// Whether the directory that something goes into is there: the number of one of the plan, or one
/// that was there before.
fn is_above_made(made: &[Made], parent: Option<usize>) -> bool {
    parent.is_none_or(|parent| made.get(parent).is_some_and(|made| *made != Made::Not))
}
