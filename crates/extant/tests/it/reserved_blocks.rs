//! Which users get the blocks that the superblock reserves, beside the kernel: the same image, the
//! same steps by the same users, the same answers and the same counts.

use crate::support::Blank;
use extant::{Caller, Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_core::fs::DataMode;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::tool::tool;
use rustix::fs::{FallocateFlags, Gid, Uid};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

const NO_SPACE: i32 = 28;
/// The user or group that blocks are reserved for.
const USER: u32 = 1007;
const GROUP: u32 = 1008;
/// What the engine leaves to itself, and what the kernel is told to leave.
const FEW: u64 = 8;
const BLOCK: u64 = 4096;

/// What a user does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Reserves blocks at the end of a file, one by one, until there are so many or no more.
    Reserve(&'static str, u64),
    /// Writes blocks at the end of a file, one by one, until there are so many or no more.
    Write(&'static str, u64),
    MakeDir(&'static str),
    Remove(&'static str),
}

/// How far somebody got, and the error that stopped him.
type Answer = (u64, Option<i32>);
/// Free blocks, and those for everybody.
type Counts = (u64, u64);

trait Side {
    fn run(&self, who: &Caller, step: Step) -> Answer;
    fn counts(&self) -> Counts;
}

fn repeat(times: u64, mut once: impl FnMut(u64) -> Result<(), i32>) -> Answer {
    for done in 0..times {
        if let Err(e) = once(done) {
            return (done, Some(e));
        }
    }
    (times, None)
}

struct Engine(Filesystem);

impl Side for Engine {
    fn run(&self, who: &Caller, step: Step) -> Answer {
        let fs = self.0.on_behalf_of(who.clone());
        let open = |name: &str| {
            let options = OpenOptions::new().write(true).create(true).open(&fs, name);
            options.map_err(|e| e.errno())
        };
        let opened =
            |name: &str, blocks, act: &dyn Fn(&extant::File, u64) -> extant::Result<()>| {
                let file = match open(name) {
                    Ok(file) => file,
                    Err(e) => return (0, Some(e)),
                };
                let from = file.metadata().len();
                let done = repeat(blocks, |at| {
                    act(&file, from + at * BLOCK).map_err(|e| e.errno())
                });
                file.sync_all().unwrap();
                done
            };
        match step {
            Step::Reserve(name, blocks) => {
                opened(name, blocks, &|file, at| file.allocate(at, BLOCK))
            }
            Step::Write(name, blocks) => opened(name, blocks, &|file, at| {
                file.write_at(&[7; BLOCK as usize], at).map(drop)
            }),
            Step::MakeDir(name) => repeat(1, |_| fs.create_dir(name).map_err(|e| e.errno())),
            Step::Remove(name) => repeat(1, |_| {
                fs.remove_file(name).map_err(|e| e.errno())?;
                fs.sync().map_err(|e| e.errno())
            }),
        }
    }

    fn counts(&self) -> Counts {
        self.0.sync().unwrap();
        let space = self.0.statfs().unwrap();
        (space.free, space.available)
    }
}

struct Kernel(KernelMount);

impl Kernel {
    /// Has the kernel leave so many blocks to itself.
    fn leave(&self, blocks: u64) {
        let device = self.0.device().path().file_name().unwrap();
        let at = Path::new("/sys/fs/ext4").join(device);
        fs::write(at.join("reserved_clusters"), blocks.to_string()).unwrap();
    }
}

impl Side for Kernel {
    fn run(&self, who: &Caller, step: Step) -> Answer {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
                let groups: Vec<Gid> = who.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
                rustix::thread::set_thread_groups(&groups).unwrap();
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                run_as_program(self.0.path(), step)
            });
            one.join().expect("the step ends")
        })
    }

    fn counts(&self) -> Counts {
        self.0.sync();
        let space = rustix::fs::statvfs(self.0.path()).unwrap();
        (space.f_bfree, space.f_bavail)
    }
}

fn run_as_program(root: &Path, step: Step) -> Answer {
    let number = |e: std::io::Error| e.raw_os_error().unwrap();
    let opened = |name: &str, blocks, act: &dyn Fn(&fs::File, u64) -> std::io::Result<()>| {
        let path = root.join(name);
        let file = match fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
        {
            Ok(file) => file,
            Err(e) => return (0, Some(number(e))),
        };
        let from = file.metadata().unwrap().len();
        let done = repeat(blocks, |at| act(&file, from + at * BLOCK).map_err(number));
        file.sync_all().unwrap();
        done
    };
    match step {
        Step::Reserve(name, blocks) => opened(name, blocks, &|file, at| {
            Ok(rustix::fs::fallocate(
                file,
                FallocateFlags::empty(),
                at,
                BLOCK,
            )?)
        }),
        Step::Write(name, blocks) => opened(name, blocks, &|file, at| {
            file.write_at(&[7; BLOCK as usize], at).map(drop)
        }),
        Step::MakeDir(name) => repeat(1, |_| fs::create_dir(root.join(name)).map_err(number)),
        Step::Remove(name) => repeat(1, |_| fs::remove_file(root.join(name)).map_err(number)),
    }
}

