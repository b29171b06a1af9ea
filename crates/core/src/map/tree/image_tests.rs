//! Changes of trees on a real image, with nodes kept small so that trees get deep; `e2fsck` judges.

use crate::alloc::Request;
use crate::fs::{Fs, MountOptions};
use crate::inode::{Held, Inode};
use crate::map::{self, MapGuard, Target, Tree};
use extant_blockdev::FileDevice;
use extant_format::{Ino, Lblk, Pblk};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The first inode that is not reserved, which `mke2fs` gives to `lost+found`; the file comes next.
const FILE: Ino = Ino::new(12);

fn open(path: &Path) -> Arc<Fs> {
    let device = FileDevice::open(path).unwrap();
    Fs::open(
        Arc::new(device),
        MountOptions::read_write().background(false),
    )
    .unwrap()
}

/// What maps each block: where it lies, and whether it is unwritten.
type Model = BTreeMap<u64, (u64, bool)>;

fn map_some(fs: &Fs, held: &Held, model: &mut Model, lblk: u64, lens: &[(u64, u32)]) {
    let image = held.snapshot();
    let mut taken = Vec::new();
    let mut runs = Vec::new();
    let mut at = lblk;
    for &(gap, len) in lens {
        at += gap;
        let free = (at..at + u64::from(len)).all(|lblk| !model.contains_key(&lblk));
        if !free {
            break;
        }
        let request = Request {
            // Far apart, so that few extents join; alone at the same distance, so that many do.
            goal: Pblk::new(if lens.len() > 1 {
                at * 5 % 30_000 + 1
            } else {
                at + 9000
            }),
            len,
            min: len,
            below_32_bits: false,
            privileged: false,
        };
        let got = fs.alloc().unwrap().take_blocks(&request).unwrap();
        runs.push((at, got.start(), got.len(), (at / 16).is_multiple_of(2)));
        taken.push(got);
        at += u64::from(len);
    }
    let credits = map::insert_credits(&image, runs.len() as u32);
    let handle = fs.start(credits).unwrap();
    let guard = MapGuard::lock(held);
    let edit = |tree: &mut Tree<'_>| {
        runs.iter().try_for_each(|&(at, start, len, unwritten)| {
            tree.insert(Lblk::new(at as u32), start, len, unwritten)
        })
    };
    let also = |inode: &mut Inode| inode.disk_mut().size = 60 << 20;
    map::change(&handle, held.live(), &guard, taken, edit, also).unwrap();
    for (at, start, len, unwritten) in runs {
        for i in 0..u64::from(len) {
            model.insert(at + i, (start.get() + i, unwritten));
        }
    }
}

fn unmap(fs: &Fs, held: &Held, model: &mut Model, range: Range<u64>) {
    let mut end = range.end;
    loop {
        let image = held.snapshot();
        let handle = fs.start(map::remove_credits(&image)).unwrap();
        let guard = MapGuard::lock(held);
        let removed = map::remove(&handle, held.live(), &guard, range.start..end).unwrap();
        match removed.next {
            Some(next) => end = next.get().into(),
            None => break,
        }
    }
    model.retain(|lblk, _| !range.contains(lblk));
}

fn convert(fs: &Fs, held: &Held, model: &mut Model, range: Range<u64>) {
    // Each run may change a leaf.
    let runs = model.range(range.clone()).count() as u32;
    let handle = fs
        .start(map::insert_credits(&held.snapshot(), runs.min(20)))
        .unwrap();
    let guard = MapGuard::lock(held);
    map::convert(&handle, held.live(), &guard, range.clone()).unwrap();
    model.range_mut(range).for_each(|(_, at)| at.1 = false);
}

fn check(fs: &Fs, held: &Held, model: &Model) {
    let (_, runs) = map::runs_live(fs, held, |_| 0..1 << 32).unwrap();
    let mut found = Model::new();
    for run in runs {
        let (start, unwritten) = match run.target {
            Target::Written(start) => (start, false),
            Target::Unwritten(start) => (start, true),
            Target::Hole => continue,
        };
        for i in 0..run.len {
            found.insert(u64::from(run.lblk.get()) + i, (start.get() + i, unwritten));
        }
    }
    assert!(found == *model, "the map differs");
}

fn image(options: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::TempDir::new().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), b"").unwrap();
    let path = dir.path().join("image");
    let tree = tree.to_str().unwrap();
    let mut all = vec!["-q", "-F", "-t", "ext4", "-b", "1024", "-d", tree];
    all.extend(options);
    mke2fs(&path, 32 << 20, &all);
    (dir, path)
}

#[test]
fn random_changes_on_an_image_satisfy_e2fsck() {
    let kinds: [&[&str]; 3] = [&[], &["-O", "^metadata_csum"], &["-g", "512"]];
    for (seed, kind) in (0..6).zip(kinds.into_iter().cycle()) {
        println!("seed {seed}, {kind:?}");
        let mut rng = Rng::new(seed);
        let capacity = 4 + rng.below(3) as usize;
        super::tests::cap(capacity);
        let (_dir, path) = image(kind);
        let fs = open(&path);
        let held = fs.hold(FILE).unwrap();
        let mut model = Model::new();
        for step in 0..400 {
            let at = rng.below(4000);
            match rng.below(12) {
                0 => unmap(&fs, &held, &mut model, at..1 << 32),
                1 | 2 => {
                    let len = 1 + rng.below(30);
                    unmap(&fs, &held, &mut model, at..at + len);
                }
                3 => {
                    let len = 1 + rng.below(12);
                    convert(&fs, &held, &mut model, at..at + len);
                }
                _ => {
                    let lens: Vec<_> = (0..=rng.below(6).saturating_sub(2))
                        .map(|_| (rng.below(3), 1 + rng.below(4) as u32))
                        .collect();
                    map_some(&fs, &held, &mut model, at, &lens);
                }
            }
            if step % 20 == 0 {
                check(&fs, &held, &model);
            }
            if step % 100 == 99 {
                fs.sync().unwrap();
            }
        }
        check(&fs, &held, &model);
        drop(held);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&path);
        // And what was stored is what was there.
        let fs = open(&path);
        let held = fs.hold(FILE).unwrap();
        check(&fs, &held, &model);
        unmap(&fs, &held, &mut model, 0..1 << 32);
        assert_eq!(held.snapshot().disk().sectors(fs.block_size()), 0);
        drop(held);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&path);
    }
    super::tests::cap(usize::MAX);
}
