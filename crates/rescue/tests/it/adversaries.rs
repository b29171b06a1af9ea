//! Histories that are made to deceive: blocks that were used again and freed again, inodes that
//! were used again, changes that no log has.

use crate::support::{Hash, Image, content, hash, noise, path_of};
use extant_rescue::{DeletedFile, Rescue, Source, Verdict};
use extant_testkit::mount::{self, KernelMount, Shutdown};
use extant_testkit::oracle::debugfs_write;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
];

/// Some files, all of them in the log and on the device.
fn plant(mount: &KernelMount, files: usize, len: u64, rng: &mut Rng) -> HashMap<String, Vec<u8>> {
    let mut known = HashMap::new();
    fs::create_dir_all(mount.join("d")).unwrap();
    for n in 0..files {
        let size = len / 2 + rng.below(len);
        let bytes = noise(rng, size);
        fs::write(mount.join(format!("d/f{n}")), &bytes).unwrap();
        known.insert(format!("/d/f{n}"), bytes);
    }
    mount.sync();
    known
}

fn remove(mount: &KernelMount, known: &HashMap<String, Vec<u8>>) {
    for path in known.keys() {
        fs::remove_file(mount.join(&path[1..])).unwrap();
    }
}

/// Writes a file past memory, so that its blocks are taken and written at once.
fn write_past_memory(path: &Path, len: usize) -> Option<File> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .custom_flags(direct)
        .open(path)
        .ok()?;
    let room = vec![0xA5_u8; len + 4096];
    let skip = room.as_ptr().align_offset(4096);
    file.write_all_at(&room[skip..skip + len], 0).ok()?;
    Some(file)
}

/// What is whole, by path; what is told to be whole and is not fails the test.
#[track_caller]
fn whole(image: &Image, known: &HashMap<String, Vec<u8>>) -> (usize, usize) {
    let (rescue, deleted) = image.deleted();
    let (mut whole, mut wrong) = (0, 0);
    for file in &deleted.files {
        let Some(expected) = path_of(file).and_then(|path| known.get(&path).cloned()) else {
            continue;
        };
        let has_content = !matches!(file.verdict, Verdict::Unmapped | Verdict::NameOnly);
        let is_right = has_content && content(&rescue, file) == expected;
        whole += usize::from(file.verdict == Verdict::Whole);
        wrong += usize::from(!is_right);
        assert!(is_right || file.verdict != Verdict::Whole, "{file:?}");
    }
    (whole, wrong)
}

#[test]
fn blocks_that_a_file_used_which_came_and_went_within_a_transaction_are_not_sure() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::came_and_went"));
    for options in KINDS {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        let known = plant(&mount, 60, 100_000, &mut rng);
        remove(&mount, &known);
        mount.sync();
        // No transaction ends between the writing and the removal.
        for n in 0..200 {
            let path = mount.join(format!("t{n}"));
            if write_past_memory(&path, 256 << 10).is_none() {
                break;
            }
        }
        for n in 0..=200 {
            let _ = fs::remove_file(mount.join(format!("t{n}")));
        }
        mount.unmount();
        let (_, wrong) = whole(&image, &known);
        assert!(wrong > 0, "{options:?}: nothing was written over");
    }
}

#[test]
fn blocks_that_a_file_used_which_was_cut_again_are_not_sure() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::cut_again"));
    for options in KINDS {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        fs::write(mount.join("stays"), [1; 5000]).unwrap();
        let known = plant(&mount, 60, 100_000, &mut rng);
        remove(&mount, &known);
        mount.sync();
        // It grows over what is free, and is as before when the transaction ends.
        if let Some(file) = write_past_memory(&mount.join("stays"), 40 << 20) {
            file.set_len(5000).unwrap();
        }
        mount.unmount();
        let (_, wrong) = whole(&image, &known);
        assert!(wrong > 0, "{options:?}: nothing was written over");
    }
}

