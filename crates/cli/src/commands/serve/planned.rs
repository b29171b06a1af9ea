//! An image that exists as a plan, and is served.

use crate::args::Serve;
use crate::commands::mkfs::{self, Plan};
use crate::failure::{Failure, Outcome, say};
use extant::Escaped;
use extant_blockdev::{CowDevice, FileOptions, SharedDevice};
use extant_mkfs::PlannedDevice;
use extant_mkfs::source::SourceError;
use std::fmt::Display;
use std::sync::Arc;

/// Plans the image, and opens what takes its changes.
pub(super) fn disk(args: &Serve) -> Outcome<SharedDevice> {
    let mut remote = args.plan.sources.from.iter();
    if !args.no_sandbox
        && let Some(from) = remote.find_map(|from| mkfs::remote_name(from))
    {
        return Err(Failure::usage(format!(
            "--from {from}: the process that answers clients can make no connections; copy the \
             image here first, or serve to clients that you trust with --no-sandbox"
        )));
    }
    let mut plan = Plan::of_served(&args.plan)?;
    let from = plan.from().iter();
    let from: Vec<String> = from
        .map(|source| Escaped::path(source.path()).to_string())
        .collect();
    let name = format!("the image of {}", from.join(", "));
    let failed = |e: &dyn Display| Failure::new(format!("{name} cannot be served: {e}"));
    let tree = plan.tree(None, true).map_err(|e| failed(&e))?;
    let Some(tree) = tree else {
        return Err(failed(&"there is no source"));
    };
    let options = plan.build_options(Some(&tree)).map_err(|e| failed(&e))?;
    mkfs::warn_of_concerns(Some(&tree), &options);
    let device = PlannedDevice::new(tree, &options, name.as_str(), tell).map_err(|e| {
        if mkfs::is_impossible(&e) {
            Failure::usage(format!("{name} cannot be served: {e}"))
        } else {
            failed(&e)
        }
    })?;
    mkfs::warn_of_no_journal(&name, &options, &device.report());
    let planned: SharedDevice = Arc::new(device);
    if args.writable {
        let changes = for_changes(planned.size())?;
        let disk = CowDevice::new(planned, changes).map_err(|e| failed(&e))?;
        return Ok(Arc::new(disk));
    }
    Ok(planned)
}

/// Tells of a file that is not what it was.
fn tell(error: &SourceError) {
    say(format_args!(
        "warning: {error}: clients that read it get an I/O error"
    ));
}

/// A temporary file without a name for `size` bytes, which takes room for what is written only.
fn for_changes(size: u64) -> Outcome<SharedDevice> {
    let folder = std::env::temp_dir();
    let failed = |e: &dyn Display| {
        Failure::new(format!(
            "changes have no place: {}: {e} (TMPDIR names another directory)",
            Escaped::path(&folder)
        ))
    };
    let file = tempfile::tempfile_in(&folder).map_err(|e| failed(&e))?;
    let device = FileOptions::create(size).adopt(file, folder.join("changes"));
    Ok(Arc::new(device.map_err(|e| failed(&e))?))
}
