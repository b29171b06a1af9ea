//! One command per file.

mod acl;
mod cat;
mod chattr;
mod check;
mod chmod;
mod chown;
mod completions;
mod cp;
mod df;
mod fallocate;
mod find;
mod info;
mod ln;
mod ls;
mod man;
mod map;
mod mkdir;
mod mkfs;
mod mknod;
mod mount;
mod mv;
mod quota;
mod repair;
mod replay;
mod resize;
mod rm;
mod stat;
mod tar;
mod touch;
mod tree;
mod truncate;
mod tune;
mod undo;
mod write;
mod xattr;

use crate::args::{Args, Command};
use crate::failure::Outcome;

/// Runs the command asked for.
pub(crate) fn run(args: Args) -> Outcome {
    let place = &args.place;
    match args.command {
        Command::Mkfs(args) => mkfs::run(&args, place),
        Command::Ls(args) => ls::run(&args, place),
        Command::Tree(args) => tree::run(&args, place),
        Command::Cat(args) => cat::run(&args, place),
        Command::Stat(args) => stat::run(&args, place),
        Command::Find(args) => find::run(&args, place),
        Command::Cp(args) => cp::run(&args, place),
        Command::Tar(args) => tar::run(&args, place),
        Command::Info(args) => info::run(&args, place),
        Command::Df(args) => df::run(&args, place),
        Command::Quota(args) => quota::run(&args, place),
        Command::Map(args) => map::run(&args, place),
        Command::Mkdir(args) => mkdir::run(&args, place),
        Command::Mknod(args) => mknod::run(&args, place),
        Command::Rm(args) => rm::run(&args, place),
        Command::Mv(args) => mv::run(&args, place),
        Command::Ln(args) => ln::run(&args, place),
        Command::Chmod(args) => chmod::run(&args, place),
        Command::Chown(args) => chown::run(&args, place),
        Command::Touch(args) => touch::run(&args, place),
        Command::Fallocate(args) => fallocate::run(&args, place),
        Command::Truncate(args) => truncate::run(&args, place),
        Command::Write(args) => write::run(&args, place),
        Command::Xattr(args) => xattr::run(&args, place),
        Command::Acl(args) => acl::run(&args, place),
        Command::Chattr(args) => chattr::run(&args, place),
        Command::Lsattr(args) => chattr::list(&args, place),
        Command::Replay(args) => replay::run(&args, place),
        Command::Mount(args) => mount::run(&args, place),
        Command::Stats(args) => mount::stats(&args),
        Command::Umount(args) => mount::unmount(&args),
        Command::Check(args) => check::run(&args, place),
        Command::Repair(args) => repair::run(&args, place),
        Command::Tune(args) => tune::run(&args, place),
        Command::Resize(args) => resize::run(&args, place),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
