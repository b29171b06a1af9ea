//! Making file systems, at paths and on devices.

use crate::call::Failure;
use crate::container::Packed;
use crate::settings::Asked;
use crate::watch::Watching;
use extant::image::{How, ImageLocation};
use extant::{BlockSize, Escaped, Like, SharedDevice};
use extant_mkfs::output::{Output, OutputError, Replaces};
use extant_mkfs::source::{Tree, read_sources};
use extant_mkfs::standing::{Room, Standing, standing, standing_on};
use extant_mkfs::{BuildError, BuildOptions, FormatOptions, Progress, Report, Size, build_into};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Makes a file system at a path; on what is there already, where that is no regular file, or in a
/// part of it.
pub(crate) fn at_path(image: &Path, asked: &Asked, watching: &Watching) -> Result<(), Failure> {
    if image.as_os_str().is_empty() {
        return Err(Failure::invalid("the name of the image is empty"));
    }
    let location = ImageLocation::parse(image)?;
    let is_plain = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.is_file());
    let is_new = |path: &&Path| fs::symlink_metadata(path).is_err();
    let path = location
        .path()
        .filter(|path| location.partition().is_none() && (is_new(path) || is_plain(path)));
    let Some(path) = path else {
        let opened = location.open(&How::writing())?;
        let is_part = location.partition().is_some();
        return in_room(&opened, is_part, asked, watching);
    };
    let name = Escaped::path(path);
    let packed = Packed::asked_for(path, asked.format.as_deref())?;
    let like = asked.open_like()?;
    let size = match (asked.size, asked.has_source()) {
        (Some(size), _) => size,
        (None, _) if like.is_some() => Size::Bytes(like.as_ref().map_or(0, Like::size)),
        (None, true) => asked.auto(),
        (None, false) => match fs::metadata(path) {
            Ok(found) if found.len() > 0 => Size::Bytes(found.len()),
            _ => {
                let text = format!(
                    "{name} does not exist yet: say how large it shall be, such as size=1G"
                );
                return Err(Failure::invalid(text));
            }
        },
    };
    // Before it is looked at: what takes the name afterwards was not.
    let seen = Replaces::what_is_at(path);
    refuse(standing(path, None, Some(&asked.identity()))?, asked, &name)?;
    let replaces = if asked.force {
        Replaces::Anything
    } else {
        seen
    };
    let into = |size| {
        let made = Output::create_in_format(path, replaces, |file| {
            file.grow(size).map_err(OutputError::from)?;
            Ok(watching.over(&file))
        });
        Ok(made?)
    };
    let spool = path.parent().filter(|dir| dir.is_dir());
    let tree = asked.tree(spool)?;
    let tree = tree.as_ref();
    let options = options(tree, like.as_ref(), size, 512, asked)?;
    let Some(packed) = packed else {
        let built = build_into(tree, into, &options, watching);
        return made(built, watching).map_err(|e| e.about(&name));
    };
    let second = packed.second_file(path);
    if let Some(second) = &second {
        let found = standing(second, None, Some(&asked.identity()))?;
        refuse(found, asked, &Escaped::path(second))?;
    }
    let of_second = match &second {
        Some(_) if asked.force => Replaces::Anything,
        Some(second) => Replaces::what_is_at(second),
        None => Replaces::Nothing,
    };
    let replaces = (replaces, of_second);
    let built = packed.build(path, replaces, tree, &options, watching);
    made(built, watching).map_err(|e| e.about(&name))
}

/// Makes a file system on a device.
pub(crate) fn on_device(
    device: &SharedDevice,
    asked: &Asked,
    watching: &Watching,
) -> Result<(), Failure> {
    in_room(device, false, asked, watching)
}

