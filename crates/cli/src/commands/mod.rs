//! One command per file.

mod acl;
mod again;
mod apply;
mod cat;
mod chattr;
mod check;
mod chmod;
mod chown;
mod cmp;
pub(crate) mod complete_path;
mod completions;
mod convert;
mod cp;
mod deleted;
mod df;
mod diff;
mod digest;
mod du;
pub(crate) mod e2fsprogs;
mod edit;
mod exit_codes;
mod fallocate;
mod find;
mod grep;
mod info;
mod journal_device;
mod like;
mod links;
mod ln;
mod log;
mod ls;
mod man;
mod manifest;
mod map;
mod mkdir;
mod mkfs;
mod mknod;
mod mount;
mod mv;
mod owners;
mod quota;
mod recover;
mod relabel;
mod repair;
mod replay;
mod rescue;
mod resize;
mod revert;
mod rm;
mod serve;
mod stat;
mod sync;
mod tar;
mod touch;
mod tree;
mod trim;
mod truncate;
mod tune;
pub(crate) mod undo;
mod unread;
mod verity;
mod write;
mod xattr;

pub(crate) use check::Bars;
pub(crate) use find::marked as marked_words_of_find;

use crate::args::{Args, Command, Whereabouts};
use crate::failure::Outcome;
use crate::keeping;

/// Runs the command asked for.
pub(crate) fn run(args: Args) -> Outcome {
    let location = &args.location;
    // They work out all changes first, and keep what was there by themselves.
    let keeps_by_itself = matches!(args.command, Command::Repair(_) | Command::Tune(_));
    let done = run_command(args.command, location);
    keeping::end(location, done)?;
    if keeps_by_itself {
        return Ok(());
    }
    keeping::check_used(location)
}

fn run_command(command: Command, location: &Whereabouts) -> Outcome {
    match command {
        Command::Mkfs(args) => mkfs::run(&args, location),
        Command::Convert(args) => convert::run(&args, location),
        Command::Ls(args) => ls::run(&args, location),
        Command::Tree(args) => tree::run(&args, location),
        Command::Cat(args) => cat::run(&args, location),
        Command::Stat(args) => stat::run(&args, location),
        Command::Find(args) => find::run(&args, location),
        Command::Diff(args) => diff::run(&args, location),
        Command::Grep(args) => grep::run(&args, location),
        Command::Du(args) => du::run(&args, location),
        Command::Digest(args) => digest::run(&args, location),
        Command::Cmp(args) => cmp::run(&args, location),
        Command::Cp(args) => cp::run(&args, location),
        Command::Apply(args) => apply::run(&args, location),
        Command::Sync(args) => sync::run(&args, location),
        Command::Tar(args) => tar::run(&args, location),
        Command::Info(args) => info::run(&args, location),
        Command::Df(args) => df::run(&args, location),
        Command::Quota(args) => quota::run(&args, location),
        Command::Map(args) => map::run(&args, location),
        Command::Mkdir(args) => mkdir::run(&args, location),
        Command::Mknod(args) => mknod::run(&args, location),
        Command::Rm(args) => rm::run(&args, location),
        Command::Mv(args) => mv::run(&args, location),
        Command::Ln(args) => ln::run(&args, location),
        Command::Chmod(args) => chmod::run(&args, location),
        Command::Chown(args) => chown::run(&args, location),
        Command::Relabel(args) => relabel::run(&args, location),
        Command::Touch(args) => touch::run(&args, location),
        Command::Fallocate(args) => fallocate::run(&args, location),
        Command::Truncate(args) => truncate::run(&args, location),
        Command::Write(args) => write::run(&args, location),
        Command::Edit(args) => edit::run(&args, location),
        Command::Xattr(args) => xattr::run(&args, location),
        Command::Acl(args) => acl::run(&args, location),
        Command::Chattr(args) => chattr::run(&args, location),
        Command::Lsattr(args) => chattr::list(&args, location),
        Command::Replay(args) => replay::run(&args, location),
        Command::Mount(args) => mount::run(&args, location),
        Command::Stats(args) => mount::stats(&args),
        Command::Serve(args) => serve::run(&args, location),
        Command::Umount(args) => mount::unmount(&args),
        Command::Check(args) => check::run(&args, location),
        Command::Repair(args) => repair::run(&args, location),
        Command::Revert(args) => revert::run(&args, location),
        Command::Tune(args) => tune::run(&args, location),
        Command::Resize(args) => resize::run(&args, location),
        Command::Trim(args) => trim::run(&args, location),
        Command::Verity(args) => verity::run(&args, location),
        Command::Log(args) => log::run(&args, location),
        Command::Deleted(args) => deleted::run(&args, location),
        Command::Recover(args) => recover::run(&args, location),
        Command::Completions(args) => completions::run(&args),
        Command::Links(args) => links::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
