//! Patterns, ready to search in lines.

use super::posix::{Dialect, translated};
use crate::args::Grep;
use regex_automata::hybrid::dfa;
use regex_automata::meta;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use std::ops::Range;

/// Bytes that the automata of the patterns may take.
const SIZE_MAX: usize = 32 << 20;
/// Bytes that what is found out while searching may take.
const CACHE_MAX: usize = 32 << 20;

/// All patterns of a command together.
pub(super) struct Matcher {
    first: meta::Regex,
    /// Finds where the longest match ends, which automata for the first one do not; and what it has
    /// found out.
    longest: Option<(dfa::DFA, dfa::Cache)>,
    pub(super) matches_nothing_at_all: bool,
}

impl Matcher {
    /// Makes one of patterns, each of which may have several lines.
    pub(super) fn new(args: &Grep, patterns: &[&[u8]]) -> Result<Self, String> {
        let dialect = match (args.fixed_strings, args.extended_regexp) {
            (true, _) => Dialect::Fixed,
            (false, true) => Dialect::Extended,
            (false, false) => Dialect::Basic,
        };
        let lines = patterns
            .iter()
            .flat_map(|pattern| pattern.split(|byte| *byte == b'\n'));
        let all: Vec<String> = lines
            .map(|line| {
                Ok(format!(
                    "(?:{})",
                    translated(line, dialect, args.ignore_case)?
                ))
            })
            .collect::<Result<_, String>>()?;
        let any = all.join("|");
        let text = if args.line_regexp {
            format!("^(?:{any})$")
        } else if args.word_regexp {
            format!("\\b{{start-half}}(?:{any})\\b{{end-half}}")
        } else {
            any
        };
        let syntax = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .multi_line(true)
            .case_insensitive(args.ignore_case)
            .nest_limit(1000);
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(SIZE_MAX))
            .hybrid_cache_capacity(CACHE_MAX);
        let first = meta::Builder::new()
            .syntax(syntax)
            .configure(config)
            .build(&text)
            .map_err(|e| too_large(&e, e.size_limit().is_some()))?;
        let longest = if args.only_matching {
            Some(longest(&text, syntax)?)
        } else {
            None
        };
        let matches_nothing_at_all = first.is_match(Input::new(b""));
        Ok(Self {
            first,
            longest,
            matches_nothing_at_all,
        })
    }

    /// The first match at or behind a place of a text that is one line or several.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<Range<usize>> {
        let found = self.first.search(&Input::new(text).range(from..))?;
        Some(found.range())
    }

    /// The first and longest match at or behind a place of a line.
    pub(super) fn find_longest(
        &mut self,
        line: &[u8],
        from: usize,
    ) -> Result<Option<Range<usize>>, String> {
        let Some(found) = self.find(line, from) else {
            return Ok(None);
        };
        let Some((automaton, cache)) = &mut self.longest else {
            return Ok(Some(found));
        };
        let start = found.start;
        let input = Input::new(line).range(start..).anchored(Anchored::Yes);
        let end = automaton
            .try_search_fwd(cache, &input)
            .map_err(|e| format!("the longest match cannot be found: {e}"))?;
        Ok(Some(start..end.map_or(found.end, |end| end.offset())))
    }
}

fn longest(text: &str, syntax: syntax::Config) -> Result<(dfa::DFA, dfa::Cache), String> {
    let thompson = regex_automata::nfa::thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(SIZE_MAX));
    let config = dfa::Config::new()
        .match_kind(MatchKind::All)
        .cache_capacity(CACHE_MAX)
        .skip_cache_capacity_check(true);
    let automaton = dfa::Builder::new()
        .syntax(syntax)
        .thompson(thompson)
        .configure(config)
        .build(text)
        .map_err(|e| too_large(&e, false))?;
    let cache = automaton.create_cache();
    Ok((automaton, cache))
}

fn too_large(e: &dyn std::fmt::Display, is_size: bool) -> String {
    if is_size {
        "the patterns are too large together: ask for fewer repetitions".to_owned()
    } else {
        format!("the patterns cannot be searched for: {e}")
    }
}
