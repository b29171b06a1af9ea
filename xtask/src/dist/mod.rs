//! `cargo xtask dist`: what is given away, the same bytes each time it is made.
//!
//! | file | owns |
//! |---|---|
//! | `content` | files, links and directories by their paths |
//! | `program` | the static program: building it, and what it has to be |
//! | `notices` | licences of what is linked into the program |
//! | `tar` | archives |
//! | `deb` | packages for Debian |
//! | `rpm` | packages for Fedora and others |
//! | `oci` | a container image from nothing |
//! | `recipes` | what Homebrew and Nix install the archives by |
//! | `tools` | programs that compress and digest |
//!
//! Everything is made of [`Content`] in memory, whose items belong to root and are of one moment.

mod content;
mod deb;
mod notices;
mod oci;
mod program;
mod recipes;
mod rpm;
mod tar;
mod tools;

use crate::programs::{Done, missing, succeed};
use content::{Content, Item};
use program::Build;
use recipes::Archive;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) use program::{DEFAULT_TARGET, Variant};

pub(crate) const HELP: &str = "\
Make what is given away: a static program, and of it a tarball, a deb, an rpm, a container image from nothing as an
OCI archive, a formula for Homebrew, an expression for Nix, and SHA256SUMS. Each has the manual pages, completions, the
link mount.fuse.extant, and the licences of all that is in the program.

Usage: cargo xtask dist [--target TRIPLE]... [--variant NAME]... [--out DIR] [--program FILE] [--features LIST]
                        [--from ADDRESS] [--release N]

Options:
  --target TRIPLE   What the program is built for [default: x86_64-unknown-linux-musl]; several make one set
  --variant NAME    full, or small: below 8 MB, slower, without images behind HTTP and in object stores, TLS, formats of
                    images and the prompt of edit; a fault of the program ends it [default: full]; both make one set
  --out DIR         Where everything goes [default: target/dist-packages]
  --program FILE    A static program that is there already, of the one target and variant
  --features LIST   Build it with these features, as cargo takes them, in place of those of the variant (none: \"\")
  --from ADDRESS    Where the archives will be fetched from
                    [default: https://github.com/extant-fs/extant/releases/download/vVERSION]
  --release N       Of packages with the same version the later ones have higher numbers [default: 1]

The moment of everything is SOURCE_DATE_EPOCH, or that of the commit. A target of musl needs its standard library
(rustup target add TRIPLE) and musl-gcc (package musl-tools). EXTANT_CROSS_CARGO and EXTANT_CROSS_ARGS name another
cargo and its arguments, such as one that builds the standard library itself. Targets of glibc are linked statically too:
such a program looks up names of hosts by what the system has of the same glibc.";

/// A processor, by what others call it.
#[derive(Debug)]
pub(crate) struct Processor {
    /// In targets.
    name: &'static str,
    pub(crate) deb: &'static str,
    rpm: &'static str,
    /// What packages say that they provide for it.
    rpm_isa: &'static str,
    rpm_number: u16,
    oci: &'static str,
    oci_variant: &'static str,
}

const PROCESSORS: &[Processor] = &[
    Processor {
        name: "x86_64",
        deb: "amd64",
        rpm: "x86_64",
        rpm_isa: "x86-64",
        rpm_number: 1,
        oci: "amd64",
        oci_variant: "",
    },
    Processor {
        name: "aarch64",
        deb: "arm64",
        rpm: "aarch64",
        rpm_isa: "aarch-64",
        rpm_number: 19,
        oci: "arm64",
        oci_variant: "",
    },
    Processor {
        name: "armv7",
        deb: "armhf",
        rpm: "armv7hl",
        rpm_isa: "armv7hl-32",
        rpm_number: 12,
        oci: "arm",
        oci_variant: "v7",
    },
    Processor {
        name: "i686",
        deb: "i386",
        rpm: "i686",
        rpm_isa: "x86-32",
        rpm_number: 1,
        oci: "386",
        oci_variant: "",
    },
    Processor {
        name: "s390x",
        deb: "s390x",
        rpm: "s390x",
        rpm_isa: "s390-64",
        rpm_number: 15,
        oci: "s390x",
        oci_variant: "",
    },
];

impl Processor {
    /// That of a target.
    pub(crate) fn of(target: &str) -> Done<&'static Self> {
        let name = target.split('-').next().unwrap_or_default();
        let found = PROCESSORS.iter().find(|processor| processor.name == name);
        found.ok_or(format!(
            "packages have no name for the processor of {target}"
        ))
    }
}

/// What packages say of themselves.
pub(crate) struct About<'a> {
    /// The package's name.
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// Later packages of one version have higher numbers.
    pub(crate) release: &'a str,
    pub(crate) processor: &'static Processor,
    /// Of when everything is, in seconds since 1970.
    pub(crate) moment: u64,
    pub(crate) commit: Option<&'a str>,
}

