//! The bar on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Work that takes less time than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// How far a piece of work is, shown on standard error if that is a terminal and the work takes
/// long enough to wonder.
pub(crate) struct Bar {
    bar: ProgressBar,
    started: Instant,
    /// Whether the bar may still have to be shown.
    waiting: AtomicBool,
}

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_message(what);
        Self {
            bar,
            started: Instant::now(),
            waiting: AtomicBool::new(std::io::stderr().is_terminal()),
        }
    }

    /// Says how many bytes there are to do.
    pub(crate) fn total(&self, bytes: u64) {
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {eta}")
            .map(|style| style.progress_chars("=> "));
        if let Ok(style) = style {
            self.bar.set_style(style);
        }
        self.bar.set_length(bytes);
    }

    /// Says that another part of the work begins, and how many units it has.
    pub(crate) fn begin(&self, what: &'static str, units: u64) {
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}")
            .map(|style| style.progress_chars("=> "));
        if let Ok(style) = style {
            self.bar.set_style(style);
        }
        self.bar.set_message(what);
        self.bar.set_length(units);
        self.bar.set_position(0);
    }

    /// Says that so many more bytes are done.
    pub(crate) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
        if self.waiting.load(Ordering::Relaxed) && self.started.elapsed() > PATIENCE {
            self.waiting.store(false, Ordering::Relaxed);
            self.bar
                .set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
