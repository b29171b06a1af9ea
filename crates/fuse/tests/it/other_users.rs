//! Users other than root, and what the kernel and the mount agree on between them.

use crate::support::Image;
use crate::syscalls::{act_for, write_mapped};
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use rustix::fs::{FallocateFlags, Gid, IFlags, Uid, XattrFlags, fallocate};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const USER: u32 = 1005;
const CAPABILITY: &str = "security.capability";
/// A value the kernel takes for the capabilities of a program.
const VALUE: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Does something in a thread that is that user.
fn as_user<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    as_number(USER, work)
}

/// Does something in a thread that is the user, and in the group, of this number.
pub(crate) fn as_number<R: Send>(user: u32, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        done.join().expect("the work ends")
    })
}

fn make(path: &Path, mode: u32) {
    fs::write(path, b"content").unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn has_capability(path: &Path) -> bool {
    rustix::fs::getxattr(path, CAPABILITY, &mut [0; 100][..]).is_ok()
}

fn set_flag(path: &Path, flag: IFlags) -> rustix::io::Result<()> {
    let file = File::open(path).unwrap();
    rustix::fs::ioctl_setflags(&file, rustix::fs::ioctl_getflags(&file)? | flag)
}

#[test]
fn others_do_what_modes_allow_and_leave_programs_no_rights() {
    require!(Fuse);
    for options in ["allow_other,suid", "allow_other,suid,writeback_cache"] {
        let image = Image::new(16 << 20, &[]);
        let mount = image.mount(options);
        fs::set_permissions(mount.path(), Permissions::from_mode(0o755)).unwrap();
        let [secret, program, grown, cut] =
            ["secret", "program", "grown", "cut"].map(|name| mount.at(name));
        make(&secret, 0o600);
        for path in [&program, &grown, &cut] {
            make(path, 0o6777);
            rustix::fs::setxattr(path, CAPABILITY, &VALUE, XattrFlags::empty()).unwrap();
        }
        as_user(|| {
            let refused = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
            assert!(fs::read(&secret).is_err_and(refused));
            assert!(fs::write(mount.at("new"), b"").is_err_and(refused));
            assert!(fs::set_permissions(&program, Permissions::from_mode(0o777)).is_err());
            assert!(set_flag(&program, IFlags::APPEND).is_err());
            let open = |path| File::options().write(true).open(path).unwrap();
            open(&program).write_all(b"worse").unwrap();
            let file = open(&grown);
            let none = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, none, 0, 100_000).unwrap();
            open(&cut).set_len(3).unwrap();
        });
        for path in [&program, &grown, &cut] {
            File::open(path).unwrap().sync_all().unwrap();
            assert_eq!(mode(path), 0o777, "{options}: {}", path.display());
            assert!(!has_capability(path), "{options}: {}", path.display());
        }
        mount.unmount();
        image.assert_clean();
    }
}

