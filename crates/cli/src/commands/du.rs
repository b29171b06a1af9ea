//! `extant du`.

use crate::args::{Du, Whereabouts};
use crate::failure::Outcome;
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use crate::operands::found;
use crate::output::Output;
use crate::record::lossless;
use crate::size::short;
use extant::{Filesystem, Metadata};
use extant_image::ImageLocation;
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;

/// What is taken up.
#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Sum {
    /// Bytes that are allocated.
    space: u64,
    /// Bytes that are contained, holes included.
    bytes: u64,
    inodes: u64,
}

impl Sum {
    fn of(found: &Metadata) -> Self {
        Self {
            space: found.blocks().saturating_mul(512),
            bytes: found.len(),
            inodes: 1,
        }
    }

    fn add(&mut self, more: Self) {
        self.space = self.space.saturating_add(more.space);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.inodes = self.inodes.saturating_add(more.inodes);
    }
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    total: bool,
    #[serde(flatten)]
    sum: Sum,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

pub(super) fn run(args: &Du, location: &Whereabouts) -> Outcome {
    let mut problems = Problems::default();
    let places = found(&args.paths, &mut Images::new(location), &mut problems)?;
    let mut counting = Counting {
        args,
        output: Output::new(),
        problems,
        // As du(1): a directory cannot come twice unless several places are named.
        all_are_known: places.len() > 1,
        known: Vec::new(),
    };
    let mut total = Sum::default();
    for (fs, from) in &places {
        total.add(counting.place(fs, from)?);
    }
    if args.total {
        counting.line(None, total)?;
    }
    counting.output.finish()?;
    counting.problems.outcome()
}

struct Counting<'a> {
    args: &'a Du,
    output: Output,
    problems: Problems,
    /// Whether files and directories with one name are remembered as well.
    all_are_known: bool,
    /// Inodes that have been counted, of each image.
    known: Vec<(ImageLocation, HashSet<u32>)>,
}

/// A directory that is being counted.
struct Level {
    path: Vec<u8>,
    sum: Sum,
}

impl Counting<'_> {
    fn place(&mut self, fs: &Filesystem, from: &ImagePath) -> Outcome<Sum> {
        let mut total = Sum::default();
        let walk = match fs.walk(&from.path) {
            Ok(walk) => walk,
            Err(e) => {
                self.problems.note(from.failure(&e));
                return Ok(total);
            }
        };
        let mut walk = walk.whole();
        // Directories on the way to where the walk is, outermost first.
        let mut levels: Vec<Level> = Vec::new();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    self.problems.note(from.failure(&e));
                    continue;
                }
            };
            while levels.len() > entry.depth() {
                self.leave(&mut levels, &mut total)?;
            }
            let found = entry.metadata();
            if self.is_known(from, &found) {
                walk.skip_children();
                continue;
            }
            let sum = Sum::of(&found);
            if found.is_dir() {
                levels.push(Level {
                    path: entry.path_bytes().to_vec(),
                    sum,
                });
                continue;
            }
            match levels.last_mut() {
                Some(above) => above.sum.add(sum),
                None => total.add(sum),
            }
            let is_shown = entry.depth() == 0 || (self.args.all && self.shows(entry.depth()));
            if is_shown {
                self.line(Some(entry.path_bytes()), sum)?;
            }
        }
        while !levels.is_empty() {
            self.leave(&mut levels, &mut total)?;
        }
        Ok(total)
    }

    /// Shows the innermost directory, and adds it to the one that it is in.
    fn leave(&mut self, levels: &mut Vec<Level>, total: &mut Sum) -> Outcome {
        let Some(Level { path, sum }) = levels.pop() else {
            return Ok(());
        };
        if self.shows(levels.len()) {
            self.line(Some(&path), sum)?;
        }
        match levels.last_mut() {
            Some(above) => above.sum.add(sum),
            None => total.add(sum),
        }
        Ok(())
    }

    fn shows(&self, depth: usize) -> bool {
        let most = if self.args.summarize {
            Some(0)
        } else {
            self.args.max_depth
        };
        most.is_none_or(|most| depth <= most)
    }

    /// Whether a file has been counted already, by this or another of its names.
    fn is_known(&mut self, from: &ImagePath, found: &Metadata) -> bool {
        let may_come_again = self.all_are_known || (!found.is_dir() && found.nlink() > 1);
        if !may_come_again {
            return false;
        }
        let of_image = self
            .known
            .iter()
            .position(|(image, _)| *image == from.image);
        let of_image = of_image.unwrap_or_else(|| {
            self.known.push((from.image.clone(), HashSet::new()));
            self.known.len() - 1
        });
        let known = self.known.get_mut(of_image);
        known.is_some_and(|(_, known)| !known.insert(found.ino()))
    }

    fn line(&mut self, path: Option<&[u8]>, sum: Sum) -> Outcome {
        if self.args.json {
            let (text, hex) = path.map(lossless).unzip();
            return Ok(self.output.json_line(&Line {
                path: text,
                path_hex: hex.flatten(),
                total: path.is_none(),
                sum,
            })?);
        }
        let amount = if self.args.apparent_size || self.args.bytes {
            sum.bytes
        } else {
            sum.space
        };
        let text = if self.args.inodes {
            sum.inodes.to_string()
        } else if self.args.bytes {
            amount.to_string()
        } else if self.args.human_readable {
            short(amount)
        } else {
            amount.div_ceil(1024).to_string()
        };
        write!(self.output, "{text}\t")?;
        Ok(self.output.name_line(path.unwrap_or(b"total"))?)
    }
}