#[test]
fn blocks_that_were_used_and_freed_again_are_known_to_be_given_away() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::used_again"));
    for options in KINDS {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        let known = plant(&mount, 60, 100_000, &mut rng);
        remove(&mount, &known);
        mount.sync();
        fs::write(mount.join("large"), noise(&mut rng, 45 << 20)).unwrap();
        mount.sync();
        fs::remove_file(mount.join("large")).unwrap();
        mount.unmount();
        let (_, wrong) = whole(&image, &known);
        assert!(wrong > 0, "{options:?}: nothing was written over");
        let (rescue, deleted) = image.deleted();
        for file in &deleted.files {
            let Some(expected) = path_of(file).and_then(|path| known.get(&path)) else {
                continue;
            };
            if content(&rescue, file) != *expected {
                assert!(file.lost_blocks > 0, "{options:?}: {file:?}");
            }
        }
    }
}

#[test]
fn a_number_that_was_used_again_brings_back_each_file_as_itself() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::numbers"));
    for options in KINDS {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        let mut numbers = HashSet::new();
        let mut held: HashMap<u32, HashSet<Hash>> = HashMap::new();
        for _ in 0..6 {
            // A name that comes and goes gets one number again and again.
            let bytes = noise(&mut rng, 20_000);
            fs::write(mount.join("same"), &bytes).unwrap();
            let number = fs::metadata(mount.join("same")).unwrap().ino() as u32;
            numbers.insert(number);
            held.entry(number).or_default().insert(hash(&bytes));
            mount.sync();
            fs::remove_file(mount.join("same")).unwrap();
            mount.sync();
        }
        mount.unmount();
        let (rescue, deleted) = image.deleted();
        let mine = deleted
            .files
            .iter()
            .filter(|f| numbers.contains(&f.ino.get()));
        let mut whole = 0;
        for file in mine {
            if file.verdict == Verdict::Whole {
                whole += 1;
                let found = hash(&content(&rescue, file));
                assert!(held[&file.ino.get()].contains(&found), "{file:?}");
            }
        }
        // The last of them at least.
        assert!(whole >= 1, "{options:?}: {deleted:?}");
    }
}

#[test]
fn what_was_trimmed_is_not_sure() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::trimmed"));
    let image = Image::new(64 << 20, KINDS[0]);
    let mount = image.mount();
    let known = plant(&mount, 40, 100_000, &mut rng);
    remove(&mount, &known);
    mount.sync();
    tool("fstrim").arg(mount.path()).ok();
    mount.unmount();
    let (_, wrong) = whole(&image, &known);
    assert!(wrong > 0, "nothing was trimmed");
}

#[test]
fn what_was_changed_past_the_log_makes_nothing_sure() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::past_the_log"));
    for options in KINDS {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        let known = plant(&mount, 40, 100_000, &mut rng);
        remove(&mount, &known);
        mount.unmount();
        let (before, _) = whole(&image, &known);
        assert!(before > 30, "{options:?}: {before}");
        // Another program writes over what is free, and frees it again, without a log.
        let large = image.path.with_extension("large");
        fs::write(&large, noise(&mut rng, 30 << 20)).unwrap();
        let put = format!("write {} large", large.display());
        debugfs_write(&image.path, &[put.as_str(), "rm large"]);
        let (after, wrong) = whole(&image, &known);
        assert_eq!(after, 0, "{options:?}");
        assert!(wrong > 0, "{options:?}: nothing was written over");
    }
}

