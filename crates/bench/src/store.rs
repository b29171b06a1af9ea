//! Backing files and folders, fresh for every repetition and removed afterwards.

use crate::args::KernelForm;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Images up to this size have no holes: larger ones would not fit.
const FILLED_MIB: u64 = 16 << 10;

/// A scratch folder on the measured file system; removed on drop.
pub(crate) struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    /// A new scratch folder below `parent`.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("extant-bench-")
            .tempdir_in(parent)?;
        Ok(Self { dir })
    }

    /// The path of `name` in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A fresh image for a run: made by `mke2fs` for the form asked for, every byte of the file
    /// backed by memory, so that nobody's time has the host's allocation in it. One larger than
    /// [`FILLED_MIB`] keeps its holes.
    ///
    /// # Errors
    /// When `mke2fs` fails or there is no room.
    pub(crate) fn fresh_image(
        &self,
        form: KernelForm,
        shape: ImageShape,
    ) -> Result<PathBuf, String> {
        let name = match form {
            KernelForm::OrphanFile => "template-orphan-file",
            KernelForm::Plain | KernelForm::DirectIo => "template",
        };
        let blocks = shape.block_size.unwrap_or(0);
        let (mib, inodes) = (shape.mib, shape.inodes);
        let template = self.path(&format!("{name}-{mib}-{inodes}-{blocks}"));
        if !template.exists() {
            shape.format(form, &template)?;
        }
        self.copy_of(&template)
    }

    /// A copy for a run of an image that was prepared, backed by memory as a fresh one is.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn copy_of(&self, template: &Path) -> Result<PathBuf, String> {
        let image = self.path("image");
        let _ = std::fs::remove_file(&image);
        let failed = |e: io::Error| format!("{}: {e}", image.display());
        let len = template.metadata().map_err(failed)?.len();
        let copied = if len <= FILLED_MIB << 20 {
            copy_filled(template, &image)
        } else {
            copy_sparse(template, &image)
        };
        copied.map_err(failed)?;
        Ok(image)
    }
}

/// What `mke2fs` is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageShape {
    /// Size in MiB.
    pub(crate) mib: u64,
    /// Inodes.
    pub(crate) inodes: u64,
    /// Bytes of a block; what `mke2fs` thinks best if `None`.
    pub(crate) block_size: Option<u32>,
}

impl ImageShape {
    /// Makes an empty image, with holes.
    ///
    /// # Errors
    /// When `mke2fs` fails.
    pub(crate) fn format(self, form: KernelForm, image: &Path) -> Result<(), String> {
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4"]);
        // Otherwise the kernel's side would initialise them while it is measured.
        mke2fs.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        if form == KernelForm::OrphanFile {
            mke2fs.args(["-O", "orphan_file"]);
        }
        if let Some(bytes) = self.block_size {
            mke2fs.args(["-b", &bytes.to_string()]);
        }
        mke2fs.args(["-N", &self.inodes.to_string()]);
        mke2fs.arg(image).arg(format!("{}M", self.mib));
        let output = mke2fs.output().map_err(|e| format!("mke2fs: {e}"))?;
        if output.status.success() {
            Ok(())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("mke2fs: {}", said.trim()))
        }
    }
}

/// Copies a file, writing its holes too.
fn copy_filled(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            n => to.write_all(&buffer[..n])?,
        }
    }
}

/// Copies a file, and leaves its holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create_new(to)?);
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let begin = match rustix::fs::seek(&from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        at = rustix::fs::seek(&from, SeekFrom::Hole(begin))?;
        let mut done = begin;
        while done < at {
            let most = usize::try_from(at - done)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let piece = buffer.get_mut(..most).unwrap_or_default();
            from.read_exact_at(piece, done)?;
            to.write_all_at(piece, done)?;
            done += most as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn one_that_is_too_large_for_memory_keeps_its_holes() {
        let store = Store::new(&std::env::temp_dir()).unwrap();
        let shape = ImageShape {
            mib: FILLED_MIB + 1,
            inodes: 1000,
            block_size: None,
        };
        let image = store.fresh_image(KernelForm::Plain, shape).unwrap();
        let found = std::fs::metadata(&image).unwrap();
        assert_eq!(found.len(), (FILLED_MIB + 1) << 20);
        assert!(found.blocks() * 512 < found.len() / 4);
        let checked = Command::new("e2fsck")
            .arg("-fn")
            .arg(&image)
            .output()
            .unwrap();
        assert!(checked.status.success());
    }

    #[test]
    fn a_fresh_image_has_no_holes() {
        let store = Store::new(&std::env::temp_dir()).unwrap();
        let shape = ImageShape {
            mib: 16,
            inodes: 1000,
            block_size: None,
        };
        for form in [KernelForm::Plain, KernelForm::OrphanFile, KernelForm::Plain] {
            let image = store.fresh_image(form, shape).unwrap();
            let found = std::fs::metadata(&image).unwrap();
            assert_eq!(found.len(), 16 << 20);
            assert!(
                found.blocks() * 512 >= 16 << 20,
                "{} sectors",
                found.blocks()
            );
        }
    }
}
