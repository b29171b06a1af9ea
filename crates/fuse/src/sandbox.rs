//! What a process gives up before it reads an image that nobody vouches for.
//!
//! Two mechanisms of Linux:
//!
//! - *Landlock* takes the file system away: nothing can be opened, made or renamed by path. What is
//!   open stays so, among it the channels and rings of a mount.
//! - *seccomp* takes system calls away: what is not listed in `calls`, with its arguments, fails
//!   with EPERM. There are no sockets on it but the one behind which the device of a remote image
//!   is, no programs, no other processes, no signals and no limits for others, nothing that opens a
//!   file, and no io_uring (which would reach around the list) but rings that were made before for
//!   commands to the mount only.
//!
//! Where the kernel has only one of the two, that is all there is. Where it has neither, nothing is
//! read.
//!
//! Threads can be started until all that a mount needs are there; then that is over, too
//! ([`start_no_more_threads`]).
//!
//! Privileges of root and core dumps go as well, and memory is limited: what a process maps to
//! write to counts, whether it does or not. All of it stays for good and reaches threads that are
//! started later.

mod calls;

use calls::{Rules, WITHOUT, plain};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
    Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::io;
use std::os::fd::RawFd;

/// Confines this thread and those that it starts. The process takes no more than `memory` bytes.
/// `has_rings` says whether it answers through rings, which it has, and `carrier` is the socket
/// behind which its device is, if it is there.
///
/// Returns whether system calls are filtered.
///
/// # Errors
/// When the kernel offers neither mechanism or refuses one of them.
pub(crate) fn confine(memory: u64, has_rings: bool, carrier: Option<RawFd>) -> io::Result<bool> {
    let at_most = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Core, at_most(0))?;
    // Somebody may have set a lower one.
    let least = |limit: Option<u64>| limit.map_or(memory, |limit| limit.min(memory));
    let now = getrlimit(Resource::Data);
    setrlimit(
        Resource::Data,
        Rlimit {
            current: Some(least(now.current)),
            maximum: Some(least(now.maximum)),
        },
    )?;
    let walled = take_files_away()?;
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    // While there are privileges: a process that is refused here can still unmount.
    let has_filters = match filter(plain(WITHOUT), SeccompAction::Allow, missing) {
        Ok(()) => true,
        // A kernel without seccomp, or without its filters.
        Err(e) if walled && matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => false,
        Err(e) => return Err(e),
    };
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    if !has_filters {
        return Ok(false);
    }
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let rules = calls::allowed(own.cast_unsigned(), has_rings, carrier);
    let rules = rules.map_err(|e| failed("seccomp", &e))?;
    filter(rules, denied(), SeccompAction::Allow)?;
    Ok(true)
}

/// Takes away what starts threads, from all threads of a process whose system calls are filtered:
/// what takes one over could otherwise start more than the machine has room for.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn start_no_more_threads() -> io::Result<()> {
    filter(plain(calls::THREADS), SeccompAction::Allow, denied())
}

fn failed(what: &str, e: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {e}"))
}

fn denied() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.cast_unsigned())
}

/// Takes files away from this process, and tells whether the kernel holds them back from now on.
fn take_files_away() -> io::Result<bool> {
    let failed = |e: &dyn std::fmt::Display| failed("Landlock", e);
    // What the kernel knows of this; older ones know less.
    let abi = ABI::V6;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(landlock::Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|e| failed(&e))?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Does `matched` about system calls that follow a rule, and `other` about all others.
fn filter(rules: Rules, other: SeccompAction, matched: SeccompAction) -> io::Result<()> {
    let failed = |e: &dyn std::fmt::Display| failed("seccomp", e);
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
