//! The command line of `extant serve`.

use super::Plan;
use crate::failure::{Failure, Outcome};
use clap::Args as ClapArgs;
use extant_serve::{BadAddress, Listen};
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::str::FromStr;

/// Serve an image to virtual machines, other programs and other hosts: as a disk, or its files
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant serve disk.img --nbd unix:disk.sock --read-only
  extant serve whole-disk.img --partition 1 --nbd 127.0.0.1:0 --export data
  extant serve --from ./rootfs --size 4G --writable --nbd unix:disk.sock
  extant serve rootfs.img --virtiofs files.sock

With --nbd it is a disk, and the protocol is NBD. Clients are the kernel's nbd-client, QEMU, \
nbdcopy, nbdinfo and others; the \
address for them goes to standard output as soon as they can connect. Several may be connected at \
a time, and see one disk.

What IMAGE is, is seen from its content, as by `extant convert`. An image that its user has \
written \
to at will may look like another format: --image-format raw takes its bytes as they are.

With --from the image is nowhere: it is planned as `extant mkfs` would make it, with the same \
options, and each block is made when a client reads it, data from the files of DIR, the archive \
and --add. \
These must stay as they are. What has changed or is gone gives clients an I/O error, and its name \
goes to standard error. With --writable changes go to a temporary file (in TMPDIR), and are gone \
at the end. The UUID is another one each time, unless --uuid or SOURCE_DATE_EPOCH says which.

With --virtiofs guests of virtual machines use the files of the image, as `extant mount` shows \
them, and the image is in no use otherwise. The protocol is vhost-user, as QEMU \
(vhost-user-fs-pci), Cloud Hypervisor and others speak it; the path of the socket goes to \
standard output as soon as they can connect. One guest is served at a time, or as many as \
--guests says. Of several each sees what the others change, and asks again for what it has seen \
before. Options of -o are those of `extant mount` that are about the image, and not about a \
directory: sync, dirsync, commit=, errors=, discard, usrquota, nodelalloc, log=, memory=, \
writeback_cache, direct_io, direct_from=, seek_holes.

It ends with SIGTERM, SIGINT or SIGHUP. Requests under way are answered, and all is durable then.

A service manager that starts the server with the first client hands its socket over: \
`ListenStream=` of a unit of systemd. It stays when the server ends.

There is no encryption and no password: a Unix socket is for the users who may write to it, a port \
for everybody who can reach it. The process that answers clients can open no files (but those of \
the DIR that it serves, and what --add puts into it) and make no connections. --no-sandbox turns \
that off.")]
pub(crate) struct Serve {
    /// The image or block device
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    pub(crate) image: Option<PathBuf>,
    /// Where to listen for clients of a disk: a Unix socket to make, a host and a port (0 lets the
    /// system choose), or a socket that listens already and is open under a number. Left out where
    /// a service manager hands one over (LISTEN_FDS)
    #[arg(
        long,
        value_name = "unix:PATH|HOST:PORT|fd:N",
        conflicts_with = "virtiofs"
    )]
    pub(crate) nbd: Option<NbdAt>,
    /// Serve files to guests of virtual machines here: a Unix socket to make
    #[arg(
        long,
        value_name = "SOCKET",
        conflicts_with_all = ["from", "export", "format"]
    )]
    pub(crate) virtiofs: Option<PathBuf>,
    /// With --virtiofs, how many guests use the image at a time [default: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    pub(crate) guests: Option<u16>,
    /// With --virtiofs, options of `extant mount -o`, separated by commas; may be given more than
    /// once
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// Refuse changes
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// With --from, take changes, and forget them at the end
    #[arg(short, long, requires = "from", conflicts_with = "read_only")]
    pub(crate) writable: bool,
    /// The name of the export, which clients must ask for
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) export: String,
    /// As --image-format: `raw` serves the bytes of the image as they are, whatever they look like
    #[arg(long, value_name = "raw", conflicts_with = "from")]
    pub(crate) format: Option<String>,
    /// Do not confine the process that answers clients: for a kernel that cannot, and clients that
    /// are trusted
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    #[command(flatten)]
    pub(crate) plan: Plan,
}

/// Where clients come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NbdAt {
    /// Where the server listens by itself.
    Address(Listen),
    /// A socket that listens already, by the number under which it is open.
    Open(RawFd),
}

impl FromStr for NbdAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("fd:") {
            Some(number) => match number.parse() {
                // The first three are the processes' own.
                Ok(number) if number > 2 => Ok(Self::Open(number)),
                _ => Err(format!(
                    "{text:?} is no open socket: have it opened by a number from 3 on, as in fd:3"
                )),
            },
            None => {
                let address = text.parse().map(Self::Address);
                address.map_err(|e: BadAddress| format!("{e}, or fd:N for a socket that is open"))
            }
        }
    }
}

impl fmt::Display for NbdAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(listen) => listen.fmt(f),
            Self::Open(number) => write!(f, "fd:{number}"),
        }
    }
}

impl Serve {
    /// Where it listens.
    pub(crate) fn listens(&self) -> Option<NbdAt> {
        let socket = self.virtiofs.clone();
        let socket = socket.map(|path| NbdAt::Address(Listen::Unix(path)));
        socket.or_else(|| self.nbd.clone())
    }

    /// Whether the image is nowhere, and made when it is read.
    pub(crate) fn is_planned(&self) -> bool {
        !self.plan.sources.from.is_empty()
    }

    /// Refuses to be told of guests where there are none.
    pub(crate) fn refuse_guests_of_disks(&self) -> Outcome {
        let is_told = self.guests.is_some() || !self.options.is_empty();
        if is_told && self.virtiofs.is_none() {
            return Err(Failure::usage(
                "--guests and -o go with --virtiofs: a disk has no files here",
            ));
        }
        Ok(())
    }

    /// Refuses to be told how to make a file system where there is an image.
    pub(crate) fn refuse_meaningless_plan(&self) -> Outcome {
        if self.is_planned() {
            return Ok(());
        }
        if self.writable {
            return Err(Failure::usage(
                "--writable goes with --from: an image takes changes unless --read-only is given",
            ));
        }
        if self.plan != Plan::default() {
            return Err(Failure::usage(
                "an image is served as it is: options about making a file system go with --from",
            ));
        }
        Ok(())
    }
}