impl About<'_> {
    const SUMMARY: &'static str = "Make, change, check and mount ext4 images in user space";
    const HOMEPAGE: &'static str = "https://github.com/extant-fs/extant";
    const MAINTAINER: &'static str = "Extant developers <extant-fs@users.noreply.github.com>";
    const DESCRIPTION: &'static str = "\
Extant reads and writes ext2, ext3 and ext4 file systems without root,
without a mount and without a virtual machine. It makes images from
directories, archives and layers, changes files in them, compares,
checks, repairs, resizes and mounts them through FUSE, and opens images
in formats of virtual machines and behind NBD, HTTP and object stores.";
}

/// What is asked for.
struct Plan {
    targets: Vec<String>,
    variants: Vec<Variant>,
    out: PathBuf,
    program: Option<PathBuf>,
    features: Option<String>,
    from: Option<String>,
    release: String,
}

impl Plan {
    fn new(root: &Path, args: &[String]) -> Done<Self> {
        let mut plan = Self {
            targets: Vec::new(),
            variants: Vec::new(),
            out: root.join("target/dist-packages"),
            program: None,
            features: None,
            from: None,
            release: "1".to_owned(),
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--target" => plan.targets.push(value()?.clone()),
                "--variant" => plan.variants.push(Variant::of(value()?)?),
                "--out" => plan.out = value()?.into(),
                "--program" => plan.program = Some(value()?.into()),
                "--features" => plan.features = Some(value()?.clone()),
                "--from" => plan.from = Some(value()?.trim_end_matches('/').to_owned()),
                "--release" => plan.release.clone_from(value()?),
                other => return Err(format!("unknown option {other:?}")),
            }
        }
        if plan.targets.is_empty() {
            plan.targets.push(DEFAULT_TARGET.to_owned());
        }
        if plan.variants.is_empty() {
            plan.variants.push(Variant::Full);
        }
        if plan.program.is_some() && plan.targets.len() * plan.variants.len() > 1 {
            return Err("--program is of one target and variant: give one of each".to_owned());
        }
        let is_number = plan.release.bytes().all(|b| b.is_ascii_digit());
        if plan.release.is_empty() || !is_number {
            return Err(format!("--release {}: use a number", plan.release));
        }
        for target in &plan.targets {
            Processor::of(target)?;
            if !target.contains("-linux-") {
                return Err(format!("{target}: the program runs on Linux alone"));
            }
        }
        Ok(plan)
    }
}

