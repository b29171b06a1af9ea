//! Which system calls a confined process has left, and with which arguments.

use crate::Confinement;
use libc::{c_int, c_long};
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use std::collections::BTreeMap;

/// `IORING_REGISTER_ENABLE_RINGS` of `linux/io_uring.h`: begins with a ring that was made before.
const ENABLE_RING: c_int = 12;
/// `PR_SET_VMA` of `linux/prctl.h`: a name for memory, which the C library gives its own.
const NAME_MEMORY: c_int = 0x5356_4d41;
/// What a new thread shares, and what would make it more than a thread: a process, or one with its
/// own idea of users, files, the network.
const CLONE_KIND: c_int = libc::CLONE_THREAD
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// What the engine, its threads and its memory need, with any arguments.
pub(super) const ALLOWED: &[i64] = &[
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
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_ppoll,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    // Threads.
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
    // The identity and the place of the process, without consequences.
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getrusage,
    libc::SYS_chdir,
    // What says only whether something is there.
    libc::SYS_readlinkat,
    libc::SYS_newfstatat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// The C library starts threads with it, and its arguments lie in memory, where no filter looks. It
/// takes the older call when told that there is no such thing.
pub(super) const WITHOUT: &[i64] = &[libc::SYS_clone3];

/// What starts threads, after all are there.
pub(super) const THREADS: &[i64] = &[libc::SYS_clone];

/// What a server calls beside the rest, with any arguments: about sockets of clients, which it has
/// from its listening socket alone, and about files that grow, of which all are open.
const SERVING: &[i64] = &[
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_setsockopt,
    libc::SYS_ftruncate,
];

/// What a server of guests calls beside that: monitors pass descriptors of memory and of events,
/// and threads are woken by events.
const GUESTS: &[i64] = &[libc::SYS_recvmsg, libc::SYS_eventfd2];

/// What opens files of a directory. Which ones is Landlock's to say.
const OPENING: &[i64] = &[libc::SYS_openat, libc::SYS_openat2];

/// `SECCOMP_SET_MODE_FILTER` and `SECCOMP_FILTER_FLAG_TSYNC` of `linux/seccomp.h`: one more filter,
/// for all threads.
const ADD_FILTER: u64 = 1;
const FOR_ALL_THREADS: u64 = 1;
/// `SCHED_IDLE`: the priority below all others.
const GIVE_WAY: u64 = 5;

/// Rules by system call; without any rule a call is meant with whatever arguments.
pub(super) type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Allows these calls, whatever their arguments.
pub(super) fn plain(calls: &[c_long]) -> Rules {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

/// Lists all that process `own` may call, and what `kept` adds to it.
///
/// # Errors
/// None that depends on anything but this file.
pub(super) fn allowed(own: u32, kept: &Confinement) -> Result<Rules, BackendError> {
    let mut rules = plain(ALLOWED);
    let own = u64::from(own);
    let one_of = |arg, values: &[c_int]| -> Result<Vec<SeccompRule>, BackendError> {
        let value = |value: &c_int| rule(arg, SeccompCmpOp::Eq, u64::from(value.cast_unsigned()));
        values.iter().map(value).collect()
    };
    let without = |bits: c_int| SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned()));
    let conditional = [
        // Neither the receiver of signals about a file, nor locks, leases and sizes of pipes.
        (
            libc::SYS_fcntl,
            one_of(
                1,
                &[
                    libc::F_GETFD,
                    libc::F_SETFD,
                    libc::F_GETFL,
                    libc::F_DUPFD_CLOEXEC,
                ],
            )?,
        ),
        // Memory that is executed is what the program was started with.
        (libc::SYS_mmap, vec![rule(2, without(libc::PROT_EXEC), 0)?]),
        (
            libc::SYS_mprotect,
            vec![rule(2, without(libc::PROT_EXEC), 0)?],
        ),
        // Threads only.
        (
            libc::SYS_clone,
            vec![rule(
                0,
                without(CLONE_KIND),
                u64::from(libc::CLONE_THREAD.cast_unsigned()),
            )?],
        ),
        // Signals to its own threads: how it aborts, and how a filter reaches all of them.
        (libc::SYS_tgkill, vec![rule(0, SeccompCmpOp::Eq, own)?]),
        (
            libc::SYS_prctl,
            one_of(
                0,
                &[libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS, NAME_MEMORY],
            )?,
        ),
        // Less than is left can be left.
        (
            libc::SYS_seccomp,
            vec![SeccompRule::new(vec![
                half(0, SeccompCmpOp::Eq, ADD_FILTER)?,
                half(1, SeccompCmpOp::Eq, FOR_ALL_THREADS)?,
            ])?],
        ),
        // Its own limits, to read them.
        (
            libc::SYS_prlimit64,
            vec![SeccompRule::new(vec![
                half(0, SeccompCmpOp::Eq, 0)?,
                // An address: all of it.
                SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?,
            ])?],
        ),
    ];
    rules.extend(conditional);
    if kept.rings {
        rules.extend([
            // What a ring may do was decided when it was made.
            (libc::SYS_io_uring_enter, Vec::new()),
            (libc::SYS_io_uring_register, one_of(1, &[ENABLE_RING])?),
            // On which processor a thread of its own runs.
            (
                libc::SYS_sched_setaffinity,
                vec![rule(0, SeccompCmpOp::Eq, 0)?],
            ),
            // That a thread of its own gives way to all others.
            (
                libc::SYS_sched_setscheduler,
                vec![SeccompRule::new(vec![
                    half(0, SeccompCmpOp::Eq, 0)?,
                    half(1, SeccompCmpOp::Eq, GIVE_WAY)?,
                ])?],
            ),
        ]);
    }
    if let Some(socket) = kept.socket {
        // The process at the other end takes no descriptors, and gives none.
        for call in [libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_shutdown] {
            let of_socket = rule(0, SeccompCmpOp::Eq, u64::from(socket.cast_unsigned()))?;
            rules.insert(call, vec![of_socket]);
        }
    }
    if let Some(listener) = kept.listener {
        let of_listener = rule(0, SeccompCmpOp::Eq, u64::from(listener.cast_unsigned()))?;
        rules.insert(libc::SYS_accept4, vec![of_listener]);
        rules.extend(plain(SERVING));
        if kept.guests {
            rules.extend(plain(GUESTS));
        }
    }
    if !kept.directories.is_empty() {
        rules.extend(plain(OPENING));
    }
    Ok(rules)
}

/// Makes a rule about one argument that the kernel takes for 32 bits.
fn rule(arg: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![half(arg, how, value)?])
}

fn half(arg: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(arg, SeccompCmpArgLen::Dword, how, value)
}
