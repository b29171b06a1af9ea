//! `extant links`.

use super::e2fsprogs::Called;
use crate::args::Links;
use crate::failure::{Failure, Outcome};
use extant::Escaped;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

pub(super) fn run(args: &Links) -> Outcome {
    let failed = |path: &Path, e: &dyn std::fmt::Display| {
        Failure::new(format!("{} cannot be made: {e}", Escaped::path(path)))
    };
    let target = match &args.target {
        Some(target) => target.clone(),
        None => std::env::current_exe()
            .map_err(|e| Failure::new(format!("where this program lies is not known: {e}")))?,
    };
    for name in Called::names() {
        let link = args.dir.join(name);
        let is_ours = || std::fs::read_link(&link).is_ok_and(|found| found == target);
        match symlink(&target, &link) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists && is_ours() => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Err(failed(
                    &link,
                    &"something else is there, and is left as it is",
                ));
            }
            Err(e) => return Err(failed(&link, &e)),
        }
    }
    Ok(())
}
