//! `cargo xtask verity`: images with hash trees under a Linux that has dm-verity and fs-verity.

use crate::guest::{self, Console, Drive, Kernel};
use crate::programs::{
    Done, build_extant, copy, flip, json_field, make_dir, missing, succeed, system,
};
use crate::record;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// What `--help` says.
pub(crate) const HELP: &str = "\
Images with hash trees under a Linux that has dm-verity and fs-verity, in a virtual machine: Debian's kernel, booted
by QEMU without hardware's help. An image that `extant mkfs` made is opened through dm-verity and mounted; fs-verity
measures files in it, and what was changed is refused.

Usage: cargo xtask verity [--package NAME] [--record]

Options:
  --package NAME   The package of the kernel [default: what linux-image-amd64 depends on]
  --record         Write what was seen into docs/dev/conformance.md

Programs that are missing are named, and then nothing is done. The package is downloaded into target/verity, and not
installed. It takes two to six minutes.";

/// Files that are protected, and their sizes.
const FILES: &[(&str, u64)] = &[
    ("empty", 0),
    ("one", 1),
    ("block", 4096),
    ("levels", 128 * 4096 + 5),
    ("large", 3_000_000),
    // Nothing but a hole, with three levels of hashes.
    ("hole", 70 << 20),
];

/// The block of `large` that is changed.
const CHANGED: u64 = 300;

/// Programs that it needs beside those of the machine, and their packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("fsverity", "fsverity"),
    ("debugfs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("sha256sum", "coreutils"),
];

/// `cargo xtask verity`.
pub(crate) fn verity(root: &Path, args: &[String]) -> ExitCode {
    let (mut package, mut record) = (None, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let known = match arg.as_str() {
            "--package" => rest.next().map(|n| package = Some(n.clone())).is_some(),
            "--record" => {
                record = true;
                true
            }
            _ => false,
        };
        if !known {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    }
    let gone = missing(&[guest::PROGRAMS, PROGRAMS].concat());
    if !gone.is_empty() {
        println!("SKIPPED: needs {}: verity", gone.join(", "));
        // What is to be recorded was not seen.
        return ExitCode::from(u8::from(record));
    }
    match judged(root, package.as_deref(), record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("verity: {why}");
            ExitCode::FAILURE
        }
    }
}

fn judged(root: &Path, package: Option<&str>, record: bool) -> Done<()> {
    let dir = root.join("target/verity");
    make_dir(&dir)?;
    let kernel = Kernel::get(&dir, package)?;
    let image = Image::make(root, &dir)?;
    let programs = ["veritysetup", "fsverity"];
    let ramdisk = kernel.ramdisk(&dir, &programs, &image.script())?;
    let drives = ["root.img", "bad.img", "late.img"].map(|name| dir.join(name));
    let attached = drives.each_ref().map(|image| Drive {
        image,
        read_only: false,
    });
    let machine = kernel.machine(&ramdisk, "", &attached);
    let log = Console::start(machine)?.off(Duration::from_secs(900))?;
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let mut missing = 0;
    let expected = image.expected();
    for line in &expected {
        let found = lines.iter().any(|found| found.ends_with(line));
        let verdict = if found { "as expected" } else { "MISSING" };
        missing += u32::from(!found);
        println!("{verdict}: {line}");
    }
    println!("kernel {}", kernel.version);
    // What the kernel changed is sound, and so is what it left.
    for image in &drives {
        succeed(system("e2fsck").arg("-fn").arg(image))?;
    }
    if missing > 0 {
        return Err(format!("{missing} are missing in:\n{log}"));
    }
    if record {
        let seen: Vec<String> = STEPS.iter().map(|step| format!("- {step}\n")).collect();
        let text = format!(
            "{}\nDebian's kernel {} in QEMU said as expected, of {} files of up to {} MiB:\n\n{}\
             - fs-verity: the digests that `fsverity digest` computes, and the content\n\n\
             `e2fsck -fn` found nothing in what it left.\n",
            record::machine(root, &["qemu-system-x86", "fsverity", "cryptsetup-bin"])?,
            kernel.version,
            FILES.len(),
            FILES.iter().map(|(_, len)| len >> 20).max().unwrap_or(0),
            seen.concat(),
        );
        record::write(root, "verity", &text)?;
    }
    Ok(())
}

/// What the machine says when it has done a thing, beside what files are.
const STEPS: &[&str] = &[
    "dm-verity: mounted",
    "dm-verity: a changed block is refused",
    "fs-verity: a changed block is refused",
    "fs-verity: what is before the changed block is read",
    "fs-verity: writing is refused",
    "fs-verity: files are moved and removed",
    "fs-verity: the rest is written to",
    "sealed later: mounted through dm-verity",
    "sealed later: writing is refused",
    "sealed later: the rest is written to",
];

/// The images, and what Linux has to say of them.
struct Image {
    digests: Vec<String>,
    /// The sum of what comes before the changed block.
    before: String,
    /// The options with which `veritysetup` opens the image with the trees, and the one that got
    /// them later.
    opened: [String; 2],
}

/// What `veritysetup open` is given to find the tree of dm-verity.
fn opened(json: &str) -> Done<String> {
    let (hash, offset) = (
        json_field(json, "root_hash")?,
        json_field(json, "hash_offset")?,
    );
    Ok(format!("{hash} --hash-offset={offset}"))
}

