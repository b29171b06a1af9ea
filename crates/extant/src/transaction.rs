//! Changes that are made as a whole, or not at all.

use crate::spool::Changes;
use crate::{Error, Filesystem, MountOptions, Result};
use extant_blockdev::SharedDevice;
use extant_core::Error as EngineError;
use extant_core::mount::Staged;
use extant_image::{How, ImageLocation};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Several changes of an image that are made as a whole: all of them are in the image when
/// [`commit`](Self::commit) returns without an error, and none before, nor after a crash or a
/// failure on the way. Dropping it forgets them.
///
/// Changes are kept in memory until then up to 4 MiB, and beyond that in a temporary file without a
/// name (in the directory that `TMPDIR` names), which needs room for what is changed. On commit,
/// content of new blocks is written to blocks that were free, and everything else as one
/// transaction of the file system's own journal
/// ([jbd2](https://docs.kernel.org/filesystems/ext4/journal.html)): Linux and e2fsck, should they
/// be the first to look after a crash, find all of it or nothing.
///
/// No threads work in the background, as nothing of what they would make durable counts before the
/// commit.
///
/// What does not fit into the journal, or has none, is written to free blocks first. While it goes
/// to its places the superblock has a feature that nothing else knows: until the next opening here
/// has finished the work, Linux does not mount the file system, and e2fsck does not touch it.
///
/// ```no_run
/// use extant::Transaction;
///
/// # fn main() -> extant::Result<()> {
/// let transaction = Transaction::open("disk.img")?;
/// let fs = transaction.filesystem();
/// fs.write("/etc/hostname", "node7\n")?;
/// fs.remove_file("/etc/machine-id")?;
/// transaction.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Transaction {
    // Closed first: what it would write on closing is forgotten.
    fs: Filesystem,
    staged: Staged,
    name: PathBuf,
}

/// What a [`Transaction`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// Blocks that were free before, and have been written to their places.
    pub new_blocks: u64,
    /// Blocks that went through the journal.
    pub journaled_blocks: u64,
    /// Blocks that waited in free ones, for want of a journal that has room for them.
    pub waited_blocks: u64,
}

