//! What a mount is told, and how it is written on a command line or in fstab.

use crate::foreign::{self, Meaning};
use extant_format::superblock::ErrorsBehaviour;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

/// Bytes from which transfers go past the engine's memory unless said otherwise.
const DIRECT_FROM: usize = 64 << 10;
/// Most threads that answer the kernel unless said otherwise.
const MOST_THREADS: usize = 16;
/// The least memory that a mount with up to so many threads can be limited to, in MiB, and what it
/// takes for each more.
const LEAST_MIB: u64 = 512;
const LEAST_IS_FOR: usize = 16;
const EACH_MORE_MIB: u64 = 5;

/// How to mount. [`Options::parse`] reads what `-o` and fstab say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The image is not changed (`ro`).
    pub read_only: bool,
    /// Users other than the one that mounts may use it (`allow_other`).
    pub allow_other: bool,
    /// The kernel checks owner, mode and access control lists (`default_permissions`). If not, it
    /// does all the same unless it is the superuser's mount that lets nobody else in.
    pub default_permissions: bool,
    /// The user who mounts, and nobody else, does with files what the superuser may (`fakeroot`):
    /// what is recorded is what was asked for.
    pub fakeroot: bool,
    /// The user ID of all files as they are shown and checked, whatever is stored (`uid=N`).
    pub uid: Option<u32>,
    /// The group ID of all files as they are shown and checked (`gid=N`).
    pub gid: Option<u32>,
    /// The permissions that files are shown without, and checked for; they have all others, but
    /// regular files are executable only where what is stored says so (`fmask=OCTAL`, and
    /// `umask=OCTAL` for both).
    pub file_mask: Option<u16>,
    /// The permissions that directories are shown without (`dmask=OCTAL`, `umask=OCTAL`).
    pub dir_mask: Option<u16>,
    /// New files get the group of their directory (`grpid`).
    pub group_of_directory: bool,
    /// Users and groups may be mapped: by mounts of what is mounted (`idmap`).
    pub idmap: bool,
    /// The kernel gathers writes (`writeback_cache`), and does not pass each on immediately.
    pub writeback: bool,
    /// What is read and written goes past the kernel's memory, which keeps no data of files but of
    /// those that are mapped (`direct_io`).
    pub direct_io: bool,
    /// `SEEK_HOLE` and `SEEK_DATA` tell of holes where writes are not gathered, for which what was
    /// written to mapped memory and is not synced yet still counts (`seek_holes`). If not, all is
    /// data.
    pub seek_holes: bool,
    /// Threads that answer the kernel (`threads=N`); twice as many as there are processors, at
    /// least 4 and at most 16, unless said otherwise.
    pub threads: Option<usize>,
    /// Requests come through io_uring (`io_uring`), or by the device (`no_io_uring`). Unless said
    /// otherwise they come through io_uring where the kernel offers that, and the memory is enough
    /// for as many at a time as do good. Where the kernel does not, they come by the device.
    pub io_uring: Option<bool>,
    /// The length in bytes from which aligned transfers are not kept in the engine's memory, as the
    /// kernel has them in its own (`direct_from=BYTES`). `None` keeps all (`direct_from=0`).
    pub direct_from: Option<usize>,
    /// Root's mount gets a block device, where there are loop devices: the kernel then tells it of
    /// `sync`, and waits for its end when it is unmounted (`blkdev`).
    pub blkdev: bool,
    /// Device nodes work (`dev`).
    pub dev: bool,
    /// Set-user-ID and set-group-ID work (`suid`).
    pub suid: bool,
    /// Programs can be started (`exec`).
    pub exec: bool,
    /// Changes of names are durable when they are done (`dirsync`).
    pub dirsync: bool,
    /// All changes are durable when they are done, writes too (`sync`).
    pub sync: bool,
    /// Free space is given back to the device (`discard`).
    pub discard: bool,
    /// Users are held to their limits (`usrquota`).
    pub user_limits: bool,
    /// Groups are held to their limits (`grpquota`).
    pub group_limits: bool,
    /// Projects are held to their limits (`prjquota`).
    pub project_limits: bool,
    /// Seconds after which changes are committed (`commit=N`); the engine's choice unless said
    /// otherwise.
    pub commit_secs: Option<u32>,
    /// Places of new blocks are chosen when data is written back, not when a program writes it
    /// (`delalloc`; off with `nodelalloc`).
    pub delalloc: bool,
    /// What follows when the file system is found corrupt in the course of a change, if not what it
    /// says itself (`errors=continue`, `errors=remount-ro`).
    pub errors: Option<ErrorsBehaviour>,
    /// What the journal holds is left out, which only reading takes (`noload`).
    pub no_replay: bool,
    /// A damaged image is shown as a repair would leave it, which only reading takes (`mend`); for
    /// the program that opens it.
    pub mend: bool,
    /// The byte of the file at which the file system starts (`offset=BYTES`), for the program that
    /// opens it.
    pub offset: Option<u64>,
    /// The partition that it is (`partition=N`), for the program that opens it.
    pub partition: Option<u32>,
    /// What the image is, whatever it looks like (`image_format=FORMAT`), for the program that
    /// opens it, which knows the formats.
    pub image_format: Option<String>,
    /// The file that warnings and errors go to (`log=FILE`), for the program that writes them.
    pub log: Option<PathBuf>,
    /// The most memory in MiB that a confined process can take (`memory=MIB`): half of the
    /// machine's, and at least 2 GiB, unless said otherwise.
    pub memory_mib: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            default_permissions: true,
            fakeroot: false,
            uid: None,
            gid: None,
            file_mask: None,
            dir_mask: None,
            group_of_directory: false,
            idmap: false,
            writeback: false,
            direct_io: false,
            seek_holes: false,
            threads: None,
            io_uring: None,
            direct_from: Some(DIRECT_FROM),
            blkdev: true,
            dev: false,
            suid: false,
            exec: true,
            dirsync: false,
            sync: false,
            discard: false,
            user_limits: false,
            group_limits: false,
            project_limits: false,
            commit_secs: None,
            delalloc: true,
            errors: None,
            no_replay: false,
            mend: false,
            offset: None,
            partition: None,
            image_format: None,
            log: None,
            memory_mib: None,
        }
    }
}

