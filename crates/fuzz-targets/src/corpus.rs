//! Inputs to begin with: valid structures, each as its target wants it.

use extant::{Acl, AclKind, Filesystem, MountOptions, OpenOptions, SharedDevice};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_format::checksum::Crc32c;
use extant_format::dir::{DirLayout, htree};
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupDesc;
use extant_format::jbd2::{
    CommitBlock, DescriptorBlock, FastCommitRecord, JournalSuperblock, RevokeBlock, Tag,
    encode_fast_commit,
};
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::quota::{Edit, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaInfo, QuotaKind};
use extant_format::superblock::Superblock;
use extant_format::{
    BlockSize, FormatError, Group, Ino, Lblk, Pblk, Tid, extent, orphan_file, xattr,
};
use extant_mkfs::FormatOptions;
use extant_mkfs::defaults::JournalSize;
use extant_mkfs::metadata::{Target, format_empty};
use extant_verity::Algorithm;
use extant_verity::fs::Descriptor;
use std::sync::{Arc, LazyLock};

const BLOCK: usize = 4096;
const IMAGE: u64 = 16 << 20;

/// An image of 16 MiB with a file of every shape.
static DEVICE: LazyLock<Arc<MemoryDevice>> = LazyLock::new(|| Arc::new(build()));

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = vec![0; IMAGE as usize];
    DEVICE.read_at(0, &mut bytes).expect("memory can be read");
    bytes
});

static SUPERBLOCK: LazyLock<Superblock> =
    LazyLock::new(|| Superblock::parse(&BYTES[1024..2048]).expect("the image is valid"));

/// The device that holds the image. Nothing changes it any more.
#[must_use]
pub fn device() -> SharedDevice {
    DEVICE.clone()
}

/// The superblock of the image.
#[must_use]
pub fn superblock() -> &'static Superblock {
    &SUPERBLOCK
}

fn build() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(IMAGE));
    let mut options = FormatOptions::reproducible(IMAGE, 1_700_000_000, b"corpus");
    options.block_size = Some(BlockSize::K4);
    options.journal = JournalSize::Bytes(4 << 20);
    options.features = "project,orphan_file".parse().expect("these exist");
    format_empty(&*device, &options, Target::Zeroed).expect("it fits");
    let shared: SharedDevice = device.clone();
    let options = MountOptions::read_write().background(false).memory(8 << 20);
    let fs = Filesystem::open_device(shared, options).expect("the image is valid");
    fill(&fs).expect("there is room");
    fs.close().expect("memory can be written");
    let mut bytes = vec![0; IMAGE as usize];
    device.read_at(0, &mut bytes).expect("memory can be read");
    MemoryDevice::from_image(&bytes)
}

fn fill(fs: &Filesystem) -> extant::Result<()> {
    fs.create_dir_all("/a/b")?;
    fs.write("/a/file", "content")?;
    fs.symlink("b/other", "/a/short")?;
    fs.symlink("x".repeat(200), "/a/long")?;
    fs.create_dir("/indexed")?;
    for i in 0..400 {
        fs.write(format!("/indexed/a-rather-long-name-{i}"), "")?;
    }
    // Too many extents for the inode.
    let pieces = OpenOptions::new()
        .write(true)
        .create(true)
        .open(fs, "/pieces")?;
    for i in 0..40 {
        pieces.write_all_at(&[1; BLOCK], i * 3 * BLOCK as u64)?;
        pieces.sync_all()?;
    }
    fs.set_xattr("/a/file", "user.small", "value")?;
    fs.set_xattr("/a/b", "user.large", vec![b'v'; 2000])?;
    let acl = Acl::decode_syscall(&list()).expect("the list is valid");
    fs.set_acl("/a/file", AclKind::Access, Some(&acl))?;
    fs.sync()
}

/// An access control list with one user, in the form of the system calls.
fn list() -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (1, 6, none),
        (2, 4, 1000),
        (4, 4, none),
        (16, 6, none),
        (32, 0, none),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(rights));
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

/// Blocks of the image that are of some kind.
fn blocks(is_one: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let all = BYTES.chunks_exact(BLOCK).filter(|block| is_one(block));
    all.take(8).map(<[u8]>::to_vec).collect()
}

fn starts_with(magic: &[u8]) -> impl Fn(&[u8]) -> bool {
    move |block| block.starts_with(magic)
}

/// Puts the bytes that choose in front.
fn chosen(front: &[u8], inputs: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let with = inputs.into_iter().map(|input| [front, &input].concat());
    with.collect()
}

