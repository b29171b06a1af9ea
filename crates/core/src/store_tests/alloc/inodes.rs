//! Taking and freeing inodes.

use super::*;

#[test]
fn inodes_are_taken_once_each_and_tables_never_show_what_was_there_before() {
    for (name, bench) in kinds() {
        let before = bench.alloc().free_counts();
        let root = bench.fs.inode(Ino::ROOT).unwrap();
        let mut rng = Rng::new(7);
        let mut inodes = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let kind = if rng.one_in(3) {
                FileType::Directory
            } else {
                FileType::Regular
            };
            match bench.alloc().take_inode(
                &bench.handle(),
                place(&root),
                kind == FileType::Directory,
            ) {
                Ok(ino) => {
                    assert!(ino >= bench.fs.superblock().first_ino(), "{name}: {ino}");
                    assert!(seen.insert(ino), "{name}: {ino} twice");
                    assert_sound(&bench, ino, name);
                    inodes.push((ino, kind == FileType::Directory));
                }
                Err(Error::NoSpace) => break,
                Err(e) => panic!("{name}: {e}"),
            }
            // All of them is too long for large tables.
            if inodes.len() == 6000 {
                break;
            }
        }
        let wanted = u64::from(before.inodes).min(6000);
        assert_eq!(inodes.len() as u64, wanted, "{name}");
        let dirs = inodes.iter().filter(|(_, dir)| *dir).count() as u64;
        assert_eq!(bench.alloc().directories(), 2 + dirs, "{name}");
        for (ino, dir) in inodes {
            bench.alloc().free_inode(&bench.handle(), ino, dir).unwrap();
        }
        assert_eq!(bench.alloc().free_counts(), before, "{name}");
        bench.close();
    }
}

/// The record of a new inode is zeros, or an inode that was deleted: never other bytes.
fn assert_sound(bench: &Bench, ino: Ino, name: &str) {
    let table = bench
        .fs
        .group(bench.fs.geometry().locate_inode(ino).unwrap().group)
        .unwrap()
        .inode_table;
    let at = bench.fs.geometry().inode_position(ino, table).unwrap();
    let mut record = vec![0; bench.fs.geometry().inode_size() as usize];
    bench.fs.device().read_at(at, &mut record).unwrap();
    assert!(
        record.iter().all(|b| *b == 0),
        "{name}: {ino} shows stale bytes"
    );
}

