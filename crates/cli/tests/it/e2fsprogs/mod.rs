//! The command under the names of programs of e2fsprogs, beside the real ones: what they make, how
//! they end, and the lines that scripts look for.

mod builders;
mod closed_output;
mod dumpe2fs;
mod e2fsck;
mod mke2fs;
mod resize2fs;
mod tune2fs;

use crate::support::{Place, extant};
use extant_testkit::oracle::dumpe2fs;
use extant_testkit::tool::{Output, Tool, tool};
use std::collections::BTreeMap;
use std::path::Path;

/// What identity, time and luck decide, or the order of steps.
pub(crate) const VARYING: &[&str] = &[
    "Filesystem UUID",
    "Filesystem created",
    "Last mount time",
    "Last write time",
    "Last checked",
    "Lifetime writes",
    "Directory Hash Seed",
    "Checksum",
    "Checksum seed",
    "Journal checksum",
    "mmp_magic",
    "mmp_check_interval",
    "mmp_sequence",
    "mmp_update_date",
    "mmp_update_time",
    "mmp_node_name",
    "mmp_device_name",
];

/// Links by the names of the programs.
struct Links {
    place: Place,
}

impl Links {
    fn new() -> Self {
        let place = Place::new();
        std::fs::create_dir(place.join("bin")).expect("a directory");
        extant(["links", &place.arg("bin")]).ok();
        Self { place }
    }

    fn arg(&self, name: &str) -> String {
        self.place.arg(name)
    }

    /// Ours.
    fn ours(&self, name: &str) -> Tool {
        tool(&self.arg(&format!("bin/{name}")))
    }

    /// Ours or the real one, in an environment that others do not change.
    fn program(&self, name: &str, is_ours: bool) -> Tool {
        let program = if is_ours { self.ours(name) } else { tool(name) };
        program.env("MKE2FS_SKIP_PROGRESS", "1")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The fields and groups of an image, as the real dumpe2fs shows them, without what varies. Whether
/// tables are zeroed is another test's: in a new file ours say so, since they are.
fn shown(image: &Path) -> (BTreeMap<String, String>, Vec<String>) {
    let dump = dumpe2fs(image);
    let mut fields = dump.fields;
    fields.retain(|name, _| !VARYING.contains(&&**name));
    let groups = dump.groups.into_iter().map(|mut group| {
        group.checksum = None;
        group.flags.remove("ITABLE_ZEROED");
        format!("{group:?}")
    });
    (fields, groups.collect())
}

/// Expects two images to be the same but for what varies.
#[track_caller]
fn assert_alike(ours: &Path, theirs: &Path, what: &str) {
    let ((ours, our_groups), (theirs, their_groups)) = (shown(ours), shown(theirs));
    for (name, value) in &theirs {
        assert_eq!(ours.get(name), Some(value), "{what}: {name}");
    }
    let names = |fields: &BTreeMap<String, String>| fields.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs), "{what}");
    for (ours, theirs) in our_groups.iter().zip(&their_groups) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(our_groups.len(), their_groups.len(), "{what}");
}
