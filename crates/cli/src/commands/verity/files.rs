//! fs-verity for files of an image that exists.

use crate::args::Whereabouts;
use crate::commands::mkfs::verity::{Files, listed};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::{Images, Problems, is_final};
use crate::output::Output;
use crate::progress::Bar;
use crate::record::{hex, lossless};
use extant::{Escaped, FileFlags, FileType, Filesystem, FsVerityOptions, Metadata};
use extant_image::ImageLocation;
use extant_mkfs::FsVerityError;
use rustix::io::Errno;
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file that fs-verity protects.
#[derive(Debug)]
pub(super) struct Protected {
    path: PathBuf,
    algorithm: &'static str,
    digest: Vec<u8>,
    /// It was before.
    already: bool,
}

/// One of them, for programs.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    digest: String,
    already: bool,
}

impl Protected {
    fn digest(&self) -> String {
        format!("{}:{}", self.algorithm, hex(&self.digest))
    }

    /// As `fsverity digest` tells it.
    pub(super) fn tell(&self, output: &mut Output) -> Outcome {
        write!(output, "{} ", self.digest())?;
        Ok(output.name_line(self.path.as_os_str().as_bytes())?)
    }
}

impl Record {
    pub(super) fn new(file: &Protected) -> Self {
        let (path, path_hex) = lossless(file.path.as_os_str().as_bytes());
        Self {
            path,
            path_hex,
            digest: file.digest(),
            already: file.already,
        }
    }
}

/// Has fs-verity protect the files that are asked for. Returns those that it protects durably, and
/// whether they are all.
pub(super) fn protect(
    asked: &Files,
    image: &ImageLocation,
    location: &Whereabouts,
) -> Outcome<(Vec<Protected>, Outcome)> {
    let at = ImagePath::root_of(image.clone());
    let mut images = Images::new(location);
    let fs = images.writable(&at)?;
    let mut options = FsVerityOptions::default();
    options.algorithm = asked.algorithm;
    options.salt.clone_from(&asked.salt);
    options.block_size = asked.block_size;
    let found = check(&fs, &at, &options).and_then(|()| {
        let found = Found::of(asked, &fs, &at)?;
        check_same(&fs, &at, &found, &options)?;
        Ok(found)
    });
    let found = match found {
        Ok(found) => found,
        // Nothing is changed.
        Err(failure) => return images.close(Err(failure)).map(|()| (Vec::new(), Ok(()))),
    };
    let bar = Bar::new("hashing");
    bar.total(found.iter().map(|file| file.size).sum());
    let mut problems = Problems::default();
    let mut protected = Vec::new();
    for file in found {
        match file.protect(&fs, &options) {
            Ok(done) => protected.push(done),
            Err(e) => {
                problems.note(at.failure(&e));
                if is_final(&e) {
                    break;
                }
            }
        }
        bar.advance(file.size);
    }
    bar.finish();
    let done = problems.outcome();
    match images.close(Ok(())) {
        Ok(()) => Ok((protected, done)),
        // Any of them may be lost.
        Err(failure) => {
            if let Err(earlier) = done {
                let _ = earlier.report();
            }
            Err(failure)
        }
    }
}

/// A regular file that is asked for.
struct Found {
    path: PathBuf,
    size: u64,
    /// fs-verity protects it already.
    is_protected: bool,
}

/// Whether the last file that was seen lies in a directory that a pattern matches.
struct Within {
    /// How deep that directory lies, if there is one.
    depth: Option<usize>,
    /// Files that were found.
    count: u64,
}

impl Found {
    fn new(path: &Path, metadata: &Metadata) -> Self {
        let flags = FileFlags::from_bits_retain(metadata.flags());
        Self {
            path: path.to_owned(),
            size: metadata.len(),
            is_protected: flags.contains(FileFlags::VERITY),
        }
    }