#[test]
fn what_was_being_written_in_a_crash_makes_nothing_sure() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::crash"));
    for (n, options) in KINDS.iter().enumerate() {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        let known = plant(&mount, 60, 100_000, &mut rng);
        remove(&mount, &known);
        mount.sync();
        // What is written past memory is on the device, and no transaction tells of it.
        for n in 0..400 {
            if write_past_memory(&mount.join(format!("t{n}")), 256 << 10).is_none() {
                break;
            }
        }
        mount.shutdown(Shutdown::Now);
        let sure = |what: &str| {
            let (sure, wrong) = whole(&image, &known);
            assert_eq!(sure, 0, "{options:?}, {what}");
            wrong
        };
        let wrong = sure("as it was left");
        assert!(wrong > 0, "{options:?}: nothing was written over");
        // However it is recovered. A mount for reading leaves what the end of any mount does.
        match n % 3 {
            0 => drop(tool("e2fsck").arg("-fy").arg(&image.path).run()),
            1 => KernelMount::mount(&image.path, mount::Mode::ReadOnly, "").unmount(),
            _ => image.mount().unmount(),
        }
        assert!(sure("recovered") > 0, "{options:?}");
        let mount = image.mount();
        fs::write(mount.join("more"), "more").unwrap();
        mount.unmount();
        sure("used again");
    }
}

#[test]
fn orphans_of_a_crash_are_whole() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::orphans"));
    for (options, source) in [
        (&["-t", "ext4"][..], Source::OrphanList),
        (&["-t", "ext4", "-O", "orphan_file"][..], Source::OrphanFile),
        (&["-t", "ext3", "-b", "1024"][..], Source::OrphanList),
    ] {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        let known = plant(&mount, 10, 100_000, &mut rng);
        let held: HashSet<Hash> = known.values().map(|bytes| hash(bytes)).collect();
        let open: Vec<File> = known
            .keys()
            .map(|path| File::open(mount.join(&path[1..])).unwrap())
            .collect();
        remove(&mount, &known);
        mount.sync();
        mount.stop(Shutdown::Now);
        drop(open);
        mount.unmount();
        let (rescue, deleted) = image.deleted();
        let orphans: Vec<&DeletedFile> = deleted
            .files
            .iter()
            .filter(|file| file.source == source)
            .collect();
        assert_eq!(orphans.len(), 10, "{options:?}: {deleted:?}");
        for file in orphans {
            assert_eq!(file.verdict, Verdict::Whole, "{file:?}");
            assert!(held.contains(&hash(&content(&rescue, file))), "{file:?}");
            assert!(path_of(file).is_some_and(|path| known.contains_key(&path)));
        }
    }
}

/// A file that exists, in a random history.
struct Live {
    path: String,
    content: Vec<u8>,
    /// What it held when a transaction ended last.
    settled: Option<Vec<u8>>,
}

/// What a number held that was removed.
type Held = HashMap<u32, HashSet<Hash>>;

/// One step of a random history.
fn step(mount: &KernelMount, live: &mut Vec<Live>, held: &mut Held, next: &mut u32, rng: &mut Rng) {
    let at = |path: &str| mount.join(path);
    let one = (!live.is_empty()).then(|| rng.below(live.len() as u64) as usize);
    match (rng.below(12), one) {
        (0..=3, _) | (_, None) => {
            *next += 1;
            let path = format!("d{}/f{next}", rng.below(3));
            fs::create_dir_all(at(&path).parent().unwrap()).unwrap();
            let len = if rng.one_in(6) { 400_000 } else { 30_000 };
            let size = rng.below(len);
            let content = noise(rng, size);
            if fs::write(at(&path), &content).is_ok() {
                live.push(Live {
                    path,
                    content,
                    settled: None,
                });
            } else {
                let _ = fs::remove_file(at(&path));
            }
        }
        (4, Some(i)) => {
            let more = noise(rng, 20_000);
            let mut file = OpenOptions::new()
                .append(true)
                .open(at(&live[i].path))
                .unwrap();
            if file.write_all(&more).is_ok() {
                live[i].content.extend(more);
            } else {
                live[i].content = fs::read(at(&live[i].path)).unwrap();
            }
        }
        (5, Some(i)) => {
            // At the end of a block: the rest of one would be cleared in it.
            let len = rng.below(live[i].content.len() as u64 + 1) / 4096 * 4096;
            let file = OpenOptions::new()
                .write(true)
                .open(at(&live[i].path))
                .unwrap();
            file.set_len(len).unwrap();
            live[i].content.truncate(len as usize);
        }
        (6, Some(i)) => {
            *next += 1;
            let to = format!("d{}/r{next}", rng.below(3));
            fs::create_dir_all(at(&to).parent().unwrap()).unwrap();
            fs::rename(at(&live[i].path), at(&to)).unwrap();
            live[i].path = to;
        }
        (7, _) => {
            // Comes and goes.
            let path = at("temporary");
            let file = write_past_memory(&path, 64 << 10);
            drop(file);
            let _ = fs::remove_file(path);
        }
        (_, Some(i)) => {
            let gone = live.swap_remove(i);
            let number = fs::metadata(at(&gone.path)).unwrap().ino() as u32;
            fs::remove_file(at(&gone.path)).unwrap();
            let mine = held.entry(number).or_default();
            mine.insert(hash(&gone.content));
            mine.extend(gone.settled.map(|bytes| hash(&bytes)));
        }
    }
}

