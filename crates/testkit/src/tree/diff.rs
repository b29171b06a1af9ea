//! Telling two trees apart, in sentences.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use super::{Entry, Kind, Time, Tree};

/// What two trees must agree on. The default asks for everything an archiver keeps.
#[derive(Debug, Clone)]
pub struct Compare {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Modification times.
    pub mtime: bool,
    /// Access times, where both sides recorded them.
    pub atime: bool,
    /// Inode change times, where both sides recorded them.
    pub ctime: bool,
    /// Only whole seconds of times count (inodes of 128 bytes, old tar formats).
    pub whole_seconds: bool,
    /// Extended attributes, names and values.
    pub xattrs: bool,
    /// Which names are links of one inode.
    pub links: bool,
    /// Link counts.
    pub nlink: bool,
    /// Device numbers.
    pub devices: bool,
    /// Allocated space, where both sides recorded it.
    pub blocks: bool,
    /// Places of data and holes.
    pub holes: Holes,
    /// The root directory's own attributes.
    pub root: bool,
    /// Paths left out with everything below them.
    pub ignore: Vec<Vec<u8>>,
}

/// How holes are compared, when both sides recorded them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Not at all.
    Ignore,
    /// Rounded out to blocks of this many bytes, data lies in the same places.
    Same(u64),
    /// Rounded out to blocks of this many bytes, the right has data only where the left has: the
    /// right may turn blocks of zeros into holes, but never the other way round.
    NoneLost(u64),
}

impl Default for Compare {
    fn default() -> Compare {
        Compare {
            mode: true,
            owner: true,
            mtime: true,
            atime: false,
            ctime: false,
            whole_seconds: false,
            xattrs: true,
            links: true,
            nlink: false,
            devices: true,
            blocks: false,
            holes: Holes::Ignore,
            root: true,
            ignore: vec![b"lost+found".to_vec()],
        }
    }
}

impl Compare {
    /// Returns what two readers of one image must agree on: all of it.
    pub fn same_image() -> Compare {
        Compare {
            atime: true,
            ctime: true,
            nlink: true,
            blocks: true,
            holes: Holes::Same(1),
            ignore: Vec::new(),
            ..Compare::default()
        }
    }

    /// Returns what the `ext4-view` crate can report.
    pub fn ext4_view() -> Compare {
        Compare {
            xattrs: false,
            links: false,
            devices: false,
            ..Compare::default()
        }
    }
}

/// One way in which the right tree is not the left one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where.
    pub path: Vec<u8>,
    /// What, as a sentence fragment: "mode: 644 on the left, 600 on the right".
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}", self.path.escape_ascii(), self.what)
    }
}

