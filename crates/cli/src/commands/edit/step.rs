//! A line as a command, whose paths lie in the image.

use super::condition::Condition;
use super::operand;
use crate::args::{self, AclDo, Apply, Command, Cp, Tar, Whereabouts, Write, XattrDo};
use crate::commands::tune::uuid_of;
use crate::commands::{
    acl, apply, chattr, chmod, chown, cp, fallocate, ln, mkdir, mknod, mv, rm, touch,
};
use crate::commands::{tar, truncate, write, xattr};
use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What lines may begin with.
#[cfg(feature = "prompt")]
pub(super) const COMMANDS: &[&str] = &[
    "acl",
    "apply",
    "chattr",
    "chmod",
    "chown",
    "else",
    "end",
    "expect",
    "fallocate",
    "get",
    "if",
    "label",
    "ln",
    "mkdir",
    "mknod",
    "mv",
    "put",
    "rm",
    "tar-in",
    "touch",
    "truncate",
    "uuid",
    "write",
    "xattr",
];

/// What a line does.
#[derive(Debug)]
pub(super) struct Step {
    /// As it is written.
    pub(super) words: Vec<OsString>,
    what: What,
}

#[derive(Debug)]
enum What {
    Expect(Condition),
    Label(OsString, OsString),
    Uuid([u8; 16]),
    Put(Box<Cp>),
    Get(Box<Cp>),
    TarIn(Box<Tar>),
    Apply(Box<Apply>),
    Write(Write, Vec<u8>),
    Command(Box<Command>),
}

impl Step {
    /// Reads a line about `image`, as it is named on the command line, with the text that belongs
    /// to it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(
        words: Vec<OsString>,
        input: Option<Vec<u8>>,
        image: &OsStr,
    ) -> Result<Self, String> {
        let inside = Inside(image);
        let name = words.first().map(|word| word.to_string_lossy());
        let name = name.as_deref().unwrap_or_default();
        if input.is_some() && name != "write" {
            return Err(format!("`{name}` takes no text"));
        }
        let what = match name {
            "expect" => What::Expect(Condition::of(&words[1..], image)?),
            "label" => match &words[1..] {
                [label] => What::Label(operand(image, OsStr::new("/")), label.clone()),
                _ => return Err("a label follows `label`, and nothing else".to_owned()),
            },
            "uuid" => match &words[1..] {
                [word] => What::Uuid(uuid_of(&word.to_string_lossy())?),
                _ => {
                    return Err(
                        "a UUID follows `uuid`, or random or clear, and nothing else".to_owned(),
                    );
                }
            },
            "tar-in" => What::TarIn(inside.tar_in(&words)?),
            "put" | "get" => {
                let Command::Cp(mut args) = parsed("cp", &words)? else {
                    return Err(unknown(name));
                };
                if args.json {
                    return Err(format!(
                        "`{name}` takes no --json: `extant edit --json` has an object for each line"
                    ));
                }
                if args.paths.iter().any(|path| path == "-") {
                    return Err(
                        "standard input and output are not for the lines of a script".to_owned(),
                    );
                }
                let (dest, sources) = match (&mut args.target_directory, &mut args.paths[..]) {
                    (Some(dir), sources) => (dir, sources),
                    (None, [sources @ .., dest]) => (dest, sources),
                    (None, []) => return Err(unknown(name)),
                };
                if name == "put" {
                    inside.path(dest)?;
                    What::Put(args)
                } else {
                    inside.paths(sources)?;
                    What::Get(args)
                }
            }
            "apply" => {
                let words = [&words[..], &[image.to_owned()]].concat();
                let Command::Apply(mut args) = parsed(name, &words)? else {
                    return Err(unknown(name));
                };
                if args.paths.iter().any(|layer| layer == "-") {
                    return Err("standard input is not for the lines of a script".to_owned());
                }
                args.quiet = true;
                args.json = false;
                What::Apply(args)
            }
            "write" => {
                let Command::Write(mut args) = parsed(name, &words)? else {
                    return Err(unknown(name));
                };
                inside.path(&mut args.path)?;
                let Some(input) = input else {
                    return Err("`write` has no text: let <<END or <<< follow".to_owned());
                };
                What::Write(args, input)
            }
            _ => {
                let mut command = parsed(name, &words)?;
                inside.command(&mut command, name)?;
                What::Command(Box::new(command))
            }
        };
        Ok(Self { words, what })
    }

    /// The UUID that the line gives the file system, which has to be closed for that.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        match self.what {
            What::Uuid(uuid) => Some(uuid),
            _ => None,
        }
    }

    /// Whether it changes the image.
    #[cfg(feature = "prompt")]
    pub(super) fn changes(&self) -> bool {
        !matches!(self.what, What::Expect(_) | What::Get(_))
    }

    /// Does what the line says, on the file system that `place` has open. `dry`: what would change
    /// the host is left.
    pub(super) fn run(&self, place: &Whereabouts, dry: bool) -> Outcome {
        match &self.what {
            What::Expect(condition) => condition.expect(place),
            What::Label(at, label) => {
                let at = crate::image_path::ImagePath::parse(at)?;
                let fs = at.open(place)?;
                let set = extant_core::ops::set_label(fs.engine(), label.as_bytes());
                set.map_err(|e| Failure::new(format!("the label cannot be set: {e}")))
            }
            // The script does that, between two openings of the file system.
            What::Uuid(_) => Err(Failure::usage("a UUID is given to a closed file system")),
            What::TarIn(args) => tar::run(args, place),
            What::Get(_) if dry => Ok(()),
            What::Put(args) | What::Get(args) => cp::run(args, place),
            What::Apply(args) => apply::run(args, place),
            What::Write(args, input) => write::run_from(args, place, &mut &input[..]),
            What::Command(command) => run(command, place),
        }
    }
}

