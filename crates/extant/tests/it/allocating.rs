//! Space that is reserved: what reads, the map, and Linux say about it, in both directions.

use crate::support::Blank;
use extant::{Extent, Filesystem, OpenOptions};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

fn writable(fs: &Filesystem, path: &str) -> extant::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .open(fs, path)
        .unwrap()
}

/// What `filefrag -v` shows: logical and physical bytes, length, and whether it was never written.
fn filefrag(path: &Path) -> Vec<Extent> {
    let output = tool("filefrag").args(["-v", "-b1024"]).arg(path).ok();
    let number = |text: &str| text.trim_matches(['.', ':', ' ']).parse::<u64>().ok();
    let extent = |line: &str| {
        let fields: Vec<&str> = line.split(':').map(str::trim).collect();
        number(fields.first()?)?;
        let first = |range: &str| number(range.split("..").next()?);
        Some(Extent {
            offset: first(fields.get(1)?)? << 10,
            device_offset: Some(first(fields.get(2)?)? << 10),
            len: number(fields.get(3)?)? << 10,
            unwritten: fields.last()?.contains("unwritten"),
        })
    };
    joined(output.text().lines().filter_map(extent).collect())
}

/// The same pieces however long extents may be.
fn joined(extents: Vec<Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for extent in extents {
        match all.last_mut() {
            Some(last)
                if last.offset + last.len == extent.offset
                    && last.device_offset.map(|at| at + last.len) == extent.device_offset
                    && last.unwritten == extent.unwritten =>
            {
                last.len += extent.len;
            }
            _ => all.push(extent),
        }
    }
    all
}

#[test]
fn what_is_reserved_reads_as_zeros_and_is_a_hole_until_it_is_written() {
    let image = Blank::with(64, &["-t", "ext4", "-b", "4096"]);
    let fs = image.open_writable();
    // Blocks that held something before.
    fs.write("/old", vec![0xaa; 40 << 20]).unwrap();
    fs.sync().unwrap();
    fs.remove_file("/old").unwrap();
    fs.sync().unwrap();

    let file = writable(&fs, "/file");
    file.write_all_at(b"begin", 0).unwrap();
    file.allocate(10_000, 30 * MIB).unwrap();
    assert_eq!(file.metadata().len(), 10_000 + 30 * MIB);
    let content = fs.read("/file").unwrap();
    assert_eq!(&content[..5], b"begin");
    assert!(content[5..].iter().all(|&byte| byte == 0));
    assert_eq!(file.seek_hole(0).unwrap(), Some(4096));
    assert_eq!(file.seek_data(4096).unwrap(), None);
    let blocks: u64 = file.extents().unwrap().iter().map(|e| e.len).sum();
    assert!(blocks >= 30 * MIB);

    file.write_all_at(&[7; 3000], 20 * MIB + 1000).unwrap();
    assert_eq!(file.seek_data(4096).unwrap(), Some(20 * MIB));
    assert_eq!(file.seek_hole(20 * MIB).unwrap(), Some(20 * MIB + 4096));
    let mut around = vec![1; 8192];
    file.read_at(&mut around, 20 * MIB).unwrap();
    assert!(around[..1000].iter().all(|&byte| byte == 0));
    assert!(around[1000..4000].iter().all(|&byte| byte == 7));
    assert!(around[4000..].iter().all(|&byte| byte == 0));
    let after: u64 = file.extents().unwrap().iter().map(|e| e.len).sum();
    assert_eq!(after, blocks);
    drop(file);
    fs.close().unwrap();
    image.check();
}

#[test]
fn the_size_stays_where_it_is_asked_to_and_space_behind_it_is_used_later() {
    let image = Blank::new(64);
    let fs = image.open_writable();
    let file = writable(&fs, "/file");
    file.write_all_at(&[1; 5000], 0).unwrap();
    file.allocate_keep_size(0, 4 * MIB).unwrap();
    assert_eq!(file.metadata().len(), 5000);
    let reserved = file.extents().unwrap();
    let end = reserved.last().map(|e| e.offset + e.len);
    assert_eq!(end, Some(4 * MIB));
    let free = fs.statfs().unwrap().free;
    file.write_all_at(&[2; 100_000], 5000).unwrap();
    file.write_all_at(&[3; 10], 3 * MIB).unwrap();
    fs.sync().unwrap();
    // At most for a node of the tree.
    assert!(free - fs.statfs().unwrap().free <= 1);
    let content = fs.read("/file").unwrap();
    assert_eq!(content.len() as u64, 3 * MIB + 10);
    assert!(content[5000..105_000].iter().all(|&byte| byte == 2));
    assert!(content[105_000..3 << 20].iter().all(|&byte| byte == 0));
    // What lies behind the end goes with the next cut.
    file.set_len(3 * MIB).unwrap();
    let end = file.extents().unwrap().last().map(|e| e.offset + e.len);
    assert_eq!(end, Some(3 * MIB));
    drop(file);
    fs.close().unwrap();
    image.check();
}

