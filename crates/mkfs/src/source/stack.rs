//! Sources over sources: what an image is filled from when there are several, or layers.
//!
//! All are opened side by side: archives are decompressed, digests compared, directories scanned.
//! Then they are put over each other in the order they were given, in one tree. What it holds of
//! each source stays where it is until it is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::SourceOptions;
use super::base::Base;
use super::container;
use super::data::DataStore;
use super::directory::{ScanOptions, scan_directory};
use super::error::{SourceError, SourceResult};
use super::exclude::Excludes;
use super::model::Tree;
use super::oci::{self, Unproven};
use super::origin::{Form, Source};
use super::tar::{
    Assembly, Below, Bytes, Survey, TarOptions, add_layer, read_bytes, read_tar, settle, survey,
};
use super::whiteout::Whiteouts;

/// What sources hold together.
#[derive(Debug)]
#[non_exhaustive]
pub struct Gathered {
    /// The files.
    pub tree: Tree,
    /// The configuration of the container image among the sources, as JSON; of several the last.
    pub config: Option<Vec<u8>>,
}

/// Reads sources, each over those before it: directories, archives, container images, and images of
/// file systems. A directory, or one in an image, joins one that is there, and everything else
/// takes the place of what had its name.
///
/// Whiteouts take away what the sources before have, unless
/// [`SourceOptions::whiteouts`] says otherwise. A lone directory or archive with whiteouts is
/// refused: it is one layer of an image.
///
/// # Errors
///
/// Those of [`scan_directory`] and [`read_tar`]; [`SourceError::NotASource`] without any source;
/// [`SourceError::Refused`] for a container image that is damaged, incomplete, not of the platform
/// that is asked for, or not one image.
pub fn read_sources(sources: &[Source], options: &SourceOptions) -> SourceResult<Gathered> {
    read(sources, options, None)
}

/// Reads sources as [`read_sources`] does, over a file system that is there. The tree has what they
/// bring, and of what is there only what they meet; [`Tree::there`] tells these apart, and
/// [`Tree::removed`] says what whiteouts take away.
///
/// # Errors
///
/// Those of [`read_sources`]; [`SourceError::Base`] where the file system cannot be read.
pub fn read_sources_over(
    base: Box<dyn Base>,
    sources: &[Source],
    options: &SourceOptions,
) -> SourceResult<Gathered> {
    read(sources, options, Some(base))
}

fn read(
    sources: &[Source],
    options: &SourceOptions,
    base: Option<Box<dyn Base>>,
) -> SourceResult<Gathered> {
    let Some(threads) = options.threads else {
        return extant_host::side_by_side(|| gather(sources, options, base));
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .build()
        .map_err(|e| {
            let path = sources.first().map_or(Path::new("."), Source::path);
            SourceError::io("start threads to read", path, std::io::Error::other(e))
        })?;
    pool.install(|| gather(sources, options, base))
}

fn gather(
    sources: &[Source],
    options: &SourceOptions,
    base: Option<Box<dyn Base>>,
) -> SourceResult<Gathered> {
    let read = Read::new(options);
    let stacked = match sources {
        [] => {
            return Err(SourceError::NotASource {
                path: PathBuf::new(),
                what: "no source".to_owned(),
                advice: "name one".to_owned(),
            });
        }
        [one] if options.whiteouts.is_none() && base.is_none() => match read.alone(one)? {
            Alone::Tree(tree) => {
                return Ok(Gathered {
                    tree: *tree,
                    config: None,
                });
            }
            Alone::Layers(layers) => vec![layers],
        },
        _ => sources
            .par_iter()
            .with_max_len(1)
            .map(|source| read.open(source))
            .collect::<Vec<_>>()
            .into_iter()
            .collect::<SourceResult<Vec<_>>>()?,
    };
    pile(stacked, options, base)
}

/// A lone source, read.
enum Alone {
    Tree(Box<Tree>),
    Layers(Opened),
}

/// A source among others, ready to be put over them.
enum Opened {
    Directory { tree: Box<Tree>, path: PathBuf },
    Archive(Layer),
    Image { layers: Vec<Layer>, config: Vec<u8> },
}

impl Opened {
    fn layers(&mut self) -> &mut [Layer] {
        match self {
            Self::Directory { .. } => &mut [],
            Self::Archive(layer) => std::slice::from_mut(layer),
            Self::Image { layers, .. } => layers,
        }
    }
}

/// An archive that is not compressed, and what it takes away.
struct Layer {
    bytes: Bytes,
    survey: Survey,
    /// What it is called in errors.
    name: PathBuf,
    /// What is to be compared yet.
    unproven: Option<Box<Unproven>>,
}

/// How sources are read.
struct Read<'a> {
    options: &'a SourceOptions,
    tar: TarOptions,
    /// How an archive is read that is known to hold an image: what stays out is said of the files
    /// in the image.
    outer: TarOptions,
}

