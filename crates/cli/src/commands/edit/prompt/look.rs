//! Commands that only read, which a script has no use for.

use crate::args::{AclDo, Command, Whereabouts, XattrDo};
use crate::commands::edit::step::{Inside, parsed};
use crate::commands::{acl, cat, df, digest, du, ls, stat, tree, xattr};
use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What they are called.
pub(super) const LOOKS: &[&str] = &["cat", "df", "digest", "du", "ls", "stat", "tree"];

/// Reads a line as such a command about `image`; `None` if it is none.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(words: &[OsString], image: &OsStr) -> Result<Option<Command>, String> {
    let name = words.first().and_then(|word| word.to_str());
    let name = name.unwrap_or_default();
    let is_attributes = matches!(name, "xattr" | "acl")
        && words[1..].iter().any(|word| word == "ls" || word == "get");
    if !LOOKS.contains(&name) && !is_attributes {
        return Ok(None);
    }
    let mut words = words.to_vec();
    let is_path = |word: &OsString| word.as_bytes().starts_with(b"/");
    match name {
        "df" => words.push(image.to_owned()),
        "ls" | "tree" | "du" if !words.iter().any(is_path) => words.push("/".into()),
        _ => {}
    }
    let mut command = parsed(name, &words)?;
    let inside = Inside(image);
    match &mut command {
        Command::Ls(args) => inside.paths(&mut args.paths)?,
        Command::Tree(args) => inside.paths(&mut args.paths)?,
        Command::Cat(args) => inside.paths(&mut args.paths)?,
        Command::Stat(args) => inside.paths(&mut args.paths)?,
        Command::Du(args) => inside.paths(&mut args.paths)?,
        Command::Digest(args) => inside.paths(&mut args.paths)?,
        Command::Df(_) => {}
        Command::Xattr(args) => match &mut args.what {
            XattrDo::Ls { path, .. } | XattrDo::Get { path, .. } => {
                inside.paths(std::slice::from_mut(path))?;
            }
            _ => return Ok(None),
        },
        Command::Acl(args) => match &mut args.what {
            AclDo::Get { paths } => inside.paths(paths)?,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    }
    Ok(Some(command))
}

/// Runs such a command on the file system that `place` has open.
pub(super) fn run(command: &Command, place: &Whereabouts) -> Outcome {
    match command {
        Command::Ls(args) => ls::run(args, place),
        Command::Tree(args) => tree::run(args, place),
        Command::Cat(args) => cat::run(args, place),
        Command::Stat(args) => stat::run(args, place),
        Command::Du(args) => du::run(args, place),
        Command::Digest(args) => digest::run(args, place),
        Command::Df(args) => df::run(args, place),
        Command::Xattr(args) => xattr::run(args, place),
        Command::Acl(args) => acl::run(args, place),
        _ => Err(Failure::usage("this command changes the image")),
    }
}
