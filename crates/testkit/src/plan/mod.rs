//! A file tree before it exists.
//!
//! One [`TreePlan`] can be planted in a directory ([`TreePlan::plant`]), written as tar in several
//! dialects ([`TreePlan::write_tar`]) and turned into what any faithful copy must look like
//! ([`TreePlan::expected`]). Content is made from seeds, so a plan of gigabytes is small.

mod content;
mod plant;
mod tar;

use std::collections::BTreeMap;

pub use content::{Content, Piece};
pub use tar::{SparseForm, TarForm};

use crate::tree::{Entry, Kind, Time, Tree};

/// A tree to be: nodes in the order they are made, parents before children, link targets before
/// links. The first node is the root.
#[derive(Debug, Clone)]
pub struct TreePlan {
    nodes: Vec<Node>,
    index: BTreeMap<Vec<u8>, usize>,
}

/// One name of the tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Path relative to the root; empty for the root.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits with setuid, setgid, sticky. Not used for hard links.
    pub mode: u16,
    /// Owner. Not used for hard links.
    pub uid: u32,
    /// Group. Not used for hard links.
    pub gid: u32,
    /// Modification and access time. Not used for hard links.
    pub mtime: Time,
    /// Extended attributes by full name. Not used for hard links.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The kinds of node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A further name of the node at this path.
    HardLink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket; tar cannot hold it.
    Socket,
    /// A character device, major and minor number.
    CharDevice(u32, u32),
    /// A block device, major and minor number.
    BlockDevice(u32, u32),
}

impl Default for TreePlan {
    fn default() -> TreePlan {
        TreePlan::new()
    }
}

impl TreePlan {
    /// Returns an empty tree: a root with mode 755.
    pub fn new() -> TreePlan {
        let mut plan = TreePlan {
            nodes: Vec::new(),
            index: BTreeMap::new(),
        };
        plan.push(b"".to_vec(), NodeKind::Directory, 0o755);
        plan
    }

    /// Returns the nodes, parents first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes, to change their attributes; paths and kinds must stay.
    pub fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut()
    }

    /// Returns the node at `path`.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn node_mut(&mut self, path: impl AsRef<[u8]>) -> &mut Node {
        let path = path.as_ref();
        let index = self
            .index
            .get(path)
            .unwrap_or_else(|| panic!("no {}", path.escape_ascii()));
        &mut self.nodes[*index]
    }

    /// Adds a directory.
    pub fn dir(&mut self, path: impl Into<Vec<u8>>) -> &mut Node {
        self.push(path.into(), NodeKind::Directory, 0o755)
    }

    /// Adds a file.
    pub fn file(&mut self, path: impl Into<Vec<u8>>, content: Content) -> &mut Node {
        self.push(path.into(), NodeKind::File(content), 0o644)
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: impl Into<Vec<u8>>, target: impl Into<Vec<u8>>) -> &mut Node {
        self.push(path.into(), NodeKind::Symlink(target.into()), 0o777)
    }

    /// Adds another name for the node at `target`.
    ///
    /// # Panics
    ///
    /// When there is no such node yet, or it is a directory or itself a link.
    pub fn hard_link(&mut self, path: impl Into<Vec<u8>>, target: impl Into<Vec<u8>>) {
        let target = target.into();
        let kind = &self.node_mut(&target).kind;
        assert!(
            !matches!(kind, NodeKind::Directory | NodeKind::HardLink(_)),
            "link to a {kind:?}"
        );
        self.push(path.into(), NodeKind::HardLink(target), 0);
    }

    /// Adds a node of any kind.
    pub fn special(&mut self, path: impl Into<Vec<u8>>, kind: NodeKind) -> &mut Node {
        self.push(path.into(), kind, 0o644)
    }

    fn push(&mut self, path: Vec<u8>, kind: NodeKind, mode: u16) -> &mut Node {
        if !path.is_empty() {
            let cut = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
            assert!(
                self.index.contains_key(&path[..cut]),
                "{} comes before its directory",
                path.escape_ascii()
            );
        }
        let at = self.nodes.len();
        assert!(
            self.index.insert(path.clone(), at).is_none(),
            "{} is planned twice",
            path.escape_ascii()
        );
        // Every node has a time of its own, so that a mix-up shows.
        let n = at as u64;
        let nsec = n.wrapping_mul(0x9e37_79b9) % 1_000_000_000;
        let mtime = Time::new(1_500_000_000 + n.cast_signed(), nsec as u32);
        self.nodes.push(Node {
            path,
            kind,
            mode,
            uid: 0,
            gid: 0,
            mtime,
            xattrs: BTreeMap::new(),
        });
        &mut self.nodes[at]
    }

    /// Returns the plan without the nodes that `keep` refuses, nor links to them.
    ///
    /// # Panics
    ///
    /// When a directory is refused but something below it kept.
    pub fn filtered(self, keep: impl Fn(&Node) -> bool) -> TreePlan {
        let mut plan = TreePlan {
            nodes: Vec::new(),
            index: BTreeMap::new(),
        };
        for node in self.nodes {
            let lost_target =
                matches!(&node.kind, NodeKind::HardLink(t) if !plan.index.contains_key(t));
            if keep(&node) && !lost_target {
                let (mode, kind, path) = (node.mode, node.kind.clone(), node.path.clone());
                *plan.push(path, kind, mode) = node;
            }
        }
        plan
    }

    /// Returns the plan cut down to what a user that is not root can plant and read back: own files
    /// only, no devices, only `user.` and ACL xattrs, everything readable by its owner.
    pub fn unprivileged(self) -> TreePlan {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let mut plan = self.filtered(|node| {
            !matches!(
                node.kind,
                NodeKind::CharDevice(..) | NodeKind::BlockDevice(..)
            )
        });
        for node in &mut plan.nodes {
            (node.uid, node.gid) = (uid.as_raw(), gid.as_raw());
            node.xattrs
                .retain(|k, _| k.starts_with(b"user.") || k.starts_with(b"system."));
            node.mode |= if node.kind == NodeKind::Directory {
                0o700
            } else {
                0o600
            };
        }
        plan
    }

    /// Returns what a faithful copy of this tree looks like. Access times are the modification
    /// times.
    pub fn expected(&self) -> Tree {
        let mut tree = Tree::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if let NodeKind::HardLink(target) = &node.kind {
                let mut entry = tree.entries[target].clone();
                entry.nlink = 0;
                tree.insert(node.path.clone(), entry);
                continue;
            }
            let mut entry = Entry::new(expected_kind(&node.kind));
            entry.mode = node.mode;
            entry.uid = node.uid;
            entry.gid = node.gid;
            entry.inode = at as u64 + 1;
            entry.mtime = node.mtime;
            entry.atime = Some(node.mtime);
            entry.xattrs.clone_from(&node.xattrs);
            tree.insert(node.path.clone(), entry);
        }
        tree
    }
}