impl<'a> Read<'a> {
    fn new(options: &'a SourceOptions) -> Self {
        let spool_dir = options.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
        Self {
            options,
            tar: TarOptions {
                excludes: options.excludes.clone(),
                spool_dir: spool_dir.clone(),
            },
            outer: TarOptions {
                excludes: Excludes::default(),
                spool_dir,
            },
        }
    }

    /// What stays out of a source that has files itself.
    fn excludes(&self, source: &Source) -> Excludes {
        self.options.excludes.with(source.excludes())
    }

    /// How a directory is scanned.
    fn scan(&self, source: &Source) -> ScanOptions {
        ScanOptions {
            excludes: self.excludes(source),
            threads: None,
        }
    }

    /// What an image is known by may be among what stays out.
    fn tell_of_marks(&self, tree: &mut Tree, path: &Path) {
        if !self.options.excludes.is_empty() && container::has_content(tree) {
            tree.warnings.push(format!(
                "{} has the layers of a container image, and not what names them, which stays out: \
                 it is taken as it is",
                path.display()
            ));
        }
    }

    /// Reads a source that is the only one.
    fn alone(&self, source: &Source) -> SourceResult<Alone> {
        let path = source.path();
        if let Some(reader) = source.reader() {
            let tree = reader.scan(&self.excludes(source))?;
            container::refuse_layer(&tree, path)?;
            return Ok(Alone::Tree(Box::new(tree)));
        }
        if source.form() != Form::ByContent {
            return Ok(Alone::Layers(self.open(source)?));
        }
        let is_directory = source.is_directory();
        let mut tree = if is_directory {
            scan_directory(path, &self.scan(source))?
        } else {
            read_tar(path, &self.tar)?
        };
        if let Some(form) = container::kind(&tree) {
            let store = if is_directory {
                oci::Store::Directory(path)
            } else {
                oci::Store::Archive { tree: &tree, path }
            };
            return Ok(Alone::Layers(self.image(&store, form, None)?));
        }
        container::refuse_layer(&tree, path)?;
        self.tell_of_marks(&mut tree, path);
        Ok(Alone::Tree(Box::new(tree)))
    }

    /// Opens a source among others.
    fn open(&self, source: &Source) -> SourceResult<Opened> {
        let path = source.path();
        let tag = source.tag();
        if let Some(reader) = source.reader() {
            return Ok(Opened::Directory {
                tree: Box::new(reader.scan(&self.excludes(source))?),
                path: path.to_owned(),
            });
        }
        match source.form() {
            Form::Oci => self.image(&oci::Store::Directory(path), container::Kind::Oci, tag),
            Form::OciArchive | Form::DockerArchive => {
                let tree = read_tar(path, &self.outer)?;
                let kind = match source.form() {
                    Form::OciArchive => container::Kind::Oci,
                    _ => container::Kind::Docker,
                };
                self.image(&oci::Store::Archive { tree: &tree, path }, kind, tag)
            }
            Form::ByContent if source.is_directory() => {
                let mut tree = scan_directory(path, &self.scan(source))?;
                if let Some(kind) = container::kind(&tree) {
                    return self.image(&oci::Store::Directory(path), kind, None);
                }
                self.tell_of_marks(&mut tree, path);
                Ok(Opened::Directory {
                    tree: Box::new(tree),
                    path: path.to_owned(),
                })
            }
            Form::ByContent | Form::Image | Form::Archive => {
                let bytes = settle(path, &self.tar)?;
                let mut survey = survey(&bytes, path)?;
                survey.may_be_image &= source.form() != Form::Archive;
                // An archive that cannot be read alone, such as for its whiteouts, is no image.
                let tree = survey
                    .may_be_image
                    .then(|| read_bytes(&bytes, path, &self.tar).ok())
                    .flatten();
                if let Some(tree) = &tree
                    && let Some(kind) = container::kind(tree)
                {
                    return self.image(&oci::Store::Archive { tree, path }, kind, None);
                }
                Ok(Opened::Archive(Layer {
                    bytes,
                    survey,
                    name: path.to_owned(),
                    unproven: None,
                }))
            }
        }
    }