/// Every file that is told to be whole held this once, when a transaction ended or when it was
/// removed.
fn judge(rescue: &Rescue, files: &[DeletedFile], held: &Held) -> usize {
    let mut whole = 0;
    for file in files {
        let is_file = file.file_type == Some(extant_format::inode::FileType::Regular);
        if file.verdict != Verdict::Whole || !is_file {
            continue;
        }
        whole += 1;
        let found = hash(&content(rescue, file));
        let mine = held.get(&file.ino.get());
        assert!(mine.is_some_and(|mine| mine.contains(&found)), "{file:?}");
    }
    whole
}

#[test]
fn random_histories_have_nothing_sure_that_is_not() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::histories"));
    let rounds = if std::env::var_os("EXTANT_FULL").is_some() {
        40
    } else {
        3
    };
    let mut whole = 0;
    for round in 0..rounds {
        let options = KINDS[round % KINDS.len()];
        let image = Image::new(24 << 20, options);
        let (mut live, mut held, mut next) = (Vec::new(), Held::new(), 0);
        for _ in 0..rng.between(1, 4) {
            let mount = image.mount();
            for _ in 0..rng.between(20, 150) {
                step(&mount, &mut live, &mut held, &mut next, &mut rng);
                if rng.one_in(12) {
                    mount.sync();
                    for file in &mut live {
                        file.settled = Some(file.content.clone());
                    }
                }
            }
            if rng.one_in(4) {
                mount.sync();
                for file in &mut live {
                    file.settled = Some(file.content.clone());
                }
                mount.shutdown(Shutdown::FlushLog);
                let (rescue, deleted) = image.deleted();
                whole += judge(&rescue, &deleted.files, &held);
            } else {
                mount.unmount();
                for file in &mut live {
                    file.settled = Some(file.content.clone());
                }
                let (rescue, deleted) = image.deleted();
                whole += judge(&rescue, &deleted.files, &held);
            }
        }
    }
    println!("{whole} were whole");
    assert!(whole > 0);
}

/// Transactions that Linux has committed since it mounted this.
fn commits(mount: &KernelMount) -> u64 {
    let device = mount.device().path().file_name().unwrap().to_str().unwrap();
    let told = fs::read_to_string(format!("/proc/fs/jbd2/{device}-8/info")).unwrap();
    // "N transactions (M requested), each up to B blocks"
    told.split_whitespace().next().unwrap().parse().unwrap()
}

/// A tick is 10 ms at most.
const A_FEW_TICKS: Duration = Duration::from_millis(40);

/// Tries set-ups anew as long as another program has Linux commit in the middle of one.
const TRIES: usize = 20;