fn run(command: &Command, place: &Whereabouts) -> Outcome {
    match command {
        Command::Mkdir(args) => mkdir::run(args, place),
        Command::Mknod(args) => mknod::run(args, place),
        Command::Rm(args) => rm::run(args, place),
        Command::Mv(args) => mv::run(args, place),
        Command::Ln(args) => ln::run(args, place),
        Command::Chmod(args) => chmod::run(args, place),
        Command::Chown(args) => chown::run(args, place),
        Command::Touch(args) => touch::run(args, place),
        Command::Truncate(args) => truncate::run(args, place),
        Command::Fallocate(args) => fallocate::run(args, place),
        Command::Xattr(args) => xattr::run(args, place),
        Command::Acl(args) => acl::run(args, place),
        Command::Chattr(args) => chattr::run(args, place),
        // Others are refused when the script is read.
        _ => Err(Failure::usage("this command is not one for scripts")),
    }
}

fn unknown(name: &str) -> String {
    format!("`{name}` is no command of a script: `extant edit --help` has them")
}

/// A line as the command line of `command`.
pub(super) fn parsed(command: &str, words: &[OsString]) -> Result<Command, String> {
    let program = [OsStr::new("extant"), OsStr::new(command)];
    let words = words[1..].iter().map(OsString::as_os_str);
    let parsed = args::read(program.into_iter().chain(words)).map_err(|e| {
        if e.kind() == clap::error::ErrorKind::InvalidSubcommand {
            return unknown(command);
        }
        // The first paragraph, without what it begins with: the rest is about command lines.
        let text = e.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    if parsed.location != Whereabouts::default() {
        return Err("where the file system is, is said to `extant edit` itself".to_owned());
    }
    Ok(parsed.command)
}

/// The image that paths are in.
pub(super) struct Inside<'a>(pub(super) &'a OsStr);

impl Inside<'_> {
    fn path(&self, path: &mut OsString) -> Result<(), String> {
        if !path.as_bytes().starts_with(b"/") {
            let path = path.to_string_lossy();
            return Err(format!(
                "{path} is no path in the image: those begin with /"
            ));
        }
        *path = operand(self.0, path);
        Ok(())
    }

    /// `tar-in`: `tar -x`, with the archive before the directory.
    fn tar_in(&self, words: &[OsString]) -> Result<Box<Tar>, String> {
        let extract = OsString::from("--extract");
        let words = [&words[..1], &[extract], &words[1..]].concat();
        let Command::Tar(mut args) = parsed("tar", &words)? else {
            return Err(unknown("tar-in"));
        };
        let [archive, dir] = &mut args.paths[..] else {
            return Err("an archive follows `tar-in`, and the directory it is put into".to_owned());
        };
        if args.file.is_some() {
            return Err("the archive of `tar-in` is named without -f".to_owned());
        }
        if archive == "-" {
            return Err("standard input is not for the lines of a script".to_owned());
        }
        self.path(dir)?;
        args.file = Some(std::mem::take(archive).into());
        args.paths.remove(0);
        Ok(Box::new(args))
    }

    /// Puts the image in front of paths.
    pub(super) fn paths(&self, paths: &mut [OsString]) -> Result<(), String> {
        paths.iter_mut().try_for_each(|path| self.path(path))
    }

    /// Puts the image in front of every path of a command.
    fn command(&self, command: &mut Command, name: &str) -> Result<(), String> {
        match command {
            Command::Mkdir(args) => self.paths(&mut args.paths),
            Command::Mknod(args) => self.path(&mut args.path),
            Command::Rm(args) => self.paths(&mut args.paths),
            Command::Mv(args) => self.paths(&mut args.paths),
            Command::Ln(args) if !args.symbolic => self.paths(&mut args.paths),
            Command::Ln(args) => match args.paths.last_mut() {
                Some(link) => self.path(link),
                None => Err(unknown(name)),
            },
            Command::Chmod(args) => {
                if let Some(file) = &mut args.reference {
                    self.path(file)?;
                    self.path(&mut args.mode)?;
                }
                self.paths(&mut args.paths)
            }
            Command::Chown(args) => {
                if let Some(file) = &mut args.reference {
                    self.path(file)?;
                    self.path(&mut args.owner)?;
                }
                self.paths(&mut args.paths)
            }
            Command::Touch(args) => self.paths(&mut args.paths),
            Command::Truncate(args) => self.paths(&mut args.paths),
            Command::Fallocate(args) => self.paths(&mut args.paths),
            Command::Chattr(args) => {
                if args.project.is_some() && args.change.as_bytes().starts_with(b"/") {
                    self.path(&mut args.change)?;
                }
                self.paths(&mut args.paths)
            }
            Command::Xattr(args) => match &mut args.what {
                XattrDo::Set { value, .. } if value == "-" => {
                    Err("standard input is not for the lines of a script".to_owned())
                }
                XattrDo::Set { path, .. } | XattrDo::Rm { path, .. } => self.path(path),
                XattrDo::Ls { .. } | XattrDo::Get { .. } => Err(reads()),
            },
            Command::Acl(args) => match &mut args.what {
                AclDo::Set { paths, .. } | AclDo::Rm { paths, .. } => self.paths(paths),
                AclDo::Get { .. } => Err(reads()),
            },
            _ => Err(unknown(name)),
        }
    }
}

fn reads() -> String {
    "a script changes an image; ask by `expect`, or read by a command of its own".to_owned()
}
