//! What a process gives up before it reads an image that nobody vouches for.
//!
//! Two mechanisms of Linux, for two stages:
//!
//! - *Landlock* takes the file system away: nothing can be opened, made or renamed by path but `/dev/fuse`, of which
//!   every thread that answers opens a channel of its own. Files that are open stay open.
//! - *seccomp* takes system calls away: what is not on the list below fails with EPERM. There are no sockets on it, no
//!   programs, no signals to others, no io_uring (which would reach around the list), and after the second stage nothing
//!   that opens a file.
//!
//! Privileges of root go as well. Both stay for good and reach threads that are started later.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::io;

/// What the engine, its threads and its memory need.
const ALLOWED: &[i64] = &[
    // The device and the channels.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_ppoll,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    // Threads.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_prctl,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals of its own.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Who and where it is, without consequences.
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_chdir,
    // What Landlock holds against: the channels, and what may be missing (/proc, /sys).
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_newfstatat,
    libc::SYS_seccomp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// What opens files.
const OPENING: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_seccomp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
];

/// Confines this thread and those that it starts: the first stage.
///
/// # Errors
/// When the kernel offers neither mechanism or refuses one of them.
pub(crate) fn confine() -> io::Result<()> {
    let walled = take_files_away()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    let filtered = filter(ALLOWED, denied(), SeccompAction::Allow);
    match (filtered, walled) {
        (Ok(()), _) => Ok(()),
        // A kernel without seccomp.
        (Err(e), true) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        (Err(e), _) => Err(e),
    }
}

/// Ends the opening of files, for all threads: the second stage.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn close_files() -> io::Result<()> {
    filter(OPENING, SeccompAction::Allow, denied())
}

fn denied() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.cast_unsigned())
}

/// Whether the kernel holds files back from now on.
fn take_files_away() -> io::Result<bool> {
    let failed = |e: &dyn std::fmt::Display| io::Error::other(format!("Landlock: {e}"));
    // What the kernel knows of this; older ones know less.
    let abi = ABI::V6;
    let channel = PathFd::new("/dev/fuse").map_err(|e| failed(&e))?;
    let use_it = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(landlock::Ruleset::create)
        .and_then(|rules| rules.add_rule(PathBeneath::new(channel, use_it)))
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|e| failed(&e))?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Does `matched` about the listed system calls, and `other` about all others.
fn filter(listed: &[i64], other: SeccompAction, matched: SeccompAction) -> io::Result<()> {
    let failed = |e: &dyn std::fmt::Display| io::Error::other(format!("seccomp: {e}"));
    let rules = listed.iter().map(|&call| (call, Vec::new())).collect();
    let arch = std::env::consts::ARCH.try_into();
    let program: BpfProgram = arch
        .and_then(|arch| SeccompFilter::new(rules, other, matched, arch))
        .and_then(TryInto::try_into)
        .map_err(|e| failed(&e))?;
    match apply_filter_all_threads(&program) {
        Ok(()) => Ok(()),
        Err(seccompiler::Error::Seccomp(e) | seccompiler::Error::Prctl(e)) => Err(e),
        Err(e) => Err(failed(&e)),
    }
}
