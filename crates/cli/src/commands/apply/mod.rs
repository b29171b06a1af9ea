//! `extant apply`.
//!
//! | file | owns |
//! |---|---|
//! | `steps` | what is to be made, moved and removed, from a tree over the image |
//! | `rules` | what directories hand down, and which names are one in them |
//! | `place` | doing it: beside the rest first, and then in its place |
//!
//! The layers are read as `extant mkfs` reads its sources, over the files of the image.

pub(in crate::commands) mod place;
pub(in crate::commands) mod rules;
pub(in crate::commands) mod steps;

use super::mkfs::sources::parent_of;
use super::mkfs::{InPlace, image_named, pattern_for};
use super::owners::Owners;
use crate::args::{Apply, Whereabouts};
use crate::closed;
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{ImagePath, shown, whole_image};
use crate::images::Images;
use crate::output::Output;
use crate::path::look;
use crate::record::lossless;
use crate::size::human;
use crate::standing::ImageBase;
use extant::{Escaped, Filesystem};
use extant_mkfs::source::{
    Excludes, Owner, Source, SourceOptions, Tree, Whiteouts, read_sources_over,
};
use place::Placing;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use steps::{Change, Steps};

/// Where what is new is made, in the root of the layers.
const STAGE: &str = ".extant-apply";

pub(super) fn run(args: &Apply, location: &Whereabouts) -> Outcome {
    let Some((image, layers)) = args
        .paths
        .split_last()
        .filter(|(_, others)| !others.is_empty())
    else {
        return Err(Failure::usage("name layers, and the image they go onto"));
    };
    let image = ImagePath::root_of(whole_image(image)?);
    let mut asked = Asked::new(args, location, &image, layers)?;
    let mut images = Images::new(location);
    let done = apply(args, &mut asked, &mut images, &image);
    images.close(done)
}

/// What messages call what is done.
#[derive(Clone, Copy)]
pub(super) struct Words {
    /// That nothing was.
    pub(super) nothing: &'static str,
    /// What names stand for afterwards.
    pub(super) placed: &'static str,
}

const WORDS: Words = Words {
    nothing: "nothing was applied",
    placed: "what the layers say",
};

/// An archive to be put into a directory.
pub(super) struct Extract<'a> {
    /// `-` is standard input.
    pub(super) archive: &'a Path,
    pub(super) into: &'a ImagePath,
    pub(super) exclude: &'a [OsString],
    /// Whether to say what changes.
    pub(super) verbose: bool,
}

/// Puts an archive into a directory of an image, name by name as it has them: as layers are put
/// there, but that it is none.
pub(super) fn extract(asked: &Extract<'_>, location: &Whereabouts) -> Outcome {
    let patterns = asked.exclude.iter().map(|pattern| pattern.as_bytes());
    let mut options = SourceOptions::default();
    options.excludes =
        Excludes::new(patterns).map_err(|e| Failure::usage(format!("--exclude: {e}")))?;
    options.whiteouts = Some(Whiteouts::Keep);
    options.spool_dir = spool_dir(asked.into);
    let mut what = Asked {
        layers: vec![Source::archive(asked.archive)],
        options,
        owner: None,
        owners: Owners::default(),
        root: asked.into.path.clone(),
    };
    let mut images = Images::new(location);
    let done = (|| {
        let fs = images.writable(asked.into)?;
        let root = root_of(&fs, asked.into, &what.root)?;
        let stage = root.join(STAGE);
        let placing = Placing {
            fs: &fs,
            image: asked.into,
            stage: &stage,
            threads: 0,
            words: Words {
                nothing: "nothing was extracted",
                placed: "what the archive says",
            },
        };
        placing.clear_the_last()?;
        let base = ImageBase::new(&fs, &asked.into.image, &root);
        let tree = tree_of(&mut what, base, inode_size(&fs, asked.into)?)?;
        let steps = Steps::new(&fs, asked.into, tree, &root, &stage)?;
        steps.fit(&fs, asked.into)?;
        placing.run(&steps)?.outcome()?;
        if !asked.verbose {
            return Ok(());
        }
        let mut output = Output::new();
        tell_changes(&mut output, &steps)?;
        output.finish()
    })();
    images.close(done)
}

