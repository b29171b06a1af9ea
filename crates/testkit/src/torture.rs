//! Trees worth testing with.

use crate::plan::{Content, NodeKind, TreePlan, file_capability};
use crate::rng::Rng;

/// How big the torture tree is and what its carrier can hold. Start from [`TortureSpec::small`] or
/// [`TortureSpec::full`] and adapt with [`TortureSpec::for_image`].
#[derive(Debug, Clone)]
pub struct TortureSpec {
    /// Where content comes from.
    pub seed: u64,
    /// Entries in one directory.
    pub entries_in_one_dir: usize,
    /// Subdirectories of one directory.
    pub subdirs_in_one_dir: usize,
    /// Bytes of the longest path; the root's own path comes on top and the kernel takes 4095.
    pub longest_path: usize,
    /// Size of the sparse file in bytes, above 2^31 to cross the old limits.
    pub sparse_file_bytes: u64,
    /// Data runs of the fragmented file.
    pub extents: u64,
    /// Bytes of the longest symlink target, at most 4095 and below the block size.
    pub longest_symlink: usize,
    /// Sizes around these block sizes are tried.
    pub block_sizes: Vec<u64>,
    /// Bytes of xattr values that fit in an xattr block.
    pub xattr_block_bytes: usize,
    /// Xattr values too big for a block, up to 60 KiB (feature `ea_inode`, or 64 KiB blocks).
    pub big_xattrs: bool,
    /// Times beyond 32 bits of seconds (inodes larger than 128 bytes).
    pub wide_times: bool,
}

impl TortureSpec {
    /// Returns every corner at a size for every test run: some thousand entries, a few megabytes of
    /// data.
    pub fn small() -> TortureSpec {
        TortureSpec {
            seed: 1,
            entries_in_one_dir: 3000,
            subdirs_in_one_dir: 500,
            longest_path: 3800,
            sparse_file_bytes: (2 << 30) + 4096 + 7,
            extents: 700,
            longest_symlink: 4095,
            block_sizes: vec![1024, 2048, 4096, 65536],
            xattr_block_bytes: 3000,
            big_xattrs: false,
            wide_times: true,
        }
    }

    /// Returns the full size: 100,000 entries in one directory, 65,500 subdirectories, 20,000
    /// extents.
    pub fn full() -> TortureSpec {
        TortureSpec {
            entries_in_one_dir: 100_000,
            subdirs_in_one_dir: 65_500,
            sparse_file_bytes: (5 << 30) + 4096 + 7,
            extents: 20_000,
            ..TortureSpec::small()
        }
    }

    /// Keeps to what an image with these parameters can hold.
    pub fn for_image(mut self, block_size: u64, inode_size: u64, ea_inode: bool) -> TortureSpec {
        self.longest_symlink = self.longest_symlink.min(block_size as usize - 1);
        // Room for the block's header, names, ACLs and capabilities.
        self.xattr_block_bytes = self.xattr_block_bytes.min(block_size as usize - 400);
        self.big_xattrs = ea_inode;
        self.wide_times = inode_size > 128;
        self
    }

    /// Returns the tree.
    pub fn plan(&self) -> TreePlan {
        let mut plan = TreePlan::new();
        plan.node_mut("").mode(0o751).owner(3, 4);
        self.names(&mut plan);
        self.deep(&mut plan);
        self.many(&mut plan);
        self.sizes(&mut plan);
        self.holes(&mut plan);
        self.types(&mut plan);
        self.links(&mut plan);
        self.xattrs(&mut plan);
        self.attributes(&mut plan);
        plan
    }

    fn small_file(&self, n: u64) -> Content {
        Content::filled(self.seed.wrapping_add(n) | 1, n % 100)
    }

    fn names(&self, plan: &mut TreePlan) {
        plan.dir("names");
        let long = |byte: u8| vec![byte; 255];
        let mut names: Vec<Vec<u8>> = vec![
            b"a".to_vec(),
            b"...".to_vec(),
            b" leading and trailing ".to_vec(),
            b"new\nline".to_vec(),
            b"back\\slash\"quote'".to_vec(),
            b"-rf".to_vec(),
            b"*?[glob]$(x)`y`".to_vec(),
            b"\x01\x02\x7f".to_vec(),
            b"latin1-\xe9\xff\x80".to_vec(),
            b"\xff".to_vec(),
            "größe-文件-\u{1f980}".as_bytes().to_vec(),
            // The same letter composed and decomposed: two names.
            "caf\u{e9}".as_bytes().to_vec(),
            "cafe\u{301}".as_bytes().to_vec(),
            b"CASE".to_vec(),
            b"case".to_vec(),
            long(b'x'),
            long(0xfe),
        ];
        // All lengths around the four-byte rounding of directory records.
        names.extend((2..=13).chain(245..=254).map(|n| vec![b'l'; n]));
        for (n, name) in names.iter().enumerate() {
            plan.file(
                [b"names/", name.as_slice()].concat(),
                self.small_file(n as u64),
            );
        }
        plan.dir([b"names/dir-".as_slice(), &[0xc3, 0x28]].concat());
    }

