//! Work that another thread does where one can be started.

use std::thread::{Builder, Scope, ScopedJoinHandle};

/// A part of a work: with another thread, or kept for this one.
pub(in crate::data) enum Part<'scope, F, T> {
    /// Another thread does it.
    Given(ScopedJoinHandle<'scope, T>),
    /// No thread could be started: a process that has confined itself, or has as many as it may
    /// have, starts none.
    Kept(F),
}

/// Has another thread do `work`, or keeps it.
pub(in crate::data) fn spawn_or_keep<'scope, F, T>(
    scope: &'scope Scope<'scope, '_>,
    work: F,
) -> Part<'scope, F, T>
where
    F: FnOnce() -> T + Copy + Send + 'scope,
    T: Send + 'scope,
{
    match Builder::new().spawn_scoped(scope, work) {
        Ok(thread) => Part::Given(thread),
        Err(_) => Part::Kept(work),
    }
}

impl<F: FnOnce() -> T, T> Part<'_, F, T> {
    /// Waits for the other thread, or does the work now. A panic of the other thread goes on in
    /// this one.
    pub(in crate::data) fn finish(self) -> T {
        match self {
            Self::Given(thread) => thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Self::Kept(work) => work(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_thread_takes_is_done_all_the_same() {
        let done = std::thread::scope(|scope| {
            let given = spawn_or_keep(scope, || 1);
            assert!(matches!(given, Part::Given(_)));
            let kept: Part<'_, _, i32> = Part::Kept(|| 2);
            (given.finish(), kept.finish())
        });
        assert_eq!(done, (1, 2));
    }
}
