//! What comes from elsewhere: archives, container images, options, partition tables, undo files.

use crate::{sized, split};
use extant_blockdev::{
    BlockDevice, Content, MemoryDevice, SharedDevice, list_partitions, open_partition,
};
use extant_format::BlockSize;
use extant_format::geometry::Geometry;
use extant_image::ImageLocation;
use extant_mkfs::FormatOptions;
use extant_mkfs::defaults::{FeatureRequest, InodeDensity, JournalSize, Profile};
use extant_mkfs::source::{
    Excludes, Owner, Source, SourceOptions, TarOptions, read_sources, read_tar_stream,
};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// An archive, plain or compressed, as a stream.
pub fn tar_archive(input: &[u8]) -> bool {
    let stream = Cursor::new(input.to_vec());
    let Ok(tree) = read_tar_stream(stream, Path::new("input"), &TarOptions::default()) else {
        return false;
    };
    for id in tree.ids() {
        for entry in tree.entries(id) {
            let name = tree.name(entry);
            assert!(!matches!(name, b"" | b"." | b"..") && name.len() <= 255);
            assert!(!name.contains(&b'/') && !name.contains(&0));
        }
    }
    true
}

/// The JSON of a container image, one text a line: Docker's `manifest.json`, the configuration
/// `c.json`, and of a layout a manifest, an index that may name it, and `index.json`. `l.tar` is a
/// layer. In the texts of the layout `@layer`, `@config`, `@manifest` and `@index` stand for digest
/// and size of what is written before.
pub fn container_image(input: &[u8]) -> bool {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let put = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.path().join(name), bytes).expect("a file is written");
    };
    std::fs::create_dir_all(dir.path().join("blobs/sha256")).expect("a directory");
    // Puts content where its digest says, and gives the fields that name it.
    let blob = |bytes: &[u8]| {
        let digest = Sha256::digest(bytes);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        put(&format!("blobs/sha256/{hex}"), bytes);
        format!(r#""digest":"sha256:{hex}","size":{}"#, bytes.len())
    };
    let mut texts = input.split(|&byte| byte == b'\n');
    let mut next = || texts.next().unwrap_or_default();
    let layer = crate::corpus::archive();
    put("l.tar", &layer);
    put("manifest.json", next());
    let config = next();
    put("c.json", config);
    let mut known = vec![("@layer", blob(&layer)), ("@config", blob(config))];
    for name in ["@manifest", "@index"] {
        let text = named(next(), &known);
        known.push((name, blob(text.as_bytes())));
    }
    put("index.json", named(next(), &known).as_bytes());
    put("oci-layout", b"{}");
    let options = SourceOptions::default();
    let path = dir.path().display();
    // By content it is what Docker saves. There is one layer at most that has files.
    let has_files =
        |source| read_sources(&[source], &options).is_ok_and(|read| read.tree.len() > 1);
    let saved = has_files(Source::at(dir.path()));
    let layout = Source::parse(OsStr::new(&format!("oci:{path}"))).expect("it has a path");
    let laid = has_files(layout);
    saved || laid
}

/// A text with the fields in it that its words stand for.
fn named(text: &[u8], known: &[(&str, String)]) -> String {
    let text = String::from_utf8_lossy(text).into_owned();
    known
        .iter()
        .fold(text, |text, (word, fields)| text.replace(word, fields))
}

