//! `extant mount` alone: what is mounted.

use crate::args::Mount;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::record::lossless;
use extant::Escaped;
use extant_fuse::MountedImage;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// A mount, for programs.
#[derive(Serialize)]
struct Line {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory_hex: Option<String>,
    read_only: bool,
    uid: u32,
}

impl Line {
    fn of(mount: &MountedImage) -> Self {
        let (image, image_hex) = lossless(mount.image.as_os_str().as_bytes());
        let (directory, directory_hex) = lossless(mount.point.as_os_str().as_bytes());
        Self {
            image,
            image_hex,
            directory,
            directory_hex,
            read_only: mount.read_only,
            uid: mount.user,
        }
    }
}

pub(super) fn run(args: &Mount) -> Outcome {
    let asks_for_a_mount = args.foreground || args.read_only || !args.options.is_empty();
    if asks_for_a_mount {
        return Err(Failure::usage(
            "an image and a directory are missing: `extant mount IMAGE DIR`, or `extant mount` alone to list what is \
             mounted",
        ));
    }
    let mut output = Output::new();
    for mount in extant_fuse::all_mounts().map_err(Failure::new)? {
        if args.json {
            output.json_line(&Line::of(&mount))?;
            continue;
        }
        // Each on a line of its own, whatever is in its name.
        writeln!(
            output,
            "{} on {} ({},user_id={})",
            Escaped::path(&mount.image),
            Escaped::path(&mount.point),
            if mount.read_only { "ro" } else { "rw" },
            mount.user,
        )?;
    }
    output.finish()
}