#[test]
fn a_file_larger_than_it_was_at_the_end_of_a_transaction_is_told_as_of_then() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::as_of"));
    for _ in 0..TRIES {
        let image = Image::new(64 << 20, KINDS[0]);
        let mount = image.mount();
        let before = noise(&mut rng, 50_000);
        fs::write(mount.join("log"), &before).unwrap();
        // Empty when the transaction ends, and written to in the one that removes it.
        File::create(mount.join("late")).unwrap();
        mount.sync();
        let committed = commits(&mount);
        // Linux tells times of files by ticks of its clock: what is written in the tick in which a
        // file is made leaves no trace in its times.
        std::thread::sleep(A_FEW_TICKS);
        let mut file = OpenOptions::new()
            .append(true)
            .open(mount.join("log"))
            .unwrap();
        file.write_all(&noise(&mut rng, 9000)).unwrap();
        drop(write_past_memory(&mount.join("late"), 8192));
        drop(file);
        fs::remove_file(mount.join("log")).unwrap();
        fs::remove_file(mount.join("late")).unwrap();
        let is_one_transaction = commits(&mount) == committed;
        mount.unmount();
        if !is_one_transaction {
            continue;
        }
        let (rescue, deleted) = image.deleted();
        let of = |name: &str| {
            let mut files = deleted.files.iter();
            files
                .find(|file| path_of(file).as_deref() == Some(name))
                .unwrap()
        };
        assert_eq!(content(&rescue, of("/log")), before);
        assert!(matches!(of("/log").source, Source::Log { .. }));
        assert_ne!(of("/late").verdict, Verdict::Whole);
        return;
    }
    panic!("other programs had Linux commit in the middle of {TRIES} set-ups");
}

#[test]
fn maps_with_nodes_holes_and_preallocated_blocks_come_back() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::maps"));
    for options in KINDS {
        let image = Image::new(96 << 20, options);
        let mount = image.mount();
        let mut known = HashMap::new();
        let mut scattered = vec![0; 400 * 8192];
        let file = File::create(mount.join("scattered")).unwrap();
        for n in 0..400_usize {
            let bytes = noise(&mut rng, 4096);
            file.write_all_at(&bytes, n as u64 * 8192).unwrap();
            scattered[n * 8192..n * 8192 + 4096].copy_from_slice(&bytes);
        }
        file.set_len(400 * 8192).unwrap();
        drop(file);
        known.insert("/scattered".to_owned(), scattered);
        let mut reserved = vec![0; 200_000];
        let flags = OFlags::CREATE | OFlags::RDWR;
        let file = rustix::fs::open(mount.join("reserved"), flags, Mode::RUSR).unwrap();
        // Indirect files have no such blocks.
        let _ = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 200_000);
        let file = File::from(file);
        file.set_len(200_000).unwrap();
        let bytes = noise(&mut rng, 4096);
        file.write_all_at(&bytes, 40_960).unwrap();
        reserved[40_960..45_056].copy_from_slice(&bytes);
        known.insert("/reserved".to_owned(), reserved);
        drop(file);
        std::os::unix::fs::symlink("a/target", mount.join("link")).unwrap();
        std::os::unix::fs::symlink("x/".repeat(60), mount.join("long")).unwrap();
        known.insert("/link".to_owned(), b"a/target".to_vec());
        known.insert("/long".to_owned(), "x/".repeat(60).into_bytes());
        mount.sync();
        remove(&mount, &known);
        mount.unmount();
        let (rescue, deleted) = image.deleted();
        for (path, expected) in &known {
            let mut files = deleted.files.iter();
            let file = files
                .find(|file| path_of(file).as_ref() == Some(path))
                .unwrap_or_else(|| panic!("{options:?}: {path}: {deleted:?}"));
            assert!(content(&rescue, file) == *expected, "{options:?}: {file:?}");
            assert_eq!(file.verdict, Verdict::Whole, "{options:?}: {file:?}");
        }
    }
}