/// Options of mkfs: features by name, and numbers that an image is planned by.
pub fn mkfs_options(input: &[u8]) -> bool {
    let Some((numbers, text)) = split::<12>(input) else {
        return false;
    };
    let text = String::from_utf8_lossy(text);
    let mut words = text.splitn(3, '\n');
    let features = words.next().unwrap_or_default().parse::<FeatureRequest>();
    let profile = words.next().unwrap_or_default().parse::<Profile>();
    let _ = words.next().unwrap_or_default().parse::<Owner>();
    let [
        a,
        b,
        c,
        d,
        block,
        inode,
        ratio,
        journal,
        percent,
        flex,
        group,
        cluster,
    ] = numbers;
    // Up to 64 GiB, so that planning is quick.
    let size = u64::from(u32::from_le_bytes([a, b, c, d])) << 4;
    let mut options = FormatOptions::reproducible(size, 0, b"fuzz");
    options.block_size = BlockSize::from_log2(10 + u32::from(block % 8));
    options.inode_size = 64 << (inode % 8);
    options.inodes = match ratio % 3 {
        0 => InodeDensity::BySize,
        1 => InodeDensity::Ratio(u32::from(ratio) << 8),
        _ => InodeDensity::Count(u32::from(ratio) << 4),
    };
    options.journal = match journal % 3 {
        0 => JournalSize::BySize,
        1 => JournalSize::None,
        _ => JournalSize::Bytes(u64::from(journal) << 16),
    };
    options.reserved_percent = (percent != 0).then_some(f64::from(percent) - 1.0);
    options.groups_per_flex = (flex != 0).then_some(u32::from(flex));
    options.blocks_per_group = (group != 0).then_some(u32::from(group) << 8);
    options.cluster_size = (cluster != 0).then_some(1 << (cluster % 32));
    options.features = features.unwrap_or_default();
    options.profile = profile.unwrap_or_default();
    let Ok(layout) = extant_mkfs::layout::plan(&options) else {
        return false;
    };
    // A plan is one that the parser takes.
    let superblock = layout.superblock();
    let geometry = Geometry::new(superblock);
    assert!(geometry.blocks_count() << geometry.block_size().log2() <= size);
    assert_eq!(layout.places().len(), geometry.groups_count() as usize);
    true
}

/// What shall stay out of an image.
pub fn exclude_patterns(input: &[u8]) -> bool {
    let patterns = input.split(|byte| *byte == b'\n').take(8);
    let Ok(excludes) = Excludes::new(patterns) else {
        return false;
    };
    for path in [
        &[b"etc".as_slice(), b"passwd"][..],
        &[b"a", b"b", b"c", b"d"],
    ] {
        let _ = (
            excludes.excludes(path, true),
            excludes.excludes(path, false),
        );
    }
    true
}

/// A disk with a partition table.
pub fn partition_table(input: &[u8]) -> bool {
    let len = input.len().next_multiple_of(512).max(1 << 16);
    let disk: SharedDevice = Arc::new(MemoryDevice::from_image(&sized(input, len)));
    let Ok(table) = list_partitions(&*disk) else {
        return false;
    };
    let mut before = 0;
    for partition in &table.partitions {
        assert!(partition.number > before, "numbers ascend");
        before = partition.number;
        if let Ok(part) = open_partition(Arc::clone(&disk), partition.number) {
            assert!(part.start() + part.size() <= disk.size());
        }
    }
    true
}

/// A device that may hold anything.
pub fn content_marks(input: &[u8]) -> bool {
    let device = MemoryDevice::from_image(input);
    let found = Content::on(&device).expect("memory can be read");
    let _ = found.instead_of_ext();
    found != Content::Unknown
}

/// What a user writes for an image, and for a file in it.
pub fn image_address(input: &[u8]) -> bool {
    let text = OsStr::from_bytes(input);
    let whole = ImageLocation::parse(text);
    let Ok((location, path)) = ImageLocation::split(text) else {
        return false;
    };
    assert!(path.is_none_or(|path| input.ends_with(path.as_bytes())));
    if location.is_address() {
        assert!(!location.to_string().contains(char::is_control));
        // Without a path inside both readings are one.
        assert!(path.is_some() || whole.is_ok_and(|whole| whole == location));
    }
    location.is_address() || location.partition().is_some()
}

/// An undo file, for a device of 64 KiB of zeroes. One that is refused changes nothing.
pub fn undo_file(input: &[u8]) -> bool {
    let device = MemoryDevice::new(1 << 16);
    let reverted = extant_fsck::repair::revert(&device, || Ok(input));
    if reverted.is_err() {
        let mut all = vec![1; 1 << 16];
        device.read_at(0, &mut all).expect("memory can be read");
        assert!(
            all.iter().all(|byte| *byte == 0),
            "a refused file changed something"
        );
    }
    reverted.is_ok()
}
