//! What is given away, judged by those that will take it: the deb in a clean Debian, the rpm by
//! rpm, the container image by skopeo and umoci, recipes by what reads them.

use super::{Outcome, Site};
use crate::debian;
use crate::dist::{self, Variant};
use crate::programs::{Done, make_dir, missing, succeed, system};
use crate::toolchain::Toolchain;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs without which nothing is judged, and their packages.
const NEEDED: &[(&str, &str)] = &[
    ("chroot", "coreutils"),
    ("dpkg-deb", "dpkg"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
];

/// In a mount namespace of its own: a Debian as it is installed, over which changes lie in memory.
const OUTSIDE: &str = r#"
tree=$1 work=$2 packages=$3
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/over" "$work/root"
mount -t overlay -o "lowerdir=$tree,upperdir=$work/upper,workdir=$work/over" none "$work/root"
root=$work/root
mount -t proc none "$root/proc"
mount --rbind /dev "$root/dev"
mkdir "$root/tmp/dist"
cp "$packages"/first.deb "$packages"/second.deb "$packages"/inside.sh "$root/tmp/dist/"
chroot "$root" /bin/sh -eu /tmp/dist/inside.sh
"#;

/// In that Debian: the package installed, used, upgraded and removed.
const INSIDE: &str = r#"
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /tmp/dist
everything() {
    find / \( -path /proc -o -path /dev -o -path /sys -o -path /tmp -o -path /var/lib/dpkg \
        -o -path /var/log \) -prune -o -print | sort
}
version() { dpkg-query -W -f '${Version}' NAME; }
everything > before

dpkg -i first.deb > told 2>&1 || { cat told; exit 1; }
first=$(version)
dpkg --verify NAME > wrong
test ! -s wrong
extant --version > said
grep -q '^commit: ' said
grep -q '^target: ' said
mkdir tree
echo value > tree/name
extant mkfs a.img --from tree --size 8M
test "$(extant cat a.img:/name)" = value
echo more | extant write a.img:/other
extant check a.img > found
e2fsck -fn a.img > found 2>&1
mkdir mnt
mount -t fuse.extant /tmp/dist/a.img /tmp/dist/mnt
test "$(cat mnt/other)" = more
echo mounted > mnt/third
extant umount mnt
test "$(extant cat a.img:/third)" = mounted
e2fsck -fn a.img > found 2>&1
gzip -dc /usr/share/man/man1/extant.1.gz | grep -q '^\.TH EXTANT 1 '
gzip -dc /usr/share/man/man8/mount.fuse.extant.8.gz | grep -q '^\.TH EXTANT-MOUNT 1 '
bash -n /usr/share/bash-completion/completions/extant
gzip -dc /usr/share/doc/NAME/third-party.gz | grep -q Copyright
test -s /usr/share/doc/NAME/copyright

dpkg -i second.deb > told 2>&1 || { cat told; exit 1; }
second=$(version)
dpkg --compare-versions "$second" gt "$first"
dpkg --verify NAME > wrong
test ! -s wrong
test "$(extant cat a.img:/name)" = value

dpkg -r NAME > told 2>&1 || { cat told; exit 1; }
test ! -e /usr/bin/extant
everything > after
cmp before after
dpkg -P NAME > told 2>&1 || true
echo "$first $second"
"#;

/// Makes and judges everything.
pub(super) fn packages(site: &Site<'_>) -> Done<Outcome> {
    let uid = succeed(Command::new("id").arg("-u"))?;
    if uid.trim() != "0" {
        return Ok(Outcome::Skipped(
            "only root may use a Debian of its own".to_owned(),
        ));
    }
    let without = missing(&[NEEDED, debian::PROGRAMS].concat());
    if !without.is_empty() {
        return Ok(Outcome::Skipped(format!(
            "{} is not installed",
            without.join(", ")
        )));
    }
    let gnu = dist::DEFAULT_TARGET.replace("-musl", "-gnu");
    let target = if Toolchain::find().has(dist::DEFAULT_TARGET) {
        dist::DEFAULT_TARGET
    } else {
        println!("{} cannot be built for here: {gnu}", dist::DEFAULT_TARGET);
        gnu.as_str()
    };
    let (mut seen, mut versions) = (Vec::new(), Vec::new());
    for variant in variants()? {
        let judged = of_variant(site, target, variant)?;
        seen.extend(judged.0);
        versions = judged.1;
    }
    Ok(Outcome::Passed {
        seen: seen.join("; "),
        versions: versions.join(", "),
    })
}

/// The forms of the program that are made: both, or what `EXTANT_DIST_VARIANT` names.
fn variants() -> Done<Vec<Variant>> {
    match std::env::var("EXTANT_DIST_VARIANT") {
        Ok(name) => Ok(vec![Variant::of(&name)?]),
        Err(_) => Ok(vec![Variant::Full, Variant::Small]),
    }
}

/// Makes and judges one form of the program: what was seen, and the versions of what was used.
fn of_variant(site: &Site<'_>, target: &str, variant: Variant) -> Done<(Vec<String>, Vec<String>)> {
    let name = variant.package();
    let place = emptied(site.root.join("target/everywhere/dist").join(name))?;
    let (out, again) = (place.join("out"), place.join("again"));
    let program = dist::build(site.root, target, variant)?;
    let form = if variant == Variant::Full {
        "full"
    } else {
        "small"
    };
    let make = |out: &Path, release: &str| {
        let words = ["--target", target, "--variant", form, "--release", release];
        let mut args = words.map(str::to_owned).to_vec();
        for (option, path) in [("--out", out), ("--program", program.as_path())] {
            args.extend([option.to_owned(), path.display().to_string()]);
        }
        dist::make(site.root, &args)
    };
    let made = make(&out, "1")?;
    if make(&again, "1")? != made {
        return Err("the second time other files were made".to_owned());
    }
    for (name, _) in &made {
        succeed(
            Command::new("cmp")
                .arg(out.join(name))
                .arg(again.join(name)),
        )?;
    }
    let mut sums = Command::new("sha256sum");
    succeed(sums.current_dir(&out).args(["--quiet", "-c", "SHA256SUMS"]))?;
    make(&again, "2")?;
    let file = |end: &str| the_one(&out, "", end);
    let (mut seen, mut versions) = (Vec::new(), Vec::new());
    archive(&file(".tar.gz")?, &place)?;
    let bytes = fs::metadata(&program).map_err(|e| e.to_string())?.len();
    seen.push(format!(
        "`{name}`: a static program for {target} of {bytes} bytes; packed twice, all files are alike"
    ));
    let deb = file(".deb")?;
    let (tree, told) = in_debian(site, &place, name, &deb, &the_one(&again, "-2_", ".deb")?)?;
    seen.push(format!(
        "Debian installed the deb, used it (also by mount(8)), upgraded and removed it ({told})"
    ));
    versions.push(format!("Debian {}", debian::version(&tree)?));
    image(&file(".oci.tar")?, &place)?;
    seen.push("skopeo and umoci take the container image, which runs".to_owned());
    for tool in ["skopeo", "umoci"] {
        versions.push(site.version(Command::new(tool).arg("--version"))?);
    }
    let rpm = file(".rpm")?;
    let by_lintian = || lintian(&deb);
    let by_rpm = || by_rpm(&rpm, &place, name);
    let by_ruby = || reads("ruby", "-c", &out.join("extant.rb"));
    let by_nix = || reads("nix-instantiate", "--parse", &out.join("extant.nix"));
    let mut judges = vec![
        Judge::new(
            "lintian",
            "lintian",
            "finds nothing in the deb",
            &by_lintian,
        ),
        Judge::new("rpm", "rpm", "takes the rpm and installs it", &by_rpm),
    ];
    if variant == Variant::Full {
        judges.push(Judge::new("ruby", "ruby", "reads the formula", &by_ruby));
        judges.push(Judge::new(
            "nix-instantiate",
            "nix-bin",
            "reads the expression",
            &by_nix,
        ));
    }
    for judge in judges {
        let program = judge.program;
        let gone = missing(&[(program, judge.package)]);
        if !gone.is_empty() {
            println!("SKIPPED: {program}: {} is not installed", gone.join(", "));
            seen.push(format!("{program} was not asked"));
            continue;
        }
        (judge.ask)().map_err(|why| format!("{program}: {why}"))?;
        seen.push(format!("{program} {}", judge.told));
        versions.push(site.version(Command::new(program).arg("--version"))?);
    }
    Ok((seen, versions))
}

/// A program that is asked where it is there.
struct Judge<'a> {
    program: &'a str,
    /// The Debian package that has it.
    package: &'a str,
    /// What is said when it agrees.
    told: &'a str,
    ask: &'a dyn Fn() -> Done<()>,
}

