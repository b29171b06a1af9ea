//! Starts a check by a model checker. Only in builds that have one.
//!
//! What runs inside takes its locks, threads and shared atomics from this crate. It touches nothing
//! that waits in another way, such as a socket or a real thread: the checker would wait forever.

#[cfg(feature = "loom")]
pub use self::exhaustive::exhaust;
#[cfg(feature = "shuttle")]
pub use self::sampled::explore;

#[cfg(feature = "shuttle")]
mod sampled {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};
    use std::hash::{DefaultHasher, Hash, Hasher};

    /// Schedules of each kind, unless `EXTANT_SCHEDULES` says how many.
    const SCHEDULES: usize = 1000;
    /// A bug found by this many forced changes of thread is found with fair probability by the
    /// second kind of schedule (Burckhardt et al., "A Randomized Scheduler with Probabilistic
    /// Guarantees of Finding Bugs", ASPLOS 2010).
    const DEPTH: usize = 3;
    /// The engine's call chains are deeper than the checker expects, in bytes.
    const STACK: usize = 512 << 10;

    /// Runs `scenario` under many schedules: half of them change the thread at random, half
    /// prefer threads by random priorities that change a few times.
    ///
    /// Prints its seed; `EXTANT_SEED` repeats a run, and so does `EXTANT_SEED_FROM`, a text from
    /// which seeds are made. `EXTANT_SCHEDULES` is the number of schedules of each kind.
    ///
    /// # Panics
    /// When `scenario` does under some schedule, or when its threads deadlock.
    pub fn explore(name: &str, scenario: impl Fn() + Send + Sync + Clone + 'static) {
        let number = |variable: &str| {
            let text = std::env::var(variable).ok()?;
            Some(
                text.parse()
                    .unwrap_or_else(|_| panic!("{variable} is a number")),
            )
        };
        let derived = || {
            let text = std::env::var("EXTANT_SEED_FROM").ok()?;
            let mut hasher = DefaultHasher::new();
            (text, name).hash(&mut hasher);
            Some(hasher.finish())
        };
        let clock = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |d| d.as_nanos() as u64)
        };
        let seed: u64 = number("EXTANT_SEED").or_else(derived).unwrap_or_else(clock);
        let schedules = number("EXTANT_SCHEDULES").map_or(SCHEDULES, |n| n as usize);
        println!("{name}: EXTANT_SEED={seed} EXTANT_SCHEDULES={schedules}");
        let mut config = Config::new();
        config.stack_size = STACK;
        let random = RandomScheduler::new_from_seed(seed, schedules);
        Runner::new(random, config.clone()).run(scenario.clone());
        let by_priority = PctScheduler::new_from_seed(seed, DEPTH, schedules);
        Runner::new(by_priority, config).run(scenario);
    }
}

#[cfg(feature = "loom")]
mod exhaustive {
    /// Runs `scenario` under every schedule, with every value a load may see, in which threads are
    /// interrupted at most `preemptions` times altogether (where they block, they change for
    /// free); `None` for any number. `LOOM_MAX_PREEMPTIONS` takes its place.
    ///
    /// # Panics
    /// When `scenario` does in some execution, or when its threads deadlock.
    pub fn exhaust(
        name: &str,
        preemptions: Option<usize>,
        scenario: impl Fn() + Send + Sync + 'static,
    ) {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};

        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(preemptions);
        builder.max_branches = 10_000;
        let executions = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&executions);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            scenario();
        });
        let executions = executions.load(Ordering::Relaxed);
        println!("{name}: {executions} executions");
    }
}