#[test]
fn where_root_is_alone_nobody_is_checked_but_who_acts_for_somebody_else() {
    require!(Fuse, Root);
    let image = Image::new(16 << 20, &[]);
    // It is for users that ask for it: where others come in by way of root, all is checked
    // otherwise.
    let read_as_somebody = |options: &str| {
        let mount = image.mount(options);
        let secret = mount.at("secret");
        make(&secret, 0o600);
        let read = std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                act_for(USER);
                fs::read(&secret).map_err(|e| e.kind())
            });
            done.join().unwrap()
        });
        mount.unmount();
        read
    };
    assert_eq!(read_as_somebody(""), Err(ErrorKind::PermissionDenied));
    let mut requests = Vec::new();
    for options in ["no_default_permissions", "default_permissions"] {
        let mount = image.mount(options);
        let attributes = || {
            let count = mount.metric("extant_request_seconds_count{op=\"getattr\"}");
            count.parse::<u64>().unwrap()
        };
        let dir = mount.at(&format!("dir-{options}"));
        fs::create_dir(&dir).unwrap();
        fs::metadata(mount.path()).unwrap();
        let before = attributes();
        for number in 0..100 {
            make(&dir.join(number.to_string()), 0o600);
        }
        requests.push(attributes() - before);
        // As servers of files do it, which are root all the while.
        let as_somebody = |work: &(dyn Fn() -> std::io::Result<()> + Sync)| {
            std::thread::scope(|scope| {
                let done = scope.spawn(|| {
                    act_for(USER);
                    work()
                });
                done.join().unwrap()
            })
        };
        let refused: [&(dyn Fn() -> std::io::Result<()> + Sync); 4] = [
            &|| fs::write(dir.join("new"), b""),
            &|| fs::remove_file(dir.join("1")),
            &|| fs::set_permissions(dir.join("1"), Permissions::from_mode(0o777)),
            &|| fs::hard_link(dir.join("1"), dir.join("linked")),
        ];
        for (number, work) in refused.into_iter().enumerate() {
            let kind = as_somebody(work).unwrap_err().kind();
            assert_eq!(kind, ErrorKind::PermissionDenied, "{options}: {number}");
        }
        let sealed = dir.join("2");
        set_flag(&sealed, IFlags::IMMUTABLE).unwrap();
        let may = rustix::fs::access(&sealed, rustix::fs::Access::WRITE_OK);
        // A kernel that checks does not know the flag.
        let expected = match options {
            "no_default_permissions" => Err(rustix::io::Errno::PERM),
            _ => Ok(()),
        };
        assert_eq!(may, expected);
        mount.unmount();
        image.assert_clean();
    }
    // For each file that is made the kernel asks for the directory's once more, if it checks.
    assert!(requests[0] < 20 && requests[1] > 90, "{requests:?}");
}

/// Does something in a thread that is root, and may not do to files what root may.
fn as_root_without_rights<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective
                .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            work()
        });
        done.join().expect("the work ends")
    })
}

/// Why the kernel checks by default, also where one user gets in: no request says what a process
/// has given up, and of names that the kernel knows no request comes.
#[test]
fn root_that_has_given_up_its_rights_is_held_to_modes_unless_nobody_is() {
    require!(Fuse, Root);
    let image = Image::new(16 << 20, &[]);
    for (options, expected) in [
        ("", Err(ErrorKind::PermissionDenied)),
        ("no_default_permissions", Ok(())),
    ] {
        let mount = image.mount(options);
        let dir = mount.at(&format!("dir-{options}"));
        fs::create_dir(&dir).unwrap();
        let (secret, below) = (mount.at("secret"), dir.join("below"));
        make(&secret, 0o600);
        chown(&secret, Some(USER), Some(USER)).unwrap();
        make(&below, 0o644);
        let tries = || {
            let read = |path: &Path| fs::read(path).map(drop).map_err(|e| e.kind());
            as_root_without_rights(|| [read(&secret), read(&below)])
        };
        assert_eq!(tries(), [expected, Ok(())], "{options}");
        // The name below is known to the kernel now, and the way to it is closed.
        fs::set_permissions(&dir, Permissions::from_mode(0o0)).unwrap();
        assert_eq!(tries(), [expected, expected], "{options}");
        fs::remove_file(&secret).unwrap();
        mount.unmount();
        image.assert_clean();
    }
}

#[test]
fn what_was_written_before_a_program_got_rights_leaves_them() {
    require!(Fuse);
    get_rights("suid");
    get_rights("suid,writeback_cache");
}

fn get_rights(options: &str) {
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount(options);
    let program = mount.at("program");
    // The kernel may have the content still when the rights come.
    fs::write(&program, vec![7; 1 << 20]).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o6755)).unwrap();
    rustix::fs::setxattr(&program, CAPABILITY, &VALUE, XattrFlags::empty()).unwrap();
    File::open(&program).unwrap().sync_all().unwrap();
    mount.unmount();
    let mount = image.mount("ro");
    let program = mount.at("program");
    assert_eq!(mode(&program), 0o6755);
    assert!(has_capability(&program));
    assert_eq!(fs::metadata(&program).unwrap().len(), 1 << 20);
    mount.unmount();
    image.assert_clean();
}

