//! The parts of the report: what is measured beside which others, in which sizes.

use crate::args::{Config, KernelForm, Side, WorkloadName};

/// A part of the report: a table of its own.
pub(super) struct Part {
    /// Its heading, and its name on the command line.
    pub(super) name: &'static str,
    /// What is measured, in a sentence; how much of it, the rows say.
    pub(super) about: &'static str,
    /// One workload, or several that read well in one table.
    pub(super) workload: WorkloadName,
    against: &'static [Side],
    variants: &'static [&'static str],
    workers: &'static [usize],
    kernel: &'static [KernelForm],
    size: fn(&mut Config),
}

impl Part {
    const fn of(name: &'static str, workload: WorkloadName, about: &'static str) -> Self {
        Self {
            name,
            about,
            workload,
            against: &[Side::Kernel],
            variants: &[],
            workers: &[],
            kernel: &[KernelForm::Plain],
            size: |_| {},
        }
    }

    const fn against(mut self, against: &'static [Side]) -> Self {
        self.against = against;
        self
    }

    const fn variants(mut self, variants: &'static [&'static str]) -> Self {
        self.variants = variants;
        self
    }

    const fn workers(mut self, workers: &'static [usize]) -> Self {
        self.workers = workers;
        self
    }

    const fn kernel(mut self, kernel: &'static [KernelForm]) -> Self {
        self.kernel = kernel;
        self
    }

    const fn size(mut self, size: fn(&mut Config)) -> Self {
        self.size = size;
        self
    }

    /// How the part is measured: as `config` says where the plan does not.
    pub(super) fn config(&self, config: &Config) -> Config {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let mut part = Config {
            workload: self.workload,
            against: Some(self.against.to_vec()),
            variant: (!self.variants.is_empty()).then(|| owned(self.variants)),
            workers: (!self.workers.is_empty()).then(|| self.workers.to_vec()),
            kernel: self.kernel.to_vec(),
            ..config.clone()
        };
        (self.size)(&mut part);
        if config.quick {
            quicken(&mut part);
        }
        part
    }
}

/// One run, and a fraction of the work.
fn quicken(part: &mut Config) {
    part.runs = 1;
    part.files = part.files.min(20_000);
    part.operations = part.operations.min(4_000);
    part.fallocations = part.fallocations.or(Some(100_000));
    part.inodes = part.inodes.min(100_000);
    part.truncations = part.truncations.min(200_000);
    part.writes = part.writes.min(50_000);
    part.fill_mib = part.fill_mib.min(256);
    part.transfers = part.transfers.min(100_000);
    part.entries = part.entries.min(15_000);
    part.bytes = part.bytes.min(335_544_320);
    part.image_files = part.image_files.min(100_000);
    part.copied = part.copied.min(200);
    part.stream_mib = part.stream_mib.min(256);
}

/// All sides that mount.
const MOUNTS: &[Side] = &[Side::Mount, Side::Kernel, Side::Fuse2fs];

