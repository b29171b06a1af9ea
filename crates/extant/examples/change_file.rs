//! Replaces a file of an image, so that a crash leaves either the old content or the new one.
//!
//! ```console
//! cargo run -p extant --example change_file -- disk.img /etc/motd 'Welcome'
//! ```

use extant::{Error, Filesystem, OpenOptions};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, path, text] = args.as_slice() else {
        return Err("give an image, a path in it, and a text".into());
    };
    let mut content = text.to_owned().into_encoded_bytes();
    content.push(b'\n');
    replace(Path::new(image), Path::new(path), &content)?;
    Ok(())
}

/// Makes `content` the content of the file at `path`. Directories that do not exist are made.
pub(crate) fn replace(image: &Path, path: &Path, content: &[u8]) -> Result<(), Error> {
    // Refused when another program has the image open for writing, or has it mounted.
    let fs = Filesystem::open_writable(image)?;
    if let Some(dir) = path.parent() {
        fs.create_dir_all(dir)?;
    }
    // Under another name at first, durable before it takes the place of the old file.
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(&fs, &new)?;
    file.write_all_at(content, 0)?;
    file.sync_all()?;
    fs.rename(&new, path)?;
    drop(file);
    // Makes the rename durable, and tells when that fails.
    fs.close()
}