#[test]
fn what_cannot_be_reserved_is_refused_and_nothing_changes() {
    let image = Blank::new(64);
    let fs = image.open_writable();
    fs.create_dir("/dir").unwrap();
    let file = writable(&fs, "/file");
    let errno = |result: extant::Result<()>| result.unwrap_err().errno();
    assert_eq!(errno(file.allocate(0, 0)), 22);
    assert_eq!(errno(file.allocate(u64::MAX, 2)), 27);
    assert_eq!(errno(file.allocate(16 << 40, 4096)), 27);
    assert_eq!(file.metadata().len(), 0);
    assert!(file.extents().unwrap().is_empty());
    let read_only = OpenOptions::new().read(true).open(&fs, "/file").unwrap();
    assert_eq!(errno(read_only.allocate(0, 1)), 9);
    drop((file, read_only));
    fs.close().unwrap();
    image.check();

    let old = Blank::with(16, &["-t", "ext3"]);
    let fs = old.open_writable();
    let file = writable(&fs, "/file");
    // Made by us it may be mapped by extents only where the file system has them.
    let said = file.allocate(0, 4096).unwrap_err();
    assert_eq!(said.errno(), 95, "{said}");
    assert!(said.to_string().contains("indirect"), "{said}");
    drop(file);
    fs.close().unwrap();
    old.check();
}

#[test]
fn when_space_runs_out_what_was_reserved_stays_and_all_of_it_can_be_used() {
    // What is reserved for the superuser serves the nodes of maps.
    for options in [["-t", "ext4", "-b", "4096"], ["-t", "ext4", "-b", "1024"]] {
        let image = Blank::with(32, &options);
        let fs = image.open_writable();
        let free = fs.statfs().unwrap().available;
        let block = u64::from(fs.metadata("/").unwrap().blksize());
        let file = writable(&fs, "/file");
        let said = file.allocate(0, 1 << 30).unwrap_err();
        assert_eq!(said.errno(), 28, "{said}");
        let got = file.metadata().len();
        // A few are for the tree.
        assert!(
            got <= free * block && got + 20 * block >= free * block,
            "{got} bytes of {free} blocks of {block}"
        );
        let again = file.allocate(got, 64 << 20).unwrap_err();
        assert_eq!(again.errno(), 28);
        // Writing there does not need any.
        let mut at = 0;
        while at < got {
            let len = (got - at).min(MIB);
            file.write_all_at(&vec![9; len as usize], at).unwrap();
            at += len;
        }
        fs.sync().unwrap();
        assert!(fs.read("/file").unwrap().iter().all(|&byte| byte == 9));
        file.set_len(0).unwrap();
        file.allocate(0, got).unwrap();
        drop(file);
        fs.close().unwrap();
        image.check();
    }
}

#[test]
fn what_we_reserve_is_unwritten_to_linux_and_what_linux_reserves_to_us() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("reserved both ways");
    let mut rng = Rng::new(seed);
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"],
    ] {
        let image = Blank::with(96, options);
        let plan: Vec<(u64, u64, bool)> = (0..24)
            .map(|_| (rng.below(20 * MIB), rng.between(1, 2 * MIB), rng.one_in(3)))
            .collect();
        let writes: Vec<(u64, u64)> = (0..12)
            .map(|_| (rng.below(20 * MIB), rng.between(1, 100_000)))
            .collect();
        let content = |i: usize, len: u64| vec![i as u8 + 1; len as usize];

        let fs = image.open_writable();
        let file = writable(&fs, "/ours");
        for (i, &(offset, len, keep)) in plan.iter().enumerate() {
            match keep {
                true => file.allocate_keep_size(offset, len).unwrap(),
                false => file.allocate(offset, len).unwrap(),
            }
            if let Some(&(at, len)) = writes.get(i / 2).filter(|_| i % 2 == 1) {
                file.write_all_at(&content(i, len), at).unwrap();
            }
        }
        fs.sync().unwrap();
        let (ours, bytes) = (file.extents().unwrap(), fs.read("/ours").unwrap());
        drop(file);
        fs.close().unwrap();
        image.check();

        let mount = KernelMount::mount(image.path(), Mode::ReadWrite, "");
        assert_eq!(std::fs::read(mount.join("ours")).unwrap(), bytes, "{seed}");
        assert_eq!(filefrag(&mount.join("ours")), joined(ours), "seed {seed}");
        let file = std::fs::File::create(mount.join("theirs")).unwrap();
        for (i, &(offset, len, keep)) in plan.iter().enumerate() {
            let flags = match keep {
                true => rustix::fs::FallocateFlags::KEEP_SIZE,
                false => rustix::fs::FallocateFlags::empty(),
            };
            rustix::fs::fallocate(&file, flags, offset, len).unwrap();
            if let Some(&(at, len)) = writes.get(i / 2).filter(|_| i % 2 == 1) {
                file.write_all_at(&content(i, len), at).unwrap();
            }
        }
        file.sync_all().unwrap();
        let theirs = filefrag(&mount.join("theirs"));
        drop(file);
        mount.unmount();

        let fs = image.open_writable();
        // The same was done to both.
        assert!(fs.read("/theirs").unwrap() == bytes, "seed {seed}");
        let file = writable(&fs, "/theirs");
        assert_eq!(joined(file.extents().unwrap()), theirs, "seed {seed}");
        file.write_all_at(&[0xee; 50_000], 7 * MIB).unwrap();
        drop(file);
        fs.close().unwrap();
        image.check();
        let mount = KernelMount::mount(image.path(), Mode::ReadOnly, "");
        let mut expected = bytes;
        let end = (7 << 20) + 50_000;
        expected.resize(expected.len().max(end), 0);
        expected[7 << 20..end].fill(0xee);
        assert!(std::fs::read(mount.join("theirs")).unwrap() == expected);
        mount.unmount();
    }
}
