//! Applying rules: what is missing is made first, then each rule changes what it names.

use super::accounts::{self, Accounts};
use super::capabilities::{self, Capabilities};
use super::error::{Parsed, TableError, TableResult};
use super::rule::{Absent, Change, Kind, Make, Rule, Which};
use super::{Table, path_of};
use crate::source::builder::{Content, Meta, TreeBuilder};
use crate::source::edit::Editor;
use crate::source::glob::PathGlob;
use crate::source::tar::acl;
use crate::source::walk::{Found, file};
use crate::source::{FileType, NodeId, Times, Timestamp, Tree};

/// Applies tables to a tree, in order.
pub(super) fn apply(
    tree: Tree,
    tables: &[Table],
    now: Timestamp,
) -> TableResult<(Tree, Vec<String>)> {
    let mut tree = make_missing(tree, tables, now)?;
    let mut warnings = Vec::new();
    let mut editor = Editor::new(&mut tree);
    let mut accounts = Accounts::default();
    for table in tables {
        let mut named = table.is_complete.then(|| vec![false; editor.tree().len()]);
        for rule in &table.rules {
            let fail = |problem| TableError::line(&table.path, rule.line, problem);
            let nodes = nodes_of(editor.tree(), rule, &table.mount_point).map_err(fail)?;
            let Some(nodes) = nodes else {
                // It is there, and is not what is put there now.
                continue;
            };
            if nodes.is_empty() {
                match rule.absent {
                    Absent::Ignore => {}
                    // It may match what is there.
                    Absent::Warn if editor.tree().over.is_some() => {}
                    Absent::Warn => warnings.push(format!(
                        "{}:{}: matches nothing",
                        table.path.display(),
                        rule.line
                    )),
                    Absent::Refuse | Absent::Make(_) => {
                        return Err(fail("names nothing that the image is made from".to_owned()));
                    }
                }
                continue;
            }
            let user = rule.change.user.as_ref();
            let user = user
                .map(|user| accounts.user(editor.tree(), user))
                .transpose()?;
            let group = rule.change.group.as_ref();
            let group = group
                .map(|group| accounts.group(editor.tree(), group))
                .transpose()?;
            let owners = (
                user.transpose().map_err(fail)?,
                group.transpose().map_err(fail)?,
            );
            for id in nodes {
                if let Some(named) = &mut named {
                    named[id.index()] = true;
                }
                change(&mut editor, id, rule, owners)?.map_err(fail)?;
            }
        }
        if let Some(named) = named {
            every_file(editor.tree(), table, &named)?;
        }
    }
    Ok((tree, warnings))
}

/// Refuses a tree with files that a table should name and does not.
fn every_file(tree: &Tree, table: &Table, named: &[bool]) -> TableResult<()> {
    let unnamed = tree.ids().filter(|id| !named[id.index()]);
    let mut unnamed = unnamed.filter(|id| tree.is_given(*id)).peekable();
    let Some(&first) = unnamed.peek() else {
        return Ok(());
    };
    Err(TableError::table(
        &table.path,
        format!(
            "does not name {} of the files, of which one is {}: a table of this kind names all",
            unnamed.count(),
            path_of(tree, first)
        ),
    ))
}

/// Makes what tables name and make, in their order.
fn make_missing(mut tree: Tree, tables: &[Table], now: Timestamp) -> TableResult<Tree> {
    let makes = |rule: &&Rule| matches!(rule.absent, Absent::Make(_));
    if tree.over.is_some() && !tables.is_empty() {
        tree = with_named(tree, tables)?;
    }
    let mut as_it_is = &tree;
    let mut is_missing = |rule: &Rule| match &rule.which {
        Which::Path(path) => !matches!(file(&mut as_it_is, path), Ok(Found::File(_))),
        _ => false,
    };
    let all = tables.iter().flat_map(|table| &table.rules);
    if !all.filter(makes).any(&mut is_missing) {
        return Ok(tree);
    }
    let (mut builder, aside) = TreeBuilder::reopen(tree);
    for table in tables {
        for rule in table.rules.iter().filter(makes) {
            make(&mut builder, rule, now)?
                .map_err(|problem| TableError::line(&table.path, rule.line, problem))?;
        }
    }
    tree = builder.finish_again(aside)?;
    Ok(tree)
}

