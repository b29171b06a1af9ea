//! What the kernel is told without being asked.

use crate::answer::Notify;
use crate::service::Node;
use fuser::INodeNo;

/// Tells the kernel of what it does not expect.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(fuser::Notifier);

impl Notifier {
    /// Tells through this session.
    pub(crate) fn new(session: fuser::Notifier) -> Self {
        Self(session)
    }

    /// Has the kernel write back what it has of a file, and forget it. Returns when it has.
    pub(crate) fn write_back(&self, node: Node) {
        // A file that it has nothing of is an error, too. What cannot be written is told by fsync.
        let _ = self.0.inval_inode(INodeNo(node.0), 0, 0);
    }
}

impl Notify for Notifier {
    fn attributes_changed(&self, node: Node) {
        // Of its content nothing. It may have forgotten the file already.
        let _ = self.0.inval_inode(INodeNo(node.0), -1, 0);
    }
}
