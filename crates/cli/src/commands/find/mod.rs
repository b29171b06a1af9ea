//! `extant find`.
//!
//! | module | owns |
//! |---|---|
//! | `words` | the words of find(1), and telling them from options |
//! | `expression` | what an expression is made of, and reading one |
//! | `printf` | formats of `-printf` |
//! | `search` | what an expression says of a file, and what it does with it |
//! | `exec` | the commands of `-exec` |

mod exec;
mod expression;
mod printf;
mod search;
mod words;

pub(crate) use words::marked;

use crate::args::{Find, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use crate::names::Names;
use crate::operands::expand;
use crate::output::Output;
use crate::{glob, size, time};
use expression::{Count, Parsed, Perm, Reference, Test};
use extant::{Bulkstat, Metadata, Timestamp, Walk, WalkEntry};
use search::{LsWidths, Place, Telling, Then, Visit, asks_inodes, moment_of, rules_out};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

pub(super) fn run(args: &Find, location: &Whereabouts) -> Outcome {
    let wanted = Wanted::new(args)?;
    let parsed = expression::parse(&args.expression).map_err(Failure::Usage)?;
    if parsed.has_own_form && (args.json || args.print0) {
        return Err(Failure::usage(
            "--json and --print0 say how each path is shown, and so do -print0, -printf and -ls: give one of them",
        ));
    }
    let places = args.paths.iter().map(|text| ImagePath::parse(text));
    let places = places.collect::<Outcome<Vec<_>>>()?;
    let mut images = Images::new(location);
    let deletes = parsed.deletes;
    let done = all(args, &wanted, parsed, places, &mut images);
    if deletes { images.close(done) } else { done }
}

fn all(
    args: &Find,
    wanted: &Wanted<'_>,
    mut parsed: Parsed,
    places: Vec<ImagePath>,
    images: &mut Images<'_>,
) -> Outcome {
    let mut problems = Problems::default();
    let mut starts = Vec::new();
    for at in places {
        let opened = if parsed.deletes {
            images.writable(&at)
        } else {
            images.readable(&at)
        };
        match opened.and_then(|fs| Ok((expand(&fs, &at)?, fs))) {
            Ok((found, fs)) => starts.extend(found.into_iter().map(|at| (fs.clone(), at))),
            Err(Failure::Usage(text)) => return Err(Failure::Usage(text)),
            Err(failure) => problems.note(failure),
        }
    }
    look_at_references(&mut parsed, images)?;
    parsed.max_depth = least(args.max_depth, parsed.max_depth);
    parsed.min_depth = args.min_depth.max(parsed.min_depth);
    let mut telling = Telling {
        output: Output::new(),
        problems,
        prefix: args.prefix.as_deref().map_or(&[], OsStrExt::as_bytes),
        print0: args.print0,
        json: args.json,
        now: time::now(),
        commands: exec::Commands::default(),
        widths: LsWidths::default(),
    };
    for (fs, from) in &starts {
        let names = if args.expression.is_empty() {
            Names::default()
        } else {
            Names::of(fs)
        };
        if let Err(why) = look_up_names(&mut parsed, &names) {
            telling
                .problems
                .note(Failure::new(format!("{}: {why}", from.shown())));
            continue;
        }
        let place = Place {
            fs,
            from,
            names: &names,
        };
        if search(&place, wanted, &parsed, &mut telling)? {
            break;
        }
    }
    let Telling {
        mut output,
        mut problems,
        mut commands,
        ..
    } = telling;
    commands.finish(&mut output, &mut problems)?;
    output.finish()?;
    problems.outcome()
}

fn least(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Searches one place. Returns whether the whole search is to end.
fn search(
    place: &Place<'_>,
    wanted: &Wanted<'_>,
    parsed: &Parsed,
    telling: &mut Telling<'_>,
) -> Outcome<bool> {
    let Place { fs, from, .. } = place;
    let mut walk = match fs.walk(&from.path) {
        Ok(walk) => walk,
        Err(e) => {
            telling.problems.note(from.failure(&e));
            return Ok(false);
        }
    };
    let is_whole = parsed.max_depth.is_none() && !parsed.quits;
    let asks_inodes = wanted.asks_inodes() || asks_inodes(&parsed.expr);
    // What removals change about other names of a file is seen when the walk comes to them.
    if from.is_root() && is_whole && asks_inodes && !parsed.deletes {
        leave_out_others(place, wanted, parsed, telling.now, &mut walk);
    } else if is_whole {
        walk = walk.whole();
    }
    // Directories that come after what is in them, outermost first.
    let mut later: Vec<WalkEntry> = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                telling.problems.note(from.failure(&e));
                continue;
            }
        };
        if parsed.max_depth.is_some_and(|most| entry.depth() >= most) {
            walk.skip_children();
        }
        if !parsed.depth_first {
            let then = visit(&entry, place, wanted, parsed, telling)?;
            if then.quit {
                return Ok(true);
            }
            if then.prune && entry.metadata().is_dir() {
                walk.skip_children();
            }
            continue;
        }
        let is_done = |dir: &mut WalkEntry| dir.depth() >= entry.depth();
        while let Some(dir) = later.pop_if(is_done) {
            if visit(&dir, place, wanted, parsed, telling)?.quit {
                return Ok(true);
            }
        }
        if entry.metadata().is_dir() {
            later.push(entry);
        } else if visit(&entry, place, wanted, parsed, telling)?.quit {
            return Ok(true);
        }
    }
    while let Some(dir) = later.pop() {
        if visit(&dir, place, wanted, parsed, telling)?.quit {
            return Ok(true);
        }
    }
    Ok(false)
}

