//! One state of a lane beside one recovered tree.

use std::collections::{BTreeMap, HashMap};

use super::acl::{ACCESS_ACL, DEFAULT_ACL, access_acl, default_acl};
use super::data::{DataLog, When};
use super::found::read_parts;
use super::history::{DataPromise, Lane, Outcome};
use super::state::{Id, Inode, Kind, ROOT, State};
use super::{Found, FoundKind, Op, xattr_value};

/// What was found of a lane, by path within the lane.
pub(super) type LaneTree<'a> = BTreeMap<&'a str, &'a Found>;

/// Compares the state before operation `when.prefix` with what was found.
pub(super) struct Comparison<'a> {
    pub(super) lane: &'a Lane,
    pub(super) when: When,
    /// Where writes to each file became durable.
    pub(super) durable: &'a dyn Fn(Id) -> usize,
}

impl Comparison<'_> {
    /// The differences, as sentences; at most `limit`.
    pub(super) fn differences(&self, found: &LaneTree<'_>, limit: usize) -> Vec<String> {
        let state = self.lane.state_before(self.when.prefix);
        let named = state.named();
        let mut all = Vec::new();
        self.names(state, &named, found, limit, &mut all);
        // Content costs most: when only the verdict is wanted, it comes last.
        if all.len() < limit {
            for (path, id) in &named {
                if all.len() < limit
                    && let Some(there) = found.get(path.as_str())
                {
                    all.extend(self.content(path, *id, there));
                }
            }
        }
        all
    }

    fn names(
        &self,
        state: &State,
        named: &[(String, Id)],
        found: &LaneTree<'_>,
        limit: usize,
        all: &mut Vec<String>,
    ) {
        let mut inodes: HashMap<Id, (u64, &str)> = HashMap::new();
        let mut ids: HashMap<u64, Id> = HashMap::new();
        let mut met = 0;
        for (path, id) in named {
            if all.len() >= limit {
                return;
            }
            let full = self.lane.path(path);
            let Some(there) = found.get(path.as_str()) else {
                // A lane that owns only some names of a directory has no root of its own.
                if *id != ROOT {
                    all.push(format!("{full} is missing"));
                }
                continue;
            };
            met += 1;
            self.attributes(&full, *id, state.inode(*id), there, all);
            let (inode, name) = *inodes.entry(*id).or_insert((there.inode, path));
            if inode != there.inode {
                all.push(format!("{full} and {name} are no longer links of one file"));
            }
            if *ids.entry(there.inode).or_insert(*id) != *id {
                all.push(format!(
                    "{full} has inode {}, which another file has too",
                    there.inode
                ));
            }
        }
        if met < found.len() {
            let known: std::collections::HashSet<&str> =
                named.iter().map(|(path, _)| path.as_str()).collect();
            let extra = found.keys().filter(|path| !known.contains(*path));
            let extra = extra.map(|path| format!("{} should not be there", self.lane.path(path)));
            all.extend(extra.take(limit.saturating_sub(all.len())));
        }
    }

    fn attributes(&self, path: &str, id: Id, inode: &Inode, there: &Found, all: &mut Vec<String>) {
        let is_right_kind = match (&inode.kind, &there.kind) {
            (Kind::Directory(_), FoundKind::Directory) => true,
            (Kind::File { .. }, FoundKind::File { size, .. }) => {
                let (least, most) = self.sizes(id, inode);
                if *size < least || *size > most {
                    let wanted = if least == most {
                        format!("{least}")
                    } else {
                        format!("{least} to {most}")
                    };
                    all.push(format!("{path} has size {size}, not {wanted}"));
                }
                true
            }
            (Kind::Symlink(target), FoundKind::Symlink(points)) => {
                if target != points {
                    all.push(format!("{path} points to {points:?}, not {target:?}"));
                }
                true
            }
            (Kind::Node(node), FoundKind::Node(there)) => node == there,
            _ => false,
        };
        if !is_right_kind {
            all.push(format!("{path} is {}", there.kind.name()));
            return;
        }
        // The root's attributes are the business of the program that made the file system.
        if id == ROOT {
            return;
        }
        if inode.mode != there.mode {
            let (got, wanted) = (there.mode, inode.mode);
            all.push(format!("{path} has mode {got:o}, not {wanted:o}"));
        }
        if (inode.uid, inode.gid) != (there.uid, there.gid) {
            all.push(format!(
                "{path} belongs to {}:{}, not {}:{}",
                there.uid, there.gid, inode.uid, inode.gid
            ));
        }
        if there.nlink != 0 && there.nlink != u64::from(inode.links) {
            let (got, wanted) = (there.nlink, inode.links);
            all.push(format!("{path} has link count {got}, not {wanted}"));
        }
        let xattrs = inode.xattrs.iter();
        let mut wanted: BTreeMap<_, _> = xattrs
            .map(|(name, len)| (name.clone(), xattr_value(name, *len)))
            .collect();
        if inode.listed {
            wanted.insert(ACCESS_ACL.to_owned(), access_acl(inode.mode));
        }
        if inode.hands_down {
            wanted.insert(DEFAULT_ACL.to_owned(), default_acl());
        }
        if wanted != there.xattrs {
            let shown = |all: &BTreeMap<String, Vec<u8>>| {
                let each = all
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.len()));
                each.collect::<Vec<_>>().join(", ")
            };
            let (got, wanted) = (shown(&there.xattrs), shown(&wanted));
            all.push(format!(
                "{path} has the extended attributes [{got}], not [{wanted}]"
            ));
        }
        if let Some(got) = there.no_dump.filter(|got| *got != inode.no_dump) {
            all.push(format!("{path} has the flag nodump: {got}"));
        }
        if let Some(mtime) = inode.mtime
            && mtime != there.mtime
            && self.write_in_part() != Some(id)
        {
            all.push(format!(
                "{path} was changed at {}, not {mtime}",
                there.mtime
            ));
        }
    }

    /// The file that the operation after the prefix writes, when it had begun. A refused write
    /// changed nothing, but blocks may be reserved up to where space ran out.
    fn write_in_part(&self) -> Option<Id> {
        let step = self.lane.steps().get(self.when.prefix)?;
        let may_be = self.when.prefix < self.when.begun;
        let refused = matches!(step.outcome, Outcome::Refused(_))
            && !matches!(step.op, Op::Allocate { .. } | Op::Zero { .. });
        (may_be && !refused).then_some(step.written).flatten()
    }

    /// The sizes that a file may have.
    fn sizes(&self, id: Id, inode: &Inode) -> (u64, u64) {
        let size = size_in(inode);
        let most = if self.write_in_part() == Some(id) {
            let next = self.lane.state_before(self.when.prefix + 1);
            next.get(id).map_or(size, size_in).max(size)
        } else {
            size
        };
        let least = match self.when.promise {
            DataPromise::InOrder => size,
            DataPromise::Delayed => {
                let when = self.when_for(id);
                let log = self.lane.data_of(id);
                log.map_or(size, |log| log.durable_size(when)).min(size)
            }
        };
        (least, most)
    }

    fn when_for(&self, id: Id) -> When {
        let state = self.lane.state_before(self.when.prefix);
        When {
            size: state.get(id).map_or(0, size_in),
            durable: (self.durable)(id),
            ..self.when
        }
    }

    fn content(&self, path: &str, id: Id, there: &Found) -> Option<String> {
        let FoundKind::File { size, data } = &there.kind else {
            return None;
        };
        let nothing = DataLog::default();
        let log = self.lane.data_of(id).unwrap_or(&nothing);
        let read = |offset, buf: &mut [u8]| read_parts(data, offset, buf);
        let bad = log.check(*size, self.when_for(id), read)?;
        Some(format!(
            "{} holds {} at byte {} (legal: {})",
            self.lane.path(path),
            bad.holds,
            bad.offset,
            bad.legal
        ))
    }
}

/// The size of a file.
fn size_in(inode: &Inode) -> u64 {
    match inode.kind {
        Kind::File { size } => size,
        Kind::Directory(_) | Kind::Symlink(_) | Kind::Node(_) => 0,
    }
}
