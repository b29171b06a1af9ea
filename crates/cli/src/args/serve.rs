//! The command line of `extant serve`.

use clap::Args as ClapArgs;
use extant_serve::Listen;
use std::path::PathBuf;

/// Serve an image as a disk to virtual machines, other programs and other hosts
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  extant serve disk.img --nbd unix:disk.sock --read-only
  extant serve whole-disk.img --partition 1 --nbd 127.0.0.1:0 --export data

The protocol is NBD. Clients are the kernel's nbd-client, QEMU, nbdcopy, nbdinfo and others; the \
address for them goes to standard output as soon as they can connect. Several may be connected at \
a time, and see one disk.

What IMAGE is, is seen from its content, as by `extant convert`. An image that its user has written \
to at will may look like another format: --image-format raw takes its bytes as they are.

It ends with SIGTERM, SIGINT or SIGHUP. Requests under way are answered, and all is durable then.

There is no encryption and no password: a Unix socket is for the users who may write to it, a port \
for everybody who can reach it.")]
pub(crate) struct Serve {
    /// The image or block device
    pub(crate) image: PathBuf,
    /// Where to listen: a Unix socket to make, or a host and a port (0 lets the system choose)
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    pub(crate) nbd: Listen,
    /// Refuse changes
    #[arg(short = 'r', long)]
    pub(crate) read_only: bool,
    /// The name of the export, which clients must ask for
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) export: String,
    /// As --image-format: `raw` serves the bytes of the image as they are, whatever they look like
    #[arg(long, value_name = "raw")]
    pub(crate) format: Option<String>,
}