fn visit(
    entry: &WalkEntry,
    place: &Place<'_>,
    wanted: &Wanted<'_>,
    parsed: &Parsed,
    telling: &mut Telling<'_>,
) -> Outcome<Then> {
    let is_shallow = parsed.min_depth.is_some_and(|least| entry.depth() < least);
    if is_shallow || !wanted.takes(entry) {
        return Ok(Then::default());
    }
    let mut visit = Visit {
        place,
        entry,
        metadata: entry.metadata(),
        telling,
        then: Then::default(),
    };
    let holds = visit.holds(&parsed.expr)?;
    if holds && parsed.prints && !visit.then.quit {
        visit.print()?;
    }
    Ok(visit.then)
}

/// Looks at the files that times are compared with.
fn look_at_references(parsed: &mut Parsed, images: &mut Images<'_>) -> Outcome {
    let mut outcome = Ok(());
    parsed.expr.for_each_test(&mut |test| {
        let Test::Newer { than, .. } = test else {
            return;
        };
        let Reference::Of(moment, file) = &*than else {
            return;
        };
        match time_of(*moment, file, images) {
            Ok(time) => *than = Reference::At(time),
            Err(failure) if outcome.is_ok() => outcome = Err(failure),
            Err(_) => {}
        }
    });
    outcome
}

/// One of the times of a file, in an image or of the host. A symbolic link has its own.
fn time_of(
    moment: expression::Moment,
    file: &OsStr,
    images: &mut Images<'_>,
) -> Outcome<Timestamp> {
    let shown = extant::Escaped(file.as_bytes());
    let none = || Failure::new(format!("{shown}: there is no time of its birth"));
    if let Some(at) = ImagePath::inside_if_any(file)? {
        let fs = images.readable(&at)?;
        let found = fs.symlink_metadata(&at.path).map_err(|e| at.failure(&e))?;
        return moment_of(moment, &found).ok_or_else(none);
    }
    let cannot = |e: io::Error| Failure::new(format!("{shown} cannot be looked at: {e}"));
    let found = std::fs::symlink_metadata(file).map_err(cannot)?;
    let time = match moment {
        expression::Moment::Access => found.accessed().map_err(cannot)?,
        expression::Moment::Modification => found.modified().map_err(cannot)?,
        expression::Moment::Birth => found.created().map_err(|_| none())?,
        expression::Moment::Change => {
            use std::os::unix::fs::MetadataExt;
            return Ok(Timestamp {
                secs: found.ctime(),
                nanos: u32::try_from(found.ctime_nsec()).unwrap_or(0),
            });
        }
    };
    Ok(timestamp(time))
}

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp {
            secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let secs = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timestamp {
                    secs: -secs,
                    nanos: 0,
                },
                nanos => Timestamp {
                    secs: -secs - 1,
                    nanos: 1_000_000_000 - nanos,
                },
            }
        }
    }
}

/// Says which owner is asked for that the image does not know.
fn look_up_names(parsed: &mut Parsed, names: &Names) -> Result<(), String> {
    let mut outcome = Ok(());
    parsed.expr.for_each_test(&mut |test| {
        let (what, file, table, name) = match test {
            Test::User(name) => ("user", "passwd", &names.users, name),
            Test::Group(name) => ("group", "group", &names.groups, name),
            _ => return,
        };
        if table.number(name).is_none() {
            let name = extant::Escaped(name);
            outcome = Err(format!(
                "the image's /etc/{file} has no {what} {name}: give a number"
            ));
        }
    });
    outcome
}

/// The conditions of this program's own spelling, all of which must hold.
struct Wanted<'a> {
    args: &'a Find,
    size: Option<Count>,
    perm: Option<Perm>,
}

