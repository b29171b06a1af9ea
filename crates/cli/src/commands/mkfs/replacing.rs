//! What an image would take the place of, and whether it may.

use crate::commands::e2fsprogs::Called;
use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_blockdev::BlockDevice;
use extant_mkfs::output::Replaces;
use extant_mkfs::standing::{Identity, Room, Standing, standing, standing_on};
use std::io::{IsTerminal, Write, stderr, stdin};
use std::ops::Range;
use std::path::Path;

/// Refuses to replace what is in use, and, unless forced or told so at the terminal, what `extant
/// mkfs` has not made. Returns what may be replaced, which is what was looked at.
pub(in crate::commands) fn check(
    image: &Path,
    window: Option<&Range<u64>>,
    identity: &Identity,
    force: bool,
) -> Outcome<Replaces> {
    replaces(image, window, Some(identity), force)
}

/// As [`check`], for what is no build that runs again: a file system that was changed since it was
/// made is not replaced either.
pub(in crate::commands) fn check_precious(image: &Path, force: bool) -> Outcome<Replaces> {
    replaces(image, None, None, force)
}

/// `identity` is what a build asks for by name.
fn replaces(
    image: &Path,
    window: Option<&Range<u64>>,
    identity: Option<&Identity>,
    force: bool,
) -> Outcome<Replaces> {
    // Before it is looked at: what takes the name afterwards was not.
    let seen = Replaces::what_is_at(image);
    let found = standing(image, window, identity).map_err(Failure::new)?;
    let place = Escaped::path(image);
    let place = match window {
        None => format!("{place}"),
        Some(window) => format!("{place} at byte {}", window.start),
    };
    decide(&place, found, force, identity.is_some())?;
    Ok(if force { Replaces::Anything } else { seen })
}

/// As [`check`], for a device that is open and is called `image`.
pub(super) fn check_on(
    image: &Path,
    device: &dyn BlockDevice,
    room: Room,
    identity: &Identity,
    force: bool,
) -> Outcome {
    let found = standing_on(device, room, Some(identity)).map_err(Failure::new)?;
    decide(&Escaped::path(image).to_string(), found, force, true)
}

fn decide(place: &str, found: Standing, force: bool, is_build: bool) -> Outcome {
    let what = match found {
        Standing::Vacant | Standing::Own { changed: false } => return Ok(()),
        // A build that runs again may; a person is asked.
        Standing::Own { changed: true } if force || (is_build && !asks()) => return Ok(()),
        Standing::Own { changed: true } => {
            "a file system that was changed since it was made".to_owned()
        }
        Standing::Other(_) if force => return Ok(()),
        Standing::Other(what) => what,
    };
    if !asks() {
        return Err(Failure::new(format!(
            "{place} contains {what}: --force replaces it"
        )));
    }
    if answer(&format!("{place} contains {what}. Replace it?")) {
        Ok(())
    } else {
        Err(Failure::new(format!("{place} was left as it is")))
    }
}

/// Whether there is a person to ask.
pub(in crate::commands) fn asks() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks a question; anything but a yes is a no.
fn answer(question: &str) -> bool {
    let mut line = String::new();
    let name = Called::now().map_or("extant", |called| called.name);
    let asked = write!(stderr(), "{name}: {question} [y/N] ").and_then(|()| stderr().flush());
    asked.is_ok()
        && stdin().read_line(&mut line).is_ok()
        && matches!(line.trim(), "y" | "Y" | "yes" | "Yes" | "YES")
}