/// Valid inputs of the target of this name; none if there is no such target.
#[must_use]
pub fn of(name: &str) -> Vec<Vec<u8>> {
    match name {
        "superblock" => vec![SUPERBLOCK.encode().to_vec()],
        "group_descriptor" => chosen(&[1, 0], descriptors()),
        "inode" => chosen(&[1 | 8], inodes()),
        "extent_node" => {
            let magic = extent::MAGIC.to_le_bytes();
            let roots = inodes().into_iter().map(|slot| slot[40..100].to_vec());
            let roots = roots.filter(|root| root.starts_with(&magic));
            let nodes = blocks(starts_with(&magic));
            chosen(&[0, 0, 0, 0, 0], roots.chain(nodes))
        }
        "indirect_block" => vec![(0..64_u32).flat_map(|i| (i * 5).to_le_bytes()).collect()],
        "inline_data" => vec![inline_dir()],
        "bitmap" => chosen(&[0, 0, 0xff, 0xff], [BYTES[BLOCK * 3..BLOCK * 4].to_vec()]),
        "multiple_mount_block" => vec![mmp().encode(None).to_vec()],
        "orphan_block" => {
            let mut block = vec![0; BlockSize::MIN.len()];
            orphan_file::encode(&[0, 12, 13], &mut block, None);
            vec![block]
        }
        "quota_file" => vec![quota_file()],
        "verity_descriptor" => vec![verity_descriptor()],
        "directory_block" => chosen(&[2 | 8 | 16], directories(false)),
        "index_node" => chosen(&[2 | 8 | 16, 0, 0, 0, 0x40], directories(true)),
        "attributes_in_inode" => {
            let magic = xattr::MAGIC.to_le_bytes();
            let regions = inodes().into_iter().map(|slot| slot[160..].to_vec());
            chosen(&[0], regions.filter(|region| region.starts_with(&magic)))
        }
        "attribute_block" => chosen(&[0], blocks(starts_with(&xattr::MAGIC.to_le_bytes()))),
        "access_control_list" => {
            let acl = Acl::decode_syscall(&list()).expect("the list is valid");
            vec![list(), acl.encode_disk()]
        }
        "journal_superblock" => vec![journal().encode().to_vec()],
        "journal_block" => {
            let records = log_blocks(&journal()).into_iter();
            let records = records.filter(|(at, _)| !DATA.contains(at));
            chosen(&[0], records.map(|(_, block)| block))
        }
        "fast_commit" => vec![fast_commit()],
        "log" => vec![log()],
        "tar_archive" => vec![archive()],
        "container_image" => container_images(),
        "vhd_image" | "qcow2_image" | "simg_image" | "vmdk_description" | "compressed_image"
        | "chunk_index" => {
            crate::disks::corpus(name)
        }
        "nbd_negotiation" | "nbd_replies" | "nbd_extents" | "nbd_options" | "nbd_requests" => {
            crate::network::corpus(name)
        }
        "mkfs_options" => vec![
            [
                &[0, 0, 16, 0, 2, 2, 0, 0, 6, 4, 0, 0],
                "^resize_inode\ndefault\n0:0".as_bytes(),
            ]
            .concat(),
            [
                &[0, 0, 64, 0, 2, 2, 0, 1, 0, 0, 0, 16],
                "bigalloc,^has_journal\n".as_bytes(),
            ]
            .concat(),
        ],
        "exclude_patterns" => vec![b"*.o\n/etc/pass*\n!keep\n[a-c]?/**/d".to_vec()],
        "owners_table" => [
            "\x01/dev/file 0:0 0755 caps=cap_net_raw+ep\n**/f* - 644 type=f\n/dev/x 0 600 char=5:1",
            "\x02/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 0 0 -",
            "\x04/dev/hda b 640 0 0 3 1 1 1 15\n/dev/file f 755 root 0 - - - - -\n|xattr cap_chown+p",
            "\x05 0 0 755\ndev 0 0 755\ndev/file 0 2000 0755 capabilities=0x2000",
            "\x06#mtree\n/set type=file uid=0\n. type=dir\n  dev type=dir\n    file mode=4755 time=1.5\n  ..",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec(),
        "file_contexts" => vec![
            b"/.* system_u:object_r:default_t:s0\n/usr/(.*/)?bin(/.*)? -- u:object_r:bin_t\n/etc/[^/]+\\.d -d <<none>>"
                .to_vec(),
        ],
        "partition_table" => vec![boot_record()],
        "content_marks" => vec![BYTES[..8192].to_vec(), boot_record()],
        "image_address" => [
            "nbd://[::1]:10809/disk%20one#2:/etc",
            "nbd+unix:///?socket=/run/nbd.sock",
            "https://me:secret@host/a.img?sig=1#root:/",
            "s3://bucket/key",
            "fd:3#2:etc",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec(),
        "undo_file" => vec![undo_file()],
        "image_read" | "image_checked" | "image_rescued" => vec![vec![], vec![16, 0, 0, 0, 1]],
        _ => Vec::new(),
    }
}

fn verity_descriptor() -> Vec<u8> {
    let descriptor = Descriptor {
        algorithm: Algorithm::Sha256,
        block_log2: 12,
        data_size: 1 << 20,
        root_hash: Algorithm::Sha256.hash(b"root"),
        salt: b"salt".to_vec(),
    };
    descriptor.encode().to_vec()
}

fn descriptors() -> Vec<Vec<u8>> {
    let len = Geometry::new(&SUPERBLOCK).desc_size() as usize;
    vec![BYTES[BLOCK..BLOCK + len].to_vec()]
}

/// The first inodes of the image that are in use.
fn inodes() -> Vec<Vec<u8>> {
    let geometry = Geometry::new(&SUPERBLOCK);
    let desc = &descriptors()[0];
    let desc = GroupDesc::parse(desc, Group::new(0), &SUPERBLOCK.desc_checksum());
    let table = desc.expect("the image is valid").inode_table.get() as usize * BLOCK;
    let slots = BYTES[table..].chunks_exact(geometry.inode_size() as usize);
    let used = slots.take(30).filter(|slot| slot[..2] != [0, 0]);
    used.map(<[u8]>::to_vec).collect()
}

fn directories(indexed: bool) -> Vec<Vec<u8>> {
    let layout = DirLayout {
        block_size: BlockSize::K4,
        file_type: true,
        checksums: true,
        hash_in_entry: false,
        raw_names: false,
        max_inode: Ino::new(1000),
    };
    let is_index = |block: &[u8]| htree::is_root(block, &layout);
    if indexed {
        return blocks(is_index);
    }
    // The tail of a block of entries.
    blocks(|block| block[BLOCK - 12..BLOCK - 4] == [0, 0, 0, 0, 12, 0, 0, 0xde])
}

fn inline_dir() -> Vec<u8> {
    let mut input = vec![0; 62];
    input[..4].copy_from_slice(&2_u32.to_le_bytes());
    // One entry that takes the rest of the map.
    input[4..8].copy_from_slice(&12_u32.to_le_bytes());
    input[8..12].copy_from_slice(&[56, 0, 4, 1]);
    input[12..16].copy_from_slice(b"name");
    input[60] = 60;
    input
}

fn mmp() -> MmpBlock {
    MmpBlock {
        state: MmpState::Clean,
        time: 1_700_000_000,
        node_name: [b'n'; 64],
        device_name: [b'd'; 32],
        check_interval: 5,
    }
}

/// Blocks of a quota file that are not there yet.
struct NewFile;

impl QuotaBlocks for NewFile {
    type Error = FormatError;

    fn read(&mut self, _block: u32) -> Result<QuotaBlock, FormatError> {
        Ok([0; size_of::<QuotaBlock>()])
    }

    fn corrupt(&self, _block: u32, source: FormatError) -> FormatError {
        source
    }
}

fn quota_file() -> Vec<u8> {
    let mut file = NewFile;
    let mut edit = Edit::new(&mut file, QuotaInfo::empty(QuotaKind::User));
    edit.touch_header().expect("a new file");
    for id in [0, 1000, 70_000] {
        let mut entry = QuotaEntry::of(id);
        entry.inode_hard = 5;
        edit.set(&entry).expect("a new file");
    }
    let (info, edited) = edit.finish().expect("a new file");
    let mut all = vec![0; info.file_len() as usize];
    for (number, block) in &edited {
        let start = *number as usize * block.len();
        all[start..start + block.len()].copy_from_slice(block);
    }
    all
}

fn journal() -> JournalSuperblock {
    JournalSuperblock::empty(BlockSize::MIN, 24, [7; 16])
}

/// Where data lies in the log of [`log_blocks`].
const DATA: [usize; 2] = [2, 3];

/// The blocks of one transaction, with their places in the log.
fn log_blocks(superblock: &JournalSuperblock) -> Vec<(usize, Vec<u8>)> {
    let format = superblock.log_format();
    let sequence = Tid::new(1);
    let data = vec![3; format.block_size.len()];
    let tag = |block| Tag::new(&format, sequence, Pblk::new(block), &data, false);
    let descriptor = DescriptorBlock {
        sequence,
        tags: vec![tag(100), tag(101)],
    };
    let revoke = RevokeBlock {
        sequence,
        blocks: vec![Pblk::new(200)],
    };
    let commit = CommitBlock {
        sequence,
        seconds: 1_700_000_000,
        nanoseconds: 0,
        transaction_crc: None,
    };
    vec![
        (1, descriptor.encode(&format).expect("it fits")),
        (2, data.clone()),
        (3, data.clone()),
        (4, revoke.encode(&format).expect("it fits")),
        (5, commit.encode(&format)),
    ]
}

fn log() -> Vec<u8> {
    let len = BlockSize::MIN.len();
    let mut superblock = journal();
    superblock.start = 1;
    superblock.sequence = Tid::new(1);
    let mut all = vec![0; 24 * len];
    all[..1024].copy_from_slice(&superblock.encode());
    for (at, block) in log_blocks(&superblock) {
        all[at * len..(at + 1) * len].copy_from_slice(&block);
    }
    all
}

fn fast_commit() -> Vec<u8> {
    let records = [
        FastCommitRecord::Head {
            features: 0,
            tid: Tid::new(5),
        },
        FastCommitRecord::AddRange {
            ino: Ino::new(12),
            lblk: Lblk::new(0),
            len: 8,
            unwritten: false,
            start: Pblk::new(1000),
        },
        FastCommitRecord::DelRange {
            ino: Ino::new(12),
            lblk: Lblk::new(8),
            len: 4,
        },
    ];
    encode_fast_commit(&records, Tid::new(5), 1024).expect("they fit")
}

/// The JSON of container images of the archive below: as Docker saves one, a layout, and one whose
/// index is in another.
fn container_images() -> Vec<Vec<u8>> {
    const SAVED: &str = r#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l.tar"]}]"#;
    const CONFIG: &str = r#"{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["sha256:120013cce34a6039fec84842de732a4424e1ccf7a349a79d3037d8cefb5783a2"]}}"#;
    const MANIFEST: &str = r#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json",@config},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar",@layer}]}"#;
    const ONE: &str = r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",@manifest,"platform":{"os":"linux","architecture":"amd64"}}]}"#;
    const NESTED: &str = r#"{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json",@index,"annotations":{"org.opencontainers.image.ref.name":"a:1"}}]}"#;
    [
        [SAVED, CONFIG, "", "", ""],
        ["", CONFIG, MANIFEST, "", ONE],
        ["", CONFIG, MANIFEST, ONE, NESTED],
    ]
    .map(|texts| texts.join("\n").into_bytes())
    .into()
}

/// An archive of one file.
pub(crate) fn archive() -> Vec<u8> {
    let mut header = [0; 512];
    header[..8].copy_from_slice(b"etc/name");
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(b"00000000004\0");
    header[136..148].copy_from_slice(b"14524770400\0");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = header.to_vec();
    all.extend_from_slice(b"box\n");
    all.resize(512 * 4, 0);
    all
}

fn boot_record() -> Vec<u8> {
    let mut disk = vec![0; 1 << 16];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&8_u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&64_u32.to_le_bytes());
    disk
}

/// An undo file of one block of two sectors that was zeroes, and is ones after the change.
fn undo_file() -> Vec<u8> {
    let sum = |bytes: &[u8]| Crc32c::INIT.update(bytes).value().to_le_bytes();
    let mut header = b"EXTUNDO4".to_vec();
    header.extend_from_slice(&(1_u64 << 16).to_le_bytes());
    header.extend_from_slice(&[0; 32]);
    header.extend_from_slice(&sum(&header));
    let block = [0; 1024];
    let mut record = 8192_u64.to_le_bytes().to_vec();
    record.extend_from_slice(&(block.len() as u32 | 1 << 24).to_le_bytes());
    record.extend_from_slice(&block);
    record.extend_from_slice(&[sum(&[1; 512]), sum(&[1; 512])].concat());
    record.extend_from_slice(&sum(&record));
    let mut end = 1_u64.to_le_bytes().to_vec();
    end.extend_from_slice(&[0; 4]);
    end.extend_from_slice(&sum(&end));
    [header, record, end].concat()
}