fn expected_kind(kind: &NodeKind) -> Kind {
    match kind {
        NodeKind::Directory => Kind::Directory,
        NodeKind::File(content) => Kind::File {
            size: content.size,
            digest: content.digest(),
            data: Some(content.data_map()),
        },
        NodeKind::Symlink(target) => Kind::Symlink(target.clone()),
        NodeKind::HardLink(_) => unreachable!("links are resolved by the caller"),
        NodeKind::Fifo => Kind::Fifo,
        NodeKind::Socket => Kind::Socket,
        NodeKind::CharDevice(major, minor) => Kind::CharDevice(*major, *minor),
        NodeKind::BlockDevice(major, minor) => Kind::BlockDevice(*major, *minor),
    }
}

impl Node {
    /// Sets the permission bits.
    pub fn mode(&mut self, mode: u16) -> &mut Node {
        self.mode = mode;
        self
    }

    /// Sets owner and group.
    pub fn owner(&mut self, uid: u32, gid: u32) -> &mut Node {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Sets modification and access time.
    pub fn time(&mut self, sec: i64, nsec: u32) -> &mut Node {
        self.mtime = Time::new(sec, nsec);
        self
    }

    /// Adds an extended attribute.
    pub fn xattr(&mut self, name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Node {
        self.xattrs.insert(name.into(), value.into());
        self
    }

    /// Adds a POSIX access ACL with one named user and one named group, and sets the group bits of
    /// the mode to the ACL's mask, as the kernel keeps them.
    pub fn access_acl(&mut self, user: u32, group: u32) -> &mut Node {
        let (owner, other) = ((self.mode >> 6) & 7, self.mode & 7);
        let entries = [
            (AclTag::UserObj, owner, NO_ID),
            (AclTag::User, 5, user),
            (AclTag::GroupObj, 4, NO_ID),
            (AclTag::Group, 6, group),
            (AclTag::Mask, 7, NO_ID),
            (AclTag::Other, other, NO_ID),
        ];
        self.mode |= 0o070;
        self.xattr("system.posix_acl_access", encode_acl(&entries))
    }

    /// Adds a default ACL, which new entries of a directory inherit.
    pub fn default_acl(&mut self, user: u32) -> &mut Node {
        let entries = [
            (AclTag::UserObj, 7, NO_ID),
            (AclTag::User, 7, user),
            (AclTag::GroupObj, 5, NO_ID),
            (AclTag::Mask, 7, NO_ID),
            (AclTag::Other, 0, NO_ID),
        ];
        self.xattr("system.posix_acl_default", encode_acl(&entries))
    }
}

const NO_ID: u32 = u32::MAX;

/// The users that an ACL entry is about (the values of `linux/posix_acl.h`).
#[derive(Debug, Clone, Copy)]
enum AclTag {
    UserObj = 1,
    User = 2,
    GroupObj = 4,
    Group = 8,
    Mask = 0x10,
    Other = 0x20,
}

/// The xattr form of a POSIX ACL (version 2): 4 bytes of version, then 8 bytes an entry.
fn encode_acl(entries: &[(AclTag, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend((*tag as u16).to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Returns the value of `security.capability` (version 2) that grants the `permitted` set on exec.
pub fn file_capability(permitted: u64) -> Vec<u8> {
    const VERSION_2_EFFECTIVE: u32 = 0x0200_0001;
    let (low, high) = (permitted as u32, (permitted >> 32) as u32);
    [VERSION_2_EFFECTIVE, low, 0, high, 0]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect()
}