/// An option that makes no sense. Displays as a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOption {
    option: String,
    reason: Cow<'static, str>,
}

impl BadOption {
    fn new(option: &str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            option: option.to_owned(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-o {}: {}", self.option, self.reason)
    }
}

impl std::error::Error for BadOption {}

impl Options {
    /// Reads comma-separated options as `-o` has them, over what these options say so far.
    ///
    /// # Errors
    /// [`BadOption`] for one that is not known, or has no sensible value.
    ///
    /// ```
    /// let mut options = extant_fuse::Options::default();
    /// options.parse("ro,allow_other,threads=4,x-systemd.automount")?;
    /// assert!(options.read_only && options.allow_other);
    /// assert!(options.parse("colour=red").is_err());
    /// # Ok::<(), extant_fuse::BadOption>(())
    /// ```
    pub fn parse(&mut self, list: &str) -> Result<(), BadOption> {
        list.split(',')
            .map(str::trim)
            .filter(|option| !option.is_empty())
            .try_for_each(|option| self.set(option))
    }

    fn set(&mut self, option: &str) -> Result<(), BadOption> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("allow_other", None) => self.allow_other = true,
            ("default_permissions", None) => self.default_permissions = true,
            ("no_default_permissions", None) => self.default_permissions = false,
            ("fakeroot", None) => self.fakeroot = true,
            ("uid", Some(_)) => self.uid = Some(number(option, value, 0..=u32::MAX - 1)?),
            ("gid", Some(_)) => self.gid = Some(number(option, value, 0..=u32::MAX - 1)?),
            ("umask", Some(_)) => {
                self.file_mask = Some(mask(option, value)?);
                self.dir_mask = self.file_mask;
            }
            ("fmask", Some(_)) => self.file_mask = Some(mask(option, value)?),
            ("dmask", Some(_)) => self.dir_mask = Some(mask(option, value)?),
            ("grpid" | "bsdgroups", None) => self.group_of_directory = true,
            ("nogrpid" | "sysvgroups", None) => self.group_of_directory = false,
            ("idmap", None) => self.idmap = true,
            ("writeback_cache", None) => self.writeback = true,
            ("no_writeback_cache", None) => self.writeback = false,
            ("direct_io", None) => self.direct_io = true,
            ("no_direct_io", None) => self.direct_io = false,
            ("seek_holes", None) => self.seek_holes = true,
            ("io_uring", None) => self.io_uring = Some(true),
            ("no_io_uring", None) => self.io_uring = Some(false),
            ("blkdev", None) => self.blkdev = true,
            ("no_blkdev", None) => self.blkdev = false,
            ("dev", None) => self.dev = true,
            ("nodev", None) => self.dev = false,
            ("suid", None) => self.suid = true,
            ("nosuid", None) => self.suid = false,
            ("exec", None) => self.exec = true,
            ("noexec", None) => self.exec = false,
            ("dirsync", None) => self.dirsync = true,
            ("sync", None) => self.sync = true,
            ("discard", None) => self.discard = true,
            ("nodiscard", None) => self.discard = false,
            ("usrquota" | "quota", None) => self.user_limits = true,
            ("grpquota", None) => self.group_limits = true,
            ("prjquota", None) => self.project_limits = true,
            ("noquota", None) => {
                (self.user_limits, self.group_limits, self.project_limits) = (false, false, false);
            }
            ("delalloc", None) => self.delalloc = true,
            ("nodelalloc", None) => self.delalloc = false,
            ("threads", Some(_)) => self.threads = Some(number(option, value, 1..=1024)?),
            ("direct_from", Some(_)) => {
                let from = number(option, value, 0..=1 << 30)?;
                self.direct_from = (from > 0).then_some(from);
            }
            ("commit", Some(_)) => {
                let secs = number(option, value, 0..=900)?;
                // As for Linux: what is usual.
                self.commit_secs = (secs > 0).then_some(secs);
            }
            ("offset", Some(_)) => self.offset = Some(number(option, value, 0..=u64::MAX)?),
            ("partition", Some(_)) => self.partition = Some(number(option, value, 1..=u32::MAX)?),
            ("image_format", Some(word)) if !word.is_empty() => {
                self.image_format = Some(word.to_owned());
            }
            ("memory", Some(_)) => {
                self.memory_mib = Some(number(option, value, 0..=1 << 30)?);
            }
            ("log", Some(path)) if !path.is_empty() => self.log = Some(path.into()),
            ("errors", Some("continue")) => self.errors = Some(ErrorsBehaviour::Continue),
            ("errors", Some("remount-ro")) => self.errors = Some(ErrorsBehaviour::RemountReadOnly),
            ("noload" | "norecovery", None) => self.no_replay = true,
            ("load", None) => self.no_replay = false,
            ("mend", None) => self.mend = true,
            _ => match foreign::meaning(option) {
                Meaning::Nothing => {}
                Meaning::Number => {
                    number::<u64>(option, value, 0..=u64::MAX)?;
                }
                Meaning::Refused(why) => return Err(BadOption::new(option, why)),
            },
        }
        Ok(())
    }

    /// Checks what options say together, after all were read.
    ///
    /// # Errors
    /// [`BadOption`] for one that makes no sense beside the others.
    ///
    /// ```
    /// let mut options = extant_fuse::Options::default();
    /// options.parse("noload")?;
    /// assert!(options.check().is_err());
    /// options.parse("ro")?;
    /// options.check()?;
    /// # Ok::<(), extant_fuse::BadOption>(())
    /// ```
    pub fn check(&self) -> Result<(), BadOption> {
        let more = self.thread_count().saturating_sub(LEAST_IS_FOR) as u64;
        let least = LEAST_MIB + EACH_MORE_MIB * more;
        if let Some(mib) = self.memory_mib
            && mib < least
        {
            let threads = self.thread_count();
            return Err(BadOption::new(
                &format!("memory={mib}"),
                format!("a mount with {threads} threads needs {least} at least"),
            ));
        }
        if self.fakeroot && self.allow_other {
            return Err(BadOption::new(
                "fakeroot",
                "nobody is checked, so nobody else may get in: leave allow_other out",
            ));
        }
        if self.fakeroot && self.shows_other_owners() {
            return Err(BadOption::new(
                "fakeroot",
                "it shows and records owners and modes as they are asked for: leave out uid, gid, umask, fmask and dmask, \
                 or fakeroot",
            ));
        }
        let checks = self.default_permissions && !self.fakeroot;
        if self.shows_other_owners() && !checks {
            return Err(BadOption::new(
                "no_default_permissions",
                "what uid, gid, umask, fmask and dmask show is what the kernel is to check: leave it out",
            ));
        }
        if self.idmap && !checks {
            return Err(BadOption::new(
                "idmap",
                "the kernel maps users only where it checks what they may do: leave out fakeroot and \
                 no_default_permissions",
            ));
        }
        if self.no_replay && !self.read_only {
            return Err(BadOption::new(
                "noload",
                "nothing can be changed before the journal is replayed: it goes with ro only",
            ));
        }
        if self.mend && !self.read_only {
            return Err(BadOption::new(
                "mend",
                "what is mended is in memory only, and takes no changes: it goes with ro only",
            ));
        }
        if self.mend && self.no_replay {
            return Err(BadOption::new(
                "mend",
                "a repair begins with what the journal holds: leave noload out",
            ));
        }
        Ok(())
    }

    /// Tells whether owners or modes are shown that are not those in the image.
    pub(crate) fn shows_other_owners(&self) -> bool {
        let owners = self.uid.or(self.gid).is_some();
        owners || self.file_mask.or(self.dir_mask).is_some()
    }

    /// Tells whether the kernel may gather writes: not of owners with limits, as it would take more
    /// than these allow; and not past its memory, where it would neither gather them nor believe
    /// the times that it is told.
    pub(crate) fn uses_writeback_cache(&self) -> bool {
        let limited = self.user_limits || self.group_limits || self.project_limits;
        self.writeback && !self.direct_io && !limited
    }

    /// Returns the most memory that a confined process can take, in bytes, on a machine that has
    /// `machine` bytes.
    #[must_use]
    pub fn memory_limit(&self, machine: u64) -> u64 {
        match self.memory_mib {
            Some(mib) => mib << 20,
            None => (machine / 2).max(2 << 30),
        }
    }

    /// Threads that answer the kernel.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(|| {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from);
            (2 * cpus).clamp(4, MOST_THREADS)
        })
    }
}