impl<'a> Judge<'a> {
    fn new(
        program: &'a str,
        package: &'a str,
        told: &'a str,
        ask: &'a dyn Fn() -> Done<()>,
    ) -> Self {
        Self {
            program,
            package,
            told,
            ask,
        }
    }
}

/// Has a program read a recipe.
fn reads(program: &str, option: &str, recipe: &Path) -> Done<()> {
    succeed(Command::new(program).arg(option).arg(recipe)).map(drop)
}

/// The one file of a folder whose name has this in it, and ends like this.
fn the_one(folder: &Path, part: &str, end: &str) -> Done<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(part) && name.ends_with(end)
    });
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        _ => Err(format!("not one {part}*{end} in {}", folder.display())),
    }
}

/// An empty folder.
fn emptied(folder: PathBuf) -> Done<PathBuf> {
    let _ = fs::remove_dir_all(&folder);
    make_dir(&folder)?;
    Ok(folder)
}

/// The archive, unpacked where a user would: its program runs.
fn archive(archive: &Path, place: &Path) -> Done<()> {
    let folder = emptied(place.join("unpacked"))?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf")
        .arg(archive)
        .arg("--strip-components=1")
        .arg("-C");
    succeed(tar.arg(&folder))?;
    for run in ["bin/extant", "sbin/mount.fuse.extant"] {
        if !folder.join(run).exists() {
            return Err(format!("the archive has no {run}"));
        }
    }
    let told = succeed(Command::new(folder.join("bin/extant")).arg("--version"))?;
    if told.contains("commit: unknown") {
        return Err("the program names no commit".to_owned());
    }
    Ok(())
}