/// Where streams are kept while they are read: beside the image, where there is room for one.
fn spool_dir(image: &ImagePath) -> Option<PathBuf> {
    let path = image.image.path()?;
    let dir = parent_of(path);
    (path.is_file() && dir.is_dir()).then(|| dir.to_owned())
}

/// What was asked for, checked.
struct Asked {
    layers: Vec<Source>,
    options: SourceOptions,
    owner: Option<Owner>,
    owners: Owners,
    /// The root of the layers in the image.
    root: PathBuf,
}

impl Asked {
    fn new(
        args: &Apply,
        location: &Whereabouts,
        image: &ImagePath,
        layers: &[OsString],
    ) -> Outcome<Self> {
        let target = InPlace::of_changed(&image.image, location);
        let layers = layers.iter();
        let layers = layers.map(|text| match image_named(text, location, target.as_ref())? {
            Some(layer) => Ok(layer),
            None => Source::parse(text).map_err(Failure::usage),
        });
        let mut layers = layers.collect::<Outcome<Vec<_>>>()?;
        let is_stream = |layer: &&Source| layer.path().as_os_str() == "-";
        if layers.iter().filter(is_stream).count() > 1 {
            return Err(Failure::usage(
                "-: standard input can be read once, and is named twice",
            ));
        }
        if layers.iter().any(|layer| is_stream(&layer)) {
            closed::check_input()?;
        }
        if layers.iter().any(Source::is_directory) {
            extant_host::refuse_if_unheard().map_err(Failure::new)?;
        }
        let usage = |option: &str, e: String| Failure::usage(format!("{option}: {e}"));
        let patterns = args.exclude.iter().map(|pattern| pattern.as_bytes());
        let mut options = SourceOptions::default();
        options.excludes =
            Excludes::new(patterns).map_err(|e| usage("--exclude", e.to_string()))?;
        options.threads = NonZero::new(args.threads.count);
        let how = Whiteouts::from_str(&args.whiteouts);
        options.whiteouts = Some(how.map_err(|e| usage("--whiteouts", e))?);
        let platform = args.platform.as_deref().map(str::parse).transpose();
        options.platform = platform.map_err(|e| usage("--platform", e))?;
        if let Some(path) = image.image.path() {
            // The image is no part of itself.
            for layer in &mut layers {
                if let Some(pattern) = pattern_for(path, layer.path()) {
                    layer.leave_out(pattern).map_err(Failure::new)?;
                }
            }
            options.spool_dir = spool_dir(image);
        }
        let owner = args.owner.as_deref().map(Owner::from_str).transpose();
        if !args.root.as_bytes().starts_with(b"/") {
            return Err(Failure::usage(format!(
                "--root: {} is no path from the root of the image, such as /srv",
                Escaped(args.root.as_bytes())
            )));
        }
        Ok(Self {
            layers,
            options,
            owner: owner.map_err(|e| usage("--owner", e))?,
            owners: Owners::read(&args.owners)?,
            root: PathBuf::from(&args.root),
        })
    }
}

fn apply(args: &Apply, asked: &mut Asked, images: &mut Images<'_>, image: &ImagePath) -> Outcome {
    let fs = if args.dry_run {
        images.readable(image)?
    } else {
        images.writable(image)?
    };
    let root = root_of(&fs, image, &asked.root)?;
    let stage = root.join(STAGE);
    let placing = Placing {
        fs: &fs,
        image,
        stage: &stage,
        threads: args.threads.count,
        words: WORDS,
    };
    if !args.dry_run {
        placing.clear_the_last()?;
    }
    let base = ImageBase::new(&fs, &image.image, &root);
    let tree = tree_of(asked, base, inode_size(&fs, image)?)?;
    let steps = Steps::new(&fs, image, tree, &root, &stage)?;
    steps.fit(&fs, image)?;
    if !args.dry_run {
        placing.run(&steps)?.outcome()?;
    }
    if args.json {
        tell_programs(args, image, &steps)
    } else if args.quiet {
        Ok(())
    } else {
        tell(args, image, &steps)
    }
}