fn in_room(
    device: &SharedDevice,
    is_part: bool,
    asked: &Asked,
    watching: &Watching,
) -> Result<(), Failure> {
    let room = if is_part { Room::Part } else { Room::Device };
    if asked.format.is_some() {
        let text = "format is of an image at a path that is made: this one exists";
        return Err(Failure::invalid(text));
    }
    let name = device.name();
    let like = asked.open_like()?;
    let found = standing_on(&**device, room, Some(&asked.identity()))?;
    refuse(found, asked, &name)?;
    let room = device.size();
    let size = asked.size.unwrap_or(Size::Bytes(room));
    if let Size::Bytes(size) = size
        && size > room
    {
        let text = format!("size={size}: only {room} bytes are there");
        return Err(Failure::invalid(text));
    }
    let below = watching.over(device);
    let into = |size| Ok(Output::in_place_of(&below, size, is_part)?);
    let tree = asked.tree(None)?;
    let sector = device.logical_sector();
    let options = options(tree.as_ref(), like.as_ref(), size, sector, asked)?;
    let built = build_into(tree.as_ref(), into, &options, watching);
    made(built, watching).map_err(|e| e.about(&name))
}

fn refuse(found: Standing, asked: &Asked, name: &dyn std::fmt::Display) -> Result<(), Failure> {
    let what = match found {
        Standing::Vacant | Standing::Own { changed: false } => return Ok(()),
        _ if asked.force => return Ok(()),
        Standing::Own { changed: true } => {
            "a file system that was changed since it was made".to_owned()
        }
        Standing::Other(what) => what,
    };
    Err(Failure::in_the_way(format!(
        "{name} contains {what}: force=yes replaces it"
    )))
}

/// How to build what is asked for.
fn options(
    tree: Option<&Tree>,
    like: Option<&Like>,
    size: Size,
    sector: u32,
    asked: &Asked,
) -> Result<BuildOptions, Failure> {
    let bytes = match size {
        Size::Bytes(bytes) => bytes,
        Size::Auto(_) => 0,
    };
    let mut format = match asked.epoch {
        None => FormatOptions::new(bytes, now()),
        Some(epoch) => {
            let mut material = tree.map_or([0; 32], Tree::fingerprint).to_vec();
            material.extend_from_slice(asked.label.as_deref().unwrap_or_default());
            FormatOptions::reproducible(bytes, epoch, &material)
        }
    };
    format.sector_size = sector;
    if let Some(like) = like {
        like.liken(&mut format);
    }
    asked.apply(&mut format);
    let block_size = format.block_size.unwrap_or(BlockSize::K4);
    let mut options = BuildOptions::new(format, size).threads(asked.threads);
    options.arrangement = asked.arrangement;
    if let (Some(like), Some(tree)) = (like, tree) {
        options.like = Some(Arc::new(like.former(tree, block_size)?));
    }
    Ok(options)
}

/// What came of building.
fn made(built: Result<Report, BuildError>, watching: &Watching) -> Result<(), Failure> {
    watching.outcome(built.map(|_| ()).map_err(Failure::from))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

impl Asked {
    /// Opens the image that the new one shall be like, if there is one.
    fn open_like(&self) -> Result<Option<Like>, Failure> {
        let Some(name) = &self.like else {
            return Ok(None);
        };
        let location = ImageLocation::parse(Path::new(OsStr::from_bytes(name)))?;
        Ok(Some(Like::open(&location, &How::reading())?))
    }

    /// Reads what the file system is filled with, if it is with anything.
    fn tree(&self, spool: Option<&Path>) -> Result<Option<Tree>, Failure> {
        if self.from.is_empty() {
            return Ok(None);
        }
        let mut options = self.source_options()?;
        options.spool_dir = spool.map(Path::to_owned);
        let mut tree = read_sources(&self.from, &options)?.tree;
        let mut rest = self.normalisation();
        if !self.tables.is_empty() {
            // What tables say is stronger than an owner for all.
            tree = self.tables.apply(tree, rest.owner.take())?;
        }
        tree.normalise(&rest);
        Ok(Some(tree))
    }
}

impl Progress for Watching {
    fn start(&self, total: u64) {
        self.begin(c"writing", total);
    }

    fn advance(&self, amount: u64) {
        Watching::advance(self, amount);
    }
}
