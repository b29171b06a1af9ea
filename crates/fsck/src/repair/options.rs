//! How to repair.

/// How to repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The time that deleted inodes get, in seconds since 1970.
    pub now: u32,
    /// Write a plan also if files that can be read now are lost with it.
    pub allow_loss: bool,
    /// Give up what waits in a journal that cannot be replayed.
    pub discard_journal: bool,
    /// Write changes of settings to their places at once: for a device in front of another one.
    pub in_front: bool,
}

impl Options {
    /// The time that deleted inodes get, in seconds since 1970.
    #[must_use]
    pub const fn now(mut self, seconds: u32) -> Self {
        self.now = seconds;
        self
    }

    /// Write a plan also if files that can be read now are lost with it.
    #[must_use]
    pub const fn allow_loss(mut self, on: bool) -> Self {
        self.allow_loss = on;
        self
    }

    /// Give up what waits in a journal that cannot be replayed. One that can be is replayed all the
    /// same.
    #[must_use]
    pub const fn discard_journal(mut self, on: bool) -> Self {
        self.discard_journal = on;
        self
    }

    /// Write changes of settings to their places at once, and not by a log in free blocks: for a
    /// device in front of another one, from which all that changed goes there as a whole.
    #[must_use]
    pub const fn in_front(mut self, on: bool) -> Self {
        self.in_front = on;
        self
    }
}
