//! What becomes of freed blocks, and of groups that nobody needs.

use super::*;

#[test]
fn data_freed_by_the_transaction_that_allocated_it_is_free_at_once() {
    let bench = Bench::new(10 * MIB, &["-t", "ext4", "-b", "1024"]);
    let old = bench.take(5000, 50, 50).unwrap();
    let start = old.start();
    bench.alloc().commit_blocks(&bench.handle(), old).unwrap();
    bench.fs.sync().unwrap();
    let new = bench.take(start.get() + 50, 50, 50).unwrap();
    assert_eq!(new.start().get(), start.get() + 50);
    let handle = bench.handle();
    bench.alloc().commit_blocks(&handle, new).unwrap();
    // Both in one: of what was there before a crash may bring back the owner.
    bench
        .alloc()
        .free_blocks(&handle, start, 100, FreedKind::Data)
        .unwrap();
    drop(handle);
    assert_eq!(bench.alloc().pending_free_blocks(), 50);
    let again = bench.take(start.get() + 50, 50, 50).unwrap();
    assert_eq!(again.start().get(), start.get() + 50);
    let other = bench.take(start.get(), 50, 50).unwrap();
    assert_ne!(other.start(), start);
    drop((again, other));
    // Images of metadata may be in the log.
    let node = bench.take(start.get() + 50, 1, 1).unwrap();
    let block = node.start();
    let handle = bench.handle();
    bench.alloc().commit_blocks(&handle, node).unwrap();
    bench
        .alloc()
        .free_blocks(&handle, block, 1, FreedKind::Metadata)
        .unwrap();
    drop(handle);
    assert_eq!(bench.alloc().pending_free_blocks(), 51);
    bench.close();
}

#[test]
fn groups_that_are_not_needed_leave_memory_and_come_back_as_they_were() {
    let seed = seed_from_env("alloc_memory");
    let mut rng = Rng::new(seed);
    let small = &["-t", "ext4", "-b", "1024", "-g", "512", "-N", "4096"];
    let bench = Bench::new(96 * MIB, small).reopened(MountOptions::read_write().memory(1 << 20));
    let in_memory = || bench.alloc().groups_in_memory();
    let groups = bench.groups().count();
    let (_, most) = in_memory();
    assert!(groups > 3 * most, "{groups} groups, {most} in memory");
    let mut model = Model::of(&bench);
    let root = bench.fs.inode(Ino::ROOT).unwrap();
    let (mut owned, mut inodes) = (Vec::new(), Vec::new());
    let mut pending = Vec::new();
    for step in 0..3000 {
        let group = Group::new(rng.below(groups as u64) as u32);
        let first = bench.fs.geometry().group_first_block(group).unwrap();
        match rng.below(8) {
            0..4 => {
                let one = bench.take(first.get(), rng.between(1, 30) as u32, 1);
                let one = one.unwrap();
                Model::mark(&mut model.free, blocks_of(&one), false);
                Model::mark(&mut model.owned, blocks_of(&one), true);
                owned.push(blocks_of(&one));
                bench.alloc().commit_blocks(&bench.handle(), one).unwrap();
            }
            4..6 if !owned.is_empty() => {
                let run = owned.swap_remove(rng.below(owned.len() as u64) as usize);
                let len = (run.end - run.start) as u32;
                let kind = FreedKind::Metadata;
                let handle = bench.handle();
                let start = Pblk::new(run.start);
                bench
                    .alloc()
                    .free_blocks(&handle, start, len, kind)
                    .unwrap();
                Model::mark(&mut model.owned, run.clone(), false);
                pending.push((handle.seq(), run));
            }
            6 => {
                let handle = bench.handle();
                let taken = bench.alloc().take_inode(&handle, place(&root), true);
                inodes.push(taken.unwrap());
            }
            _ => {
                bench.alloc().inspect_group(group).unwrap();
            }
        }
        if step % 40 == 0 {
            bench.fs.sync().unwrap();
        }
        let durable = bench.fs.durable();
        for (_, run) in pending.extract_if(.., |(seq, _)| *seq <= durable) {
            Model::mark(&mut model.free, run, true);
        }
    }
    bench.fs.sync().unwrap();
    for (_, run) in pending {
        Model::mark(&mut model.free, run, true);
    }
    // Looks at all of them, one after the other.
    model.check(&bench);
    let (count, _) = in_memory();
    assert!(count <= most + 16, "{count} in memory, seed {seed}");
    for ino in inodes {
        bench
            .alloc()
            .free_inode(&bench.handle(), ino, true)
            .unwrap();
    }
    give_all_back(&bench, &owned);
}

#[test]
fn the_device_is_told_what_is_free_once_that_is_durable() {
    let bench = Bench::new(24 * MIB, &["-t", "ext4", "-b", "1024"]);
    let bench = bench.reopened(MountOptions::read_write().discard(true));
    let content = |block: Pblk| {
        let mut bytes = vec![0; 50 << 10];
        let offset = bench.fs.block_size().offset_of(block).unwrap();
        bench.fs.device().read_at(offset, &mut bytes).unwrap();
        bytes
    };
    let one = bench.take(5000, 50, 50).unwrap();
    let start = one.start();
    let offset = bench.fs.block_size().offset_of(start).unwrap();
    let handle = bench.handle();
    bench.alloc().commit_blocks(&handle, one).unwrap();
    let bytes = vec![0x77; 50 << 10];
    bench.fs.device().write_at(offset, &bytes).unwrap();
    // Allocated by the same transaction or not.
    bench
        .alloc()
        .free_blocks(&handle, start, 50, FreedKind::Data)
        .unwrap();
    drop(handle);
    assert_eq!(content(start), bytes);
    assert_ne!(bench.take(start.get(), 50, 50).unwrap().start(), start);
    bench.fs.sync().unwrap();
    assert_eq!(content(start), vec![0; 50 << 10]);
    assert_eq!(bench.take(start.get(), 50, 50).unwrap().start(), start);
    bench.close();
}

#[test]
fn checksums_of_bitmaps_are_worked_out_once_for_each_commit() {
    let bench = Bench::new(24 * MIB, &["-t", "ext4", "-b", "1024"]);
    let goal = 9000;
    let group = bench.fs.geometry().group_of_block(Pblk::new(goal)).unwrap();
    let has_checksum = || bench.alloc().inspect_group(group).unwrap().has_checksum;
    for round in 0..3 {
        let mut runs = Vec::new();
        for _ in 0..50 {
            let taken = bench.take(goal, 2, 2).unwrap();
            let run = (taken.start(), taken.len());
            assert_eq!(bench.fs.geometry().group_of_block(run.0).unwrap(), group);
            bench.alloc().commit_blocks(&bench.handle(), taken).unwrap();
            runs.push(run);
            assert!(!has_checksum(), "round {round}, blocks taken");
        }
        for (start, len) in runs.drain(25..) {
            let freed = bench
                .alloc()
                .free_blocks(&bench.handle(), start, len, FreedKind::Data);
            freed.unwrap();
            assert!(!has_checksum(), "round {round}, blocks freed");
        }
        // Commit and checkpoint share what one of them works out, as nothing changes it meanwhile.
        bench.fs.sync().unwrap();
        assert!(has_checksum(), "round {round}, committed");
    }
}
