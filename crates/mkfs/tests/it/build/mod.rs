//! Images built from a source: `e2fsck` finds nothing, and the kernel shows the source again.

mod kernel_writes;
mod large_directories;
mod limits;
mod lost_found;
mod machine;
mod matrix;
mod output;
mod quotas;
mod random;
mod reproducible;
mod served;
mod smallest;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use extant_format::BlockSize;
use extant_mkfs::defaults::{FormatOptions, InodeDensity, JournalSize, Profile};
use extant_mkfs::source::{
    Content, FileType, Meta, NodeId, ScanOptions, Times, Timestamp, Tree, TreeBuilder, Xattr,
    scan_directory,
};
use extant_mkfs::{BuildError, BuildOptions, Headroom, Report, Silent, Size};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle;
use extant_testkit::plan::{NodeKind, TreePlan};
use extant_testkit::tree::{self, Compare, Holes};
use tempfile::TempDir;

/// When everything in these tests is made.
const TIME: u64 = 1_600_000_000;
const MIB: u64 = 1 << 20;

/// A place for sources and images; in memory where there is one that keeps attributes.
pub(crate) fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::Builder::new()
            .prefix("extant-build-")
            .tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a directory for temporary files")
}

/// One way of making a file system.
#[derive(Debug, Clone)]
struct Variant {
    block: u32,
    inode: u32,
    profile: Profile,
    features: &'static str,
    journal: JournalSize,
    cluster: Option<u32>,
}

impl Variant {
    fn new(block: u32, inode: u32, profile: Profile, features: &'static str) -> Self {
        Self {
            block,
            inode,
            profile,
            features,
            journal: JournalSize::BySize,
            cluster: None,
        }
    }

    fn without_journal(mut self) -> Self {
        self.journal = JournalSize::None;
        self
    }

    fn clusters(mut self, bytes: u32) -> Self {
        self.cluster = Some(bytes);
        self
    }

    fn has(&self, feature: &str) -> bool {
        self.features.split(',').any(|f| f == feature)
    }

    fn format(&self, size: u64) -> FormatOptions {
        let mut format = FormatOptions::reproducible(size, TIME, b"variant");
        format.block_size = Some(BlockSize::from_bytes(self.block).unwrap());
        format.inode_size = self.inode;
        format.profile = self.profile;
        format.features = self.features.parse().unwrap();
        format.journal = self.journal;
        format.cluster_size = self.cluster;
        format
    }

    fn auto(&self) -> BuildOptions {
        with(self.format(0), Size::Auto(Headroom::default()))
    }
}

/// These options, with two threads.
fn with(format: FormatOptions, size: Size) -> BuildOptions {
    BuildOptions::new(format, size).threads(NonZero::new(2))
}

/// An image with everything by default and as small as it can be.
fn auto() -> BuildOptions {
    with(
        FormatOptions::reproducible(0, TIME, b"auto"),
        Size::Auto(Headroom::default()),
    )
}

/// An image of this size with everything else by default.
fn sized(bytes: u64) -> BuildOptions {
    with(
        FormatOptions::reproducible(0, TIME, b"sized"),
        Size::Bytes(bytes),
    )
}

fn try_build(tree: &Tree, image: &Path, options: &BuildOptions) -> Result<Report, BuildError> {
    extant_mkfs::build(Some(tree), image, None, options, &Silent)
}

/// Builds an image that `e2fsck` has nothing to say about.
#[track_caller]
fn build_clean(tree: &Tree, image: &Path, options: &BuildOptions) -> Report {
    let report = try_build(tree, image, options)
        .unwrap_or_else(|e| panic!("cannot build: {e}\n{options:?}"));
    oracle::assert_clean(image);
    report
}

/// What a mount of the image must agree on with the source: everything an inode can say, but
/// access times, which looking at a source changes.
fn everything(block: u64, inode: u32) -> Compare {
    Compare {
        whole_seconds: inode <= 128,
        holes: Holes::Same(block.max(4096)),
        ..Compare::default()
    }
}

/// What the kernel sees in an image.
fn mounted(image: &Path) -> tree::Tree {
    let mount = KernelMount::mount(image, Mode::Untouched, "");
    tree::Tree::snapshot(mount.path())
}

/// A plan planted in a directory.
fn planted(plan: &TreePlan, dir: &Path, name: &str) -> PathBuf {
    let root = dir.join(name);
    std::fs::create_dir(&root).unwrap();
    plan.plant(&root);
    root
}

fn scan(root: &Path) -> Tree {
    scan_directory(root, &ScanOptions::default()).unwrap()
}

/// A plan as a source in memory: sparse files become full ones.
fn in_memory(plan: &TreePlan) -> Tree {
    let mut nodes: std::collections::HashMap<&[u8], NodeId> = std::collections::HashMap::new();
    let mut builder: Option<TreeBuilder> = None;
    for node in plan.nodes() {
        let (parent, name) = match node.path.iter().rposition(|&b| b == b'/') {
            Some(cut) => (&node.path[..cut], &node.path[cut + 1..]),
            None => (&b""[..], &node.path[..]),
        };
        let Some(builder) = &mut builder else {
            builder = Some(TreeBuilder::new(meta_of(node)).unwrap());
            nodes.insert(b"", NodeId::ROOT);
            continue;
        };
        let bytes;
        let content = match &node.kind {
            NodeKind::HardLink(target) => {
                let target = nodes[target.as_slice()];
                builder.link(nodes[parent], name, target).unwrap();
                continue;
            }
            NodeKind::Directory => Content::Directory,
            NodeKind::File(content) if content.pieces.is_empty() => Content::Hole(content.size),
            NodeKind::File(content) => {
                bytes = content.to_bytes();
                Content::Inline(&bytes)
            }
            NodeKind::Symlink(target) => Content::Symlink(target),
            NodeKind::Fifo => Content::Fifo,
            NodeKind::Socket => Content::Socket,
            NodeKind::CharDevice(major, minor) => Content::Device {
                kind: FileType::CharDevice,
                major: *major,
                minor: *minor,
            },
            NodeKind::BlockDevice(major, minor) => Content::Device {
                kind: FileType::BlockDevice,
                major: *major,
                minor: *minor,
            },
        };
        let id = builder.add(meta_of(node), content).unwrap();
        builder.link(nodes[parent], name, id).unwrap();
        nodes.insert(&node.path, id);
    }
    builder.expect("a plan has a root").finish().unwrap()
}

fn meta_of(node: &extant_testkit::plan::Node) -> Meta {
    let time = Timestamp {
        secs: node.mtime.sec,
        nanos: node.mtime.nsec,
    };
    Meta {
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        times: Times::all(time),
        xattrs: node
            .xattrs
            .iter()
            .map(|(name, value)| Xattr {
                name: name.as_slice().into(),
                value: value.as_slice().into(),
            })
            .collect(),
        flags: 0,
    }
}

/// An empty directory or file of root's.
fn plain(mode: u16) -> Meta {
    Meta::plain(mode, Times::all(Timestamp::from_secs(TIME as i64)))
}

/// A source in memory with a root of mode 755.
fn builder() -> TreeBuilder {
    TreeBuilder::new(plain(0o755)).unwrap()
}

/// As many inodes as asked for, at least.
fn inodes(count: u32) -> InodeDensity {
    InodeDensity::Count(count)
}

/// Whether the long form of these tests is asked for.
fn in_full() -> bool {
    extant_testkit::facility::is_full_run()
}