/// The deb, in a clean Debian: the root, and the two versions that were there.
fn in_debian(
    site: &Site<'_>,
    place: &Path,
    name: &str,
    first: &Path,
    second: &Path,
) -> Done<(PathBuf, String)> {
    let tree = debian::clean_tree(site.root)?;
    let given = emptied(place.join("given"))?;
    let failed = |e: std::io::Error| format!("{}: {e}", given.display());
    fs::copy(first, given.join("first.deb")).map_err(failed)?;
    fs::copy(second, given.join("second.deb")).map_err(failed)?;
    fs::write(given.join("inside.sh"), INSIDE.replace("NAME", name)).map_err(failed)?;
    let work = emptied(place.join("work"))?;
    // What is mounted and what runs there ends with it.
    let mut run = system("unshare");
    run.args([
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
    ]);
    run.args(["sh", "-euc", OUTSIDE, "sh"])
        .args([&tree, &work, &given]);
    let told = succeed(&mut run)?;
    let last = told.lines().last().unwrap_or_default();
    Ok((tree, last.replace(' ', ", then ")))
}

/// The container image, copied and unpacked by others: its program runs as in a container.
fn image(archive: &Path, place: &Path) -> Done<()> {
    let folder = emptied(place.join("container"))?;
    let from = format!("oci-archive:{}", archive.display());
    let told = succeed(Command::new("skopeo").args(["inspect", &from]))?;
    if !told.contains("\"Architecture\"") {
        return Err(format!("skopeo inspect: {told}"));
    }
    let to = format!("oci:{}:latest", folder.join("layout").display());
    succeed(Command::new("skopeo").args(["copy", "--quiet", &from, &to]))?;
    let layout = format!("{}:latest", folder.join("layout").display());
    let mut unpack = Command::new("umoci");
    succeed(
        unpack
            .args(["unpack", "--image", &layout])
            .arg(folder.join("bundle")),
    )?;
    let mut run = system("chroot");
    run.arg(folder.join("bundle/rootfs"));
    succeed(run.args(["/usr/bin/extant", "--version"])).map(drop)
}

/// The deb, by the rules of Debian.
fn lintian(deb: &Path) -> Done<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--allow-root"]);
    succeed(lintian.arg(deb)).map(drop)
}

/// The rpm: its digests are right, it lists its files, and rpm installs them.
fn by_rpm(package: &Path, place: &Path, name: &str) -> Done<()> {
    let rpm = |args: &[&str]| succeed(Command::new("rpm").args(args).arg(package));
    let told = rpm(&["-K", "--nosignature"])?;
    if !told.contains("digests OK") {
        return Err(told);
    }
    let list = rpm(&["-qpl"])?;
    let folder = emptied(place.join("rpm"))?;
    let root = folder.display().to_string();
    rpm(&["--root", &root, "-i", "--nodeps", "--ignorearch"])?;
    for file in list.lines() {
        let installed = folder.join(file.trim_start_matches('/'));
        if fs::symlink_metadata(&installed).is_err() {
            return Err(format!("{file} is not installed"));
        }
    }
    let told = succeed(Command::new("rpm").args(["--root", &root, "-V", "--nodeps", name]))?;
    if !told.is_empty() {
        return Err(told);
    }
    succeed(Command::new(folder.join("usr/bin/extant")).arg("--version")).map(drop)
}