    fn deep(&self, plan: &mut TreePlan) {
        for (top, component) in [("deep-long", 255), ("deep-short", 1)] {
            let mut path = top.as_bytes().to_vec();
            plan.dir(path.clone());
            while path.len() + 1 + component + 5 <= self.longest_path {
                path.push(b'/');
                path.extend(vec![b'd'; component]);
                plan.dir(path.clone());
            }
            path.extend(b"/leaf");
            plan.file(path, Content::filled(self.seed | 1, 10));
        }
    }

    fn many(&self, plan: &mut TreePlan) {
        plan.dir("entries");
        for n in 0..self.entries_in_one_dir {
            let path = format!("entries/{n:06}-{}", "n".repeat(n % 23));
            let size = if n % 16 == 0 { n as u64 % 50 } else { 0 };
            plan.file(path, Content::filled(n as u64 | 1, size));
        }
        plan.dir("subdirs");
        for n in 0..self.subdirs_in_one_dir {
            plan.dir(format!("subdirs/{n}"));
        }
    }

    fn sizes(&self, plan: &mut TreePlan) {
        plan.dir("sizes");
        // Around what fits in the inode, with and without room for xattrs.
        let mut sizes: Vec<u64> = vec![0, 1, 2, 59, 60, 61, 100, 128, 132, 150, 155, 156, 157, 160];
        sizes.extend([161, 200, 800, 900, 1000]);
        for block in &self.block_sizes {
            // Up to and past the 12 direct blocks of an indirect map.
            sizes.extend([
                block - 1,
                *block,
                block + 1,
                12 * block,
                12 * block + 1,
                13 * block - 1,
            ]);
        }
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            plan.file(
                format!("sizes/{size}"),
                Content::filled(self.seed ^ size | 1, size),
            );
        }
        plan.file("sizes/written-zeros", Content::filled(0, 40_000));
    }

    fn holes(&self, plan: &mut TreePlan) {
        plan.dir("holes");
        let seed = self.seed | 1;
        let size = self.sparse_file_bytes;
        let mut islands = vec![
            (0, 10_000),
            (1 << 20, 4096),
            ((1 << 31) - 4096, 8192.min(size)),
        ];
        islands.retain(|(start, len)| start + len <= size);
        if size > 1 << 32 {
            islands.push(((1 << 32) - 1, 3));
        }
        plan.file(
            "holes/sparse-with-tail-hole",
            Content::sparse(seed, size, islands.clone()),
        );
        islands.push((size - 7, 7));
        plan.file("holes/sparse", Content::sparse(seed, size, islands));
        plan.file("holes/only", Content::sparse(seed, 1 << 20, []));
        plan.file("holes/only-odd", Content::sparse(seed, 1_000_001, []));
        plan.file(
            "holes/first",
            Content::sparse(seed, 300_000, [(200_000, 100_000)]),
        );
        plan.file(
            "holes/short-tail",
            Content::sparse(seed, 65_537, [(0, 65_536)]),
        );
        // Data in every other 64 KiB: an extent each at any block size.
        let step = 128 << 10;
        let few = (0..40).map(|n| (n * step, 64 << 10));
        plan.file(
            "holes/alternating-64k",
            Content::sparse(seed, 40 * step, few),
        );
        let runs = (0..self.extents).map(|n| (n * 8192, 4096));
        plan.file(
            "holes/fragmented",
            Content::sparse(seed, self.extents * 8192, runs),
        );
    }

    fn types(&self, plan: &mut TreePlan) {
        plan.dir("types");
        plan.special("types/fifo", NodeKind::Fifo)
            .mode(0o600)
            .owner(1, 2);
        plan.special("types/socket", NodeKind::Socket).mode(0o755);
        plan.special("types/null", NodeKind::CharDevice(1, 3))
            .mode(0o666);
        plan.special("types/old-device", NodeKind::BlockDevice(8, 255))
            .mode(0o660);
        // Beyond 8 bits of major and minor: stored in the new form.
        plan.special("types/new-device", NodeKind::CharDevice(259, 300))
            .mode(0o600);
        plan.special("types/big-device", NodeKind::BlockDevice(4095, 1_048_575))
            .mode(0o600);
        for n in [
            1, 58, 59, 60, 61, 62, 120, 160, 255, 1000, 1022, 1023, 2047, 4094, 4095,
        ] {
            if n <= self.longest_symlink {
                let target: Vec<u8> = b"target/".iter().copied().cycle().take(n).collect();
                plan.symlink(format!("types/symlink-{n}"), target);
            }
        }
        plan.symlink("types/dangling", "nowhere");
        plan.symlink("types/up", "../../../../etc/passwd");
        plan.symlink("types/absolute", "/etc/hostname")
            .owner(70_000, 80_000);
        plan.symlink("types/bytes", b"\xff\xfe \n".as_slice());
    }

    fn links(&self, plan: &mut TreePlan) {
        plan.dir("links");
        plan.dir("links/a");
        plan.dir("links/b");
        plan.file("links/a/file", Content::filled(self.seed | 1, 5000))
            .xattr("user.on", "all");
        plan.hard_link("links/b/file", "links/a/file");
        plan.hard_link("links/top", "links/a/file");
        plan.file("links/empty", Content::empty());
        plan.hard_link("links/b/empty", "links/empty");
        plan.symlink("links/symlink", "a/file");
        plan.hard_link("links/b/symlink", "links/symlink");
        plan.special("links/fifo", NodeKind::Fifo);
        plan.hard_link("links/a/fifo", "links/fifo");
        plan.file("links/many-0", Content::filled(7, 100));
        for n in 1..200 {
            plan.hard_link(format!("links/many-{n}"), "links/many-0");
        }
    }

    fn xattrs(&self, plan: &mut TreePlan) {
        plan.dir("xattrs")
            .xattr("user.dir", "on a directory")
            .xattr("trusted.dir", "t");
        let mut bytes = vec![0; 64 << 10];
        Rng::new(self.seed).fill(&mut bytes);
        let file = |plan: &mut TreePlan, name: &str| {
            plan.file(format!("xattrs/{name}"), Content::filled(9, 30))
                .path
                .clone()
        };
        let path = file(plan, "small");
        plan.node_mut(path)
            .xattr("user.a", "1")
            .xattr("user.b", "")
            .xattr("trusted.c", "3");
        let path = file(plan, "binary");
        plan.node_mut(path)
            .xattr("user.bin", vec![0, 1, 0xff, b'\n', b'=', 0]);
        let path = file(plan, "names");
        let node = plan.node_mut(path);
        node.xattr(format!("user.{}", "n".repeat(200)), "long name");
        node.xattr("user.größe".as_bytes(), "UTF-8");
        // As many values as fit, in no order; then one that overflows the inode; then a whole
        // block.
        let path = file(plan, "several");
        for n in [5, 3, 9, 1, 7, 12, 2] {
            plan.node_mut(&path)
                .xattr(format!("user.k{n}"), vec![b'v'; n]);
        }
        let path = file(plan, "overflow");
        plan.node_mut(path)
            .xattr("user.big", &bytes[..300])
            .xattr("user.small", "s");
        let path = file(plan, "whole-block");
        plan.node_mut(path)
            .xattr("user.block", &bytes[..self.xattr_block_bytes]);
        // The same set on many files: file systems share one block among them.
        for n in 0..60 {
            let path = file(plan, &format!("shared-{n}"));
            plan.node_mut(path).xattr("user.shared", &bytes[..500]);
        }
        if self.big_xattrs {
            for size in [5000, 20_000, 60_000] {
                let path = file(plan, &format!("value-{size}"));
                plan.node_mut(path)
                    .xattr("user.value", &bytes[..size])
                    .xattr("user.s", "s");
            }
            for n in 0..5 {
                let path = file(plan, &format!("shared-value-{n}"));
                plan.node_mut(path).xattr("user.value", &bytes[..10_000]);
            }
        }
        let path = file(plan, "capability");
        plan.node_mut(path)
            .mode(0o755)
            .xattr("security.capability", file_capability(1 << 13));
        let path = file(plan, "acl");
        plan.node_mut(path).mode(0o640).access_acl(1000, 100_000);
        plan.dir("xattrs/default-acl")
            .mode(0o750)
            .access_acl(12, 13)
            .default_acl(4_000_000);
        plan.file("xattrs/default-acl/child", Content::empty())
            .mode(0o600);
        plan.symlink("xattrs/symlink", "small")
            .xattr("trusted.on", "a symlink");
        plan.symlink("xattrs/slow-symlink", "s".repeat(200))
            .xattr("trusted.on", "a slow one");
        plan.special("xattrs/fifo", NodeKind::Fifo)
            .xattr("trusted.on", "a fifo");
    }

    fn attributes(&self, plan: &mut TreePlan) {
        plan.dir("attributes");
        for mode in [
            0o0000, 0o0400, 0o0777, 0o1777, 0o2755, 0o4711, 0o6755, 0o7777,
        ] {
            plan.file(format!("attributes/mode-{mode:04o}"), Content::filled(3, 5))
                .mode(mode);
            plan.dir(format!("attributes/dir-{mode:04o}")).mode(mode);
            plan.file(format!("attributes/dir-{mode:04o}/child"), Content::empty());
        }
        for id in [1, 65_534, 65_535, 65_536, 70_000, 0x7fff_ffff, 0xffff_fffe] {
            plan.file(format!("attributes/uid-{id}"), Content::empty())
                .owner(id, 0xffff_fffe - id);
        }
        let mut seconds: Vec<i64> = vec![0, 1, -1, -1_000_000, -(1 << 31), (1 << 31) - 1];
        if self.wide_times {
            seconds.extend([
                1 << 31,
                1 << 32,
                (1 << 32) + 5,
                3 << 32,
                (1 << 34) - (1 << 31) - 1,
            ]);
        }
        for sec in seconds {
            // At its limits a file system has whole seconds only.
            let limit = [-(1 << 31), (1 << 31) - 1, (1 << 34) - (1 << 31) - 1].contains(&sec);
            let fractions: &[u32] = if limit { &[0] } else { &[0, 1, 999_999_999] };
            for &nsec in fractions {
                plan.file(format!("attributes/time{sec:+}.{nsec}"), Content::empty())
                    .time(sec, nsec);
            }
            plan.dir(format!("attributes/dir-time{sec:+}"))
                .time(sec, if limit { 0 } else { 123_456_789 });
        }
    }
}

