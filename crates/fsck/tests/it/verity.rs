//! Content compared with the hashes of fs-verity, where that is asked for.

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_fsck::{Code, Options};
use extant_testkit::oracle::{debugfs, mke2fs};
use extant_testkit::tool::tool;
use std::path::Path;
use std::sync::Arc;

/// Blocks of the file.
const BLOCKS: u64 = 300;
/// Where its tree begins, and where its descriptor is, in blocks.
const TREE: u64 = 304;
const DESCRIPTOR: u64 = TREE + 1 + BLOCKS.div_ceil(128);

/// An image with a file of random bytes and what `fsverity` makes of it, put behind it as ext4 has
/// it. Neither the builder nor the engine is asked.
fn sealed(dir: &Path) -> Vec<u8> {
    let at = |name: &str| dir.join(name).display().to_string();
    let mut content = vec![0; (BLOCKS * 4096) as usize - 77];
    extant_testkit::rng::Rng::new(3).fill(&mut content);
    std::fs::write(dir.join("content"), &content).unwrap();
    let output = [("tree", "merkle-tree"), ("descriptor", "descriptor")];
    let output = output.map(|(file, what)| format!("--out-{what}={}", at(file)));
    tool("fsverity")
        .args(["digest", &at("content")])
        .args(output)
        .ok();
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let mut whole = content.clone();
    whole.resize((TREE * 4096) as usize, 0);
    whole.extend(read("tree"));
    assert_eq!(whole.len() as u64, DESCRIPTOR * 4096);
    let descriptor = read("descriptor");
    whole.extend(&descriptor);
    whole.resize(((DESCRIPTOR + 1) * 4096) as usize - 4, 0);
    whole.extend((descriptor.len() as u32).to_le_bytes());
    let from = dir.join("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), whole).unwrap();
    let image = dir.join("image");
    let options = ["-t", "ext4", "-b", "4096", "-O", "verity", "-d"];
    mke2fs(&image, 16 << 20, &[&options[..], &[&at("from")]].concat());
    let requests = format!(
        "set_inode_field /file size {}\nset_inode_field /file flags 0x180000\n",
        content.len()
    );
    tool("debugfs")
        .args(["-w", "-f", "-", &at("image")])
        .input(requests)
        .ok();
    extant_testkit::oracle::assert_clean(&image);
    std::fs::read(&image).unwrap()
}

fn found(image: &[u8], options: Options) -> Vec<(Code, Option<u32>)> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_image(image));
    let report = extant_fsck::check(device, options, &()).unwrap();
    let findings = report.findings.iter();
    findings
        .map(|f| (f.code, f.place.lblk.map(|lblk| lblk.get())))
        .collect()
}

#[test]
fn each_changed_block_is_found_and_only_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let image = sealed(dir.path());
    let asked = Options::default().verity(true);
    assert_eq!(found(&image, asked), []);
    let place = |lblk: u64| {
        let said = debugfs(&dir.path().join("image"), &format!("bmap /file {lblk}"));
        said.trim().parse::<usize>().unwrap() * 4096
    };
    for (lblk, within, code, at) in [
        (0, 0, Code::VerityContent, Some(0)),
        (200, 4095, Code::VerityContent, Some(200)),
        (TREE, 3, Code::VerityContent, Some(0)),
        (TREE + 2, 3, Code::VerityContent, Some(128)),
        (DESCRIPTOR, 20, Code::VerityContent, Some(0)),
        (DESCRIPTOR, 0, Code::VerityDescriptor, None),
        (DESCRIPTOR, 4094, Code::VerityDescriptor, None),
    ] {
        let mut image = image.clone();
        image[place(lblk) + within] ^= 0x40;
        assert_eq!(found(&image, Options::default()), []);
        let expected = [(code, at)];
        assert_eq!(
            found(&image, asked),
            expected,
            "block {lblk}, byte {within}"
        );
    }
    // What is behind the end of the file, in its last block, is hashed by Linux too.
    for within in [4096 - 77, 4095] {
        let mut image = image.clone();
        image[place(BLOCKS - 1) + within] ^= 0x40;
        assert_eq!(found(&image, Options::default()), []);
        let expected = [(Code::VerityContent, Some(BLOCKS as u32 - 1))];
        assert_eq!(found(&image, asked), expected, "byte {within}");
    }
}

#[test]
fn a_flag_without_hashes_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for (name, len) in [("empty", 0), ("file", 5000)] {
        std::fs::write(from.join(name), vec![1; len]).unwrap();
    }
    let from = from.display().to_string();
    mke2fs(
        &image,
        8 << 20,
        &["-t", "ext4", "-O", "verity", "-d", &from],
    );
    tool("debugfs")
        .args(["-w", "-f", "-", &image.display().to_string()])
        .input("sif /empty flags 0x180000\nsif /file flags 0x180000\n")
        .ok();
    let image = std::fs::read(&image).unwrap();
    assert_eq!(found(&image, Options::default()), []);
    let asked = found(&image, Options::default().verity(true));
    assert_eq!(asked, [(Code::VerityDescriptor, None); 2]);
}
