//! Labels of SELinux: which file gets which context, as `selabel_lookup(3)` of libselinux says.
//!
//! | module | owns |
//! |---|---|
//! | `specification` | one line of `file_contexts`: expression, type, context |
//! | `pattern` | the expression of a line, from PCRE's form to an automaton |
//! | `names` | files with several names |
//! | `substitutions` | `file_contexts.subs` and `.subs_dist`: paths that stand for others |
//!
//! # Which line counts
//!
//! Read are FILE, `FILE.homedirs` and `FILE.local`, as one list. Lines without any special
//! character are before those with one; among equals the last counts. Two lines of FILE that give
//! one expression different contexts for one type are refused, as `setfiles` does. The path is
//! changed by `FILE.subs` first and then by `FILE.subs_dist`, and in each of them the last line
//! that fits is taken.

mod names;
mod pattern;
mod specification;
mod substitutions;

use super::error::{TableError, TableResult};
use super::{path_of, text};
use crate::source::builder::{Content, Meta, TreeBuilder};
use crate::source::edit::Editor;
use crate::source::{FileType, NodeId, Times, Timestamp, Tree};
pub use names::Names;
use specification::{Sense, Specification};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use substitutions::Substitutions;

/// The attribute that holds a context, with a NUL byte at its end.
const ATTRIBUTE: &[u8] = b"security.selinux";

/// In the place of a context: the file keeps what it has.
const NONE: &[u8] = b"<<none>>";

/// First bytes of a compiled `file_contexts.bin`.
const COMPILED: u32 = 0xf97c_ff8a;

/// Most lines that are read.
const LINES_MAX: usize = 1 << 20;

/// Where checkers put what they find, which labels are for as well.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// What is said of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// No line names it.
    Unnamed,
    /// The line that counts says that the file keeps what it has.
    Kept,
    /// The line that counts gives it this context.
    Context(ContextId),
}

/// A context of [`Contexts`], whose text is [`Contexts::text`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextId(u32);

/// The contexts that files shall have, by path and type.
#[derive(Debug, Default)]
pub struct Contexts {
    /// From the one that counts least to the one that counts most.
    specifications: Vec<Specification>,
    /// Those that match only paths which begin with a text.
    by_prefix: HashMap<Box<[u8]>, Vec<u32>>,
    /// The lengths of these texts.
    lengths: BTreeSet<usize>,
    contexts: Vec<Box<[u8]>>,
    /// Bytes that the automata of all lines take.
    automata_bytes: usize,
    files: Vec<PathBuf>,
    local: Substitutions,
    distribution: Substitutions,
}

impl Contexts {
    /// Reads `file_contexts` at `path`, and what lies beside it with `.homedirs`, `.local`, `.subs`
    /// and `.subs_dist` at the end of its name.
    ///
    /// # Errors
    ///
    /// [`TableError::Io`] if one cannot be read, [`TableError::Line`] for a line that is wrong, and
    /// [`TableError::Table`] for a compiled file.
    pub fn read(path: &Path) -> TableResult<Self> {
        Self::parse_all(path, &text::read(path)?, true)
    }

    /// Parses the text of a `file_contexts` that errors call `path`, without what lies beside it.
    ///
    /// # Errors
    ///
    /// [`TableError::Line`] for a line that is wrong, [`TableError::Table`] for a compiled file.
    pub fn parse(path: &Path, text: &[u8]) -> TableResult<Self> {
        Self::parse_all(path, text, false)
    }

    fn parse_all(path: &Path, whole: &[u8], with_others: bool) -> TableResult<Self> {
        let mut contexts = Self::default();
        let mut numbers = HashMap::new();
        if whole.starts_with(&COMPILED.to_le_bytes()) {
            return Err(TableError::table(
                path,
                "is compiled: give the text that it was made from, file_contexts",
            ));
        }
        contexts.add(path, whole, &mut numbers)?;
        if with_others {
            contexts.read_others(path, &mut numbers)?;
        }
        contexts.put_in_order();
        Ok(contexts)
    }