    /// All that are asked for, each once.
    fn of(asked: &Files, fs: &Filesystem, at: &ImagePath) -> Outcome<Vec<Self>> {
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        if let Some(list) = &asked.list {
            let listed = listed(list, "the image", |path| {
                let path = Path::new(OsStr::from_bytes(path));
                let metadata = fs.symlink_metadata(path).ok()?;
                (metadata.file_type() == FileType::Regular).then(|| {
                    (
                        metadata.ino(),
                        Self::new(&Path::new("/").join(path), &metadata),
                    )
                })
            })?;
            all.extend(
                listed
                    .into_iter()
                    .filter_map(|(ino, file)| seen.insert(ino).then_some(file)),
            );
        }
        if asked.patterns.is_empty() {
            return Ok(all);
        }
        let patterns = asked.patterns.iter();
        let mut within: Vec<Within> = patterns
            .map(|_| Within {
                depth: None,
                count: 0,
            })
            .collect();
        for entry in fs.walk("/").map_err(|e| at.failure(&e))? {
            let entry = entry.map_err(|e| at.failure(&e))?;
            let depth = entry.depth();
            if depth == 0 {
                continue;
            }
            let is_dir = entry.file_type() == FileType::Directory;
            let names = entry.path_bytes().split(|&byte| byte == b'/');
            let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
            let mut is_meant = false;
            for ((_, pattern), within) in asked.patterns.iter().zip(&mut within) {
                within.depth = within.depth.filter(|above| *above < depth);
                let matches = within.depth.is_some() || pattern.excludes(&names, is_dir);
                if matches && is_dir {
                    within.depth.get_or_insert(depth);
                }
                if matches && entry.file_type() == FileType::Regular {
                    within.count += 1;
                    is_meant = true;
                }
            }
            if is_meant {
                let metadata = entry.metadata();
                if seen.insert(metadata.ino()) {
                    all.push(Self::new(entry.path(), &metadata));
                }
            }
        }
        let none = within.iter().position(|within| within.count == 0);
        match none.and_then(|number| asked.patterns.get(number)) {
            Some((text, _)) => Err(Failure::new(format!(
                "--fs-verity {text}: there is no such regular file in the image"
            ))),
            None => Ok(all),
        }
    }

    fn protect(&self, fs: &Filesystem, options: &FsVerityOptions) -> extant::Result<Protected> {
        let digest = if self.is_protected {
            // Copies of the superblock that a crash left without the feature get it all the same.
            // What refuses a file that is protected says nothing about that.
            let refusals = [Errno::EXIST, Errno::PERM, Errno::ACCESS, Errno::NOKEY];
            match fs.enable_verity(&self.path, options) {
                Err(e) if !refusals.map(Errno::raw_os_error).contains(&e.errno()) => {
                    return Err(e);
                }
                _ => {}
            }
            let file = fs.open_file(&self.path)?.fs_verity()?;
            file.map(|file| file.digest()).unwrap_or_default()
        } else {
            fs.enable_verity(&self.path, options)?
        };
        Ok(Protected {
            path: self.path.clone(),
            algorithm: options.algorithm.name(),
            digest,
            already: self.is_protected,
        })
    }
}

/// Refuses hashes that the format or the file system does not have.
fn check(fs: &Filesystem, at: &ImagePath, asked: &FsVerityOptions) -> Outcome {
    let size = fs.statfs().map_err(|e| at.failure(&e))?.block_size;
    let (asked_size, most) = (asked.block_size_in(size), size.bytes());
    let wrong = if !asked_size.is_power_of_two() || !(1024..=most).contains(&asked_size) {
        FsVerityError::BlockSize {
            asked: asked_size,
            most,
        }
    } else if asked.salt.len() > 32 {
        FsVerityError::Salt {
            found: asked.salt.len(),
        }
    } else {
        return Ok(());
    };
    Err(Failure::usage(wrong))
}

/// Refuses files that are protected already in another way.
fn check_same(
    fs: &Filesystem,
    at: &ImagePath,
    found: &[Found],
    asked: &FsVerityOptions,
) -> Outcome {
    let size = fs.statfs().map_err(|e| at.failure(&e))?.block_size;
    for file in found.iter().filter(|file| file.is_protected) {
        let opened = fs.open_file(&file.path).and_then(|file| file.fs_verity());
        let Some(there) = opened.map_err(|e| at.failure(&e))? else {
            continue;
        };
        let there = there.options();
        let is_same = there.algorithm == asked.algorithm
            && there.salt == asked.salt
            && there.block_size_in(size) == asked.block_size_in(size);
        if !is_same {
            let salt = match &*there.salt {
                [] => "no salt".to_owned(),
                salt => format!("the salt {}", hex(salt)),
            };
            return Err(Failure::new(format!(
                "{}: it is protected already, by {}, blocks of {} bytes and {salt}, and stays so: \
                 a copy of it can be protected in another way. Nothing is changed",
                Escaped::path(&file.path),
                there.algorithm,
                there.block_size_in(size),
            )));
        }
    }
    Ok(())
}
