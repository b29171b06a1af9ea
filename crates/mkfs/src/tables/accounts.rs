//! Numbers of users and groups by name, from the `/etc/passwd` and `/etc/group` of the tree.

use super::error::{Parsed, TableResult};
use super::rule::Account;
use super::text::{fields, id, lines, shown};
use crate::source::walk::{Found, file};
use crate::source::{FileType, SourceError, Tree};
use std::collections::HashMap;

/// Bytes of the largest list of accounts that is read.
const LIST_MAX: u64 = 16 << 20;

/// Where the lists are in a tree.
pub(super) const USERS: &str = "etc/passwd";
pub(super) const GROUPS: &str = "etc/group";

/// A list of accounts: names with their numbers, or why there is none.
#[derive(Debug)]
struct List {
    path: &'static str,
    known: Result<HashMap<Box<[u8]>, u32>, String>,
}

/// Users and groups of a tree, read when a name is looked up for the first time.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    users: Option<List>,
    groups: Option<List>,
}

impl Accounts {
    /// The number of a user.
    pub(super) fn user(&mut self, tree: &Tree, account: &Account) -> TableResult<Parsed<u32>> {
        number(tree, &mut self.users, USERS, account)
    }

    /// The number of a group.
    pub(super) fn group(&mut self, tree: &Tree, account: &Account) -> TableResult<Parsed<u32>> {
        number(tree, &mut self.groups, GROUPS, account)
    }
}

fn number(
    tree: &Tree,
    list: &mut Option<List>,
    path: &'static str,
    account: &Account,
) -> TableResult<Parsed<u32>> {
    let name = match account {
        Account::Number(number) => return Ok(Ok(*number)),
        Account::Name(name) => name,
    };
    let list = match list {
        Some(list) => list,
        None => list.insert(List {
            path,
            known: read(tree, path)?,
        }),
    };
    Ok(match &list.known {
        Ok(known) => known.get(name).copied().ok_or_else(|| {
            format!(
                "{} is not in /{} of what the image is made from: add it there, or give its number",
                shown(name),
                list.path
            )
        }),
        Err(problem) => Err(format!(
            "{} is a name, and {problem}: give its number",
            shown(name)
        )),
    })
}

/// Reads a list: lines of a name, something, and a number, with `:` between them.
fn read(mut tree: &Tree, path: &str) -> TableResult<Parsed<HashMap<Box<[u8]>, u32>>> {
    let node = match file(&mut tree, path.as_bytes()) {
        Ok(Found::File(node)) if tree.node(node).kind() == FileType::Regular => node,
        _ => return Ok(Err(format!("the image has no /{path}"))),
    };
    let size = tree.node(node).size;
    if size > LIST_MAX {
        return Ok(Err(format!("/{path} is too large")));
    }
    let text = match (&tree.over, tree.there(node)) {
        (Some(over), Some(there)) => {
            let read = over.base.content(there.path, size);
            read.map_err(|problem| SourceError::Base { problem })?
        }
        _ => {
            let mut text = vec![0; size as usize];
            tree.read_at(node, 0, &mut text)?;
            text
        }
    };
    let mut known = HashMap::new();
    for (_, line) in lines(&text) {
        let mut parts = line.splitn(4, |&byte| byte == b':');
        let (name, number) = (parts.next(), parts.nth(1));
        if let (Some(name), Some(number)) = (name, number)
            && fields(name).next() == Some(name)
            && let Ok(number) = id("number", number)
        {
            // Of two the first counts, as for programs.
            known.entry(Box::from(name)).or_insert(number);
        }
    }
    Ok(Ok(known))
}