/// Returns a random tree of about `entries` nodes: the same seed gives the same tree. It keeps to
/// what any ext4 image with blocks of 1 KiB and inodes of 256 bytes holds, and has no devices.
pub fn random_plan(seed: u64, entries: usize) -> TreePlan {
    let mut rng = Rng::new(seed);
    let mut plan = TreePlan::new();
    let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
    let mut files: Vec<Vec<u8>> = Vec::new();
    for n in 0..entries {
        let mut path = rng.pick(&dirs).clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(random_name(&mut rng, n));
        if path.len() > 3000 {
            continue;
        }
        match rng.below(20) {
            0..3 => {
                dirs.push(path.clone());
                plan.dir(path.clone());
            }
            3 => drop(plan.special(path.clone(), NodeKind::Fifo)),
            4..6 => {
                let len = rng.between(1, 1000) as usize;
                plan.symlink(path.clone(), vec![b'a' + (n % 26) as u8; len]);
            }
            6..8 if !files.is_empty() => {
                plan.hard_link(path, rng.pick(&files).clone());
                continue;
            }
            _ => {
                files.push(path.clone());
                plan.file(path.clone(), random_content(&mut rng));
            }
        }
        random_attributes(&mut rng, plan.node_mut(&path));
    }
    plan
}

/// Any bytes a name may have; the number makes it unique.
fn random_name(rng: &mut Rng, n: usize) -> Vec<u8> {
    let mut name = format!("{n}").into_bytes();
    let longest = if rng.one_in(10) { 255 } else { 30 };
    let len = rng.between(name.len() as u64, longest) as usize;
    while name.len() < len {
        let byte = if rng.one_in(8) {
            rng.next_u64() as u8
        } else {
            b'a' + rng.below(26) as u8
        };
        name.push(if matches!(byte, 0 | b'/') { b'_' } else { byte });
    }
    name
}