/// Bytes of memory that this machine has.
#[must_use]
pub fn machine_memory() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram.saturating_mul(system.mem_unit.into())
}

/// Reads permissions that are not there, as `umask` has them.
fn mask(option: &str, value: Option<&str>) -> Result<u16, BadOption> {
    value
        .and_then(|text| u16::from_str_radix(text, 8).ok())
        .filter(|mask| *mask <= 0o777)
        .ok_or_else(|| {
            BadOption::new(
                option,
                "permissions are three octal digits, as in umask=022",
            )
        })
}

fn number<T>(
    option: &str,
    value: Option<&str>,
    allowed: std::ops::RangeInclusive<T>,
) -> Result<T, BadOption>
where
    T: std::str::FromStr + PartialOrd,
{
    value
        .and_then(|text| text.parse().ok())
        .filter(|number| allowed.contains(number))
        .ok_or_else(|| BadOption::new(option, "the number is none, or out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Options {
        let mut options = Options::default();
        options.parse(list).unwrap();
        options
    }

    #[test]
    fn the_last_of_opposite_options_counts() {
        assert!(!parsed("ro,rw").read_only);
        assert!(parsed("rw,dev,nodev,ro").read_only);
        assert!(!parsed("rw,dev,nodev,ro").dev);
    }

    #[test]
    fn what_fstab_keeps_for_others_is_passed_over() {
        let plain = Options::default();
        assert_eq!(
            parsed("defaults,noauto,nofail,x-gvfs-show,comment=a"),
            plain
        );
        assert_eq!(parsed(""), plain);
    }

    #[test]
    fn writes_past_the_kernels_memory_are_not_gathered() {
        assert!(!parsed("writeback_cache,direct_io").uses_writeback_cache());
        assert!(parsed("writeback_cache,direct_io,no_direct_io").uses_writeback_cache());
    }

    #[test]
    fn writes_are_not_gathered_where_limits_hold() {
        assert!(!parsed("").uses_writeback_cache());
        for one in ["usrquota", "quota", "grpquota", "prjquota"] {
            let limited = format!("writeback_cache,{one}");
            assert!(!parsed(&limited).uses_writeback_cache(), "{one}");
            assert!(parsed(&format!("{limited},noquota")).uses_writeback_cache());
        }
    }

    #[test]
    fn memory_is_limited_to_half_of_the_machine_unless_said_otherwise() {
        assert_eq!(parsed("").memory_limit(64 << 30), 32 << 30);
        assert_eq!(parsed("").memory_limit(1 << 30), 2 << 30);
        assert_eq!(parsed("memory=512").memory_limit(64 << 30), 512 << 20);
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(parsed("threads=3,commit=30").threads, Some(3));
        assert_eq!(parsed("direct_from=0").direct_from, None);
        for bad in [
            "threads=0",
            "threads=x",
            "commit=901",
            "threads",
            "offset=x",
            "partition=0",
            "image_format=",
            "log=",
            "memory=x",
            "memory",
            "ro=1",
            "nope",
        ] {
            let e = Options::default().parse(bad).unwrap_err();
            assert!(e.to_string().contains(bad), "{e}");
        }
    }

    #[test]
    fn options_of_ext4_are_taken_where_they_say_what_is_done_anyway() {
        let plain = Options::default();
        let same = "data=ordered,barrier=1,stripe=128,auto_da_alloc,nobh,journal_checksum,inode_readahead_blks=32,\
                    init_itable=10,lazytime,relatime,user_xattr,acl,commit=0,delalloc";
        assert_eq!(parsed(same), plain);
        assert_eq!(
            parsed("errors=remount-ro").errors,
            Some(ErrorsBehaviour::RemountReadOnly)
        );
        assert!(parsed("ro,noload").no_replay);
        assert!(parsed("ro,mend").check().is_ok());
        assert!(parsed("fakeroot").check().is_ok());
        for wrong in [
            "mend",
            "ro,mend,noload",
            "fakeroot,allow_other",
            "fakeroot,uid=1000",
            "umask=022,fakeroot",
            "no_default_permissions,gid=5",
            "idmap,fakeroot",
            "idmap,no_default_permissions",
        ] {
            assert!(parsed(wrong).check().is_err(), "{wrong}");
        }
        for (refused, says) in [
            ("errors=panic", "remount-ro"),
            ("errors=ignore", "no such option"),
            ("data=journal", "sync"),
            ("stripe=x", "number"),
            ("noacl", "leave it out"),
            ("remount", "mount -i"),
            ("usrjquota=aquota.user", "tune"),
            ("umask=999", "octal"),
            ("uid=4294967295", "out of range"),
            ("dax=always", "dax=never"),
            ("fc_debug_force", "no such option"),
        ] {
            let e = Options::default().parse(refused).unwrap_err().to_string();
            assert!(e.contains(refused) && e.contains(says), "{e}");
        }
    }

    #[test]
    fn masks_are_octal_and_the_last_one_counts() {
        let all = parsed("umask=022");
        assert_eq!((all.file_mask, all.dir_mask), (Some(0o22), Some(0o22)));
        let each = parsed("umask=022,fmask=133,dmask=0077");
        assert_eq!((each.file_mask, each.dir_mask), (Some(0o133), Some(0o77)));
        assert_eq!(parsed("umask=0,uid=0").uid, Some(0));
        parsed("idmap,uid=1,gid=2,umask=7,allow_other")
            .check()
            .unwrap();
        for bad in [
            "umask=",
            "umask=8",
            "umask=1000",
            "umask=-1",
            "fmask=x",
            "uid=me",
        ] {
            assert!(Options::default().parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn less_memory_than_a_mount_needs_is_refused_with_the_least() {
        let refused = |list: &str| parsed(list).check().unwrap_err().to_string();
        assert!(refused("threads=4,memory=511").contains("512 at least"));
        assert!(refused("threads=64,memory=512").contains("752 at least"));
        parsed("threads=16,memory=512").check().unwrap();
        parsed("threads=64,memory=752").check().unwrap();
        parsed("threads=1024").check().unwrap();
    }
}
