//! Shows a file of an image, or what is in a directory of it. The image is not written to.
//!
//! ```console
//! cargo run -p extant --example read_file -- disk.img /etc/hostname
//! ```

use extant::Filesystem;
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, path] = args.as_slice() else {
        return Err("give an image, and a path in it".into());
    };
    show(Path::new(image), Path::new(path), &mut io::stdout().lock())
}

/// Writes what is at `path` to `out`.
pub(crate) fn show(image: &Path, path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let fs = Filesystem::open(image)?;
    // What a user should know although it opened, such as errors that the file system remembers.
    for notice in fs.notices().iter().filter(|notice| notice.is_warning()) {
        eprintln!("warning: {notice}");
    }
    if fs.metadata(path)?.is_dir() {
        for entry in fs.read_dir(path)? {
            let entry = entry?;
            let len = entry.metadata()?.len();
            writeln!(out, "{len:>12} {}", entry.file_name().display())?;
        }
        return Ok(());
    }
    io::copy(&mut fs.open_file(path)?, out)?;
    Ok(())
}
