//! Opening file systems, by name and on devices, in each of the ways that flags ask for.

use crate::call::Failure;
use crate::constants::{MEND, TRANSACTION, WRITABLE};
use crate::device::how;
use crate::types::{Fs, Mended, Options};
use extant::image::ImageLocation;
use extant::{Filesystem, MountOptions, SharedDevice, Transaction};
use std::path::{Path, PathBuf};

/// Opens what is at a name or address.
pub(crate) fn by_name(
    image: &Path,
    options: &Options,
    format: Option<&str>,
    journal: Option<SharedDevice>,
) -> Result<Fs, Failure> {
    let mount = mount_options(options, journal)?;
    let location = ImageLocation::parse(image)?;
    let how = how(options, format)?;
    if options.flags & TRANSACTION != 0 {
        return Ok(staged(Transaction::open_location(&location, &how, mount)?));
    }
    if options.flags & MEND != 0 {
        return mended_at(&location, &how, mount);
    }
    let fs = Filesystem::open_location(&location, &how, mount)?;
    Ok(Fs(fs, None, Mended::default()))
}

/// Opens what is on a device.
pub(crate) fn on_device(
    device: SharedDevice,
    options: &Options,
    journal: Option<SharedDevice>,
) -> Result<Fs, Failure> {
    let mount = mount_options(options, journal)?;
    if options.flags & TRANSACTION != 0 {
        let name = PathBuf::from(device.name());
        return Ok(staged(Transaction::open_device(device, name, mount)?));
    }
    if options.flags & MEND != 0 {
        return mended_on(&device, mount);
    }
    let fs = Filesystem::open_device(device, mount)?;
    Ok(Fs(fs, None, Mended::default()))
}

fn mount_options(
    options: &Options,
    journal: Option<SharedDevice>,
) -> Result<MountOptions, Failure> {
    options.check_flags(WRITABLE | TRANSACTION | MEND)?;
    if options.flags & MEND != 0 && options.flags != MEND {
        let text = "EXTANT_MEND goes with no other flag: what it opens is only read";
        return Err(Failure::invalid(text));
    }
    if journal.is_some() && options.writes() {
        let text = "extant_options.journal is for reading only";
        return Err(Failure::invalid(text));
    }
    let mut mount = if options.writes() {
        MountOptions::read_write()
    } else {
        MountOptions::read_only()
    };
    mount.journal_device = journal;
    if options.cache_bytes != 0 {
        mount.cache_bytes = Some(usize::try_from(options.cache_bytes).unwrap_or(usize::MAX));
    }
    Ok(mount)
}

fn staged(transaction: Transaction) -> Fs {
    let fs = transaction.filesystem().clone();
    Fs(fs, Some(transaction), Mended::default())
}

#[cfg(feature = "mend")]
fn mended_at(
    location: &ImageLocation,
    how: &extant::image::How,
    options: MountOptions,
) -> Result<Fs, Failure> {
    let (fs, mended) = Filesystem::open_location_mended(location, how, options)?;
    Ok(Fs(fs, None, (&mended).into()))
}

#[cfg(feature = "mend")]
fn mended_on(device: &SharedDevice, options: MountOptions) -> Result<Fs, Failure> {
    let mut how = extant::mend::MendOptions::default();
    how.journal = options.journal_device.clone();
    let mended = extant::mend::mend(device, &how)?;
    let fs = Filesystem::on_mended(&mended, options)?;
    Ok(Fs(fs, None, (&mended).into()))
}

#[cfg(not(feature = "mend"))]
fn mended_at(_: &ImageLocation, _: &extant::image::How, _: MountOptions) -> Result<Fs, Failure> {
    Err(no_mend())
}

#[cfg(not(feature = "mend"))]
fn mended_on(_: &SharedDevice, _: MountOptions) -> Result<Fs, Failure> {
    Err(no_mend())
}

#[cfg(not(feature = "mend"))]
fn no_mend() -> Failure {
    Failure::unsupported("EXTANT_MEND: this library was built without the feature mend")
}

#[cfg(feature = "mend")]
pub(crate) fn is_in_doubt(fs: &Filesystem, ino: u32) -> bool {
    fs.is_in_doubt(ino)
}

#[cfg(not(feature = "mend"))]
pub(crate) fn is_in_doubt(_: &Filesystem, _: u32) -> bool {
    false
}
