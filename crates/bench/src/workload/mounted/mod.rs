//! `mounted`: what programs do on a mount: `extant mount` by the command, with requests through
//! io_uring (the side `engine`) and through `/dev/fuse` (`device`), beside Linux's own ext4.
//!
//! | variant | work |
//! |---|---|
//! | `create`, `unlink` | empty files, in a directory of each worker's own |
//! | `*-others` | the same on a mount that other users reach (`-o allow_other`) |
//! | `*-fakeroot` | the same with `-o fakeroot`, beside `fuse2fs -o fakeroot` |
//! | `smallfiles` | files of 2 KiB created and removed by 64 threads |
//! | `unpack`, `copy`, `remove` | a tree: `tar -x` of it, `cp -a` beside itself, `rm -rf` |
//! | `read-cold`, `read-again`, `write` | a large file by 1 MiB; `read-cold-direct` with `-o direct_io` |
//! | `git-status`, `git-status-again` | of many files, after mounting and once more |
//! | `sqlite` | rows inserted, each a transaction |
//! | `random-reads`, `random-reads-ro` | of 4 KiB past memory, 32 under way through io_uring; the latter with `-o ro` |
//!
//! Each run is on an image of its own that `mke2fs` made. Changes are timed with a final `syncfs`.
//! Beside the times stands what the processes of the mount did for an operation.
//!
//! | file | owns |
//! |---|---|
//! | `prepared` | the images that work begins with |
//! | `tools` | work that other programs do |

mod prepared;
mod tools;

use crate::args::{Config, KernelForm, Side};
use crate::check;
use crate::command::Extant;
use crate::peer::Measured;
use crate::side::command::{BY_RING, REQUESTS};
use crate::side::kernel::Kernel;
use crate::side::{MountChoice, Mounted};
use crate::workload::inside::{Images, Inside, Meter};
use crate::workload::metadata::Metadata;
use crate::workload::smallfiles::Smallfiles;
use crate::workload::stream::Stream;
use crate::workload::{Case, Shape, Workload};
use extant_testkit::rings::Enabled;
use prepared::Prepared;
use std::path::{Path, PathBuf};
use tools::Tool;

/// What a variant does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// A variant of `metadata`.
    Metadata(&'static str),
    Smallfiles,
    /// A variant of `stream`, done so many times, of which the last counts.
    Stream(&'static str, u32),
    Tool(Tool),
}

/// A variant: its name, what it does, how it is mounted, and by how many workers.
struct Variant {
    name: &'static str,
    task: Task,
    options: &'static str,
    workers: &'static [usize],
}

impl Variant {
    const fn of(name: &'static str, task: Task) -> Self {
        Self {
            name,
            task,
            options: "",
            workers: &[1],
        }
    }

    const fn with(mut self, options: &'static str) -> Self {
        self.options = options;
        self
    }

    const fn by(mut self, workers: &'static [usize]) -> Self {
        self.workers = workers;
        self
    }

    /// Whether files that root does not own are changed as if it did.
    fn is_fakeroot(&self) -> bool {
        self.options == FAKEROOT
    }
}

const FAKEROOT: &str = "fakeroot";
const CREATE: Task = Task::Metadata("create-own");
const UNLINK: Task = Task::Metadata("unlink");

const VARIANTS: [Variant; 19] = [
    Variant::of("create", CREATE).by(&[1, 2]),
    Variant::of("unlink", UNLINK).by(&[1, 2]),
    Variant::of("create-others", CREATE)
        .with("allow_other")
        .by(&[1, 2]),
    Variant::of("unlink-others", UNLINK)
        .with("allow_other")
        .by(&[1, 2]),
    Variant::of("create-fakeroot", CREATE)
        .with(FAKEROOT)
        .by(&[1, 2]),
    Variant::of("unlink-fakeroot", UNLINK)
        .with(FAKEROOT)
        .by(&[1, 2]),
    Variant::of("smallfiles", Task::Smallfiles).by(&[64]),
    Variant::of("unpack", Task::Tool(Tool::Unpack)),
    Variant::of("copy", Task::Tool(Tool::Copy)),
    Variant::of("remove", Task::Tool(Tool::Remove)),
    Variant::of("read-cold", Task::Stream("read", 1)),
    Variant::of("read-cold-direct", Task::Stream("read", 1)).with("direct_io"),
    Variant::of("read-again", Task::Stream("read", 2)),
    Variant::of("write", Task::Stream("write", 1)),
    Variant::of("git-status", Task::Tool(Tool::GitStatus { again: false })),
    Variant::of(
        "git-status-again",
        Task::Tool(Tool::GitStatus { again: true }),
    ),
    Variant::of("sqlite", Task::Tool(Tool::Sqlite)),
    Variant::of("random-reads", Task::Tool(Tool::RandomReads)),
    Variant::of("random-reads-ro", Task::Tool(Tool::RandomReads)).with("ro"),
];

/// The names alone.
const NAMES: [&str; VARIANTS.len()] = {
    let mut names = [""; VARIANTS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = VARIANTS[at].name;
        at += 1;
    }
    names
};

/// The variant of a name that [`Workload::shape`] lists.
fn variant(name: &str) -> &'static Variant {
    let found = VARIANTS.iter().find(|variant| variant.name == name);
    found.expect("the runner asks for variants that the shape lists")
}