/// The directory that is the root of the layers, by a path without symbolic links.
fn root_of(fs: &Filesystem, image: &ImagePath, asked: &Path) -> Outcome<PathBuf> {
    let asked = crate::path::follow(fs, asked).map_err(|e| image.failure(&e))?;
    if look(fs, &asked)
        .map_err(|e| image.failure(&e))?
        .is_some_and(|found| found.is_dir())
    {
        return Ok(asked.components().collect());
    }
    Err(Failure::new(format!(
        "{}:{}: is no directory, which the root of layers has to be",
        shown(&image.image),
        Escaped::path(&asked)
    )))
}

/// Bytes of an inode, as far as they decide which times it holds.
fn inode_size(fs: &Filesystem, image: &ImagePath) -> Outcome<u32> {
    let root = fs.symlink_metadata("/").map_err(|e| image.failure(&e))?;
    Ok(if root.crtime().is_some() { 256 } else { 128 })
}

/// What the image shall have, as a tree over what it has.
fn tree_of(asked: &mut Asked, base: ImageBase, inode_size: u32) -> Outcome<Tree> {
    let gathered = read_sources_over(Box::new(base), &asked.layers, &asked.options);
    let tree = gathered.map_err(Failure::new)?.tree;
    for warning in tree.concerns(inode_size) {
        say(format_args!("warning: {warning}"));
    }
    asked.owners.apply(tree, asked.owner).map_err(Failure::new)
}

/// What was done, for programs.
#[derive(Serialize)]
struct Applied {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    dry_run: bool,
    /// Files and directories that are made, and further names.
    made: u64,
    /// Names that stood for something else before.
    replaced: u64,
    /// Names that are taken away.
    removed: u64,
    /// Directories that were there and get owner, permissions, times and attributes.
    described: u64,
    /// Bytes of content.
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Told>>,
}

/// One change.
#[derive(Serialize)]
struct Told {
    change: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

fn tell_programs(args: &Apply, image: &ImagePath, steps: &Steps) -> Outcome {
    let (image, image_hex) = lossless(image.image.name().as_bytes());
    let told = |(change, path): (Change, &Path)| {
        let (path, path_hex) = lossless(path.as_os_str().as_bytes());
        Told {
            change: change.word(),
            path,
            path_hex,
        }
    };
    let counts = steps.counts();
    let mut output = Output::new();
    output.json_line(&Applied {
        image,
        image_hex,
        dry_run: args.dry_run,
        made: counts.made,
        replaced: counts.replaced,
        removed: counts.removed,
        described: counts.described,
        bytes: counts.bytes,
        changes: args.dry_run.then(|| steps.changes().map(told).collect()),
    })?;
    output.finish()
}

fn tell_changes(output: &mut Output, steps: &Steps) -> Outcome {
    for (change, path) in steps.changes() {
        write!(output, "{} ", change.word())?;
        output.name_line(path.as_os_str().as_bytes())?;
    }
    Ok(())
}

fn tell(args: &Apply, image: &ImagePath, steps: &Steps) -> Outcome {
    let mut output = Output::new();
    if args.dry_run {
        tell_changes(&mut output, steps)?;
    }
    let counts = steps.counts();
    writeln!(
        output,
        "{}: {}made: {} ({}), replaced: {}, removed: {}, set: {}",
        shown(&image.image),
        if args.dry_run { "would be " } else { "" },
        counts.made,
        human(counts.bytes),
        counts.replaced,
        counts.removed,
        counts.described
    )?;
    output.finish()
}
