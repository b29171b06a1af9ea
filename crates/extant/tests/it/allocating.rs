//! Space that is reserved: what reads, the map, and Linux say about it, in both directions.

use crate::support::Blank;
use extant::{Caller, Extent, Filesystem, OpenOptions};
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

/// Joins pieces that lie side by side, however long extents may be.
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
    // What is reserved serves the nodes of maps, and of what root may have a few blocks do that are
    // held back.
    let anybody = Caller::new(1005, 1005);
    for (size, caller) in [
        ("4096", None),
        ("1024", None),
        ("4096", Some(&anybody)),
        ("1024", Some(&anybody)),
    ] {
        let image = Blank::with(32, &["-t", "ext4", "-b", size]);
        let fs = image.open_writable();
        fs.set_permissions("/", 0o777).unwrap();
        let space = fs.statfs().unwrap();
        let (free, fs) = match caller {
            Some(caller) => (space.available, fs.on_behalf_of(caller.clone())),
            None => (space.free - 8, fs),
        };
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
            if keep {
                file.allocate_keep_size(offset, len).unwrap()
            } else {
                file.allocate(offset, len).unwrap()
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
            let flags = if keep {
                rustix::fs::FallocateFlags::KEEP_SIZE
            } else {
                rustix::fs::FallocateFlags::empty()
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

/// Random holes, zeros, ranges taken out and put in, beside a vector of bytes; the file has so many
/// extents before.
fn shift_at_random(options: &[&str], (block, extents): (u64, u64), seed: u64) -> (Blank, Vec<u8>) {
    let mut rng = Rng::new(seed);
    let image = Blank::with(64, options);
    let mut fs = image.open_writable();
    let mut file = writable(&fs, "/f");
    let mut wanted: Vec<u8> = vec![0; (3 * block * extents) as usize];
    for i in 0..extents {
        let bytes = vec![(i % 255) as u8 + 1; 2 * block as usize];
        file.write_all_at(&bytes, 3 * block * i).unwrap();
        wanted[(3 * block * i) as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    file.set_len(wanted.len() as u64).unwrap();
    for step in 0..250 {
        let size = wanted.len() as u64;
        let offset = rng.below(size.max(1) + 3 * block);
        let len = rng.between(1, 20 * block);
        let aligned = |at: u64| at / block * block;
        match rng.below(8) {
            0..3 => {
                let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
                file.write_all_at(&bytes, offset).unwrap();
                let end = (offset + len) as usize;
                wanted.resize(wanted.len().max(end), 0);
                wanted[offset as usize..end].copy_from_slice(&bytes);
            }
            3 => {
                file.punch_hole(offset, len).unwrap();
                let end = size.min(offset + len) as usize;
                wanted[(offset.min(size)) as usize..end].fill(0);
            }
            4 => {
                file.zero_range(offset, len).unwrap();
                let end = (offset + len) as usize;
                wanted.resize(wanted.len().max(end), 0);
                wanted[offset as usize..end].fill(0);
            }
            5 | 6 => {
                let (offset, len) = (aligned(offset), aligned(len).max(block));
                let done = file.collapse_range(offset, len);
                if offset + len < size {
                    done.unwrap();
                    wanted.drain(offset as usize..(offset + len) as usize);
                } else {
                    assert_eq!(done.unwrap_err().errno(), 22)
                }
            }
            _ => {
                let (offset, len) = (aligned(offset), aligned(len).max(block));
                let done = file.insert_range(offset, len);
                if offset < size {
                    done.unwrap();
                    let zeros = std::iter::repeat_n(0, len as usize);
                    wanted.splice(offset as usize..offset as usize, zeros);
                } else {
                    assert_eq!(done.unwrap_err().errno(), 22)
                }
            }
        }
        assert_eq!(file.metadata().len(), wanted.len() as u64, "step {step}");
        if step % 10 == 0 {
            assert!(fs.read("/f").unwrap() == wanted, "step {step}");
        }
        if step % 60 == 59 {
            drop(file);
            fs.close().unwrap();
            image.check();
            fs = image.open_writable();
            file = writable(&fs, "/f");
        }
    }
    assert!(fs.read("/f").unwrap() == wanted);
    drop(file);
    fs.close().unwrap();
    image.check();
    (image, wanted)
}

#[test]
fn ranges_are_zeroed_and_taken_out_and_put_in_as_if_the_file_were_a_list_of_bytes() {
    let seed = seed_from_env("ranges");
    shift_at_random(&["-t", "ext4", "-b", "4096"], (4096, 0), seed);
    shift_at_random(&["-t", "ext4", "-b", "1024"], (1024, 0), seed + 1);
}

#[test]
fn ranges_move_in_files_of_many_leaves() {
    let seed = seed_from_env("leaves");
    shift_at_random(&["-t", "ext4", "-b", "4096"], (4096, 800), seed);
    shift_at_random(&["-t", "ext4", "-b", "1024"], (1024, 400), seed + 1);
}

#[test]
fn linux_reads_what_was_zeroed_and_taken_out_and_put_in() {
    require!(LoopDevices, KernelExt4);
    let seed = seed_from_env("ranges");
    let (image, wanted) = shift_at_random(&["-t", "ext4", "-b", "1024"], (1024, 200), seed);
    let mount = KernelMount::mount(image.path(), Mode::ReadOnly, "");
    assert!(std::fs::read(mount.path().join("f")).unwrap() == wanted);
    mount.unmount();
}

#[test]
fn nothing_is_copied_to_a_file_opened_for_appending() {
    let image = Blank::new(8);
    let fs = image.open_writable();
    let from = writable(&fs, "/from");
    from.write_all_at(&[7; 100], 0).unwrap();
    drop(writable(&fs, "/to"));
    let to = OpenOptions::new().append(true).open(&fs, "/to").unwrap();
    assert_eq!(from.copy_range(0, &to, 0, 10).unwrap_err().errno(), 9);
    drop((from, to));
    fs.close().unwrap();
    image.check();
}

#[test]
fn ranges_are_copied_within_and_between_files() {
    let image = Blank::new(64);
    let fs = image.open_writable();
    let from = writable(&fs, "/from");
    from.write_all_at(&[7; 10_000], 0).unwrap();
    from.set_len(3 * MIB).unwrap();
    let to = writable(&fs, "/to");
    assert_eq!(from.copy_range(0, &to, 5, 10 * MIB).unwrap(), 3 * MIB);
    assert_eq!(to.metadata().len(), 3 * MIB + 5);
    assert!(to.metadata().blocks() < 100, "holes stay holes");
    let mut wanted = vec![0; 3 * MIB as usize + 5];
    wanted[5..10_005].fill(7);
    assert!(fs.read("/to").unwrap() == wanted);
    assert_eq!(
        from.copy_range(0, &from, 5000, 6000).unwrap_err().errno(),
        22
    );
    assert_eq!(from.copy_range(0, &from, 20_000, 6000).unwrap(), 6000);
    assert_eq!(from.copy_range(4 * MIB, &to, 0, 1).unwrap(), 0);
    drop((from, to));
    fs.close().unwrap();
    image.check();
}
