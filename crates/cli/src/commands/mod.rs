//! One command per file.

mod cat;
mod completions;
mod cp;
mod find;
mod info;
mod ls;
mod man;
mod map;
mod mkfs;
mod stat;
mod tar;
mod tree;

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
        Command::Map(args) => map::run(&args, place),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}
