//! The gate that all requests pass to the file system: the only place where they are counted in,
//! timed and contained.

use super::{Answer, Credentials, Errno, Service};
use crate::protocol::{Needs, Opcode};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Service {
    /// Carries a request out. What its opcode needs is there until it returns: the file system
    /// stays open, and space is taken on the account of `asker`.
    ///
    /// # Errors
    /// Those of `request`. [`Errno::GONE`] after the end, and [`Errno::IO`] if it panics, which
    /// costs that request only.
    pub(crate) fn admit<T>(
        &self,
        opcode: Opcode,
        caller: Credentials,
        request: impl FnOnce() -> Answer<T>,
    ) -> Answer<T> {
        let traits = opcode.traits();
        contain(opcode, || {
            let _timed = traits
                .operation
                .map(|operation| self.metrics.time(operation));
            let _spending = (traits.needs == Needs::Space).then(|| self.spending_for(caller));
            let _inside = match traits.needs {
                Needs::Nothing => None,
                Needs::Engine | Needs::Space => Some(self.gate.join().ok_or(Errno::GONE)?),
            };
            request()
        })
    }

    /// Looks at the file system to decide how a request is to be carried out.
    ///
    /// # Errors
    /// As for [`admit`](Self::admit).
    pub(crate) fn inspect<T>(
        &self,
        opcode: Opcode,
        look: impl FnOnce(&Self) -> Answer<T>,
    ) -> Answer<T> {
        contain(opcode, || {
            let _inside = self.gate.join().ok_or(Errno::GONE)?;
            look(self)
        })
    }

    /// Makes everything durable, as long as requests are answered.
    ///
    /// # Errors
    /// Those of writing, and [`Errno::IO`] if it panics.
    pub(crate) fn syncfs_if_open(&self) -> Answer {
        self.inspect(Opcode::Syncfs, Self::syncfs)
    }

    /// Answers nothing any more, waits for the requests that are under way, and deletes the files
    /// that the kernel kept without names.
    pub(crate) fn finish(&self) {
        self.gate.close();
        self.gate.wait_drained();
        self.forget_all();
    }
}

/// Makes an I/O error of a panic: whatever happens, the kernel gets an answer.
fn contain<T>(opcode: Opcode, request: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| {
        let name = opcode.traits().name;
        tracing::error!("a request panicked, and was answered with an I/O error: {name}");
        Err(Errno::IO)
    })
}
