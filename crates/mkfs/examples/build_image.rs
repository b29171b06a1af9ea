//! Makes an image of a directory: as small as it can be with some room for changes, and the same
//! bytes whenever the directory is the same.
//!
//! ```console
//! cargo run -p extant-mkfs --example build_image -- ./rootfs rootfs.img
//! ```

use extant_mkfs::source::{SourceOptions, read_source};
use extant_mkfs::{BuildOptions, FormatOptions, Headroom, Report, Silent, Size};
use std::error::Error;
use std::path::Path;

/// Time of creation of the file system, in seconds since 1970.
const TIME: u64 = 1_700_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [source, image] = args.as_slice() else {
        return Err("give a directory or an archive, and the name of the image".into());
    };
    let report = build(Path::new(source), Path::new(image))?;
    println!("{} blocks of {} bytes", report.blocks, report.block_size);
    Ok(())
}

/// Makes the image, which appears under its name when it is complete.
pub(crate) fn build(source: &Path, image: &Path) -> Result<Report, Box<dyn Error>> {
    // Names, owners, times and attributes are read now, data when it is written.
    let tree = read_source(source, SourceOptions::default())?;
    // The identity follows from the content. Features are those of `mke2fs -t ext4`.
    let mut format = FormatOptions::reproducible(0, TIME, &tree.fingerprint());
    format.label = b"example".to_vec();
    let options = BuildOptions::new(format, Size::Auto(Headroom::Percent(10.0)));
    Ok(extant_mkfs::build(
        Some(&tree),
        image,
        None,
        &options,
        &Silent,
    )?)
}