#[test]
fn times_of_changes_stay_what_programs_saw() {
    require!(Fuse);
    keep_times("");
    keep_times("writeback_cache");
}

fn keep_times(options: &str) {
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount(options);
    let path = mount.at("file");
    fs::write(&path, vec![7; 300_000]).unwrap();
    let seen = fs::metadata(&path).unwrap();
    mount.unmount();
    let mount = image.mount("ro");
    let found = fs::metadata(mount.at("file")).unwrap();
    assert_eq!(found.modified().unwrap(), seen.modified().unwrap());
    assert_eq!(
        (found.ctime(), found.ctime_nsec()),
        (seen.ctime(), seen.ctime_nsec())
    );
    mount.unmount();
}

#[test]
fn what_finds_no_room_is_told_and_what_may_only_grow_grows() {
    require!(Fuse);
    find_no_room("");
    find_no_room("writeback_cache");
}

fn find_no_room(options: &str) {
    let image = Image::new(8 << 20, &[]);
    let mount = image.mount(options);
    let mut large = File::create(mount.at("large")).unwrap();
    // Some of it the kernel takes before it knows, if it gathers writes.
    let written = (0..16).try_for_each(|_| large.write_all(&[7; 1 << 20]));
    let told = written.and_then(|()| large.sync_all());
    assert_eq!(told.unwrap_err().kind(), ErrorKind::StorageFull);
    let full = rustix::fs::statvfs(mount.path()).unwrap();
    drop(large);
    fs::remove_file(mount.at("large")).unwrap();
    // The kernel tells that a file was closed when it finds time; until then it has its space.
    let end = Instant::now() + Duration::from_secs(60);
    while rustix::fs::statvfs(mount.path()).unwrap().f_bfree < full.f_bfree + 1000 {
        assert!(Instant::now() < end, "the space is not free after a minute");
        std::thread::sleep(Duration::from_millis(2));
    }

    let log = mount.at("log");
    make(&log, 0o644);
    set_flag(&log, IFlags::APPEND).unwrap();
    let mut file = File::options().append(true).open(&log).unwrap();
    file.write_all(b" and more").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(&log).unwrap(), b"content and more");
    assert!(file.set_len(1).is_err());
    assert!(fs::remove_file(&log).is_err());
    drop(file);
    mount.unmount();
    image.assert_clean();
}

#[test]
fn what_was_written_before_a_file_became_immutable_is_in_it() {
    require!(Fuse);
    become_immutable("writeback_cache,threads=2", seal_written);
    become_immutable("threads=2", seal_mapped);
}

#[test]
fn what_was_written_before_a_file_became_immutable_is_in_it_through_io_uring() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    become_immutable("io_uring,writeback_cache", seal_written);
    become_immutable("io_uring", seal_mapped);
    // One after the other: as many as there may be at once, and more.
    let image = Image::new(16 << 20, &[]);
    let mount = image.mount("io_uring,writeback_cache");
    for number in 0..150 {
        let mut file = File::create(mount.at(&format!("file-{number}"))).unwrap();
        file.write_all(b"kept back").unwrap();
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        rustix::fs::ioctl_setflags(&file, flags | IFlags::IMMUTABLE).unwrap();
    }
    mount.unmount();
    image.assert_clean();
}

/// The file that the child process makes.
const MAPPED: &str = "EXTANT_TEST_MAPPED";

/// Makes a file, has it hold 300,000 times the `number`, and makes it immutable while the kernel
/// still has that.
fn seal(path: &Path, number: u8, write: fn(&File, &[u8])) {
    let mut options = File::options();
    let new = options.read(true).write(true).create_new(true).open(path);
    let mut file = new.unwrap();
    write(&file, &[number; 300_000]);
    let flags = rustix::fs::ioctl_getflags(&file).unwrap();
    rustix::fs::ioctl_setflags(&file, flags | IFlags::IMMUTABLE).unwrap();
    assert!(file.write_all(b"x").is_err() || file.sync_all().is_err());
}