fn random_content(rng: &mut Rng) -> Content {
    let seed = rng.next_u64() | 1;
    let small = rng.below(200);
    let size = *rng.pick(&[0, small, small * 20, small * 300, small * 5000]);
    if rng.one_in(3) && size > 20_000 {
        let mut places = Vec::new();
        let mut at = rng.below(10_000);
        while at < size {
            let len = rng.between(1, 30_000).min(size - at);
            places.push((at, len));
            at += len + rng.between(1, 60_000);
        }
        return Content::sparse(seed, size, places);
    }
    Content::filled(seed, size)
}

fn random_attributes(rng: &mut Rng, node: &mut crate::plan::Node) {
    let symlink = matches!(node.kind, NodeKind::Symlink(_));
    if !symlink {
        node.mode(rng.below(0o10000) as u16);
    }
    node.owner(rng.below(1 << 32) as u32 & !1, rng.below(100_000) as u32);
    node.time(
        rng.between(0, 1 << 33).cast_signed() - (1 << 31),
        rng.below(1_000_000_000) as u32,
    );
    // Only regular files and directories take user xattrs.
    if rng.one_in(4) && matches!(node.kind, NodeKind::File(_) | NodeKind::Directory) {
        for n in 0..rng.between(1, 4) {
            let mut value = vec![0; rng.below(150) as usize];
            rng.fill(&mut value);
            node.xattr(format!("user.x{n}"), value);
        }
    }
}
