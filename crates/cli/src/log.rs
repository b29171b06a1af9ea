//! What a mount tells of while it runs: warnings and errors, a line each.

use crate::failure::{Failure, Outcome};
use crate::time::{now, rfc3339};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Where lines go.
#[derive(Debug)]
enum Log {
    Terminal,
    File(File),
}

/// Writes to the end of this file from now on, or to standard error.
pub(crate) fn start(path: Option<&Path>) -> Outcome {
    let log = match path {
        None => Log::Terminal,
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            Log::File(file.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?)
        }
    };
    tracing::subscriber::set_global_default(log).map_err(Failure::new)
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
        // A failure to tell has no other place to be told.
        let _ = match self {
            Self::Terminal => writeln!(std::io::stderr(), "extant: {level}: {message}{fields}"),
            Self::File(file) => {
                let now = rfc3339(now());
                let text = format!("{now} {level}: {message}{fields}\n");
                (&mut &*file).write_all(text.as_bytes())
            }
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