fn seal_written(path: &Path, number: u8) {
    seal(path, number, |mut file, data| file.write_all(data).unwrap());
}

/// In a process of its own, as this one answers.
fn seal_mapped(path: &Path, number: u8) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["other_users::child_that_maps", "--exact", "--nocapture"])
        .env(MAPPED, path)
        .env("EXTANT_TEST_NUMBER", number.to_string())
        .output()
        .unwrap();
    assert!(child.status.success(), "{child:?}");
}

/// The child process, which does nothing when it is run as a test.
#[test]
fn child_that_maps() {
    let Some(path) = std::env::var_os(MAPPED) else {
        return;
    };
    let number = std::env::var("EXTANT_TEST_NUMBER").unwrap();
    seal(Path::new(&path), number.parse().unwrap(), write_mapped);
}

/// Many files become immutable at once of which the kernel has kept what was written to them.
fn become_immutable(options: &str, seal: fn(&Path, u8)) {
    const FILES: u8 = 24;
    let image = Image::new(32 << 20, &[]);
    let mount = image.mount(options);
    // All at once: more than there are threads that answer, and each waits for a write.
    let seal = &|number: u8| seal(&mount.at(&format!("file-{number}")), number);
    std::thread::scope(|scope| {
        for number in 0..FILES {
            scope.spawn(move || seal(number));
        }
    });
    mount.unmount();
    let mount = image.mount("ro");
    for number in 0..FILES {
        let content = fs::read(mount.at(&format!("file-{number}"))).unwrap();
        assert!(
            content == vec![number; 300_000],
            "file {number} has {} bytes",
            content.len()
        );
    }
    mount.unmount();
    image.assert_clean();
}

/// What of `blocks` blocks can be reserved for a file one by one, or why no more.
fn reserve(path: &Path, blocks: u64) -> (u64, Option<ErrorKind>) {
    let file = match File::options().create(true).append(true).open(path) {
        Ok(file) => file,
        Err(e) => return (0, Some(e.kind())),
    };
    let from = file.metadata().unwrap().len();
    for done in 0..blocks {
        let at = from + done * 4096;
        if let Err(e) = fallocate(&file, FallocateFlags::empty(), at, 4096) {
            return (done, Some(std::io::Error::from(e).kind()));
        }
    }
    (blocks, None)
}

#[test]
fn the_reserve_is_roots_and_nobody_elses() {
    require!(Fuse, Root);
    keep_the_reserve("allow_other");
    keep_the_reserve("allow_other,writeback_cache");
}

/// Root makes use of what others have to leave.
fn keep_the_reserve(options: &str) {
    let image = Image::new(24 << 20, &["-b", "4096", "-m", "10"]);
    let mount = image.mount(options);
    fs::set_permissions(mount.path(), Permissions::from_mode(0o777)).unwrap();
    let available = || rustix::fs::statvfs(mount.path()).unwrap().f_bavail;
    let full = Some(ErrorKind::StorageFull);
    let before = available();
    let got = as_user(|| reserve(&mount.at("theirs"), before + 10));
    assert_eq!(got, (before, full));
    assert_eq!(available(), 0);
    // Nor can they make what takes space, or write, also where the kernel keeps that for them and
    // asks for room later.
    let made = as_user(|| fs::create_dir(mount.at("dir")));
    assert_eq!(made.unwrap_err().kind(), ErrorKind::StorageFull);
    let kept_back = as_user(|| {
        let mut file = File::create(mount.at("kept-back")).unwrap();
        file.write_all(&[7; 4096]).and_then(|()| file.sync_all())
    });
    assert_eq!(kept_back.unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(reserve(&mount.at("roots"), 5), (5, None));
    fs::create_dir(mount.at("dir")).unwrap();
    let mut file = File::create(mount.at("written")).unwrap();
    file.write_all(&[7; 40960]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let got = as_user(|| reserve(&mount.at("theirs"), 1));
    assert_eq!(got, (0, full));
    mount.unmount();
    image.assert_clean();
}