/// The chore.
pub(crate) fn dist(root: &Path, args: &[String]) -> ExitCode {
    let plan = match Plan::new(root, args) {
        Ok(plan) => plan,
        Err(e) => {
            eprintln!("{e}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(root, &plan) {
        Ok(made) => {
            for (name, bytes) in made {
                println!("{bytes:>10}  {}", plan.out.join(name).display());
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Makes what the command line asks for, and says how large each file is.
pub(crate) fn make(root: &Path, args: &[String]) -> Done<Vec<(String, usize)>> {
    run(root, &Plan::new(root, args)?)
}

/// Builds the program for a target, and says where it is.
pub(crate) fn build(root: &Path, target: &str, variant: Variant) -> Done<PathBuf> {
    let build = Build {
        root,
        target,
        variant,
        features: variant.features(None),
    };
    build.run(commit(root).as_deref(), moment(root)?)
}

/// Makes everything, and says how large each file is.
fn run(root: &Path, plan: &Plan) -> Done<Vec<(String, usize)>> {
    let without = missing(tools::PROGRAMS);
    if !without.is_empty() {
        return Err(format!("not installed: {}", without.join(", ")));
    }
    let manifest = read(&root.join("Cargo.toml"))?;
    let version = xtask::install::version(&manifest)?;
    let (moment, commit) = (moment(root)?, commit(root));
    let mut made = Vec::new();
    let mut archives = Vec::new();
    let pairs = plan.targets.iter();
    for (target, variant) in pairs.flat_map(|t| plan.variants.iter().map(move |v| (t, *v))) {
        let build = Build {
            root,
            target,
            variant,
            features: variant.features(plan.features.as_deref()),
        };
        let program = match &plan.program {
            Some(program) => program.clone(),
            None => build.run(commit.as_deref(), moment)?,
        };
        let about = About {
            name: variant.package(),
            version: &version,
            release: &plan.release,
            processor: Processor::of(target)?,
            moment,
            commit: commit.as_deref(),
        };
        let content = gather(&build, &program, moment)?;
        let packages = packages(root, &about, target, &content)?;
        let archive = packages.first().ok_or("no archive")?;
        if variant == Variant::Full {
            archives.push(Archive {
                target: target.clone(),
                name: archive.0.clone(),
                sha256: tools::sha256(&archive.1)?,
            });
        }
        made.extend(packages);
    }
    let from = plan
        .from
        .clone()
        .unwrap_or_else(|| format!("{}/releases/download/v{version}", About::HOMEPAGE));
    if !archives.is_empty() {
        let mut add = |name: &str, text: String| made.push((name.to_owned(), text.into_bytes()));
        add("extant.rb", recipes::homebrew(&version, &from, &archives));
        add("extant.nix", recipes::nix(&version, &from, &archives));
    }
    let mut sums = String::new();
    for (name, bytes) in &made {
        sums.push_str(&format!("{}  {name}\n", tools::sha256(bytes)?));
    }
    made.push(("SHA256SUMS".to_owned(), sums.into_bytes()));
    // What is there from an earlier run is of other versions, or replaced.
    let failed = |e: std::io::Error| format!("{}: {e}", plan.out.display());
    fs::create_dir_all(&plan.out).map_err(failed)?;
    for (name, bytes) in &made {
        fs::write(plan.out.join(name), bytes).map_err(failed)?;
    }
    Ok(made
        .into_iter()
        .map(|(name, bytes)| (name, bytes.len()))
        .collect())
}

/// The packages of one target with their names, the archive first.
fn packages(
    root: &Path,
    about: &About<'_>,
    target: &str,
    content: &Content,
) -> Done<Vec<(String, Vec<u8>)>> {
    let (version, release, processor) = (about.version, about.release, about.processor);
    let name = about.name;
    let called = format!("{name}-{version}-{target}");
    let archive = tar::archive(&content.below(&called), "", about.moment)?;
    let rooted = content.below("usr").changed(packed)?;
    let is_licence = |path: &str| path.contains("/LICENSE-");
    // The deb has its licences in a form of its own.
    let mut debian = Content::new();
    for (path, item) in rooted.iter().filter(|(path, _)| !is_licence(path)) {
        debian.add(path, item.clone());
    }
    let documents = deb::documents(
        about,
        &read(&root.join("LICENSE-MIT"))?,
        &date(about.moment, "-R")?,
    )?;
    for (path, item) in documents.iter() {
        debian.add(path, item.clone());
    }
    // What a container needs: no manual page is read there.
    let mut bare = Content::new();
    let is_needed = |path: &str| {
        path == "usr/bin/extant" || path.ends_with("/third-party.gz") || is_licence(path)
    };
    for (path, item) in rooted.iter().filter(|(path, _)| is_needed(path)) {
        bare.add(path, item.clone());
    }
    let moment = date(about.moment, "+%Y-%m-%dT%H:%M:%SZ")?;
    Ok(vec![
        (format!("{called}.tar.gz"), tools::gzip(&archive)?),
        (
            format!("{name}_{version}-{release}_{}.deb", processor.deb),
            deb::package(about, &debian)?,
        ),
        (
            format!("{name}-{version}-{release}.{}.rpm", processor.rpm),
            rpm::package(about, &rooted)?,
        ),
        (
            format!("{called}.oci.tar"),
            oci::archive(about, &bare, &moment)?,
        ),
    ])
}

/// Long texts of packages, compressed as systems keep them, and the page of the helper of mount(8).
fn packed(path: &str, item: &Item) -> Done<Option<(String, Item)>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = match name {
        "CHANGELOG.md" => "changelog.gz".to_owned(),
        "THIRD-PARTY" => "third-party.gz".to_owned(),
        page if path.contains("/man/") && page.contains('.') => format!("{page}.gz"),
        _ => return Ok(None),
    };
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let item = match item {
        Item::File { bytes, .. } => Item::text(tools::gzip(bytes)?),
        Item::Link(target) => Item::Link(format!("{target}.gz")),
        Item::Dir | Item::Shared => return Ok(None),
    };
    Ok(Some((format!("{folder}/{name}"), item)))
}

/// What is installed, below a prefix.
fn gather(build: &Build<'_>, program: &Path, moment: u64) -> Done<Content> {
    let bytes = fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    build.check(&bytes)?;
    let (root, target) = (build.root, build.target);
    let mut content = Content::new();
    content.add("bin/extant", Item::program(bytes));
    content.add(
        "sbin/mount.fuse.extant",
        Item::Link("../bin/extant".to_owned()),
    );
    // Those of another processor are told by one that runs here.
    let runs = if target.starts_with(std::env::consts::ARCH) {
        fs::canonicalize(program).map_err(|e| format!("{}: {e}", program.display()))?
    } else {
        crate::programs::build_extant(root)?
    };
    let ask = |args: &[&str]| {
        let mut command = Command::new(&runs);
        command
            .args(args)
            .env("SOURCE_DATE_EPOCH", moment.to_string());
        command
    };
    let pages = std::env::temp_dir().join(format!("extant-dist.{}", std::process::id()));
    let _ = fs::remove_dir_all(&pages);
    fs::create_dir_all(&pages).map_err(|e| format!("{}: {e}", pages.display()))?;
    let written = succeed(ask(&["man", "--dir"]).arg(&pages)).and_then(|_| read_all(&pages));
    let _ = fs::remove_dir_all(&pages);
    for (name, bytes) in written? {
        content.add(&format!("share/man/man1/{name}"), Item::text(bytes));
    }
    let page = Item::Link("../man1/extant-mount.1".to_owned());
    content.add("share/man/man8/mount.fuse.extant.8", page);
    for (shell, place) in xtask::install::COMPLETIONS {
        let script = succeed(&mut ask(&["completions", shell]))?;
        content.add(place, Item::text(script));
    }
    let documents = format!("share/doc/{}", build.variant.package());
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
        let text = read(&root.join(name))?;
        content.add(&format!("{documents}/{name}"), Item::text(text));
    }
    let notices = notices::all(|| program::cargo(root), target, &build.features)?;
    content.add(&format!("{documents}/THIRD-PARTY"), Item::text(notices));
    Ok(content)
}

/// All files of a folder.
fn read_all(folder: &Path) -> Done<Vec<(String, Vec<u8>)>> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let bytes = fs::read(entry.path()).map_err(failed)?;
        files.push((entry.file_name().to_string_lossy().into_owned(), bytes));
    }
    Ok(files)
}

fn read(path: &Path) -> Done<String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Of when everything is: what the environment says, or the time of the commit.
fn moment(root: &Path) -> Done<u64> {
    if let Some(said) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let seconds = said.to_str().and_then(|said| said.parse().ok());
        return seconds
            .filter(|&seconds| seconds <= u64::from(u32::MAX))
            .ok_or_else(|| format!("SOURCE_DATE_EPOCH is {said:?}: use seconds since 1970"));
    }
    let mut log = Command::new("git");
    let log = log.current_dir(root).args(["log", "-1", "--format=%ct"]);
    let time = succeed(log).ok().and_then(|time| time.trim().parse().ok());
    time.ok_or_else(|| "there is no commit here: say the time with SOURCE_DATE_EPOCH".to_owned())
}

/// The commit, by as much of its name as the program says; none where there is no checkout.
fn commit(root: &Path) -> Option<String> {
    let mut head = Command::new("git");
    let head = succeed(head.current_dir(root).args(["rev-parse", "HEAD"])).ok()?;
    let dirty = if crate::record::build(root).ok()?.ends_with("-dirty") {
        "-dirty"
    } else {
        ""
    };
    Some(format!("{}{dirty}", head.get(..12)?))
}

/// A moment as date(1) writes it.
fn date(moment: u64, form: &str) -> Done<String> {
    let mut date = Command::new("date");
    date.args(["-u", "-d", &format!("@{moment}"), form])
        .env("LC_ALL", "C");
    Ok(succeed(&mut date)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::content::{Content, Item};
    use super::{About, Plan, Processor, packages, packed};
    use std::path::Path;

    /// What tests of all kinds of packages are about.
    pub(super) fn about() -> About<'static> {
        About {
            name: "extant",
            version: "1.2.3",
            release: "1",
            processor: Processor::of("x86_64-unknown-linux-musl").unwrap(),
            moment: 86400,
            commit: None,
        }
    }

    /// A program and its link.
    pub(super) fn small() -> Content {
        let mut content = Content::new();
        content.add("usr/bin/extant", Item::program("hello"));
        content.add(
            "usr/sbin/mount.fuse.extant",
            Item::Link("../bin/extant".into()),
        );
        content
    }

    #[test]
    fn the_same_content_makes_the_same_packages() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut content = Content::new();
        content.add("bin/extant", Item::program([9; 4000]));
        content.add("share/man/man1/extant.1", Item::text("page"));
        content.add("share/doc/extant/CHANGELOG.md", Item::text("new"));
        let target = "x86_64-unknown-linux-musl";
        let made = || packages(root, &about(), target, &content).unwrap();
        let first = made();
        assert_eq!(first, made());
        let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "extant-1.2.3-x86_64-unknown-linux-musl.tar.gz",
                "extant_1.2.3-1_amd64.deb",
                "extant-1.2.3-1.x86_64.rpm",
                "extant-1.2.3-x86_64-unknown-linux-musl.oci.tar",
            ]
        );
    }

    #[test]
    fn pages_of_packages_are_compressed_and_links_name_them() {
        let name = |path: &str, item: Item| packed(path, &item).unwrap();
        let (page, _) = name("usr/share/man/man1/extant.1", Item::text("x")).unwrap();
        assert_eq!(page, "usr/share/man/man1/extant.1.gz");
        let link = Item::Link("../man1/extant-mount.1".into());
        let (path, link) = name("usr/share/man/man8/mount.fuse.extant.8", link).unwrap();
        assert_eq!(path, "usr/share/man/man8/mount.fuse.extant.8.gz");
        assert_eq!(link, Item::Link("../man1/extant-mount.1.gz".into()));
        assert_eq!(name("usr/share/man/man1", Item::Dir), None);
        assert_eq!(name("usr/bin/extant", Item::program("x")), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [
            &["--target", "vax-unknown-linux-gnu"][..],
            &["--target", "x86_64-apple-darwin"],
            &["--target"],
            &["--release", "1.a"],
            &["--release", ""],
            &[
                "--program",
                "x",
                "--target",
                "i686-unknown-linux-musl",
                "--target",
                "s390x-unknown-linux-gnu",
            ],
            &["--variant", "tiny"],
            &["--program", "x", "--variant", "full", "--variant", "small"],
            &["elephant"],
        ] {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            assert!(Plan::new(Path::new("/"), &args).is_err(), "{args:?}");
        }
    }
}
