//! Where the structures of a valid image lie.

use super::bytes::{be32, le, le16, le32};
use super::checksum::crc32c;

const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_CSUM_SEED: u32 = 0x2000;
const RO_COMPAT_GDT_CSUM: u32 = 0x10;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
const FLAG_INDEX: u32 = 0x1000;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;
const JOURNAL_MAGIC: u32 = 0xC03B_3998;

/// What a structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Superblock,
    Descriptor,
    BlockBitmap,
    InodeBitmap,
    Inode,
    ExtentNode,
    Indirect,
    DirLeaf,
    DirRoot,
    DirNode,
    XattrBlock,
    Symlink,
    JournalSuperblock,
    JournalDescriptor,
    JournalRevoke,
    JournalCommit,
    OrphanFile,
    Quota,
    /// The value of an attribute in an inode of its own.
    EaValue,
    Mmp,
}

/// One structure of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) kind: Kind,
    /// Byte offset in the image.
    pub(super) at: usize,
    pub(super) len: usize,
    /// The inode it belongs to; the group, for descriptors and bitmaps.
    pub(super) owner: u32,
    /// Checksum seed: of the owner inode where there is one, of the file system otherwise.
    pub(super) seed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksums {
    None,
    /// CRC16 on group descriptors only.
    Descriptors,
    Metadata,
}

/// The numbers everything else follows from.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) block: usize,
    pub(super) blocks: u64,
    pub(super) first_data_block: u64,
    pub(super) blocks_per_group: u64,
    pub(super) clusters_per_group: usize,
    pub(super) inodes: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_size: usize,
    pub(super) desc_size: usize,
    pub(super) groups: u32,
    pub(super) checksums: Checksums,
    pub(super) seed: u32,
    pub(super) uuid: [u8; 16],
    meta_bg_from: u64,
}

/// An inode that is in use, or was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenant {
    pub(super) ino: u32,
    /// Byte offset in the image.
    pub(super) at: usize,
    pub(super) mode: u16,
    /// The first block of what it holds, where that lies in blocks.
    pub(super) data: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Anatomy {
    pub(super) layout: Layout,
    pub(super) sites: Vec<Site>,
    /// By number.
    pub(super) tenants: Vec<Tenant>,
}

impl Layout {
    fn of(image: &[u8]) -> Self {
        let sb = &image[1024..2048];
        assert_eq!(le16(sb, 0x38), 0xEF53, "a specimen is not an ext4 image");
        let incompat = le32(sb, 0x60);
        let block = 1024usize << le32(sb, 0x18);
        let wide = incompat & INCOMPAT_64BIT != 0;
        let blocks = u64::from(le32(sb, 4));
        let first_data_block = u64::from(le32(sb, 0x14));
        let blocks_per_group = u64::from(le32(sb, 0x20));
        Self {
            block,
            blocks,
            first_data_block,
            blocks_per_group,
            clusters_per_group: le32(sb, 0x24) as usize,
            inodes: le32(sb, 0),
            inodes_per_group: le32(sb, 0x28),
            inode_size: usize::from(le16(sb, 0x58)).max(128),
            desc_size: if wide {
                usize::from(le16(sb, 0xFE))
            } else {
                32
            },
            groups: (blocks - first_data_block).div_ceil(blocks_per_group) as u32,
            checksums: checksums_of(sb),
            seed: seed_of(sb),
            uuid: sb[0x68..0x78].try_into().unwrap(),
            meta_bg_from: if incompat & INCOMPAT_META_BG != 0 {
                u64::from(le32(sb, 0x104))
            } else {
                u64::MAX
            },
        }
    }