impl Image {
    fn make(root: &Path, dir: &Path) -> Done<Self> {
        let extant = build_extant(root)?;
        let tree = dir.join("tree");
        let sealed = tree.join("sealed");
        make_dir(&sealed)?;
        let mut state = 7_u64;
        let mut digests = Vec::new();
        for (name, len) in FILES {
            let path = sealed.join(name);
            let file = fs::File::create(&path).map_err(|e| e.to_string())?;
            file.set_len(*len).map_err(|e| e.to_string())?;
            if *name != "hole" {
                let bytes: Vec<u8> = (0..*len)
                    .map(|_| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        (state >> 56) as u8
                    })
                    .collect();
                file.write_all_at(&bytes, 0).map_err(|e| e.to_string())?;
            }
            let digest = succeed(system("fsverity").args(["digest", "--compact"]).arg(&path))?;
            let sum = succeed(system("sha256sum").arg(&path))?;
            let sum = sum.split_whitespace().next().unwrap_or_default();
            for at in ["/mnt", "/late"] {
                digests.push(format!("sha256:{} {at}/sealed/{name}", digest.trim()));
                digests.push(format!("{sum}  {at}/sealed/{name}"));
            }
        }
        let mut head = system("sh");
        head.arg("-c").arg(format!(
            "head -c {} \"$0\" | sha256sum | cut -c 1-64",
            CHANGED * 4096
        ));
        let before = succeed(head.arg(sealed.join("large")))?.trim().to_owned();
        let make = |image: &Path| {
            let mut mkfs = Command::new(&extant);
            mkfs.arg("mkfs").arg(image).arg("--from").arg(&tree);
            mkfs.args(["--size", "64M", "--block-size", "4K", "--force", "--json"]);
            mkfs
        };
        let image = dir.join("root.img");
        let trees = ["--fs-verity", "/sealed", "--dm-verity", "append"];
        let made = succeed(make(&image).args(trees))?;
        // One that has no tree when it is made, nor the feature.
        let late = dir.join("late.img");
        succeed(&mut make(&late))?;
        let mut seal = Command::new(&extant);
        let sealed_later = succeed(seal.arg("verity").arg(&late).args(trees).arg("--json"))?;
        // The other one has one byte of a file changed.
        let bad = dir.join("bad.img");
        copy(&image, &bad)?;
        let request = format!("bmap /sealed/large {CHANGED}");
        let block = succeed(system("debugfs").args(["-R", &request]).arg(&bad))?;
        let at = block.trim().parse::<u64>().map_err(|e| e.to_string())? * 4096;
        flip(&bad, at)?;
        Ok(Self {
            digests,
            before,
            opened: [opened(&made)?, opened(&sealed_later)?],
        })
    }

    /// Lines that the console ends with or has.
    fn expected(&self) -> Vec<String> {
        let steps = STEPS.iter().map(|&step| step.to_owned());
        steps.chain(self.digests.iter().cloned()).collect()
    }

    /// What the machine does.
    fn script(&self) -> String {
        let [whole, late] = &self.opened;
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        let (names, before, sum) = (names.join(" "), CHANGED * 4096, &self.before);
        format!(
            "refused() {{ cat $1 2>&1 > /dev/null | grep -q 'Input/output error'; }}\n\
             open() {{ veritysetup open $1 $2 $1 {whole}; }}\n\
             open /dev/vda root && mount -t ext4 -o ro /dev/mapper/root /mnt && echo dm-verity: mounted\n\
             for file in {names}; do fsverity measure /mnt/sealed/$file; sha256sum /mnt/sealed/$file; done\n\
             umount /mnt; veritysetup close root\n\
             open /dev/vdb bad && mount -t ext4 -o ro /dev/mapper/bad /mnt\n\
             refused /mnt/sealed/large && echo dm-verity: a changed block is refused\n\
             umount /mnt; veritysetup close bad\n\
             mount -t ext4 /dev/vdb /mnt\n\
             refused /mnt/sealed/large && echo fs-verity: a changed block is refused\n\
             head -c {before} /mnt/sealed/large | sha256sum | grep -q {sum} && \
             echo fs-verity: what is before the changed block is read\n\
             (echo more >> /mnt/sealed/one) || echo fs-verity: writing is refused\n\
             mv /mnt/sealed/one /mnt/moved && rm /mnt/sealed/levels && \
             echo fs-verity: files are moved and removed\n\
             echo new > /mnt/new && umount /mnt && echo fs-verity: the rest is written to\n\
             mkdir /late; veritysetup open /dev/vdc late /dev/vdc {late} && \
             mount -t ext4 -o ro /dev/mapper/late /late && \
             echo sealed later: mounted through dm-verity\n\
             for file in {names}; do fsverity measure /late/sealed/$file; sha256sum /late/sealed/$file; done\n\
             umount /late; veritysetup close late; mount -t ext4 /dev/vdc /late\n\
             (echo more >> /late/sealed/large) || echo sealed later: writing is refused\n\
             echo new > /late/new && umount /late && echo sealed later: the rest is written to\n\
             poweroff -f\n"
        )
    }
}