impl Tree {
    /// Returns every difference between this tree (left) and `right`, in path order.
    pub fn diff(&self, right: &Tree, compare: &Compare) -> Vec<Difference> {
        let links = compare
            .links
            .then(|| (link_classes(self), link_classes(right)));
        let mut found = Vec::new();
        let mut note = |path: &[u8], what: String| {
            found.push(Difference {
                path: path.to_vec(),
                what,
            });
        };
        for (path, left) in self.entries.iter().filter(|(p, _)| compare.covers(p)) {
            let Some(right) = right.entries.get(path) else {
                note(path, format!("{} missing on the right", left.kind.name()));
                continue;
            };
            compare_entries(left, right, compare, &mut |what| note(path, what));
            if let Some((of_left, of_right)) = &links {
                let (l, r) = (of_left.get(path.as_slice()), of_right.get(path.as_slice()));
                if l != r {
                    note(
                        path,
                        format!("links: {} left, {} right", class(l), class(r)),
                    );
                }
            }
        }
        for (path, extra) in right.entries.iter().filter(|(p, _)| compare.covers(p)) {
            if !self.entries.contains_key(path) {
                note(path, format!("{} only on the right", extra.kind.name()));
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// Expects `actual` to be this tree.
    ///
    /// # Panics
    ///
    /// With the first differences and their number, when it is not.
    #[track_caller]
    pub fn assert_same(&self, actual: &Tree, compare: &Compare) {
        const SHOWN: usize = 40;
        let differences = self.diff(actual, compare);
        if differences.is_empty() {
            return;
        }
        let shown: String = differences
            .iter()
            .take(SHOWN)
            .map(|d| format!("\n  {d}"))
            .collect();
        let more = differences.len().saturating_sub(SHOWN);
        let rest = if more > 0 {
            format!("\n  and {more} more")
        } else {
            String::new()
        };
        panic!(
            "the trees differ in {} places (left: expected, {} entries; right: actual, {} entries){shown}{rest}",
            differences.len(),
            self.len(),
            actual.len(),
        );
    }
}

impl Compare {
    fn covers(&self, path: &[u8]) -> bool {
        !self.ignore.iter().any(|ignored| {
            path.strip_prefix(ignored.as_slice())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        }) && (self.root || !path.is_empty())
    }

    fn same_time(&self, left: Time, right: Time) -> bool {
        left.sec == right.sec && (self.whole_seconds || left.nsec == right.nsec)
    }
}

/// For each name of an inode with several names in the tree, the first of them.
fn link_classes(tree: &Tree) -> HashMap<&[u8], &[u8]> {
    let mut names: HashMap<u64, Vec<&[u8]>> = HashMap::new();
    for (path, entry) in &tree.entries {
        if entry.inode != 0 && entry.kind != Kind::Directory {
            names.entry(entry.inode).or_default().push(path);
        }
    }
    let several = names.into_values().filter(|paths| paths.len() > 1);
    several
        .flat_map(|paths| paths.clone().into_iter().map(move |p| (p, paths[0])))
        .collect()
}

fn class(first: Option<&&[u8]>) -> String {
    first.map_or("a single name".to_owned(), |p| {
        format!("one inode with /{}", p.escape_ascii())
    })
}

fn compare_entries(left: &Entry, right: &Entry, compare: &Compare, note: &mut dyn FnMut(String)) {
    compare_kinds(&left.kind, &right.kind, compare, note);
    if compare.mode && left.mode != right.mode {
        note(format!(
            "mode: {:04o} left, {:04o} right",
            left.mode, right.mode
        ));
    }
    if compare.owner && (left.uid, left.gid) != (right.uid, right.gid) {
        let (l, r) = (left, right);
        note(format!(
            "owner: {}:{} left, {}:{} right",
            l.uid, l.gid, r.uid, r.gid
        ));
    }
    let mut times = vec![("mtime", compare.mtime, Some(left.mtime), Some(right.mtime))];
    times.push(("atime", compare.atime, left.atime, right.atime));
    times.push(("ctime", compare.ctime, left.ctime, right.ctime));
    for (name, wanted, l, r) in times {
        if let (true, Some(l), Some(r)) = (wanted, l, r)
            && !compare.same_time(l, r)
        {
            note(format!("{name}: {l} left, {r} right"));
        }
    }
    if compare.nlink && left.nlink != right.nlink && left.nlink != 0 && right.nlink != 0 {
        note(format!(
            "link count: {} left, {} right",
            left.nlink, right.nlink
        ));
    }
    if let (true, Some(l), Some(r)) = (compare.blocks, left.blocks, right.blocks)
        && l != r
    {
        note(format!("allocated: {l} sectors left, {r} right"));
    }
    if compare.xattrs && left.xattrs != right.xattrs {
        compare_xattrs(&left.xattrs, &right.xattrs, note);
    }
}

fn compare_kinds(left: &Kind, right: &Kind, compare: &Compare, note: &mut dyn FnMut(String)) {
    match (left, right) {
        (
            Kind::File {
                size: l_size,
                digest: l_digest,
                data: l_data,
            },
            Kind::File {
                size: r_size,
                digest: r_digest,
                data: r_data,
            },
        ) => {
            if l_size != r_size {
                note(format!("size: {l_size} bytes left, {r_size} right"));
            } else if l_digest != r_digest {
                note(format!("content of {l_size} bytes differs"));
            }
            if let (Some(l), Some(r)) = (l_data, r_data) {
                compare_holes(l, r, compare.holes, note);
            }
        }
        (Kind::CharDevice(..), Kind::CharDevice(..))
        | (Kind::BlockDevice(..), Kind::BlockDevice(..))
            if !compare.devices => {}
        (Kind::Symlink(l), Kind::Symlink(r)) if l != r => {
            note(format!("target: {:?} left, {:?} right", quote(l), quote(r)));
        }
        (l, r) if l.name() != r.name() => {
            note(format!("type: {} left, {} right", l.name(), r.name()));
        }
        (Kind::CharDevice(a, b), Kind::CharDevice(c, d))
        | (Kind::BlockDevice(a, b), Kind::BlockDevice(c, d))
            if (a, b) != (c, d) =>
        {
            note(format!("device: {a}:{b} left, {c}:{d} right"));
        }
        _ => {}
    }
}

fn compare_holes(
    left: &[Range<u64>],
    right: &[Range<u64>],
    holes: Holes,
    note: &mut dyn FnMut(String),
) {
    let (Holes::Same(block) | Holes::NoneLost(block)) = holes else {
        return;
    };
    let (left, right) = (round_out(left, block), round_out(right, block));
    let within = |inner: &[Range<u64>], outer: &[Range<u64>]| {
        let covered = |i: &Range<u64>| {
            let after = outer.partition_point(|o| o.start <= i.start);
            after > 0 && i.end <= outer[after - 1].end
        };
        inner.iter().find(|i| !covered(i)).cloned()
    };
    if let Some(lost) = within(&right, &left) {
        note(format!("holes: data at {lost:?} right, not all of it left"));
    } else if let (Holes::Same(_), Some(missing)) = (holes, within(&left, &right)) {
        note(format!(
            "holes: data at {missing:?} left, not all of it right"
        ));
    }
}

/// The ranges rounded out to whole blocks, touching ones joined.
fn round_out(ranges: &[Range<u64>], block: u64) -> Vec<Range<u64>> {
    let block = block.max(1);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges.iter().filter(|r| !r.is_empty()) {
        let (start, end) = (
            range.start / block * block,
            range.end.div_ceil(block) * block,
        );
        match joined.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => joined.push(start..end),
        }
    }
    joined
}

type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

fn compare_xattrs(left: &Xattrs, right: &Xattrs, note: &mut dyn FnMut(String)) {
    for (name, l) in left {
        match right.get(name) {
            None => note(format!(
                "xattr {} missing on the right",
                name.escape_ascii()
            )),
            Some(r) if r != l => note(format!(
                "xattr {}: {:?} left, {:?} right",
                name.escape_ascii(),
                quote(l),
                quote(r)
            )),
            Some(_) => {}
        }
    }
    for name in right.keys().filter(|name| !left.contains_key(*name)) {
        note(format!("xattr {} only on the right", name.escape_ascii()));
    }
}

/// The bytes as text, shortened.
fn quote(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    if bytes.len() > SHOWN {
        format!("{shown}... ({} bytes)", bytes.len())
    } else {
        shown.to_string()
    }
}