    /// Byte offset of the descriptor of `group`.
    pub(super) fn descriptor_at(&self, group: u32) -> usize {
        let per_block = (self.block / self.desc_size) as u64;
        let index = u64::from(group) / per_block;
        let block = if index < self.meta_bg_from {
            // Behind the superblock: with bigalloc, block 0 is counted but not where it is.
            (1024 / self.block) as u64 + 1 + index
        } else {
            let first_group = index * per_block;
            let has_super =
                first_group == 0 || [3, 5, 7].iter().any(|base| is_power_of(first_group, *base));
            self.first_data_block + first_group * self.blocks_per_group + u64::from(has_super)
        };
        block as usize * self.block + (u64::from(group) % per_block) as usize * self.desc_size
    }

    /// A block number of the descriptor of `group`: low half at `at`, high half 32 bytes on.
    fn descriptor_block(&self, image: &[u8], group: u32, at: usize) -> usize {
        let desc = self.descriptor_at(group);
        let high = if self.desc_size >= 64 {
            le32(image, desc + at + 0x20)
        } else {
            0
        };
        (u64::from(high) << 32 | u64::from(le32(image, desc + at))) as usize
    }

    pub(super) fn inode_at(&self, image: &[u8], ino: u32) -> usize {
        let (group, index) = (
            (ino - 1) / self.inodes_per_group,
            (ino - 1) % self.inodes_per_group,
        );
        self.descriptor_block(image, group, 8) * self.block + index as usize * self.inode_size
    }
}

/// Which checksums the features of a superblock ask for.
fn checksums_of(sb: &[u8]) -> Checksums {
    let ro_compat = le32(sb, 0x64);
    if ro_compat & RO_COMPAT_METADATA_CSUM != 0 {
        Checksums::Metadata
    } else if ro_compat & RO_COMPAT_GDT_CSUM != 0 {
        Checksums::Descriptors
    } else {
        Checksums::None
    }
}

/// What checksums begin with.
fn seed_of(sb: &[u8]) -> u32 {
    if le32(sb, 0x60) & INCOMPAT_CSUM_SEED != 0 {
        le32(sb, 0x270)
    } else {
        crc32c(!0, &sb[0x68..0x78])
    }
}

fn is_power_of(mut n: u64, base: u64) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

impl Anatomy {
    /// Finds every structure of a valid image.
    pub(super) fn of(image: &[u8]) -> Self {
        let layout = Layout::of(image);
        let mut walk = Walk {
            image,
            layout: &layout,
            sites: Vec::new(),
            tenants: Vec::new(),
        };
        walk.add(Kind::Superblock, 1024, 1024, 0, layout.seed);
        for group in 0..layout.groups {
            walk.group(group);
        }
        for ino in 1..=layout.inodes {
            walk.inode(ino);
        }
        let mmp = le(image, 1024 + 0x168, 8) as usize;
        if le32(image, 1024 + 0x60) & 0x100 != 0 && mmp != 0 {
            walk.add(Kind::Mmp, mmp * layout.block, 1024, 0, layout.seed);
        }
        let (sites, tenants) = (walk.sites, walk.tenants);
        Self {
            layout,
            sites,
            tenants,
        }
    }

    /// Adds the structures of a journal on a device of its own, whose bytes begin at `from`.
    pub(super) fn add_journal(&mut self, image: &[u8], from: usize) {
        let block = self.layout.block;
        // Behind the superblock that says what the device is.
        let first = from / block + 1024 / block + 1;
        let blocks = be32(image, first * block + 0x10) as usize;
        let data: Vec<u64> = (first as u64..).take(blocks).collect();
        let mut walk = Walk {
            image,
            layout: &self.layout,
            sites: Vec::new(),
            tenants: Vec::new(),
        };
        walk.journal(&data);
        let sites = walk.sites;
        self.sites.extend(sites);
    }