/// Has a tree over a file system have what tables name there, and the lists of accounts.
fn with_named(tree: Tree, tables: &[Table]) -> TableResult<Tree> {
    let (mut builder, aside) = TreeBuilder::reopen(tree);
    let rules = tables.iter().flat_map(|table| &table.rules);
    let named = rules.filter_map(|rule| match &rule.which {
        Which::Path(path) | Which::Below(path) => Some(&**path),
        Which::Glob(_) => None,
    });
    for path in named.chain([accounts::USERS, accounts::GROUPS].map(str::as_bytes)) {
        // What is wrong with the path is said when it is looked up again.
        let _ = file(&mut builder, path);
    }
    Ok(builder.finish_again(aside)?)
}

/// Makes what one rule names, if it is missing.
fn make(builder: &mut TreeBuilder, rule: &Rule, now: Timestamp) -> TableResult<Parsed<()>> {
    let (Absent::Make(make), Which::Path(path)) = (&rule.absent, &rule.which) else {
        return Ok(Ok(()));
    };
    let (mut dir, above, name) = match file(builder, path) {
        Ok(Found::File(_)) => return Ok(Ok(())),
        Ok(Found::NoFile(dir, name)) => (dir, Vec::new(), name),
        Ok(Found::NoDirectory(dir, above, name)) => (dir, above, name),
        Err(problem) => return Ok(Err(problem)),
    };
    if !above.is_empty() && *make != (Make::Directory { parents: true }) {
        return Ok(Err(
            "names something in a directory that is not there: a line before has to make it"
                .to_owned(),
        ));
    }
    let times = Times::all(now);
    for missing in above {
        let made = builder.add(Meta::plain(0o755, times), Content::Directory)?;
        if let Err(problem) = builder.link(dir, &missing, made) {
            return Ok(Err(problem.to_string()));
        }
        dir = made;
    }
    let content = match make {
        Make::Directory { .. } => Content::Directory,
        Make::File => Content::Hole(0),
        Make::Fifo => Content::Fifo,
        Make::Socket => Content::Socket,
        Make::Symlink(target) => Content::Symlink(target),
        &Make::Device { kind, major, minor } => Content::Device { kind, major, minor },
    };
    let made = match builder.add(Meta::plain(make.mode(), times), content) {
        Ok(made) => made,
        Err(problem) => return Ok(Err(problem.to_string())),
    };
    let linked = builder.link(dir, name, made);
    Ok(linked.map_err(|problem| problem.to_string()))
}

/// The files that a rule names; `None` if all of them are there already in the file system below.
/// An error is about one that it cannot be about.
fn nodes_of(tree: &Tree, rule: &Rule, mount_point: &[Box<[u8]>]) -> Parsed<Option<Vec<NodeId>>> {
    let one = |mut tree: &Tree, path: &[u8]| match file(&mut tree, path) {
        Ok(Found::File(id)) => Some(id),
        _ => None,
    };
    let mut nodes = match &rule.which {
        Which::Path(path) => one(tree, path).into_iter().collect(),
        Which::Below(path) => match one(tree, path) {
            None => Vec::new(),
            Some(top) => {
                let mut all = vec![top];
                walk(tree, top, Vec::new(), |_, id| all.push(id));
                all
            }
        },
        Which::Glob(glob) => matching(tree, glob, mount_point),
    };
    let named = nodes.len();
    nodes.retain(|id| tree.is_given(*id));
    if nodes.len() < named && nodes.is_empty() {
        return Ok(None);
    }
    match rule.kind {
        Kind::Any => {}
        Kind::Only(kind) => nodes.retain(|&id| tree.node(id).kind() == kind),
        Kind::Must(kind) => {
            if let Some(&id) = nodes.iter().find(|&&id| tree.node(id).kind() != kind) {
                return Err(format!(
                    "{} is {} and not {}",
                    path_of(tree, id),
                    described(tree.node(id).kind()),
                    described(kind)
                ));
            }
        }
    }
    if let (Absent::Make(make), [id]) = (&rule.absent, nodes.as_slice()) {
        same(tree, *id, make)?;
    }
    Ok(Some(nodes))
}