impl Transaction {
    /// Opens the image or block device at `path`, which is read as by [`Filesystem::open`], for
    /// changes that are made as a whole. Nobody else can open it for writing meanwhile.
    ///
    /// Nothing is written to the image before [`Transaction::commit`]: a journal that was not
    /// closed cleanly is replayed among the changes, and then by the commit. There are two
    /// exceptions. Changes of an earlier transaction that wait to be put in place are, and the
    /// block of multiple-mount protection (`mmp`), where there is one, says that the image is open.
    ///
    /// # Errors
    /// As for [`Filesystem::open_writable`]; for a file system of revision 0 of the format, which
    /// has no features.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let location = ImageLocation::parse(path.as_ref()).map_err(|e| {
            let source = extant_blockdev::DeviceError::from(e).into();
            Error::engine(PathBuf::new(), source)
        })?;
        Self::open_location(&location, &How::writing(), MountOptions::read_write())
    }

    /// Opens the file system at a location, if both `how` and `options` say that it is written to.
    ///
    /// # Errors
    /// As for [`Transaction::open`].
    pub fn open_location(
        location: &ImageLocation,
        how: &How,
        options: MountOptions,
    ) -> Result<Self> {
        let name = location.name();
        match location.open(how) {
            Ok(device) => Self::open_device(device, Path::new(&name), options),
            // Errors of devices name the device themselves.
            Err(e) => Err(Error::engine(PathBuf::new(), e.into())),
        }
    }

    /// Opens the file system on a device, which errors about the file system as a whole call
    /// `name`.
    ///
    /// # Errors
    /// As for [`Transaction::open`].
    pub fn open_device(
        device: SharedDevice,
        name: impl Into<PathBuf>,
        options: MountOptions,
    ) -> Result<Self> {
        let name = name.into();
        let spool = Changes::device(device.size());
        let options = options.background(false);
        let staged = Staged::begin(device, spool, options).map_err(|e| whole(&name, e))?;
        Ok(Self::over(staged, name))
    }

    /// Opens the file system on a device for changes that are never committed, to see what would
    /// come of them; errors about the file system as a whole call it `name`. Nothing at all is
    /// written to the device: changes of an earlier transaction that wait to be put in place are
    /// shown there, and multiple-mount protection (`mmp`) does not say that it is open. Whether
    /// somebody else has it open is seen all the same.
    ///
    /// # Errors
    /// As for [`Transaction::open`]. [`Transaction::commit`] refuses.
    pub fn rehearse_device(
        device: SharedDevice,
        name: impl Into<PathBuf>,
        options: MountOptions,
    ) -> Result<Self> {
        let name = name.into();
        let spool = Changes::device(device.size());
        let options = options.background(false);
        let staged = Staged::rehearse(device, spool, options).map_err(|e| whole(&name, e))?;
        Ok(Self::over(staged, name))
    }

    fn over(staged: Staged, name: PathBuf) -> Self {
        let fs = Filesystem::mounted(Arc::clone(staged.fs()));
        Self { fs, staged, name }
    }

    /// Returns the file system as it is with the changes so far. It takes no more changes after
    /// [`Transaction::commit`].
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.fs
    }

    /// Closes the file system, has `change` change its device as it is with the changes so far, and
    /// opens it again: for what is done to file systems that are not open, such as giving one
    /// another UUID. What was opened before can be read on, and changed no more.
    ///
    /// # Errors
    /// What `change` returns; a file system that cannot be closed, or opened again. Then nothing
    /// can be committed any more.
    pub fn change_closed<E: From<Error>>(
        &mut self,
        change: impl FnOnce(&SharedDevice) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let changed = self
            .staged
            .change_closed(|device| change(device).map_err(Failed::Theirs));
        self.fs = Filesystem::mounted(Arc::clone(self.staged.fs()));
        changed.map_err(|e| match e {
            Failed::Engine(e) => whole(&self.name, e).into(),
            Failed::Theirs(e) => e,
        })
    }

    /// Has `change` make some of the changes, all of them or none: if it fails, the transaction is
    /// as it was before, and can go on. `change` is given a transaction with the changes so far.
    /// The file system is closed for that, and opened again: what was opened before can be read on,
    /// and changed no more.
    ///
    /// ```no_run
    /// use extant::Transaction;
    ///
    /// # fn main() -> extant::Result<()> {
    /// let mut transaction = Transaction::open("disk.img")?;
    /// for dir in ["/srv/cache", "/srv/missing/cache"] {
    ///     let made = transaction.attempt(|some| {
    ///         some.filesystem().create_dir(dir)?;
    ///         some.filesystem().write(format!("{dir}/CACHEDIR.TAG"), "")
    ///     });
    ///     if let Err(why) = made {
    ///         eprintln!("{dir} is left out: {why}");
    ///     }
    /// }
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `change` returns. A file system that cannot be closed, or opened again: then nothing
    /// can be committed any more.
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        change: impl FnOnce(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let spool = Changes::device(self.staged.size());
        let name = self.name.clone();
        let done = self.staged.attempt(spool, |staged| {
            let mut trial = Self::over(staged, name);
            let done = change(&mut trial).map_err(Failed::Theirs)?;
            Ok((done, trial.staged))
        });
        self.fs = Filesystem::mounted(Arc::clone(self.staged.fs()));
        done.map_err(|e| match e {
            Failed::Engine(e) => whole(&self.name, e).into(),
            Failed::Theirs(e) => e,
        })
    }

    /// Puts the changes into the image. They are durable when this returns.
    ///
    /// # Errors
    /// When what is changed in place fits neither into the journal nor into free blocks, or the
    /// device fails: nothing is changed then. A device that fails in the moment of the commit, or
    /// after it, gives an error that says so: then all of it is there or nothing, or the next
    /// opening for writing puts the changes in place.
    pub fn commit(self) -> Result<Committed> {
        let Self { fs, staged, name } = self;
        let report = staged.commit().map_err(|e| whole(&name, e))?;
        drop(fs);
        Ok(Committed {
            new_blocks: report.placed,
            journaled_blocks: report.logged,
            waited_blocks: report.waited,
        })
    }
}

impl Filesystem {
    /// Changes the image at `path` as a whole, or not at all: what `change` does is in the image
    /// when this returns `Ok`, and nothing of it when `change` fails, or a crash comes first.
    ///
    /// ```no_run
    /// use extant::Filesystem;
    ///
    /// # fn main() -> extant::Result<()> {
    /// Filesystem::transaction("disk.img", |fs| {
    ///     fs.create_dir_all("/srv/app")?;
    ///     fs.write("/srv/app/version", "7\n")?;
    ///     fs.rename("/srv/app/version", "/srv/version")
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `change` returns, and as for [`Transaction::open`] and [`Transaction::commit`].
    pub fn transaction<T, E: From<Error>>(
        path: impl AsRef<Path>,
        change: impl FnOnce(&Filesystem) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let transaction = Transaction::open(path)?;
        let done = change(transaction.filesystem())?;
        transaction.commit()?;
        Ok(done)
    }
}

/// Why a closed file system was not changed.
enum Failed<E> {
    Engine(EngineError),
    Theirs(E),
}

impl<E> From<EngineError> for Failed<E> {
    fn from(e: EngineError) -> Self {
        Self::Engine(e)
    }
}

/// An error about the file system as a whole; those of devices name the device themselves.
fn whole(name: &Path, e: EngineError) -> Error {
    match e {
        e @ EngineError::Device(_) => Error::engine(PathBuf::new(), e),
        e => Error::engine(name, e),
    }
}
