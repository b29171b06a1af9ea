//! Chains of changes to one image: made with random options, filled, and then changed several
//! times, by us and by others.
//!
//! After each step `e2fsck -fn` and our check find nothing wrong, and what is in the image is what
//! was in it; a step that is refused is refused in words, and has changed no byte. At the end of a
//! chain Linux reads the image.
//!
//! `EXTANT_CHAINS` says how many chains; without it there are some for a few seconds. `EXTANT_SEED`
//! repeats a run, and with `EXTANT_CHAIN` one chain of it. With `EXTANT_CHAIN_KEPT` the image of a
//! chain that fails is kept in that directory, as it was before the step that fails and after it.

mod fill;
mod made;
mod resizing;
mod tuning;

use crate::support::{Place, Run, copy_of, extant};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{check_clean, dumpe2fs_header, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tree::{Compare, Tree};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What an ordinary run takes for each kind of chain.
const BUDGET: Duration = Duration::from_secs(8);

/// How Linux mounts: an image that says that errors are to end all of it must not.
const OPTIONS: &str = "errors=continue";

/// What went wrong, for people.
type Step<T = ()> = Result<T, String>;

/// Things that are counted and printed, by what they are.
type Counts = BTreeMap<String, u64>;

/// One image and what is known of it.
struct Chain {
    rng: Rng,
    place: Place,
    image: String,
    told: Vec<String>,
    counts: Counts,
    archive: Vec<u8>,
    /// What Linux saw; nothing if it lacks what a feature needs.
    tree: Option<Tree>,
    /// Directories at the top that are there.
    dirs: Vec<String>,
    next_dir: u32,
}

impl Chain {
    fn new(rng: Rng) -> Self {
        let place = Place::in_memory();
        Self {
            rng,
            image: place.arg("fs.img"),
            place,
            told: Vec::new(),
            counts: Counts::new(),
            archive: Vec::new(),
            tree: None,
            dirs: Vec::new(),
            next_dir: 0,
        }
    }

    fn path(&self) -> &Path {
        Path::new(&self.image)
    }

    fn tell(&mut self, text: impl Into<String>) {
        self.told.push(text.into());
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// Keeps the image as it is now.
    fn keep(&self) -> String {
        copy_of(&self.image, &self.place.arg("before.img"))
    }

    /// Puts back what was kept.
    fn put_back(&self) {
        let _ = fs::remove_file(&self.image);
        copy_of(&self.place.arg("before.img"), &self.image);
    }

    /// Says that a refusal is one in words and has changed nothing.
    fn refused(&self, run: &Run) -> Step {
        if run.code != 8 || !run.stderr.starts_with("extant: ") || run.stderr.contains("panicked") {
            return Err(format!("exit code {}: {}", run.code, run.stderr));
        }
        let (before, now) = (
            fs::read(self.place.join("before.img")),
            fs::read(&self.image),
        );
        if before.ok() == now.ok() {
            Ok(())
        } else {
            Err(format!("refused, but changed: {}", run.stderr))
        }
    }

    /// Takes what is in the image now for what must be in it.
    fn learn(&mut self) -> Step {
        self.sound()?;
        self.archive = archive(&self.image)?;
        self.tree = if self.linux_can() {
            Some(seen(self.path())?)
        } else {
            None
        };
        Ok(())
    }

    fn sound(&self) -> Step {
        check_clean(self.path())?;
        let run = extant(["check", &self.image]);
        match run.code {
            0 => Ok(()),
            code => Err(format!("our check: {code}: {}{}", run.text(), run.stderr)),
        }
    }

    /// Judges the image after a step that changes nothing of what is in it.
    fn judge(&self) -> Step {
        self.sound()?;
        if archive(&self.image)? == self.archive {
            Ok(())
        } else {
            Err(self.read_by_linux().err().unwrap_or_else(|| {
                "our archive of it is another; Linux sees no difference".to_owned()
            }))
        }
    }

    /// Compares what Linux sees with what it saw when that was written.
    fn read_by_linux(&self) -> Step {
        let found = self.differences(&compare())?;
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!("as Linux sees it:\n{}", found.join("\n")))
        }
    }

    /// What Linux sees otherwise than before; nothing if it cannot mount it.
    fn differences(&self, how: &Compare) -> Step<Vec<String>> {
        let Some(tree) = self.tree.as_ref().filter(|_| self.linux_can()) else {
            return Ok(Vec::new());
        };
        let found = tree.diff(&seen(self.path())?, how);
        Ok(found.iter().map(ToString::to_string).collect())
    }

    fn header(&self, field: &str) -> u64 {
        dumpe2fs_header(self.path()).number(field)
    }

    /// Whether Linux was built with all that the features need.
    fn linux_can(&self) -> bool {
        let header = dumpe2fs_header(self.path());
        !lacking().iter().any(|name| header.has_feature(name))
    }
}

