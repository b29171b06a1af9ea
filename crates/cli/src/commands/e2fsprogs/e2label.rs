//! `e2label`.

use super::place::Place;
use super::usage;
use crate::commands::tune;
use crate::failure::{Outcome, say};
use crate::output::Output;
use extant_fsck::repair::tune::Settings;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// How it is called.
const USAGE: &str = "Usage: e2label device [newlabel]";
/// Most bytes of a label.
const LABEL_MAX: usize = 16;

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> Outcome {
    let operands: Vec<OsString> = args.into_iter().collect();
    let (device, label) = match &operands[..] {
        [device] => (device, None),
        [device, label] => (device, Some(label)),
        _ => return Err(usage(USAGE)),
    };
    let place = Place::of(device.clone())?;
    let Some(label) = label else {
        let sb = tune::opened_superblock(place.image(), &place.location)?;
        let mut output = Output::new();
        output.name_line(sb.label())?;
        return output.finish();
    };
    let settings = Settings {
        label: Some(cut(label.as_bytes())),
        ..Settings::default()
    };
    tune::change(place.image(), &place.location, &settings, None)
}

/// A label, cut to what there is room for, which is said.
pub(super) fn cut(label: &[u8]) -> Vec<u8> {
    if label.len() > LABEL_MAX {
        say("Warning: label too long, truncating.");
    }
    label.get(..LABEL_MAX).unwrap_or(label).to_vec()
}