    /// These structures, sealed as the superblock and the generations of inodes in `image` ask for
    /// now.
    pub(super) fn under(&self, image: &[u8]) -> Self {
        let sb = &image[1024..2048];
        let mut new = self.clone();
        new.layout.checksums = checksums_of(sb);
        new.layout.seed = seed_of(sb);
        new.layout.uuid.copy_from_slice(&sb[0x68..0x78]);
        let seed = new.layout.seed;
        for site in &mut new.sites {
            if site.kind.is_of_an_inode() {
                let slot = self.tenants.binary_search_by_key(&site.owner, |t| t.ino);
                let generation = slot.map_or(0, |slot| self.tenants[slot].at) + 0x64;
                site.seed = crc32c(seed, &site.owner.to_le_bytes());
                site.seed = crc32c(site.seed, &image[generation..generation + 4]);
            } else if site.seed == self.layout.seed {
                site.seed = seed;
            }
        }
        new
    }
}

impl Kind {
    /// Whether checksums of such structures begin with the number and generation of an inode.
    const fn is_of_an_inode(self) -> bool {
        matches!(
            self,
            Self::Inode
                | Self::ExtentNode
                | Self::DirLeaf
                | Self::DirRoot
                | Self::DirNode
                | Self::OrphanFile
        )
    }
}

struct Walk<'a> {
    image: &'a [u8],
    layout: &'a Layout,
    sites: Vec<Site>,
    tenants: Vec<Tenant>,
}

