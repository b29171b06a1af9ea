//! What a mount tells of while it runs: warnings and errors, a line each. They are counted, and the
//! last ones are kept for `extant stats`, also where they go nowhere else. In the background they
//! go to the system's log.

use crate::failure::{Failure, Outcome};
use crate::syslog::SystemLog;
use crate::time::{now, rfc3339};
use extant::Escaped;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines that are kept, and characters of each.
const KEPT: usize = 16;
const LONGEST: usize = 400;

/// Where lines go.
#[derive(Debug)]
enum Log {
    Terminal,
    File(File),
    /// The system's, with the directory of the mount in each line.
    System(SystemLog, String),
    /// They are kept, and that is all.
    Nowhere,
}

/// What was told so far.
#[derive(Debug, Default)]
struct Told {
    errors: u64,
    warnings: u64,
    /// The last lines.
    last: VecDeque<String>,
}

static TOLD: Mutex<Told> = Mutex::new(Told {
    errors: 0,
    warnings: 0,
    last: VecDeque::new(),
});

/// Writes to the end of this file from now on, or to standard error where somebody reads that, or
/// else to the system's log, with the directory that is mounted on. Call it while sockets can be
/// opened.
pub(crate) fn start(path: Option<&Path>, is_read: bool, point: &Path) -> Outcome {
    let log = match path {
        None if is_read => Log::Terminal,
        None => match SystemLog::connect() {
            Some(system) => Log::System(system, Escaped::path(point).to_string()),
            None => Log::Nowhere,
        },
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            Log::File(file.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?)
        }
    };
    tracing::subscriber::set_global_default(log).map_err(Failure::new)
}

/// Tells the system's log of an error that ended the mount on this directory, which nobody else
/// hears of.
pub(crate) fn tell_system(point: &Path, message: &str) {
    if let Some(system) = SystemLog::connect() {
        // It has no other place to be told.
        let _ = system.tell(
            Level::ERROR,
            &format!("{}: {message}", Escaped::path(point)),
        );
    }
}

/// How much was told so far, in the text format of Prometheus.
pub(crate) fn counts() -> String {
    let told = TOLD.lock().unwrap_or_else(|e| e.into_inner());
    format!(
        "# HELP extant_events_total Errors and warnings that the mount has told of.\n\
         # TYPE extant_events_total counter\n\
         extant_events_total{{level=\"error\"}} {}\n\
         extant_events_total{{level=\"warning\"}} {}\n",
        told.errors, told.warnings
    )
}

/// How much was told so far, and the last lines as comments.
pub(crate) fn metrics() -> String {
    let mut text = counts();
    let told = TOLD.lock().unwrap_or_else(|e| e.into_inner());
    for line in &told.last {
        text.push_str("# ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Counts an event and keeps its line.
fn keep(level: Level, line: &str) {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let line = line.chars().map(plain).take(LONGEST).collect();
    let mut told = TOLD.lock().unwrap_or_else(|e| e.into_inner());
    match level {
        Level::ERROR => told.errors += 1,
        _ => told.warnings += 1,
    }
    if told.last.len() == KEPT {
        told.last.pop_front();
    }
    told.last.push_back(line);
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            _ => "warning",
        };
        let Line { message, fields } = line;
        let dated = format!("{} {level}: {message}{fields}\n", rfc3339(now()));
        keep(*event.metadata().level(), dated.trim_end());
        // A failure to tell has no other place to be told.
        let _ = match self {
            Self::Terminal => writeln!(std::io::stderr(), "extant: {level}: {message}{fields}"),
            Self::File(file) => (&mut &*file).write_all(dated.as_bytes()),
            Self::System(system, point) => system.tell(
                *event.metadata().level(),
                &format!("{point}: {message}{fields}"),
            ),
            Self::Nowhere => Ok(()),
        };
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event, and what it says besides.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to text does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " ({name}: {value:?})"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_all_are_counted() {
        for number in 0..KEPT + 5 {
            keep(Level::WARN, &format!("number {number}\nof many"));
        }
        keep(Level::ERROR, &"\u{e4}".repeat(LONGEST));
        let text = metrics();
        assert!(text.contains("extant_events_total{level=\"error\"} 1\n"));
        assert!(text.contains("extant_events_total{level=\"warning\"} 21\n"));
        let kept: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0], "# number 6 of many");
        assert_eq!(kept[KEPT - 1].chars().count(), "# ".len() + LONGEST);
        // Each line is a comment or a value: no name in a message makes another one.
        let is_one = |line: &str| line.starts_with("# ") || line.starts_with("extant_");
        assert!(text.lines().all(is_one), "{text}");
    }
}
