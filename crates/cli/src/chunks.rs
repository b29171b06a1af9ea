//! Images that are made in chunks: an index, and a store that other images share.

use crate::failure::{Failure, Outcome};
use crate::image_path::{shown, whole_image};
use crate::size;
use extant_formats::Format;
use extant_mkfs::output::{OutputError, Replaces};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Names the store of chunks, for reading and for making.
pub(crate) const VARIABLE: &str = "EXTANT_CHUNK_STORE";

/// How an image is to be made in chunks.
#[derive(Debug)]
pub(crate) struct Chunking {
    /// The directory of the store.
    pub(crate) store: PathBuf,
    /// Smallest size, average and largest size in bytes, if they were said.
    #[cfg_attr(
        not(feature = "remote"),
        expect(dead_code, reason = "what makes chunks reads it")
    )]
    pub(crate) sizes: Option<[u64; 3]>,
}

/// What was made, for programs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Chunked {
    pub(crate) chunks: u64,
    pub(crate) new_chunks: u64,
    pub(crate) new_bytes: u64,
}

impl Chunking {
    /// Takes options apart: the store that `--store` names, or the environment, or the one beside
    /// the index; and the sizes of `--chunk-size`. Returns `None` for other formats, which have no
    /// such options.
    pub(crate) fn of(
        format: Format,
        image: &Path,
        store: Option<&Path>,
        sizes: Option<&str>,
    ) -> Outcome<Option<Self>> {
        if format != Format::Caibx {
            return if store.is_some() || sizes.is_some() {
                Err(Failure::usage(
                    "--store and --chunk-size go with --format caibx",
                ))
            } else {
                Ok(None)
            };
        }
        let named = || std::env::var_os(VARIABLE).filter(|store| !store.is_empty());
        let store = match store {
            Some(store) => store.as_os_str().to_owned(),
            None => named().unwrap_or_else(|| beside(image)),
        };
        let store = PathBuf::from(store);
        if store.to_str().is_some_and(|store| store.contains("://")) {
            // Without the secrets of the address, and without one that nothing is known of.
            let named = whole_image(store.as_os_str())
                .map_or_else(|_| "the store of chunks".to_owned(), |image| shown(&image));
            return Err(Failure::usage(format!(
                "{named} is no directory, and chunks are put into one: name it in {VARIABLE}, or to \
                 `extant convert` with --store, and upload what is new there, such as with rclone \
                 copy"
            )));
        }
        Ok(Some(Self {
            store,
            sizes: sizes.map(read_sizes).transpose()?,
        }))
    }
}

/// `AVERAGE`, or `MIN:AVERAGE:MAX`.
fn read_sizes(text: &str) -> Outcome<[u64; 3]> {
    let wrong = |reason: String| Failure::usage(format!("--chunk-size {text}: {reason}"));
    let sizes: Result<Vec<u64>, String> = text.split(':').map(size::parse).collect();
    let sizes = match sizes.map_err(wrong)?[..] {
        [average] => [average / 4, average, average.saturating_mul(4)],
        [min, average, max] => [min, average, max],
        _ => {
            return Err(wrong(
                "write the average, or the smallest size, the average and the largest size: \
                 16K:64K:256K"
                    .to_owned(),
            ));
        }
    };
    check_sizes(sizes).map_err(wrong)?;
    Ok(sizes)
}

#[cfg(feature = "remote")]
fn check_sizes([min, average, max]: [u64; 3]) -> Result<(), String> {
    let sizes = extant_remote::ChunkSizes::new(min, average, max);
    sizes.map(drop).map_err(|e| e.to_string())
}

#[cfg(feature = "remote")]
fn beside(image: &Path) -> OsString {
    extant_remote::chunk_store_beside(image.as_os_str())
}

/// Cuts a disk into chunks, puts them into the store, and makes the index.
#[cfg(feature = "remote")]
pub(crate) fn write(
    image: &Path,
    replaces: Replaces,
    disk: &dyn extant_blockdev::BlockDevice,
    how: &Chunking,
    threads: Option<std::num::NonZero<usize>>,
    progress: &dyn extant_formats::CopyProgress,
) -> Result<Chunked, OutputError> {
    use extant_mkfs::output::Output;
    use extant_remote::{ChunkOptions, ChunkSizes, make_chunks};
    let mut options = ChunkOptions::default();
    options.threads = threads;
    if let Some([min, average, max]) = how.sizes {
        let sizes = ChunkSizes::new(min, average, max);
        options.sizes = sizes.map_err(|e| OutputError::Format(Box::new(e)))?;
    }
    let output = Output::create_in_format(image, replaces, Ok)?;
    let advance = |bytes| progress.advance(bytes);
    let report = make_chunks(disk, output.device(), &how.store, &options, &advance)?;
    output.commit()?;
    Ok(Chunked {
        chunks: report.chunks,
        new_chunks: report.new_chunks,
        new_bytes: report.new_bytes,
    })
}

#[cfg(not(feature = "remote"))]
fn check_sizes(_sizes: [u64; 3]) -> Result<(), String> {
    Ok(())
}

#[cfg(not(feature = "remote"))]
fn beside(_image: &Path) -> OsString {
    OsString::new()
}

/// Refuses: this build makes no chunks.
#[cfg(not(feature = "remote"))]
pub(crate) fn write(
    _image: &Path,
    _replaces: Replaces,
    _disk: &dyn extant_blockdev::BlockDevice,
    _how: &Chunking,
    _threads: Option<std::num::NonZero<usize>>,
    _progress: &dyn extant_formats::CopyProgress,
) -> Result<Chunked, OutputError> {
    let why = "this build has no part for stores of chunks (the feature `remote`)";
    Err(OutputError::Format(why.into()))
}
