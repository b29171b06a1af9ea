//! Staying awake between requests, where it costs more to be woken than to answer.

use std::time::{Duration, Instant};

/// How long a thread stays awake after a request, giving way to everybody, where processors are so
/// few that the program that asked is woken on one that would sleep otherwise, and has nobody else
/// to give way to. In a virtual machine that costs more than the answer.
const AWAKE: Duration = Duration::from_micros(50);
const FEW: usize = 4;

/// A thread that gave way and got its processor back no sooner than this has company there that
/// needs it, and sleeps between requests for a while.
const CROWDED: Duration = Duration::from_millis(1);
const SLEEPS: Duration = Duration::from_millis(100);

/// Whether one thread stays awake after requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Awake {
    /// Until when it does not, as others use the processor.
    crowded: Option<Instant>,
}

impl Awake {
    /// Makes one for a machine with so many processors; `None` if that is too many for it to pay.
    pub(crate) fn among(processors: usize) -> Option<Self> {
        (processors <= FEW).then(Self::default)
    }

    /// Tells whether it would go to sleep without waiting now.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.is_some_and(|until| Instant::now() < until)
    }

    /// Waits a little until something `is_there`, giving way to everybody. Asks first, and does
    /// nothing else if it is.
    pub(crate) fn wait(&mut self, mut is_there: impl FnMut() -> bool) {
        if is_there() {
            return;
        }
        let since = Instant::now();
        let mut passed = Duration::ZERO;
        while passed < AWAKE {
            std::thread::yield_now();
            passed = since.elapsed();
            if is_there() {
                break;
            }
        }
        // A thread that gives way is put behind all others, and one that sleeps is put first when
        // it is woken.
        self.crowded = (passed >= CROWDED).then(|| since + passed + SLEEPS);
    }
}