impl<'a> Wanted<'a> {
    fn new(args: &'a Find) -> Outcome<Self> {
        if let Some(unknown) = args.types.iter().find(|c| !"fdlcbps".contains(**c)) {
            return Err(Failure::usage(format!(
                "--type {unknown} is unknown: use f (file), d (directory), l (symbolic link), c and b \
                 (devices), p (pipe) or s (socket)"
            )));
        }
        let option = |name: &str| {
            let name = name.to_owned();
            move |what: String| Failure::Usage(format!("{name}: {what}"))
        };
        let size = args.size.as_deref().map(parse_size).transpose();
        let perm = args.perm.as_deref().map(parse_perm).transpose();
        Ok(Self {
            args,
            size: size.map_err(option("--size"))?,
            perm: perm.map_err(option("--perm"))?,
        })
    }

    fn takes(&self, entry: &WalkEntry) -> bool {
        let Find {
            name, path_glob, ..
        } = self.args;
        name.as_ref()
            .is_none_or(|pattern| glob::matches(pattern.as_bytes(), entry.file_name().as_bytes()))
            && path_glob
                .as_ref()
                .is_none_or(|pattern| glob::matches(pattern.as_bytes(), entry.path_bytes()))
            && self.takes_inode(&entry.metadata())
    }

    /// Whether there is a condition that an inode answers without its name.
    fn asks_inodes(&self) -> bool {
        let Find {
            types,
            uid,
            gid,
            inum,
            ..
        } = self.args;
        !types.is_empty()
            || uid.or(*gid).or(*inum).is_some()
            || self.size.is_some()
            || self.perm.is_some()
    }

    /// Whether the inode meets the conditions that it alone answers.
    fn takes_inode(&self, metadata: &Metadata) -> bool {
        let Find {
            types,
            uid,
            gid,
            inum,
            ..
        } = self.args;
        let type_letter = printf::type_letter(metadata.file_type());
        let mode = metadata.mode().permissions();
        (types.is_empty() || types.contains(&type_letter))
            && uid.is_none_or(|uid| metadata.uid() == uid)
            && gid.is_none_or(|gid| metadata.gid() == gid)
            && inum.is_none_or(|inum| metadata.ino() == inum)
            && self.size.is_none_or(|size| size.takes(metadata.len()))
            && self.perm.is_none_or(|perm| perm.takes(mode))
    }
}

/// Looks at all inodes first, which is fast, so that the walk need not read those that are not what
/// is searched. Those that are damaged the walk comes to, and tells where they are.
fn leave_out_others(
    place: &Place<'_>,
    wanted: &Wanted<'_>,
    parsed: &Parsed,
    now: Timestamp,
    walk: &mut Walk,
) {
    let Place { fs, names, .. } = place;
    let others = fs.bulkstat_fold(Bulkstat::default(), Inodes::default, |others, inode| {
        if let Ok(inode) = inode
            && !inode.is_dir()
            && (!wanted.takes_inode(&inode) || rules_out(&parsed.expr, &inode, names, now))
        {
            others.add(inode.ino());
        }
    });
    walk.leave_out(move |ino| others.iter().any(|others| others.has(ino)));
}

/// A set of inode numbers, which lie close together.
#[derive(Default)]
struct Inodes {
    /// By the number's upper bits: the lower ones.
    words: HashMap<u32, u64>,
}

impl Inodes {
    fn add(&mut self, ino: u32) {
        *self.words.entry(ino / 64).or_default() |= 1 << (ino % 64);
    }

    fn has(&self, ino: u32) -> bool {
        let word = self.words.get(&(ino / 64)).copied().unwrap_or_default();
        word & 1 << (ino % 64) != 0
    }
}

fn parse_size(text: &str) -> Result<Count, String> {
    Ok(match text.as_bytes() {
        [b'+', ..] => Count::MoreThan(size::parse(&text[1..])?),
        [b'-', ..] => Count::LessThan(size::parse(&text[1..])?),
        _ => Count::Exactly(size::parse(text)?),
    })
}

fn parse_perm(text: &str) -> Result<Perm, String> {
    let octal = |digits: &str| {
        u16::from_str_radix(digits, 8)
            .ok()
            .filter(|&bits| bits <= 0o7777)
            .ok_or_else(|| format!("{text:?} is not a mode: write octal digits, such as 755"))
    };
    Ok(match text.as_bytes() {
        [b'-', ..] => Perm::All(octal(&text[1..])?),
        [b'/', ..] => Perm::Any(octal(&text[1..])?),
        _ => Perm::Exactly(octal(text)?),
    })
}
