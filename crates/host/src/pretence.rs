//! Whether a program that pretends owners and devices is asked for, and whether this process hears
//! it.
//!
//! `fakeroot` and `pseudo` are loaded in front of the C library by `LD_PRELOAD`. A program that is
//! linked statically, or one that the loader does not do this for, runs without them and sees the
//! files as they really are: all of them the user's own, devices as empty files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// What the libraries of pretending programs are called.
const LIBRARIES: [&str; 2] = ["libfakeroot", "libpseudo"];

/// Returns whether a program that pretends owners and devices stands in front of the C library of
/// this process.
#[must_use]
pub fn is_pretended() -> bool {
    static HEARD: OnceLock<bool> = OnceLock::new();
    *HEARD
        .get_or_init(|| asked_for(std::env::var_os("LD_PRELOAD").as_deref()).is_some_and(is_loaded))
}

/// Refuses where such a program is asked for and this process does not hear it: it would take every
/// file for one of the user's own.
///
/// # Errors
/// A sentence that says so, and what to do.
pub fn refuse_if_unheard() -> Result<(), String> {
    let preload = std::env::var_os("LD_PRELOAD");
    match unheard(preload.as_deref(), is_switched_off(), is_loaded) {
        None => Ok(()),
        Some(library) => Err(format!(
            "LD_PRELOAD asks for {library}, which pretends owners and devices, but this program runs without it (it is \
             linked statically, or the library cannot be loaded): it would see every file as yours. Make a tar archive \
             under the same program and use that, or take an `extant` that is linked dynamically"
        )),
    }
}

/// The library that is asked for and not heard.
fn unheard(
    preload: Option<&OsStr>,
    is_switched_off: bool,
    is_loaded: impl Fn(&str) -> bool,
) -> Option<&'static str> {
    asked_for(preload).filter(|library| !is_switched_off && !is_loaded(library))
}

/// The library of a pretending program in the list that the loader is given.
fn asked_for(preload: Option<&OsStr>) -> Option<&'static str> {
    let list = preload?.as_bytes();
    let names = |name: &str| list.windows(name.len()).any(|part| part == name.as_bytes());
    LIBRARIES.into_iter().find(|name| names(name))
}

fn is_loaded(library: &str) -> bool {
    // Without /proc nothing is known; then nobody is refused.
    std::fs::read("/proc/self/maps").map_or(true, |maps| {
        maps.windows(library.len())
            .any(|part| part == library.as_bytes())
    })
}

/// Whether `pseudo` was told to pretend nothing.
fn is_switched_off() -> bool {
    let value: Option<OsString> = std::env::var_os("PSEUDO_DISABLED");
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_asked_for_and_not_loaded_is_unheard() {
        let fakeroot = OsStr::new("/usr/$LIB/libfakeroot/libfakeroot-sysv.so");
        let never = |_: &str| false;
        assert_eq!(unheard(Some(fakeroot), false, never), Some("libfakeroot"));
        assert_eq!(unheard(Some(fakeroot), false, |_| true), None);
        assert_eq!(unheard(Some(fakeroot), true, never), None);
        let several = OsStr::new("libjemalloc.so:libpseudo.so");
        assert_eq!(unheard(Some(several), false, never), Some("libpseudo"));
        assert_eq!(unheard(Some(OsStr::new("libc.so")), false, never), None);
        assert_eq!(unheard(None, false, never), None);
    }
}
