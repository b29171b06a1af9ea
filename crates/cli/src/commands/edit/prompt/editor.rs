//! The line that is being typed: how it is edited, completed and kept.

use super::complete::candidates;
use super::history::{History, MOST};
use crate::failure::say;
use extant::Filesystem;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Behavior, CompletionType, Config, Context, Helper};
use std::io::{self, BufRead, Write};

/// What was typed.
#[derive(Debug)]
pub(super) enum Typed {
    /// A line, or several that were pasted.
    Lines(String),
    /// Ctrl-C: what was begun is to be forgotten.
    Dropped,
    /// Ctrl-D.
    End,
}

/// Terminals on which no line can be edited: lines come whole, as from a file.
const PLAIN: [&str; 4] = ["", "dumb", "cons25", "emacs"];

/// Where lines are typed.
pub(super) struct Editor {
    /// `None` where no line can be edited.
    editor: Option<rustyline::Editor<Names, MemHistory>>,
    kept: Option<History>,
}

/// What completion looks into.
struct Names {
    fs: Filesystem,
    /// Text for a file has nothing to complete.
    is_text: bool,
}

impl Editor {
    /// Begins at the terminal. Where lines of earlier times cannot be had, it is said why.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub(super) fn begin(fs: &Filesystem, keeps: bool) -> Result<Self, String> {
        let terminal = std::env::var_os("TERM").unwrap_or_default();
        if PLAIN.iter().any(|plain| terminal == *plain) {
            return Ok(Self {
                editor: None,
                kept: None,
            });
        }
        // The terminal itself: standard output may be for a program.
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .completion_type(CompletionType::List)
            .max_history_size(MOST)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|e| e.to_string())?
            .history_ignore_space(true)
            .build();
        let history = MemHistory::with_config(&config);
        let editor = rustyline::Editor::with_history(config, history);
        let mut editor = editor.map_err(|e| e.to_string())?;
        editor.set_helper(Some(Names {
            fs: fs.clone(),
            is_text: false,
        }));
        let earlier = if keeps { History::open() } else { Ok(None) };
        let (kept, lines) = match earlier {
            Ok(Some((history, lines))) => (Some(history), lines),
            Ok(None) => (None, Vec::new()),
            Err(why) => {
                say(format_args!("lines are not kept for the next time: {why}"));
                (None, Vec::new())
            }
        };
        for line in lines {
            // One that is not taken is no loss.
            let _ = editor.add_history_entry(line);
        }
        let editor = Some(editor);
        Ok(Self { editor, kept })
    }

    /// Reads what is typed next; `is_text`: text for a file.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn read(
        &mut self,
        prompt: &str,
        fs: &Filesystem,
        is_text: bool,
    ) -> Result<Typed, String> {
        let Some(editor) = &mut self.editor else {
            return plain(prompt).map_err(|e| e.to_string());
        };
        if let Some(names) = editor.helper_mut() {
            names.fs = fs.clone();
            names.is_text = is_text;
        }
        match editor.readline(prompt) {
            Ok(typed) => {
                if !is_text {
                    self.keep(&typed);
                }
                Ok(Typed::Lines(typed))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Dropped),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Keeps a line, but for one that begins with a blank. Of several that were pasted, the others
    /// may be text.
    fn keep(&mut self, typed: &str) {
        let line = typed.lines().next().unwrap_or_default();
        let Some(editor) = &mut self.editor else {
            return;
        };
        let is_new = editor.add_history_entry(line).unwrap_or(false);
        if let Some(kept) = &mut self.kept
            && is_new
            && let Err(e) = kept.add(line)
        {
            self.kept = None;
            say(format_args!("lines are not kept for the next time: {e}"));
        }
    }
}

/// Reads a line without editing it. The prompt is no output for programs.
fn plain(prompt: &str) -> io::Result<Typed> {
    let mut stderr = io::stderr();
    stderr.write_all(prompt.as_bytes())?;
    stderr.flush()?;
    let mut line = Vec::new();
    io::stdin().lock().read_until(b'\n', &mut line)?;
    // What has no end is not taken for a whole line.
    let Some(line) = line.strip_suffix(b"\n") else {
        return Ok(Typed::End);
    };
    match std::str::from_utf8(line) {
        Ok(line) => Ok(Typed::Lines(line.to_owned())),
        Err(_) => {
            say("nothing is done: this line is no UTF-8 (a script of `-f` takes any bytes)");
            Ok(Typed::Dropped)
        }
    }
}

impl Completer for Names {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        if self.is_text {
            return Ok((pos, Vec::new()));
        }
        let (start, found) = candidates(&line[..pos], &self.fs);
        let pairs = found.into_iter().map(|candidate| Pair {
            display: candidate.shown,
            replacement: candidate.text,
        });
        Ok((start, pairs.collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}

impl Validator for Names {}

impl Helper for Names {}