    /// Opens the layers of an image, side by side.
    fn image(
        &self,
        store: &oci::Store<'_>,
        kind: container::Kind,
        tag: Option<&str>,
    ) -> SourceResult<Opened> {
        let image = oci::find(store, kind, tag, self.options.platform.as_ref())?;
        let allowed = image.allowance();
        let layers: Vec<SourceResult<Layer>> = image
            .layers
            .par_iter()
            .with_max_len(1)
            .map(|blob| {
                let (bytes, unproven) = blob.open(&self.tar, &allowed)?;
                let survey = survey(&bytes, &blob.name);
                if let (Err(_), Some(unproven)) = (&survey, &unproven) {
                    // That it is damaged explains more.
                    unproven.prove()?;
                }
                Ok(Layer {
                    survey: survey?,
                    bytes,
                    name: blob.name.clone(),
                    unproven: unproven.map(Box::new),
                })
            })
            .collect();
        Ok(Opened::Image {
            layers: layers.into_iter().collect::<SourceResult<_>>()?,
            config: image.config,
        })
    }
}

/// Puts sources over each other.
fn pile(
    sources: Vec<Opened>,
    options: &SourceOptions,
    base: Option<Box<dyn Base>>,
) -> SourceResult<Gathered> {
    let mut sources = sources;
    let layers = sources.iter_mut().flat_map(Opened::layers);
    let unproven: Vec<Unproven> = layers
        .filter_map(|layer| layer.unproven.take().map(|unproven| *unproven))
        .collect();
    let mut proven = Ok(());
    let piled = rayon::in_place_scope(|scope| {
        if !options.digests_later {
            scope.spawn(|_| proven = prove(&unproven));
        }
        put_together(sources, options, base)
    });
    if piled.is_err() && options.digests_later {
        // That a layer is damaged explains more.
        proven = prove(&unproven);
    }
    proven?;
    let mut gathered = piled?;
    if options.digests_later {
        gathered.tree.unproven = unproven;
    }
    Ok(gathered)
}

/// Compares layers with their digests, side by side, and gives the first error.
fn prove(unproven: &[Unproven]) -> SourceResult<()> {
    let all = || -> Vec<_> {
        let all = unproven.par_iter().with_max_len(1);
        all.map(Unproven::prove).collect()
    };
    extant_host::side_by_side(all).into_iter().collect()
}

impl Tree {
    /// Compares what the files are in with its digests, where that was left for
    /// [later](SourceOptions::digests_later).
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] for a layer that is not what its digest says; those of reading.
    pub(crate) fn prove(&self) -> SourceResult<()> {
        prove(&self.unproven)
    }
}

fn put_together(
    sources: Vec<Opened>,
    options: &SourceOptions,
    base: Option<Box<dyn Base>>,
) -> SourceResult<Gathered> {
    let how = options.whiteouts.unwrap_or(Whiteouts::Apply);
    let mut pile = Pile {
        assembly: Assembly::new(&options.excludes, Below::Layers(how), base)?,
        stores: Vec::new(),
        warnings: Vec::new(),
    };
    let mut config = None;
    for source in sources {
        match source {
            Opened::Directory { tree, path } => pile.directory(*tree, &path)?,
            Opened::Archive(layer) => pile.layer(&layer)?,
            Opened::Image {
                layers,
                config: its_own,
            } => {
                for layer in &layers {
                    pile.layer(layer)?;
                }
                config = Some(its_own);
            }
        }
    }
    let mut tree = pile.assembly.finish()?.finish_with(pile.stores)?;
    tree.warnings = pile.warnings;
    Ok(Gathered { tree, config })
}

struct Pile<'a> {
    assembly: Assembly<'a>,
    /// Where the data of each source is.
    stores: Vec<DataStore>,
    warnings: Vec<String>,
}

impl Pile<'_> {
    fn layer(&mut self, layer: &Layer) -> SourceResult<()> {
        self.assembly.begin(self.stores.len() as u32);
        self.stores.push(DataStore::Archive {
            file: Arc::clone(&layer.bytes.file),
            path: layer.name.clone(),
            stamp: layer.bytes.stamp,
        });
        let told = add_layer(&mut self.assembly, &layer.bytes, &layer.name, &layer.survey)?;
        self.warnings.extend(told);
        Ok(())
    }

    fn directory(&mut self, mut tree: Tree, path: &Path) -> SourceResult<()> {
        self.assembly.begin(self.stores.len() as u32);
        let told = self.assembly.graft(&tree, path)?;
        self.warnings.append(&mut tree.warnings);
        self.warnings.extend(told);
        self.stores.append(&mut tree.stores);
        Ok(())
    }
}