/// Refuses what is there already and is not what would be made.
fn same(tree: &Tree, id: NodeId, make: &Make) -> Parsed<()> {
    let path = || path_of(tree, id);
    match make {
        Make::Device { major, minor, .. } => match tree.node(id).rdev() {
            Some((a, b)) if (a, b) != (*major, *minor) => Err(format!(
                "{} is the device {a}:{b}, and {major}:{minor} is asked for",
                path()
            )),
            _ => Ok(()),
        },
        Make::Symlink(target) => match tree.symlink_target(id) {
            Some(found) if found != &**target => Err(format!(
                "{} leads to {:?}, and {:?} is asked for",
                path(),
                String::from_utf8_lossy(found),
                String::from_utf8_lossy(target)
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// All files whose path matches, by any of their names, in a tree whose root is at `mount_point`.
fn matching(tree: &Tree, glob: &PathGlob, mount_point: &[Box<[u8]>]) -> Vec<NodeId> {
    let fixed = glob.fixed_directories();
    if mount_point.iter().zip(&fixed).any(|(a, b)| a != b) {
        return Vec::new();
    }
    let fixed = fixed.get(mount_point.len()..).unwrap_or_default();
    let top = fixed
        .iter()
        .try_fold(NodeId::ROOT, |dir, name| tree.child(dir, name));
    let Some(top) = top else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let above = mount_point.iter().chain(fixed);
    let above = above.map(|name| &**name).collect();
    walk(tree, top, above, |path, id| {
        if glob.matches(path, tree.node(id).is_dir()) {
            found.push(id);
        }
    });
    found
}

/// Visits everything below a directory, with the names on the way: those `above` it first.
fn walk<'t>(
    tree: &'t Tree,
    top: NodeId,
    above: Vec<&'t [u8]>,
    mut visit: impl FnMut(&[&[u8]], NodeId),
) {
    let mut path = above;
    let mut open = vec![tree.entries(top).iter()];
    while let Some(entries) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            path.pop();
            continue;
        };
        path.push(tree.name(entry));
        visit(&path, entry.node());
        if tree.node(entry.node()).is_dir() {
            open.push(tree.entries(entry.node()).iter());
        } else {
            path.pop();
        }
    }
}

/// Changes one file.
fn change(
    editor: &mut Editor<'_>,
    id: NodeId,
    rule: &Rule,
    (user, group): (Option<u32>, Option<u32>),
) -> TableResult<Parsed<()>> {
    let Change {
        user: _,
        group: _,
        mode,
        capabilities,
        flags,
        modified,
    } = &rule.change;
    editor.set_owners(id, user, group)?;
    if let Some(mode) = *mode {
        editor.set_permissions(id, mode)?;
        let lists = editor.tree().xattrs(id).iter();
        let list = lists
            .filter(|x| &*x.name == acl::ACCESS)
            .find_map(|x| acl::with_mode(&x.value, mode));
        if let Some(list) = list {
            editor.set_xattr(id, acl::ACCESS, Some(&list), None)?;
        }
    }
    if let Some(capabilities) = capabilities
        && let Err(problem) = set_capabilities(editor, id, rule, capabilities)?
    {
        return Ok(Err(problem));
    }
    if let Some(flags) = *flags {
        editor.set_flags(id, flags)?;
    }
    if let Some(time) = *modified {
        editor.set_modified(id, time)?;
    }
    Ok(Ok(()))
}

/// Gives a regular file capabilities; what matches a pattern and is none has nothing of them.
fn set_capabilities(
    editor: &mut Editor<'_>,
    id: NodeId,
    rule: &Rule,
    capabilities: &Capabilities,
) -> TableResult<Parsed<()>> {
    let is_regular = editor.tree().node(id).kind() == FileType::Regular;
    if !is_regular && !capabilities.is_empty() {
        if matches!(rule.which, Which::Path(_)) {
            return Ok(Err(format!(
                "{} is no regular file, and only those have capabilities",
                path_of(editor.tree(), id)
            )));
        }
        return Ok(Ok(()));
    }
    let value = (!capabilities.is_empty()).then(|| capabilities.value());
    let has_some = |tree: &Tree| {
        let attributes = tree.xattrs(id).iter();
        attributes
            .into_iter()
            .any(|x| &*x.name == capabilities::ATTRIBUTE)
    };
    if value.is_some() || has_some(editor.tree()) {
        editor.set_xattr(id, capabilities::ATTRIBUTE, value.as_deref(), None)?;
    }
    Ok(Ok(()))
}

const fn described(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::CharDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Fifo => "a fifo",
        FileType::Socket => "a socket",
    }
}