/// Features that Linux may have been built without, and those that it was.
fn lacking() -> &'static [&'static str] {
    static LACKING: OnceLock<Vec<&str>> = OnceLock::new();
    LACKING.get_or_init(|| {
        let place = Place::in_memory();
        let image = place.join("fs.img");
        let lacks = |name: &&str| {
            mke2fs(&image, 8 << 20, &["-t", "ext4", "-O", name]);
            KernelMount::try_mount(&image, Mode::ReadWrite, "").is_err()
        };
        let found: Vec<&str> = ["casefold", "quota", "project", "verity"]
            .into_iter()
            .filter(lacks)
            .collect();
        println!("Linux was built without {found:?}");
        found
    })
}

fn compare() -> Compare {
    Compare {
        nlink: true,
        ctime: true,
        ..Compare::default()
    }
}

fn archive(image: &str) -> Step<Vec<u8>> {
    let run = extant(["tar", image]);
    match run.code {
        0 => Ok(run.stdout),
        code => Err(format!("our reader: {code}: {}", run.stderr)),
    }
}

fn seen(image: &Path) -> Step<Tree> {
    let mount = KernelMount::try_mount(image, Mode::Untouched, OPTIONS)
        .map_err(|e| format!("Linux does not mount it: {e}"))?;
    let tree = Tree::snapshot(mount.path());
    mount.unmount();
    Ok(tree)
}

/// Runs chains; each has numbers of its own, so that it can be repeated alone.
fn run_chains(name: &str, one: fn(&mut Chain) -> Step) {
    let seed = seed_from_env(name);
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|n| n.parse::<u64>().expect("a number"))
    };
    let (only, chains) = (number("EXTANT_CHAIN"), number("EXTANT_CHAINS"));
    let began = Instant::now();
    let (mut done, mut steps) = (0, 0);
    let mut counts = Counts::new();
    let mut faults = Vec::new();
    for n in only.unwrap_or(0).. {
        let enough = match (only, chains) {
            (Some(only), _) => n > only,
            (None, Some(chains)) => n >= chains,
            (None, None) => began.elapsed() >= BUDGET && n >= 2,
        };
        if enough {
            break;
        }
        let mut chain = Chain::new(Rng::new(seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        if let Err(fault) = one(&mut chain) {
            let told = chain.told.join("\n  ");
            let fault = format!("chain {n}:\n  {told}\n{fault}");
            println!("{fault}\n");
            kept(&chain, n);
            faults.push(fault);
        }
        done += 1;
        steps += chain.told.len();
        for (what, times) in chain.counts {
            *counts.entry(what).or_default() += times;
        }
    }
    for (what, times) in counts {
        println!("{times} times: {what}");
    }
    let seconds = began.elapsed().as_secs();
    println!(
        "{name}: {done} chains, {steps} steps, {seconds} s, {} faults",
        faults.len()
    );
    assert!(
        faults.is_empty(),
        "seed {seed:#x}, {} faults:\n{}",
        faults.len(),
        faults.join("\n\n")
    );
}

fn kept(chain: &Chain, n: u64) {
    let Some(dir) = std::env::var_os("EXTANT_CHAIN_KEPT").map(PathBuf::from) else {
        return;
    };
    for (file, name) in [("before.img", "before"), ("fs.img", "after")] {
        let from = chain.place.join(file);
        if from.exists() {
            let to = dir.join(format!("{n}-{name}.img"));
            copy_of(&from.display().to_string(), &to.display().to_string());
        }
    }
}
