//! Random archives beside GNU tar and bsdtar, which extract them: the same tree, or a refusal.
//!
//! `EXTANT_ARCHIVES` says how many; `EXTANT_SEED` repeats a run. What two programs do differently
//! is no matter of right and wrong: a tree must be that of one of them.

use super::archive::Tar;
use super::*;
use extant_mkfs::source::{TarOptions, read_tar};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::BTreeMap;

/// Archives in a usual run: about ten seconds.
const ARCHIVES: u64 = 150;

/// What is compared of a file: kind, permissions, owner, size or target, content, and which names
/// are the same file.
type Listing = BTreeMap<String, String>;

/// Names that meet each other often.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "a/b", "c/d", "a/b/c"];

fn random(rng: &mut Rng) -> Vec<u8> {
    let mut tar = Tar::new();
    for number in 0..rng.between(1, 7) {
        let name = *rng.pick(&NAMES);
        let other = *rng.pick(&NAMES);
        if rng.one_in(8) {
            let long = format!("{name}/{}", "n".repeat(rng.between(90, 160) as usize));
            if rng.one_in(2) {
                tar = tar
                    .pax(b'x', &[("path", &long)])
                    .file("short", b"long by pax");
            } else {
                tar = tar
                    .member("././@LongLink", b'L', "", format!("{long}\0").as_bytes())
                    .file("short", b"long by gnu");
            }
            continue;
        }
        if rng.one_in(8) {
            let list = "user::rw-,group::r--,other::---,user:77:rwx,mask::r-x";
            tar = tar.pax(b'x', &[("SCHILY.acl.access", list)]);
        } else if rng.one_in(8) {
            tar = tar.pax(
                b'x',
                &[("SCHILY.xattr.user.k", "value"), ("mtime", "12345.5")],
            );
        }
        let up = "../".repeat(name.matches('/').count());
        let member = match rng.below(9) {
            0..=2 => (b'0', String::new()),
            3 | 4 => (b'5', String::new()),
            5 => (b'2', format!("{up}{other}")),
            6 => (b'1', other.to_owned()),
            7 => (b'6', String::new()),
            _ => (b'7', String::new()),
        };
        let data = if matches!(member.0, b'0' | b'7') {
            format!("content {number}")
        } else {
            String::new()
        };
        tar = tar.member(name, member.0, &member.1, data.as_bytes());
    }
    tar.end()
}

/// What a directory holds.
fn found(root: &Path) -> Listing {
    let mut listing = Listing::new();
    let mut seen: BTreeMap<u64, String> = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    let mut paths = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                waiting.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let name = path
            .strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let meta = path.symlink_metadata().unwrap();
        let what = if meta.is_file() {
            String::from_utf8(fs::read(&path).unwrap()).unwrap()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            String::new()
        };
        // Which directories tar has made without being told is a matter of umask and time.
        let first = if meta.is_dir() {
            name.clone()
        } else {
            seen.entry(meta.ino())
                .or_insert_with(|| name.clone())
                .clone()
        };
        let text = format!(
            "{:o} {}:{} {what:?} as {first}",
            meta.mode(),
            meta.uid(),
            meta.gid()
        );
        listing.insert(name, text);
    }
    listing
}

/// What a tree holds, in the same words.
fn ours(tree: &Tree) -> Listing {
    let mut listing = Listing::new();
    let mut seen: BTreeMap<NodeId, String> = BTreeMap::new();
    let mut waiting = vec![(NodeId::ROOT, String::new())];
    let mut names = BTreeMap::new();
    while let Some((dir, above)) = waiting.pop() {
        for (name, id) in tree.children(dir) {
            let name = format!("{above}{}", String::from_utf8_lossy(name));
            if tree.node(id).is_dir() {
                waiting.push((id, format!("{name}/")));
            }
            names.insert(std::path::PathBuf::from(&name), id);
        }
    }
    for (path, id) in names {
        let name = path.to_str().unwrap().to_owned();
        let node = tree.node(id);
        let what = match node.kind() {
            FileType::Regular => {
                let mut bytes = vec![0; node.size as usize];
                tree.read_at(id, 0, &mut bytes).unwrap();
                String::from_utf8(bytes).unwrap()
            }
            FileType::Symlink => {
                String::from_utf8_lossy(tree.symlink_target(id).unwrap()).into_owned()
            }
            _ => String::new(),
        };
        let first = if node.is_dir() {
            name.clone()
        } else {
            seen.entry(id).or_insert_with(|| name.clone()).clone()
        };
        listing.insert(
            name,
            format!(
                "{:o} {}:{} {what:?} as {first}",
                node.mode, node.uid, node.gid
            ),
        );
    }
    listing
}

/// What a program extracts; `None` if it says that it could not do all of it.
fn extracted(program: &str, args: &[&str], archive: &Path, root: &Path) -> Option<Listing> {
    let _ = fs::remove_dir_all(root);
    fs::create_dir(root).unwrap();
    let run = tool(program)
        .args(args)
        .arg("-C")
        .arg(root)
        .arg("-f")
        .arg(archive)
        .run();
    (run.code == 0).then(|| found(root))
}

#[test]
fn random_archives_give_the_tree_that_gnu_tar_or_bsdtar_extracts_or_are_refused() {
    require!(Root);
    let seed = seed_from_env("archives");
    let archives =
        std::env::var("EXTANT_ARCHIVES").map_or(ARCHIVES, |text| text.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let (archive, root) = (dir.path().join("archive"), dir.path().join("root"));
    let mut rng = Rng::new(seed);
    let (mut same, mut refused, mut alone) = (0, 0, 0);
    let mut faults = Vec::new();
    for number in 0..archives {
        let bytes = random(&mut rng);
        fs::write(&archive, &bytes).unwrap();
        let tree = read_tar(&archive, &TarOptions::default());
        let gnu = extracted(
            "tar",
            &[
                "-x",
                "-p",
                "-P",
                "--acls",
                "--numeric-owner",
                "--same-owner",
            ],
            &archive,
            &root,
        );
        let bsd = extracted(
            "bsdtar",
            &["-x", "-p", "-P", "--acls", "--numeric-owner"],
            &archive,
            &root,
        );
        match tree {
            Err(_) => refused += 1,
            Ok(tree) => {
                let ours = ours(&tree);
                if gnu.is_none() && bsd.is_none() {
                    // Neither could, and ours makes what container tools make: directories behind
                    // links that lead nowhere yet.
                    alone += 1;
                } else if gnu.as_ref() == Some(&ours) || bsd.as_ref() == Some(&ours) {
                    same += 1;
                } else {
                    let listed = tool("tar").args(["-tvf"]).arg(&archive).run().text();
                    faults.push(format!(
                        "archive {number}:\n{listed}ours {ours:#?}\ntar {gnu:#?}\nbsdtar {bsd:#?}"
                    ));
                }
            }
        }
    }
    println!("{same} the same, {refused} refused, {alone} that neither tar could extract");
    assert!(
        same * 3 > archives,
        "most archives are extracted by somebody"
    );
    assert!(
        faults.is_empty(),
        "seed {seed}, {} faults, the first:\n{}",
        faults.len(),
        faults[0]
    );
}