/// All parts, in the order of the report.
pub(super) const PARTS: &[Part] = &[
    Part::of(
        "build",
        WorkloadName::Build,
        "An image made from a directory.",
    )
    .against(&[Side::Kernel, Side::Mke2fs, Side::Genext2fs]),
    Part::of(
        "sources",
        WorkloadName::Sources,
        "Images from that directory beside `tar -c`, and from ten layers beside one archive, by the command.",
    )
    .against(&[Side::Tar, Side::OneTar, Side::Openssl]),
    Part::of(
        "extract",
        WorkloadName::Extract,
        "All files of such an image into a directory.",
    )
    .against(&[Side::Kernel, Side::Debugfs]),
    Part::of(
        "compare",
        WorkloadName::Compare,
        "What differs between two such images, one made like a directory in which ten files changed, and one listed \
         as it is mended in memory, beside a check of it.",
    )
    .against(&[Side::Kernel, Side::Check]),
    Part::of(
        "edit",
        WorkloadName::Edit,
        "An image of 2 GiB changed by a script of twenty lines.",
    )
    .against(&[Side::Debugfs]),
    Part::of(
        "metadata",
        WorkloadName::Metadata,
        "Empty files: created in a directory of each worker's own or in one, looked at, removed.",
    )
    .workers(&[1, 2])
    .kernel(&[KernelForm::Plain, KernelForm::OrphanFile]),
    Part::of(
        "fsync",
        WorkloadName::Fsync,
        "4 KiB appended and made durable, again and again.",
    )
    .workers(&[1, 2, 4, 16]),
    Part::of(
        "fallocate2",
        WorkloadName::Fallocate2,
        "8 KiB after 8 KiB reserved in an unlinked file.",
    )
    .workers(&[1, 2, 4, 16, 64]),
    Part::of(
        "append64",
        WorkloadName::Append64,
        "64 files that grow by 4 KiB at a time, all at once.",
    ),
    Part::of(
        "live",
        WorkloadName::Live,
        "Single blocks reserved in a file with so many preallocations alive, further and further or anywhere (the kernel keeps none for such calls).",
    ),
    Part::of(
        "sparse",
        WorkloadName::Sparse,
        "Writes of 1 KiB with gaps of 7 KiB, and `fsync`.",
    ),
    Part::of(
        "fill",
        WorkloadName::Fill,
        "A file written by 1 KiB in random order, and `fsync`.",
    ),
    Part::of(
        "fill4",
        WorkloadName::Fill4,
        "A file written by four KiB in a row, rows in random order, and `fsync`.",
    ),
    Part::of(
        "smallfiles",
        WorkloadName::Smallfiles,
        "Files of 2 KiB created and removed in 64 directories.",
    ),
    Part::of(
        "orphan",
        WorkloadName::Orphan,
        "Files cut by one byte at a time.",
    )
    .variants(&["list", "file"])
    .workers(&[1, 2, 4, 10, 20, 40]),
    Part::of("bulkstat", WorkloadName::Bulkstat, "Every inode looked at.").workers(&[1, 2, 4, 16]),
    Part::of(
        "overwrite direct",
        WorkloadName::Overwrite,
        "4 KiB here and there in 32 files, past memory.",
    )
    .against(&[Side::Raw, Side::Kernel])
    .variants(&["direct"])
    .workers(&[1, 2, 16])
    .size(|config| config.transfers = 200_000),
    Part::of(
        "overwrite buffered",
        WorkloadName::Overwrite,
        "4 KiB here and there in 32 files, through memory.",
    )
    .variants(&["buffered"])
    .workers(&[1, 2, 16])
    .size(|config| config.transfers = 200_000),
    Part::of(
        "overwrite dax",
        WorkloadName::Overwrite,
        "4 KiB here and there in 32 files, in a device that is memory.",
    )
    .against(&[Side::Memcpy])
    .variants(&["dax"])
    .workers(&[1, 2, 16])
    .size(|config| config.transfers = 400_000),
    Part::of(
        "stream",
        WorkloadName::Stream,
        "A file written from start to end by 1 MiB, with `fsync`, and read.",
    )
    .against(MOUNTS),
    Part::of(
        "mounted metadata",
        WorkloadName::Metadata,
        "Empty files, also through a mount.",
    )
    .against(MOUNTS)
    .workers(&[1, 2])
    .size(|config| config.files = 10_000),
    Part::of(
        "mounted smallfiles",
        WorkloadName::Smallfiles,
        "Files of 2 KiB created and removed in 64 directories, also through a mount.",
    )
    .against(MOUNTS)
    .variants(&["delalloc"])
    .size(|config| config.files = 10_000),
    Part::of(
        "mounted sparse",
        WorkloadName::Sparse,
        "Writes of 1 KiB with gaps of 7 KiB, also through a mount.",
    )
    .against(MOUNTS)
    .variants(&["delalloc"])
    .size(|config| config.writes = 50_000),
    Part::of(
        "mounted programs",
        WorkloadName::Mounted,
        "What programs do on a mount by `extant mount`, with requests through io_uring and through `/dev/fuse`.",
    )
    .against(&[Side::Kernel, Side::Device, Side::Fuse2fs])
    .size(|config| {
        config.runs = config.runs.max(5);
        config.files = 10_000;
        config.entries = 25_000;
        config.bytes = 209_715_200;
        config.operations = 2_000;
    }),
    Part::of(
        "remote first byte",
        WorkloadName::Remote,
        "The first byte of a small file comes out of an image behind a server.",
    )
    .against(&[Side::Nbdfuse])
    .variants(&["first-byte"]),
    Part::of(
        "remote copies",
        WorkloadName::Remote,
        "Many small files out of and into an image behind an NBD server.",
    )
    .against(&[Side::Nbdfuse])
    .variants(&["copy-out", "copy-in"])
    .size(|config| config.copied = 10_000),
    Part::of(
        "remote streams",
        WorkloadName::Remote,
        "A large file over NBD, and disks from and to formats.",
    )
    .against(&[Side::Nbdcopy, Side::QemuImg, Side::Img2simg, Side::Simg2img])
    .variants(&["stream", "qcow2", "simg"])
    .size(|config| config.stream_mib = 512),
];
