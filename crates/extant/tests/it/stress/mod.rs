//! Many threads change one image in every way there is, and each knows what must come of its part.
//!
//! | module | owns |
//! |---|---|
//! | `crew` | the threads: started together, watched, told when the time is over |
//! | `owner` | a thread's own files and directories, between those of others |
//! | `shared_places` | what all threads do in the same places |

pub(crate) mod crew;
mod owner;
mod shared_places;

use extant::export::{ExportOptions, Preserve, to_directory};
use extant::{Error, Filesystem, MountOptions, OpenSpec};
use extant_testkit::facility::{self, Facility};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tree::{Compare, Tree};
use owner::Owner;
use shared_places::{Member, check_logs, furnish, text};
use std::path::Path;
use std::time::Duration;

const NO_SPACE: i32 = 28;

fn errno(e: &Error) -> i32 {
    e.errno()
}

struct Stress {
    threads: usize,
    mebibytes: u64,
    mke2fs: &'static [&'static str],
    /// Bytes for caches.
    memory: usize,
    /// Whether the threads together want more space than there is.
    tight: bool,
}

/// How long the threads work.
fn time() -> Duration {
    if facility::is_full_run() {
        Duration::from_secs(60)
    } else {
        Duration::from_secs(3)
    }
}

fn open(image: &Path, stress: &Stress) -> Filesystem {
    let options = MountOptions::read_write()
        .commit_interval(Duration::from_millis(100))
        .memory(stress.memory);
    Filesystem::open_spec(&OpenSpec::read_write(image), options).unwrap()
}

fn run(name: &str, stress: &Stress) {
    let seed = seed_from_env(name);
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let image = dir.path().join("fs.img");
    mke2fs(&image, stress.mebibytes << 20, stress.mke2fs);
    let fs = open(&image, stress);
    let before = fs.statfs().unwrap();
    furnish(&fs);
    for place in ["own", "shared", "common"] {
        fs.create_dir(place).unwrap();
    }
    let (mut owners, appended) = work(&fs, stress, seed);
    owners.iter_mut().for_each(Owner::finish);
    let check = |fs: &Filesystem| {
        let read = |path: &str| fs.read(path).map_err(text);
        let link = |path: &str| match fs.read_link(path) {
            Ok(target) => Ok(target.to_str().unwrap().to_owned()),
            Err(e) => Err(text(e)),
        };
        owners.iter().for_each(|owner| owner.check(read, link));
        check_logs(&appended, read);
    };
    check(&fs);
    fs.close().unwrap();
    assert_clean(&image);
    let fs = Filesystem::open(&image).unwrap();
    check(&fs);
    let out = dir.path().join("out");
    let report = to_directory(&fs, "/", &out, &ExportOptions::new(Preserve::ALL)).unwrap();
    assert_eq!(report.problem_count, 0, "{:?}", report.problems);
    drop(fs);
    check_with_kernel(&image, &out, &owners);
    let files: usize = owners.iter().map(Owner::file_count).sum();
    println!("{files} files survived");
    drop(owners);

    // What is removed gives back all it had.
    let fs = open(&image, stress);
    for entry in fs.read_dir("/").unwrap() {
        let entry = entry.unwrap();
        match entry.file_name().to_str().unwrap() {
            "lost+found" => {}
            _ if entry.metadata().unwrap().is_dir() => fs.remove_dir_all(entry.path()).unwrap(),
            _ => fs.remove_file(entry.path()).unwrap(),
        }
    }
    fs.sync().unwrap();
    let after = fs.statfs().unwrap();
    assert_eq!(after, before);
    fs.close().unwrap();
    assert_clean(&image);
}

/// Lets the threads work for their time.
fn work(fs: &Filesystem, stress: &Stress, seed: u64) -> (Vec<Owner>, Vec<[u32; 3]>) {
    let quota = if stress.tight {
        u64::MAX
    } else {
        (stress.mebibytes << 20) / 5 / stress.threads as u64
    };
    let (fs, tight) = (fs.clone(), stress.tight);
    let results = crew::run(stress.threads, time(), move |post| {
        let number = post.number;
        let mut rng = Rng::new(seed ^ (number as u64) << 48);
        let own = format!("own/{number}");
        fs.create_dir(&own).unwrap();
        let places = [own, "shared".to_owned(), "common".to_owned()];
        let mut member = Member::new(number, fs.clone(), Rng::new(rng.next_u64()), tight);
        let owner_rng = Rng::new(rng.next_u64());
        let mut owner = Owner::new(number, fs.clone(), owner_rng, &places, quota, tight);
        while !post.is_over() {
            match rng.below(2) {
                0 => owner.step(&post),
                _ => member.step(&post),
            }
        }
        (owner, member.appended)
    });
    results.into_iter().unzip()
}

/// Requires that the kernel finds the same as we do.
fn check_with_kernel(image: &Path, out: &Path, owners: &[Owner]) {
    if facility::skip(&[Facility::Root, Facility::LoopDevices, Facility::KernelExt4]).is_some() {
        return;
    }
    let mount = KernelMount::mount(image, Mode::Untouched, "");
    let read = |path: &str| std::fs::read(mount.join(path)).map_err(|e| e.to_string());
    let link = |path: &str| match std::fs::read_link(mount.join(path)) {
        Ok(target) => Ok(target.to_str().unwrap().to_owned()),
        Err(e) => Err(e.to_string()),
    };
    owners.iter().for_each(|owner| owner.check(read, link));
    let compare = Compare {
        root: false,
        ..Compare::default()
    };
    let kernel = Tree::snapshot(mount.path());
    kernel.assert_same(&Tree::snapshot(out), &compare);
    mount.unmount();
}

#[test]
fn two_threads_change_one_image() {
    run(
        "stress 2",
        &Stress {
            threads: 2,
            mebibytes: 96,
            mke2fs: &["-t", "ext4", "-b", "1024", "-J", "size=1"],
            memory: 4 << 20,
            tight: false,
        },
    );
}

#[test]
fn eight_threads_change_one_image() {
    run(
        "stress 8",
        &Stress {
            threads: 8,
            mebibytes: 160,
            mke2fs: &["-t", "ext4", "-b", "4096", "-J", "size=4", "-N", "8000"],
            memory: 1 << 20,
            tight: false,
        },
    );
}

#[test]
fn sixty_four_threads_change_one_image() {
    run(
        "stress 64",
        &Stress {
            threads: 64,
            mebibytes: 160,
            mke2fs: &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "20000"],
            memory: 8 << 20,
            tight: false,
        },
    );
}

#[test]
fn eight_threads_run_out_of_space_and_lose_nothing() {
    run(
        "stress without space",
        &Stress {
            threads: 8,
            mebibytes: 12,
            mke2fs: &[
                "-t", "ext4", "-b", "1024", "-J", "size=1", "-g", "2048", "-m", "0",
            ],
            memory: 1 << 20,
            tight: true,
        },
    );
}
