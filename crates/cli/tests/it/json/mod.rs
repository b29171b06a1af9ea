//! What every `--json` writes, held against `docs/user/json.schema.json`, and that against
//! `docs/user/json.md`.
//!
//! | module | owns |
//! |---|---|
//! | `held` | the schema, what is held against it, and which of its fields were seen |
//! | `page` | the page: its tables say what the schema says |
//! | `looking`, `about`, `taking`, `making`, `mending`, `past` | runs of the commands, by what they are for |
//!
//! That the schema has a definition for each command with the option, and for no other, is asked of
//! the command line itself, in the unit tests of `help`.

mod about;
mod held;
mod looking;
mod making;
mod mending;
mod page;
mod past;
mod taking;

use crate::manual_pages::without_an_image;
use crate::support::{Place, extant};
use extant_testkit::require;
use held::Held;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Fields that no run here writes, or kinds with all their fields, each with its reason. That they
/// stand here while they are seen is an error, too.
const NOT_SEEN: &[(&str, &str)] = &[(
    "repair-loss",
    "no damage is known of which a repair loses what can be read; tests of the crate fsck have \
         the repair make mistakes",
)];

#[test]
fn everything_that_is_written_is_in_the_schema_and_the_other_way_round() {
    require!(Root, LoopDevices, KernelExt4, Fuse);
    let mut held = Held::new();
    looking::run(&mut held);
    about::run(&mut held);
    taking::run(&mut held);
    making::run(&mut held);
    mending::run(&mut held);
    past::run(&mut held);
    held.assert_all_right();
    held.assert_all_seen(NOT_SEEN);
}

#[test]
fn without_an_image_nothing_is_written() {
    let held = Held::new();
    for command in held.commands() {
        let args = without_an_image(&[command]);
        let run = extant([command, "--json"].into_iter().chain(args));
        assert_ne!(run.code, 0, "{command}");
        assert!(
            run.stderr.starts_with("extant: "),
            "{command}: {}",
            run.stderr
        );
        assert_eq!(run.text(), "", "{command}");
    }
}

/// A file of a place, under a name of any bytes.
fn at(place: &Place, name: &[u8]) -> OsString {
    place.path().join(OsStr::from_bytes(name)).into_os_string()
}

/// `IMAGE:/path`.
fn inside(image: &OsStr, path: &[u8]) -> OsString {
    let mut all = image.to_owned();
    all.push(":");
    all.push(OsStr::from_bytes(path));
    all
}
