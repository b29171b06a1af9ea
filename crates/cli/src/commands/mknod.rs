//! `extant mknod`.

use crate::args::{Mknod, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::images::change_each;
use crate::mode::ModeChange;
use crate::owner::Giving;
use extant::{DeviceNumber, FileType};

/// Permissions unless said otherwise.
const MODE: u16 = 0o644;

pub(super) fn run(args: &Mknod, location: &Whereabouts) -> Outcome {
    let mode = match &args.mode {
        None => MODE,
        // Changes are those of a file that everybody may read and write.
        Some(text) => ModeChange::parse(text)
            .map_err(Failure::usage)?
            .apply(0o666, false),
    };
    let kind = match args.kind.as_str() {
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        _ => FileType::CharDevice,
    };
    let device = match (kind, args.major, args.minor) {
        (FileType::BlockDevice | FileType::CharDevice, Some(major), Some(minor)) => {
            DeviceNumber { major, minor }
        }
        (FileType::BlockDevice | FileType::CharDevice, ..) => {
            return Err(Failure::usage("a device needs its major and minor number"));
        }
        (_, None, None) => DeviceNumber::default(),
        _ => {
            return Err(Failure::usage("pipes and sockets have no numbers"));
        }
    };
    let giving = Giving::of(&args.owner)?;
    change_each(std::slice::from_ref(&args.path), location, |fs, at, _| {
        let owner = giving.look_up(fs)?;
        let made = fs.create_special(&at.path, kind, device, mode);
        let given = made.and_then(|()| match owner {
            Some(owner) => owner.give(fs, &at.path, Some(mode)),
            None => Ok(()),
        });
        given.map_err(|e| at.failure(&e))
    })
}
