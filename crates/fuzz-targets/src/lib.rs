//! One function for each parser: it takes any bytes, panics when a promise is broken, and returns
//! whether the parser took them.
//!
//! Internal to Extant: never published, any version may change it. `fuzz/` at the root has a target
//! of cargo-fuzz for each function, and the tests of this crate run all of them.
//!
//! | module | owns |
//! |---|---|
//! | `structures` | the structures of the file system, one at a time |
//! | `directories` | directory blocks, their indexes, attributes |
//! | `journal` | the journal: superblock, blocks, fast commits, a whole log |
//! | `outside` | what comes from elsewhere: archives, container images, options, partition tables, undo files |
//! | `tables` | tables of owners, and labels |
//! | `disks` | formats of disk images |
//! | `network` | what servers and clients of NBD say |
//! | `image` | a whole image with some bytes changed |
//! | [`corpus`] | inputs to begin with: valid ones |
//!
//! # Invariants
//!
//! - A target ends, whatever it is given, and needs no more memory than its input lets it expect.
//! - What parses is within the bounds that the parser's documentation promises; what has an encoder
//!   is the same after being written and read again.
#![forbid(unsafe_code)]

pub mod corpus;
mod directories;
mod disks;
mod image;
mod journal;
mod network;
mod outside;
mod structures;
mod tables;

/// A parser with what it is given.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name, also of the file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Feeds the parser with these bytes, and returns whether it took them. Panics when the parser
    /// breaks a promise.
    pub run: fn(&[u8]) -> bool,
    /// How many inputs a test can afford.
    pub inputs: u64,
}

macro_rules! targets {
    ($($module:ident::$name:ident($inputs:literal),)*) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[
            $(Target { name: stringify!($name), run: $module::$name, inputs: $inputs },)*
        ];
        $(pub use $module::$name;)*
    };
}

targets! {
    structures::superblock(4000),
    structures::group_descriptor(4000),
    structures::inode(4000),
    structures::extent_node(4000),
    structures::indirect_block(4000),
    structures::inline_data(4000),
    structures::bitmap(4000),
    structures::multiple_mount_block(4000),
    structures::orphan_block(4000),
    structures::quota_file(4000),
    structures::verity_descriptor(4000),
    directories::directory_block(4000),
    directories::index_node(4000),
    directories::attributes_in_inode(4000),
    directories::attribute_block(4000),
    directories::access_control_list(4000),
    journal::journal_superblock(4000),
    journal::journal_block(4000),
    journal::fast_commit(4000),
    journal::log(4000),
    outside::tar_archive(2000),
    outside::container_image(400),
    outside::mkfs_options(2000),
    outside::exclude_patterns(4000),
    outside::partition_table(4000),
    outside::content_marks(4000),
    outside::image_address(4000),
    outside::undo_file(4000),
    tables::owners_table(4000),
    tables::file_contexts(1000),
    disks::vhd_image(1500),
    disks::qcow2_image(300),
    disks::simg_image(1500),
    disks::vmdk_description(4000),
    disks::compressed_image(2000),
    disks::chunk_index(400),
    network::nbd_negotiation(4000),
    network::nbd_replies(1500),
    network::nbd_extents(2000),
    network::nbd_options(2000),
    network::nbd_requests(2000),
    image::image_read(150),
    image::image_checked(100),
    image::image_rescued(100),
}

/// The first bytes of an input choose, the rest is parsed.
fn split<const N: usize>(input: &[u8]) -> Option<([u8; N], &[u8])> {
    let (front, rest) = input.split_first_chunk()?;
    Some((*front, rest))
}

/// `bytes` cut to `len` bytes, or filled up with zeroes.
fn sized(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut all = bytes.get(..len).unwrap_or(bytes).to_vec();
    all.resize(len, 0);
    all
}

/// Examples that people see first must compile. They stand here, as this crate has all the others
/// and no package, which would not have these files.
#[cfg(doctest)]
mod readmes {
    #[doc = include_str!("../../../README.md")]
    struct Workspace;
    #[doc = include_str!("../../blockdev/README.md")]
    struct Blockdev;
    #[doc = include_str!("../../format/README.md")]
    struct Format;
    #[doc = include_str!("../../fsck/README.md")]
    struct Fsck;
    #[doc = include_str!("../../mkfs/README.md")]
    struct Mkfs;
}
