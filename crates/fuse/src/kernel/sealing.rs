//! `ioctl`, and what the kernel has kept back of a file that becomes immutable.
//!
//! Linux' own file systems write a file back before they make it immutable. The kernel does not do so for FUSE, and
//! what it hands on afterwards is refused, so it is asked for it first.

use super::Late;
use crate::metrics::Request as Timing;
use crate::service::{Asker, Node, makes_immutable};
use fuser::{INodeNo, ReplyIoctl};

/// What `ioctl` is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    asker: Asker,
    ino: INodeNo,
    command: u32,
    input: Vec<u8>,
}

impl Asked {
    pub(super) fn new(asker: Asker, ino: INodeNo, command: u32, input: &[u8]) -> Self {
        Self {
            asker,
            ino,
            command,
            input: input.to_vec(),
        }
    }

    /// Whether a file may not be written from then on.
    pub(super) fn seals(&self) -> bool {
        makes_immutable(self.command, &self.input)
    }

    pub(super) fn answer(&self, service: &Late, reply: ReplyIoctl) {
        let _timed = service.time(Timing::Ioctl);
        let node = Node(self.ino.0);
        match service.ask_for(self.asker, |s| {
            s.ioctl(self.asker, node, self.command, &self.input)
        }) {
            Ok(output) => reply.ioctl(0, &output),
            Err(e) => reply.error(e.into()),
        }
    }

    /// Answers in a thread of its own, after the kernel has written the file back. This needs answers of the others
    /// meanwhile, of which all may be here at once.
    pub(super) fn answer_when_written(self, service: Late, reply: ReplyIoctl) {
        let thread = std::thread::Builder::new().name("extant-seal".to_owned());
        // Where there is no thread for it, the reply is dropped, which is an I/O error to who asked.
        let _ = thread.spawn(move || {
            // A file that the kernel has nothing of is an error, too. What cannot be written is told by fsync.
            let _ = service.served().kernel.inval_inode(self.ino, 0, 0);
            self.answer(&service, reply);
        });
    }
}