/// See the module.
pub(crate) struct Programs {
    extant: Extant,
    images: Images,
    metadata: Metadata,
    smallfiles: Smallfiles,
    stream: Stream,
    prepared: Prepared,
    /// Has Linux offer io_uring, from the first mount on that wants it.
    rings: Option<Enabled>,
}

impl Programs {
    /// Makes the scratch folders.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let prepared = Prepared::of(config);
        Ok(Self {
            extant: Extant::find(config.extant.as_deref())?,
            images: Images::prepare(config, prepared.inodes().max(config.files * 2))?,
            metadata: Metadata::prepare(config)?,
            smallfiles: Smallfiles::prepare(config)?,
            stream: Stream::prepare(config)?,
            prepared,
            rings: None,
        })
    }

    /// The image that a variant begins with.
    fn image(&self, task: Task) -> Result<PathBuf, String> {
        let images = &self.images;
        let template = match task {
            Task::Metadata(_) | Task::Smallfiles | Task::Stream("write", _) => None,
            Task::Stream(..) | Task::Tool(Tool::RandomReads) => {
                Some(self.prepared.with_file(images, &self.stream)?)
            }
            Task::Tool(Tool::Unpack | Tool::Sqlite) => None,
            Task::Tool(Tool::Copy | Tool::Remove) => Some(self.prepared.with_tree(images)?),
            Task::Tool(Tool::GitStatus { .. }) => Some(self.prepared.with_work_tree(images)?),
        };
        match template {
            None => images.store.fresh_image(KernelForm::Plain, images.shape),
            Some(template) => images.store.copy_of(&template),
        }
    }

    /// Has a side mount an image as a variant asks for.
    fn mount(&mut self, case: &Case, image: &Path) -> Result<Kernel, String> {
        let choice = MountChoice {
            delalloc: true,
            ..MountChoice::default()
        };
        let options = options(case);
        match case.side {
            Side::Kernel => Kernel::mount(image, KernelForm::Plain, choice),
            Side::Fuse2fs => Kernel::fuse2fs(image, &options, choice),
            Side::Engine => {
                if self.rings.is_none() {
                    let enabled = Enabled::new();
                    let enabled = enabled.map_err(|e| format!("io_uring for FUSE: {e}"))?;
                    self.rings = Some(enabled);
                }
                Kernel::command(&self.extant, image, &options)
            }
            _ => Kernel::command(&self.extant, image, &options),
        }
    }
}

/// How a side mounts: `-o`.
fn options(case: &Case) -> String {
    let own = variant(case.variant).options;
    let options = [own, "no_io_uring"];
    match case.side {
        Side::Kernel => String::new(),
        Side::Device if own.is_empty() => options[1].to_owned(),
        Side::Device => options.join(","),
        _ => own.to_owned(),
    }
}