#[test]
fn threads_never_get_an_inode_twice() {
    let bench = Bench::new(48 * MIB, &["-t", "ext4", "-b", "1024", "-g", "1024"]);
    let before = bench.alloc().free_counts();
    let root = bench.fs.inode(Ino::ROOT).unwrap();
    let all: Vec<Ino> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|i| {
                let (bench, root) = (&bench, &root);
                scope.spawn(move || {
                    let mut rng = Rng::new(i);
                    let mut mine = Vec::new();
                    for _ in 0..1500 {
                        if rng.one_in(4) && !mine.is_empty() {
                            let at = rng.below(mine.len() as u64) as usize;
                            let ino = mine.swap_remove(at);
                            bench
                                .alloc()
                                .free_inode(&bench.handle(), ino, false)
                                .unwrap();
                        } else {
                            let kind = FileType::Regular;
                            let ino = bench.alloc().take_inode(
                                &bench.handle(),
                                place(root),
                                kind == FileType::Directory,
                            );
                            mine.push(ino.unwrap());
                        }
                    }
                    mine
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|w| w.join().unwrap())
            .collect()
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    let counts = bench.alloc().free_counts();
    assert_eq!(counts.inodes as usize, before.inodes as usize - all.len());
    for ino in all {
        bench
            .alloc()
            .free_inode(&bench.handle(), ino, false)
            .unwrap();
    }
    bench.close();
}

#[test]
fn files_stay_with_their_directory_and_top_directories_spread() {
    let bench = Bench::new(
        64 * MIB,
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-G", "4"],
    );
    let geometry = bench.fs.geometry();
    let root = bench.fs.inode(Ino::ROOT).unwrap();
    let group = |ino| geometry.locate_inode(ino).unwrap().group.get();
    let mut units: HashMap<u32, u32> = HashMap::new();
    let mut groups = HashSet::new();
    let take_dir = || {
        let dir = bench
            .alloc()
            .take_inode(&bench.handle(), place(&root), true)
            .unwrap();
        group(dir)
    };
    for _ in 0..8 {
        let group = take_dir();
        groups.insert(group);
        *units.entry(group / 4).or_default() += 1;
    }
    assert_eq!(units.len(), 8, "{units:?}");
    for _ in 8..32 {
        groups.insert(take_dir());
    }
    assert_eq!(groups.len(), 32, "two of them share a group: {groups:?}");
    for _ in 0..50 {
        let file = bench
            .alloc()
            .take_inode(&bench.handle(), place(&root), false)
            .unwrap();
        assert_eq!(group(file), 0);
    }
    let generations: HashSet<u32> = (0..1000)
        .map(|_| bench.alloc().new_generation(Ino::new(12)))
        .collect();
    assert!(generations.len() > 990);
}

#[test]
fn one_of_two_cpus_that_fill_a_directory_takes_its_inodes_beside_it_and_comes_back() {
    let bench = Bench::new(
        64 * MIB,
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-G", "4"],
    );
    let root = bench.fs.inode(Ino::ROOT).unwrap();
    let group_of = |ino| bench.fs.geometry().locate_inode(ino).unwrap().group.get();
    let mut taken = Vec::new();
    let mut take = |cpu| {
        let handle = bench.handle();
        let file = FileType::Regular;
        let ino = bench
            .alloc()
            .take_inode_on(cpu, &handle, place(&root), file == FileType::Directory)
            .unwrap();
        taken.push(ino);
        group_of(ino)
    };
    // Each has its turn: soon no group is used by both.
    for _ in 0..10 {
        take(0);
        take(1);
    }
    let (of_first, of_second) = (take(0), take(1));
    assert_ne!(of_first, of_second);
    assert!(
        [of_first, of_second].contains(&0),
        "nobody had to leave both"
    );
    for _ in 0..10 {
        assert_eq!((take(0), take(1)), (of_first, of_second));
    }
    // Alone it comes back after some transactions, and stays.
    let alone = usize::from(of_first == 0);
    for _ in 0..2 {
        assert_eq!(take(alone), of_first.max(of_second));
        bench.fs.sync().unwrap();
    }
    for _ in 0..100 {
        assert_eq!(take(alone), 0);
    }
    for ino in taken {
        bench
            .alloc()
            .free_inode(&bench.handle(), ino, false)
            .unwrap();
    }
    bench.close();
}

#[test]
fn where_groups_are_on_their_own_two_cpus_take_inodes_of_different_blocks_of_a_table() {
    let bench = Bench::new(
        64 * MIB,
        &["-t", "ext4", "-b", "1024", "-g", "8192", "-O", "^flex_bg"],
    );
    let root = bench.fs.inode(Ino::ROOT).unwrap();
    let geometry = bench.fs.geometry();
    let mut taken: [Vec<Ino>; 2] = Default::default();
    for _ in 0..200 {
        for (cpu, taken) in taken.iter_mut().enumerate() {
            let handle = bench.handle();
            let file = FileType::Regular;
            taken.push(
                bench
                    .alloc()
                    .take_inode_on(cpu, &handle, place(&root), file == FileType::Directory)
                    .unwrap(),
            );
        }
    }
    // Once it is known that they are two.
    let blocks = taken.each_ref().map(|taken| {
        let later = taken.iter().skip(50);
        let at = later.map(|ino| geometry.locate_inode(*ino).unwrap());
        at.map(|at| (at.group.get(), at.index / geometry.inodes_per_block()))
            .collect::<HashSet<_>>()
    });
    assert!(blocks[0].is_disjoint(&blocks[1]), "{blocks:?}");
    assert!(blocks.iter().flatten().all(|(group, _)| *group == 0));
    for ino in taken.into_iter().flatten() {
        bench
            .alloc()
            .free_inode(&bench.handle(), ino, false)
            .unwrap();
    }
    bench.close();
}