/// An image that everybody may write, with blocks reserved.
fn image(percent: &str, user: u32) -> Blank {
    let image = Blank::with(24, &["-t", "ext4", "-b", "4096", "-m", percent]);
    let reserve_for = [format!("{user}"), format!("{GROUP}")];
    let [user, group] = &reserve_for;
    let set = tool("tune2fs").args(["-u", user, "-g", group]);
    set.arg(image.path()).ok();
    let mount = KernelMount::mount(image.path(), Mode::ReadWrite, "");
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o777)).unwrap();
    mount.unmount();
    image
}

fn beside_the_kernel(percent: &str, user: u32, delalloc: bool) {
    let (ours, theirs) = (image(percent, user), image(percent, user));
    let mode = MountOptions::read_write().data_mode(if delalloc {
        DataMode::Delayed
    } else {
        DataMode::Placed
    });
    let engine = Engine(Filesystem::open_spec(&OpenSpec::read_write(ours.path()), mode).unwrap());
    // The group by an option: Linux 6.18 takes the number of the user for that of the group
    // otherwise.
    let no = if delalloc { "" } else { "no" };
    let options = format!("{no}delalloc,resgid={GROUP}");
    let kernel = Kernel(KernelMount::mount(theirs.path(), Mode::ReadWrite, &options));
    kernel.leave(0);
    let same = |who: &Caller, step| {
        let (ours, theirs) = (engine.run(who, step), kernel.run(who, step));
        assert_eq!(ours, theirs, "{step:?} by {who:?}, ours first, for {user}");
        let counts = engine.counts();
        assert_eq!(counts, kernel.counts(), "{step:?} by {who:?}, ours first");
        (ours, counts)
    };
    let anybody = Caller::new(1005, 1005).groups([27]);
    let member = Caller::new(1006, 1006).groups([27, GROUP]);
    let named = Caller::new(user, 1005);
    let root = Caller::new(0, 0);

    let (free, available) = engine.counts();
    assert!(available < free);
    let refused = Some(NO_SPACE);
    let ((got, error), (_, left)) = same(&anybody, Step::Reserve("some", available - 40));
    assert_eq!((got, error, left), (available - 40, None, 40));
    let (_, counts) = same(&anybody, Step::Write("more", 20));
    assert_eq!(counts.1, 20);
    let (answer, counts) = same(&anybody, Step::Reserve("more", 1000));
    assert_eq!((answer, counts.1), ((20, refused), 0));
    // Nothing is left for anybody; much for some.
    for who in [&named, &member] {
        assert_eq!(same(&anybody, Step::Write("again", 1)).0, (0, refused));
        assert_eq!(same(&anybody, Step::Reserve("again", 1)).0, (0, refused));
        assert_eq!(same(&anybody, Step::MakeDir("dir")).0, (0, refused));
        let names = if who.uid == user {
            ["named", "named-dir"]
        } else {
            ["member", "member-dir"]
        };
        assert_eq!(same(who, Step::Write(names[0], 3)).0, (3, None));
        assert_eq!(same(who, Step::Reserve(names[0], 3)).0, (3, None));
        assert_eq!(same(who, Step::MakeDir(names[1])).0, (1, None));
    }
    // What comes back fills the reserve before anybody has it.
    assert_eq!(same(&root, Step::Remove("named")).1.1, 0);
    assert_eq!(same(&anybody, Step::Write("again", 1)).0, (0, refused));
    assert!(same(&root, Step::Remove("some")).1.1 > 0);
    let (_, (_, available)) = same(&anybody, Step::Write("again", 5));
    let both = |who: &Caller, step| {
        let (ours, theirs) = (engine.run(who, step), kernel.run(who, step));
        assert_eq!(
            (ours.1, theirs.1),
            (refused, refused),
            "{step:?} by {who:?}"
        );
        // In how many pieces a file is, and so whether its map has a node, may differ.
        let apart = ours.0.abs_diff(theirs.0);
        assert!(apart <= 1, "{step:?} by {who:?}: {ours:?}, {theirs:?}");
        (engine.counts(), kernel.counts())
    };
    let (mine, linux) = both(&anybody, Step::Reserve("again", available + 9));
    assert_eq!((mine, mine.1), (linux, 0));
    // And the last blocks nobody gets.
    kernel.leave(FEW);
    let (mine, linux) = both(&named, Step::Reserve("rest", free));
    assert_eq!((mine.0, linux.0), (FEW, FEW));
    engine.0.close().unwrap();
    kernel.0.unmount();
    ours.check();
    theirs.check();
}

#[test]
fn the_reserve_is_for_those_it_is_reserved_for_as_under_linux() {
    require!(Root, LoopDevices, KernelExt4);
    // Root by its number, as what it may do is another matter: tests may run with few capabilities.
    for (percent, user, delalloc) in [
        ("5", 0, true),
        ("5", USER, false),
        ("50", 0, false),
        ("50", USER, true),
    ] {
        beside_the_kernel(percent, user, delalloc);
    }
}