impl Workload for Programs {
    fn name(&self) -> &'static str {
        "mounted"
    }

    fn shape(&self) -> Shape {
        let peers = &[Side::Kernel, Side::Device, Side::Fuse2fs];
        Shape::rates(peers, &NAMES, &[1])
    }

    fn unit(&self, name: &str) -> Option<(&'static str, &'static str)> {
        match variant(name).task {
            Task::Metadata(_) | Task::Tool(Tool::Sqlite | Tool::RandomReads) => None,
            Task::Stream(..) => Some(("MB/s", "higher")),
            Task::Smallfiles | Task::Tool(_) => Some(("s", "lower")),
        }
    }

    fn workers(&self, name: &str) -> Option<&'static [usize]> {
        Some(variant(name).workers)
    }

    fn does(&self, side: Side, name: &str) -> bool {
        match side {
            Side::Fuse2fs => variant(name).is_fakeroot(),
            Side::Kernel => !variant(name).is_fakeroot(),
            _ => true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let task = match variant(case.variant).task {
            Task::Metadata(name) => {
                let case = Case {
                    variant: name,
                    ..*case
                };
                self.metadata.options(&case)
            }
            Task::Smallfiles => self.smallfiles.options(case),
            Task::Stream(name, _) => {
                let case = Case {
                    variant: name,
                    ..*case
                };
                self.stream.options(&case)
            }
            Task::Tool(tool) => tool.about(&self.prepared),
        };
        // What is done; how it is mounted is another matter here.
        let done = task
            .split("; ")
            .take_while(|clause| !clause.contains("image on tmpfs"));
        let done = done.collect::<Vec<_>>().join("; ");
        let how = match (case.side, options(case)) {
            (Side::Kernel, _) => "loop mount".to_owned(),
            (Side::Fuse2fs, options) => format!("fuse2fs -o {options}"),
            (_, options) if options.is_empty() => "extant mount".to_owned(),
            (_, options) => format!("extant mount -o {options}"),
        };
        format!("{}: {done}; {how}", case.variant)
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let task = variant(case.variant).task;
        if matches!(task, Task::Tool(_) | Task::Stream(..)) && case.workers != 1 {
            return Err(format!("{} is one program: --workers 1", case.variant));
        }
        let image = self.image(task)?;
        let mounted = self.mount(case, &image)?;
        let meter = Meter::of_others();
        let as_variant = |variant| Case { variant, ..*case };
        let measured = match task {
            Task::Metadata(name) => self.metadata.work(&mounted, &as_variant(name), &meter)?,
            Task::Smallfiles => self.smallfiles.work(&mounted, case, &meter)?,
            Task::Stream(name, times) => {
                let work = || self.stream.work(&mounted, &as_variant(name), &meter);
                for _ in 1..times {
                    work()?;
                }
                work()?
            }
            Task::Tool(tool) => tool.work(&mounted, &self.prepared, &self.images, &meter)?,
        };
        mounted.unmount()?;
        check::e2fsck(&image)?;
        match task {
            Task::Metadata(name) => self.metadata.check(&image, &as_variant(name)).map(drop),
            Task::Smallfiles => self.smallfiles.check(&image, case).map(drop),
            Task::Stream(name, _) => self.stream.check(&image, &as_variant(name)).map(drop),
            Task::Tool(tool) => tool.check(&image, &self.prepared, &self.images),
        }?;
        came_as_asked(case.side, &measured)?;
        Ok(measured)
    }
}

/// Whether requests came as the side says, where any came.
fn came_as_asked(side: Side, measured: &Measured) -> Result<(), String> {
    let figure = |name: &str| measured.figures.get(name).copied();
    match (side, figure(REQUESTS), figure(BY_RING)) {
        (Side::Kernel | Side::Fuse2fs, ..) => Ok(()),
        (_, None, _) | (_, _, None) => Err("the mount does not say what it did".to_owned()),
        (Side::Engine, Some(all), Some(0.0)) if all > 0.0 => {
            Err("no request came through io_uring".to_owned())
        }
        (Side::Device, _, Some(some)) if some > 0.0 => {
            Err("requests came through io_uring, which was turned off".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_came_another_way_than_the_side_says_are_an_error() {
        let measured = |all, by_ring| Measured {
            figures: [(REQUESTS, all), (BY_RING, by_ring)].into(),
            ..Measured::default()
        };
        for (side, all, by_ring, is_right) in [
            (Side::Engine, 2.0, 2.0, true),
            (Side::Engine, 2.0, 0.0, false),
            // All was in the kernel's memory.
            (Side::Engine, 0.0, 0.0, true),
            (Side::Device, 2.0, 0.0, true),
            (Side::Device, 2.0, 1.0, false),
        ] {
            let found = came_as_asked(side, &measured(all, by_ring)).is_ok();
            assert_eq!(found, is_right, "{} {all} {by_ring}", side.name());
        }
        assert!(came_as_asked(Side::Engine, &Measured::default()).is_err());
        assert!(came_as_asked(Side::Kernel, &Measured::default()).is_ok());
    }

    #[test]
    fn each_side_mounts_as_the_variant_asks() {
        let how = |side, variant| {
            options(&Case {
                side,
                variant,
                workers: 1,
                form: KernelForm::Plain,
            })
        };
        assert_eq!(how(Side::Engine, "create"), "");
        assert_eq!(how(Side::Device, "create"), "no_io_uring");
        assert_eq!(
            how(Side::Device, "create-others"),
            "allow_other,no_io_uring"
        );
        assert_eq!(how(Side::Fuse2fs, "create-fakeroot"), "fakeroot");
        assert_eq!(how(Side::Kernel, "create-others"), "");
    }
}