impl Walk<'_> {
    fn add(&mut self, kind: Kind, at: usize, len: usize, owner: u32, seed: u32) {
        assert!(
            at + len <= self.image.len(),
            "{kind:?} outside the specimen"
        );
        self.sites.push(Site {
            kind,
            at,
            len,
            owner,
            seed,
        });
    }

    fn block(&mut self, kind: Kind, block: u64, owner: u32, seed: u32) {
        let size = self.layout.block;
        self.add(kind, block as usize * size, size, owner, seed);
    }

    fn group(&mut self, group: u32) {
        let layout = self.layout;
        let at = layout.descriptor_at(group);
        self.add(Kind::Descriptor, at, layout.desc_size, group, layout.seed);
        let flags = le16(self.image, at + 0x12);
        // An uninitialised bitmap is not read by anybody.
        for (kind, field, uninit) in [(Kind::BlockBitmap, 0, 2), (Kind::InodeBitmap, 4, 1)] {
            if flags & uninit == 0 {
                let block = layout.descriptor_block(self.image, group, field) as u64;
                self.block(kind, block, group, layout.seed);
            }
        }
    }

    fn inode(&mut self, ino: u32) {
        let layout = self.layout;
        let at = layout.inode_at(self.image, ino);
        let raw = &self.image[at..at + layout.inode_size];
        if raw.iter().all(|byte| *byte == 0) {
            return;
        }
        let mode = le16(raw, 0);
        let flags = le32(raw, 0x20);
        let seed = crc32c(layout.seed, &ino.to_le_bytes());
        let seed = crc32c(seed, &raw[0x64..0x68]);
        self.add(Kind::Inode, at, layout.inode_size, ino, seed);
        self.tenants.push(Tenant {
            ino,
            at,
            mode,
            data: None,
        });
        let xattrs = u64::from(le32(raw, 0x68)) | u64::from(le16(raw, 0x76)) << 32;
        if xattrs != 0 {
            self.block(Kind::XattrBlock, xattrs, ino, layout.seed);
        }
        if mode == 0 || flags & FLAG_INLINE_DATA != 0 {
            return;
        }
        let kind = mode & 0xf000;
        let size = le32(raw, 4);
        let fast_symlink = kind == 0xa000 && size < 60 && flags & FLAG_EXTENTS == 0;
        if !matches!(kind, 0x4000 | 0x8000 | 0xa000) || fast_symlink {
            return;
        }
        let mut data = Vec::new();
        if flags & FLAG_EXTENTS != 0 {
            self.extents(&raw[0x28..0x64], ino, seed, &mut data);
        } else {
            for slot in 0..15 {
                let block = u64::from(le32(raw, 0x28 + slot * 4));
                self.indirect(block, slot.saturating_sub(11), ino, seed, &mut data);
            }
        }
        if let Some(tenant) = self.tenants.last_mut() {
            tenant.data = data.first().copied();
        }
        let named_at = |at: usize| le32(self.image, 1024 + at) == ino;
        let kind = match kind {
            0x4000 => return self.directory(&data, flags & FLAG_INDEX != 0, ino, seed),
            0xa000 => Kind::Symlink,
            _ if ino == 8 => return self.journal(&data),
            _ if named_at(0x280) => Kind::OrphanFile,
            _ if [0x240, 0x244, 0x26C].into_iter().any(named_at) => Kind::Quota,
            _ if flags & FLAG_EA_INODE != 0 => Kind::EaValue,
            _ => return,
        };
        for block in data {
            self.block(kind, block, ino, seed);
        }
    }

    fn extents(&mut self, node: &[u8], ino: u32, seed: u32, data: &mut Vec<u64>) {
        let entries = usize::from(le16(node, 2));
        let depth = le16(node, 6);
        for i in 0..entries {
            let at = 12 + i * 12;
            if depth == 0 {
                let len = u64::from(le16(node, at + 4));
                let start = u64::from(le32(node, at + 8)) | u64::from(le16(node, at + 6)) << 32;
                let len = if len > 32768 { len - 32768 } else { len };
                data.extend(start..start + len);
            } else {
                let child = u64::from(le32(node, at + 4)) | u64::from(le16(node, at + 8)) << 32;
                self.block(Kind::ExtentNode, child, ino, seed);
                let at = child as usize * self.layout.block;
                let image = self.image;
                self.extents(&image[at..at + self.layout.block], ino, seed, data);
            }
        }
    }

    fn indirect(&mut self, block: u64, level: usize, ino: u32, seed: u32, data: &mut Vec<u64>) {
        if block == 0 {
            return;
        }
        if level == 0 {
            data.push(block);
            return;
        }
        self.block(Kind::Indirect, block, ino, seed);
        let at = block as usize * self.layout.block;
        for slot in 0..self.layout.block / 4 {
            let child = u64::from(le32(self.image, at + slot * 4));
            self.indirect(child, level - 1, ino, seed, data);
        }
    }

    fn directory(&mut self, data: &[u64], indexed: bool, ino: u32, seed: u32) {
        let size = self.layout.block;
        let mut interior = Vec::new();
        let levels = data
            .first()
            .map_or(0, |root| self.image[*root as usize * size + 0x1E]);
        if indexed && levels > 0 {
            // Two levels are all a small specimen has.
            assert_eq!(levels, 1);
            let root = data[0] as usize * size;
            let count = usize::from(le16(self.image, root + 0x22));
            for i in 0..count {
                interior.push(le32(self.image, root + 0x20 + i * 8 + 4) as usize);
            }
        }
        for (lblk, block) in data.iter().enumerate() {
            let kind = match lblk {
                0 if indexed => Kind::DirRoot,
                _ if interior.contains(&lblk) => Kind::DirNode,
                _ => Kind::DirLeaf,
            };
            self.block(kind, *block, ino, seed);
        }
    }

    fn journal(&mut self, data: &[u64]) {
        let size = self.layout.block;
        let superblock = data[0] as usize * size;
        // Journal checksums start from the journal's own UUID.
        let seed = crc32c(!0, &self.image[superblock + 0x30..superblock + 0x40]);
        self.add(Kind::JournalSuperblock, superblock, 1024, 8, seed);
        for block in &data[1..] {
            let at = *block as usize * size;
            if be32(self.image, at) != JOURNAL_MAGIC {
                continue;
            }
            match be32(self.image, at + 4) {
                1 => self.block(Kind::JournalDescriptor, *block, 8, seed),
                2 => self.block(Kind::JournalCommit, *block, 8, seed),
                5 => self.block(Kind::JournalRevoke, *block, 8, seed),
                _ => {}
            }
        }
    }
}
