//! What a process gives up before it reads an image that nobody vouches for, or answers clients.
//!
//! Two mechanisms of Linux:
//!
//! - *Landlock* takes the file system away: nothing can be opened, made or renamed by path. What is
//!   open stays so, among it the channels and rings of a mount. A server of a directory still reads
//!   the files of that one.
//! - *seccomp* takes system calls away: what is not listed in `calls`, with its arguments, fails
//!   with EPERM. There are no new sockets on it, but for clients that come to a socket which
//!   listens already, of which only monitors of virtual machines pass descriptors. There are no
//!   programs, no other processes, no signals and no limits for others, nothing that opens a file
//!   (but by a server of a directory), and no io_uring (which would reach around the list) but
//!   rings that were made before for commands to the mount only.
//!
//! Where the kernel has only one of the two, that is all there is. Where it has neither, nothing is
//! read. A server of a directory needs Landlock.
//!
//! Threads can be started until all that a mount needs are there; then that is over, too
//! ([`start_no_more_threads`]). A server starts some for each client.
//!
//! Privileges of root and core dumps go as well, and memory is limited: what a process maps to
//! write to counts, whether it does or not. All of it stays for good and reaches threads that are
//! started later.

#![deny(unsafe_code)]

mod calls;

use calls::{Rules, WITHOUT, plain};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

/// What a process keeps of what it may do, beside what every confined one keeps.
#[derive(Debug, Clone)]
#[must_use]
pub struct Confinement {
    memory: u64,
    rings: bool,
    socket: Option<RawFd>,
    listener: Option<RawFd>,
    guests: bool,
    directories: Vec<Arc<File>>,
}

impl Confinement {
    /// Leaves no more than `memory` bytes of memory.
    pub fn new(memory: u64) -> Self {
        Self {
            memory,
            rings: false,
            socket: None,
            listener: None,
            guests: false,
            directories: Vec::new(),
        }
    }

    /// Sets whether the process answers through rings, which it has.
    pub fn rings(mut self, has_rings: bool) -> Self {
        self.rings = has_rings;
        self
    }

    /// Keeps the connected socket of this number, behind which a device is.
    pub fn socket(mut self, number: Option<RawFd>) -> Self {
        self.socket = number;
        self
    }

    /// Keeps a server going: clients come to the listening socket of this number, and files that
    /// are open grow.
    pub fn listener(mut self, number: RawFd) -> Self {
        self.listener = Some(number);
        self
    }

    /// Sets whether clients of the [listening socket](Self::listener) are monitors of virtual
    /// machines. They pass the memory of a guest by descriptors, and events.
    pub fn guests(mut self, are_guests: bool) -> Self {
        self.guests = are_guests;
        self
    }

    /// Keeps the files beneath an open directory readable, by their names beneath it, and for root
    /// whoever they belong to; of a file that is open itself, that one. There may be several.
    pub fn directory(mut self, directory: File) -> Self {
        self.directories.push(Arc::new(directory));
        self
    }

    /// Confines this thread and those that it starts. Returns whether system calls are filtered.
    ///
    /// # Errors
    /// When the kernel offers neither mechanism, or no Landlock where files of a directory are
    /// kept, or refuses one of them.
    pub fn enforce(&self) -> io::Result<bool> {
        set_limits(self.memory)?;
        let walled = take_files_away(&self.directories)?;
        if !walled && !self.directories.is_empty() {
            return Err(failed("Landlock", &"this kernel has none (Linux 5.13)"));
        }
        let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
        // While there are privileges: a process that is refused here can still unmount.
        let has_filters = match filter(plain(WITHOUT), SeccompAction::Allow, missing) {
            Ok(()) => true,
            // A kernel without seccomp, or without its filters.
            Err(e) if walled && matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
                false
            }
            Err(e) => return Err(e),
        };
        let mut kept = CapabilitySet::empty();
        if !self.directories.is_empty() {
            kept = capabilities(None)?.effective & CapabilitySet::DAC_READ_SEARCH;
        }
        let least = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, least)?;
        if !has_filters {
            return Ok(false);
        }
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let rules = calls::allowed(own.cast_unsigned(), self);
        let rules = rules.map_err(|e| failed("seccomp", &e))?;
        filter(rules, denied(), SeccompAction::Allow)?;
        Ok(true)
    }
}

/// Limits memory, and leaves nothing behind in a file after a crash.
fn set_limits(memory: u64) -> io::Result<()> {
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
    Ok(())
}

/// Takes away what starts threads, from all threads of a process whose system calls are filtered:
/// what takes one over could otherwise start more than the machine has room for.
///
/// # Errors
/// When the kernel refuses.
pub fn start_no_more_threads() -> io::Result<()> {
    filter(plain(calls::THREADS), SeccompAction::Allow, denied())
}

fn failed(what: &str, e: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {e}"))
}

fn denied() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.cast_unsigned())
}

/// Takes files away from this process, but reading those beneath `directories`, and tells whether
/// the kernel holds them back from now on.
fn take_files_away(directories: &[Arc<File>]) -> io::Result<bool> {
    let failed = |e: &dyn std::fmt::Display| failed("Landlock", e);
    // What the kernel knows of this; older ones know less.
    let abi = ABI::V6;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(landlock::Ruleset::create)
        .and_then(|rules| {
            directories.iter().try_fold(rules, |rules, directory| {
                rules.add_rule(PathBeneath::new(&**directory, AccessFs::ReadFile))
            })
        })
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
