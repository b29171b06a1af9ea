//! Many threads on one mount.

use crate::support::Image;
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const THREADS: u64 = 6;
const STEPS: u64 = 250;

/// What threads do to names that they share: each may find that another was faster.
fn step(rng: &mut Rng, root: &Path) -> std::io::Result<()> {
    let mut name = || -> PathBuf {
        root.join(format!("d{}", rng.below(3)))
            .join(format!("n{}", rng.below(12)))
    };
    let (one, other) = (name(), name());
    match rng.below(9) {
        0 | 1 => fs::write(&one, vec![b'x'; rng.below(20_000) as usize]),
        2 => fs::remove_file(&one),
        3 => fs::rename(&one, &other),
        4 => fs::hard_link(&one, &other),
        5 => fs::read(&one).map(drop),
        6 => fs::read_dir(one.parent().unwrap_or(root))?
            .try_for_each(|entry| entry?.metadata().map(drop)),
        7 => File::open(&one)?.sync_all(),
        // Used after its name may be gone.
        _ => {
            let file = File::options().read(true).write(true).open(&one)?;
            let _ = fs::remove_file(&one);
            file.write_all_at(b"after the end", 100)?;
            let mut back = [0; 13];
            file.read_exact_at(&mut back, 100)?;
            Ok(())
        }
    }
}

#[test]
fn threads_that_change_the_same_names_leave_a_sound_file_system() {
    require!(Fuse);
    change_the_same_names("threads=4");
}

#[test]
fn so_they_do_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    change_the_same_names("io_uring");
}

fn change_the_same_names(options: &str) {
    let seed = seed_from_env("fuse::crowd");
    let image = Image::new(64 << 20, &[]);
    let mount = image.mount(options);
    for n in 0..3 {
        fs::create_dir(mount.at(&format!("d{n}"))).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = mount.path();
            scope.spawn(move || {
                let mut rng = Rng::new(seed ^ (thread + 1));
                for _ in 0..STEPS {
                    match step(&mut rng, root) {
                        Ok(()) => {}
                        // Somebody was faster, or cut the file.
                        Err(e) => assert!(
                            matches!(
                                e.kind(),
                                ErrorKind::NotFound
                                    | ErrorKind::AlreadyExists
                                    | ErrorKind::UnexpectedEof
                            ),
                            "{e}"
                        ),
                    }
                }
            });
        }
    });
    mount.unmount();
    image.assert_clean();
}

#[test]
fn directories_of_threads_of_their_own_hold_what_each_made() {
    require!(Fuse);
    let image = Image::new(64 << 20, &[]);
    let mount = image.mount("");
    let content = |thread: u64, n: u64| format!("{thread} {n}").repeat(n as usize % 700);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = mount.at(&thread.to_string());
            scope.spawn(move || {
                fs::create_dir(&root).unwrap();
                for n in 0..STEPS {
                    fs::write(root.join(n.to_string()), content(thread, n)).unwrap();
                }
                for n in (0..STEPS).step_by(3) {
                    fs::remove_file(root.join(n.to_string())).unwrap();
                }
            });
        }
    });
    mount.unmount();
    image.assert_clean();
    let mount = image.mount("ro");
    for thread in 0..THREADS {
        let root = mount.at(&thread.to_string());
        let kept: Vec<u64> = (0..STEPS).filter(|n| n % 3 != 0).collect();
        assert_eq!(fs::read_dir(&root).unwrap().count(), kept.len());
        for n in kept {
            let found = fs::read_to_string(root.join(n.to_string())).unwrap();
            assert_eq!(found, content(thread, n));
        }
    }
    mount.unmount();
}