    /// Reads what lies beside `file_contexts`.
    fn read_others(
        &mut self,
        path: &Path,
        numbers: &mut HashMap<Box<[u8]>, u32>,
    ) -> TableResult<()> {
        for suffix in [".homedirs", ".local"] {
            let path = beside(path, suffix);
            if let Some(text) = read_if_there(&path)? {
                self.add(&path, &text, numbers)?;
            }
        }
        for (suffix, which) in [
            (".subs_dist", &mut self.distribution),
            (".subs", &mut self.local),
        ] {
            let path = beside(path, suffix);
            if let Some(text) = read_if_there(&path)? {
                *which = Substitutions::parse(&text)
                    .map_err(|(line, problem)| TableError::line(&path, line, problem))?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        path: &Path,
        text: &[u8],
        numbers: &mut HashMap<Box<[u8]>, u32>,
    ) -> TableResult<()> {
        let file = self.files.len() as u32;
        self.files.push(path.to_owned());
        // What the lines of the first file say of each expression.
        let mut said: HashMap<&[u8], Vec<Sense>> = HashMap::new();
        for (number, line) in text::lines(text).filter(|(_, line)| !text::is_blank(line)) {
            let wrong = |problem: String| TableError::line(path, number, problem);
            if self.specifications.len() >= LINES_MAX {
                return Err(wrong(format!(
                    "is past {LINES_MAX} lines, which are too many"
                )));
            }
            let contexts = &mut self.contexts;
            let mut number_of = |context: &[u8]| {
                *numbers.entry(Box::from(context)).or_insert_with(|| {
                    contexts.push(Box::from(context));
                    contexts.len() as u32 - 1
                })
            };
            let specification = Specification::parse(line, (file, number), &mut number_of);
            let specification = specification.map_err(wrong)?;
            if file == 0 {
                let expression = text::fields(line).next().unwrap_or_default();
                let same = said.entry(expression).or_default();
                if let Some(other) = same.iter().find(|other| specification.contradicts(other)) {
                    return Err(wrong(format!(
                        "another context than line {} gives to {}",
                        other.place.1,
                        text::shown(expression)
                    )));
                }
                specification.note_in(same);
            }
            self.specifications.push(specification);
        }
        Ok(())
    }

    /// Puts lines without special characters behind the others, and all where they are found.
    fn put_in_order(&mut self) {
        self.specifications.sort_by_key(Specification::is_exact);
        for (index, specification) in (0..).zip(&self.specifications) {
            let prefix = Box::from(specification.prefix());
            self.lengths.insert(specification.prefix().len());
            self.by_prefix.entry(prefix).or_default().push(index);
        }
    }

    /// Finds the context of a file of this type at an absolute path. `None` if no line says one, or
    /// one says that it keeps what it has.
    ///
    /// # Errors
    ///
    /// [`TableError::Line`] for an expression that takes more memory than one may, or with which
    /// all take more than 256 MiB.
    pub fn lookup(&mut self, path: &[u8], kind: FileType) -> TableResult<Option<&[u8]>> {
        Ok(match self.label(path, kind)? {
            Label::Context(context) => Some(self.text(context)),
            Label::Unnamed | Label::Kept => None,
        })
    }

    /// Finds what is said of a file of this type at an absolute path.
    ///
    /// # Errors
    ///
    /// Those of [`lookup`](Self::lookup).
    pub fn label(&mut self, path: &[u8], kind: FileType) -> TableResult<Label> {
        let found = self.find(path, kind)?;
        Ok(match found.map(ContextId) {
            None => Label::Unnamed,
            Some(context) if self.text(context) == NONE => Label::Kept,
            Some(context) => Label::Context(context),
        })
    }

    /// Returns a context that these contexts have given to a file, without a NUL byte.
    ///
    /// # Panics
    ///
    /// If the context is one of others.
    #[must_use]
    pub fn text(&self, context: ContextId) -> &[u8] {
        &self.contexts[context.0 as usize]
    }

    fn find(&mut self, path: &[u8], kind: FileType) -> TableResult<Option<u32>> {
        let changed = self.local.apply(path);
        let path = changed.as_deref().unwrap_or(path);
        let changed = self.distribution.apply(path);
        let path = changed.as_deref().unwrap_or(path);
        let mut candidates: Vec<u32> = self
            .lengths
            .range(..=path.len())
            .filter_map(|&length| self.by_prefix.get(&path[..length]))
            .flatten()
            .copied()
            .collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        for index in candidates {
            let specification = &mut self.specifications[index as usize];
            let matches = specification.matches(path, kind, &mut self.automata_bytes);
            let matches = matches.map_err(|problem| {
                let (file, line) = specification.place();
                TableError::line(&self.files[file as usize], line, problem)
            })?;
            if matches {
                return Ok(Some(specification.context()));
            }
        }
        Ok(None)
    }

    /// Labels every file of a tree whose root is mounted at `at` (empty for the root of all), and
    /// gives the tree back with sentences about files that no line names. A `lost+found` is made if
    /// there is none, with `now` as its times, so that it has a label, too. Of a tree over a file
    /// system, what is there already keeps its label.
    ///
    /// # Errors
    ///
    /// Those of [`lookup`](Self::lookup); [`TableError::Source`] past 2^32 sets of attributes.
    pub fn apply(
        &mut self,
        tree: Tree,
        at: &[u8],
        now: Timestamp,
    ) -> TableResult<(Tree, Vec<String>)> {
        let mut tree = with_lost_and_found(tree, now)?;
        let mut editor = Editor::new(&mut tree);
        let mut names = Names::default();
        let mut chosen: Vec<Option<Label>> = vec![None; editor.tree().len()];
        let mut open = vec![(NodeId::ROOT, 0)];
        let mut path = at.to_vec();
        let root = if path.is_empty() {
            b"/".to_vec()
        } else {
            path.clone()
        };
        self.choose(editor.tree(), NodeId::ROOT, &root, &mut chosen, &mut names)?;
        let mut starts = vec![path.len()];
        while let Some((dir, next)) = open.last_mut() {
            let entries = editor.tree().entries(*dir);
            let start = starts.last().copied().unwrap_or(0);
            path.truncate(start);
            let Some(entry) = entries.get(*next) else {
                open.pop();
                starts.pop();
                continue;
            };
            *next += 1;
            path.push(b'/');
            path.extend_from_slice(editor.tree().name(entry));
            let id = entry.node();
            self.choose(editor.tree(), id, &path, &mut chosen, &mut names)?;
            if editor.tree().node(id).is_dir() {
                open.push((id, 0));
                starts.push(path.len());
            }
        }
        for id in editor.tree().ids() {
            if let Some(Label::Context(context)) = chosen[id.index()] {
                let value = [self.text(context), b"\0"].concat();
                editor.set_xattr(id, ATTRIBUTE, Some(&value), Some(context.0))?;
            }
        }
        Ok((tree, names.sentences()))
    }

    /// Notes what is said of a file under one of its names.
    fn choose(
        &mut self,
        tree: &Tree,
        id: NodeId,
        path: &[u8],
        chosen: &mut [Option<Label>],
        names: &mut Names,
    ) -> TableResult<()> {
        if !tree.is_given(id) {
            return Ok(());
        }
        let found = self.label(path, tree.node(id).kind())?;
        names.note(&mut chosen[id.index()], found, || path_of(tree, id));
        Ok(())
    }
}

fn with_lost_and_found(tree: Tree, now: Timestamp) -> TableResult<Tree> {
    if tree.over.is_some() || tree.child(NodeId::ROOT, LOST_AND_FOUND).is_some() {
        return Ok(tree);
    }
    let (mut builder, aside) = TreeBuilder::reopen(tree);
    let meta = Meta::plain(0o700, Times::all(now));
    let made = builder.add(meta, Content::Directory)?;
    builder.link(NodeId::ROOT, LOST_AND_FOUND, made)?;
    Ok(builder.finish_again(aside)?)
}

/// The file whose name has more at its end.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn read_if_there(path: &Path) -> TableResult<Option<Vec<u8>>> {
    match text::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(TableError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
