//! Labels: judged by `setfiles`, which labels a copy of the tree, and by `selabel_lookup`.

use super::{source, xattrs};
use crate::support::{Place, extant, seen_by_linux};
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where Debian keeps the contexts of its policy.
const POLICY: &str = "/etc/selinux/default/contexts/files/file_contexts";

/// Lines of every form.
const LINES: &str = "\
# A policy in small.
/.*\tu:r:default_t:s0
/[^/]+\t--\tu:r:root_file_t:s0
/\t-d\tu:r:root_t:s0
/lost\\+found\t-d\tu:r:lost_found_t:s0
/lost\\+found/.*\t<<none>>
/usr/.*\tu:r:usr_t:s0
/usr(/.*)?/bin(/.*)?\tu:r:bin_t:s0
/usr/(.*/)?lib(64)?(/.*)?\tu:r:lib_t:s0
/usr/lib/.+\\.so(\\.[^/]*)*\t--\tu:r:shlib_t:s0
/usr/bin/sh\t-d\tu:r:wrong_t:s0
/usr/bin/.*sh\t--\tu:r:later_t:s0
/usr/bin/sh\t--\tu:r:shell_exec_t:s0
/usr/bin/[a-m]{2,4}\tu:r:short_t:s0
/etc/.*\tu:r:etc_t:s0
/etc/shadow.*\t--\tu:r:shadow_t:s0
/etc/passwd[-\\+]?\t--\tu:r:passwd_t:s0
/etc/[[:alpha:]]+[0-9]*\\.conf\tu:r:conf_t:s0
/etc/(hosts|resolv\\.conf)\tu:r:net_conf_t:s0
/dev/[^/]*tty[^/]*\t-c\tu:r:tty_t:s0
/dev/null\t-c\tu:r:null_t:s0
/dev/sd[^/]*\t-b\tu:r:disk_t:s0
/dev/log\t-s\tu:r:devlog_t:s0
/dev/[^/]*\t-p\tu:r:pipe_t:s0
/home/[^/]+/\\.ssh(/.*)?\tu:r:ssh_t:s0
/home/[^/]+/.+\tu:r:home_t:s0
/var/log(/.*)?\tu:r:log_t:s0
/var/log/.*\\.gz\t-l\tu:r:link_t:s0
/var/tmp/.*\t<<none>>
";

/// A tree of names that the lines are about, and of random ones.
fn tree(root: &Path, rng: &mut Rng, count: usize) {
    let words = [
        "usr",
        "bin",
        "lib",
        "lib64",
        "local",
        "etc",
        "home",
        "me",
        ".ssh",
        "var",
        "log",
        "tmp",
        "sh",
        "bash",
        "ab",
        "abcd",
        "a.conf",
        "b2.conf",
        "libc.so.6",
        "x.so",
        "passwd-",
        "shadow",
        "y.gz",
        "opt",
        "srv",
        "run",
        "cache",
        "www",
        "spool",
        "man",
        "share",
        "games",
        "sbin",
    ];
    let tops = ["usr", "etc", "home", "var", "opt"];
    // Which of two names decides is not the same in both.
    fs::remove_file(root.join("usr/bin/bash")).unwrap();
    for index in 0..count {
        let mut path = PathBuf::from(tops[rng.below(tops.len() as u64) as usize]);
        for _ in 0..rng.below(4) {
            path.push(words[rng.below(words.len() as u64) as usize]);
        }
        let full = root.join(&path);
        let parent = full.parent().unwrap();
        if fs::create_dir_all(parent).is_err() || full.symlink_metadata().is_ok() {
            continue;
        }
        match index % 5 {
            0 => fs::create_dir(&full).unwrap(),
            1 => symlink("nowhere", &full).unwrap(),
            _ => fs::write(&full, "x").unwrap(),
        }
    }
    for (name, kind, device) in [
        ("null", 'c', "1 3"),
        ("tty1", 'c', "4 1"),
        ("sda", 'b', "8 0"),
        ("pipe", 'p', ""),
    ] {
        let node = root.join("dev").join(name).display().to_string();
        let letter = kind.to_string();
        let mut args = vec![node.as_str(), &letter];
        args.extend(device.split_ascii_whitespace());
        tool("mknod").args(args).ok();
    }
}

/// Has `setfiles` label one copy and `mkfs` another, and compares what Linux shows.
fn compare(place: &Place, contexts: &str, root: &str) {
    let (labelled, image) = (place.arg("labelled"), place.arg("labelled.img"));
    tool("cp").args(["-a", root, &labelled]).ok();
    fs::create_dir(place.join("labelled/lost+found")).unwrap();
    tool("setfiles")
        .args(["-F", "-r", &labelled, contexts, &labelled])
        .ok();
    extant(["mkfs", "-q", &image, "--from", root, "--contexts", contexts]).ok();
    assert_clean(Path::new(&image));
    let compared = Compare {
        mtime: false,
        ctime: false,
        atime: false,
        ignore: vec![b"lost+found".to_vec()],
        ..crate::support::faithful()
    };
    let expected = Tree::snapshot(Path::new(&labelled));
    expected.assert_same(&seen_by_linux(&image), &compared);
    // So it is for what is put into an image that exists.
    for command in ["cp", "apply"] {
        let (into, all) = (place.arg("into.img"), format!("{root}/."));
        extant(["mkfs", "-q", "--force", "--size", "64M", &into]).ok();
        let at = format!("{into}:/");
        let args = match command {
            "cp" => ["cp", "-a", &all, &at],
            _ => ["apply", "-q", root, &into],
        };
        extant([&args[..], &["--contexts", contexts]].concat()).ok();
        assert_clean(Path::new(&into));
        expected.assert_same(&seen_by_linux(&into), &compared);
    }
    let theirs = tool("getfattr")
        .args([
            "--only-values",
            "-n",
            "security.selinux",
            &format!("{labelled}/lost+found"),
        ])
        .ok()
        .text();
    let ours = xattrs(&image, "/lost+found").to_string();
    assert!(
        ours.contains(theirs.trim_end_matches('\0')),
        "{theirs} {ours}"
    );
}

#[test]
fn every_file_has_the_label_that_setfiles_gives_it() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let root = source(&place);
    let mut rng = Rng::new(seed_from_env("labels"));
    tree(Path::new(&root), &mut rng, 300);
    let contexts = place.arg("file_contexts");
    fs::write(&contexts, LINES).unwrap();
    fs::write(place.join("file_contexts.local"), "/opt/.*\tu:r:opt_t:s0\n").unwrap();
    fs::write(
        place.join("file_contexts.homedirs"),
        "/home/me/note\t--\tu:r:note_t:s0\n/home/[^/]+/lib.*\tu:r:homelib_t:s0\n",
    )
    .unwrap();
    fs::write(
        place.join("file_contexts.subs"),
        "/opt/usr /usr\n/srv /var/log\n",
    )
    .unwrap();
    let subs = "# Paths that stand for others.\n/usr/local /usr\n/usr/lib64 /usr/lib\n/var/www /\n";
    fs::write(place.join("file_contexts.subs_dist"), subs).unwrap();
    compare(&place, &contexts, &root);
}

#[test]
fn labels_of_a_whole_policy_are_those_of_setfiles() {
    require!(Root, KernelExt4);
    assert!(
        Path::new(POLICY).exists(),
        "{POLICY} is missing: install selinux-policy-default"
    );
    let place = Place::in_memory();
    let root = source(&place);
    let mut rng = Rng::new(seed_from_env("labels of a policy"));
    tree(Path::new(&root), &mut rng, 400);
    // Paths that the policy itself names.
    let policy = fs::read_to_string(POLICY).unwrap();
    let names = policy.lines().filter_map(|line| {
        let path = line.split_whitespace().next()?.replace('\\', "");
        let is_plain = path
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
        (is_plain && path.len() > 1).then_some(path)
    });
    for (index, name) in names.enumerate() {
        if index as u64 % 7 != rng.below(7) {
            continue;
        }
        let path = Path::new(&root).join(&name[1..]);
        let made = path.parent().map(fs::create_dir_all);
        if matches!(made, Some(Ok(()))) && path.symlink_metadata().is_err() {
            fs::write(&path, "x").unwrap();
        }
    }
    compare(&place, POLICY, &root);
}

#[test]
fn selabel_lookup_names_the_same_label_for_any_type() {
    // Types as the mode of a file has them, in decimal.
    const FILE: &str = "32768";
    const DIRECTORY: &str = "16384";
    const LINK: &str = "40960";
    let place = Place::new();
    let root = source(&place);
    let contexts = place.arg("file_contexts");
    fs::write(&contexts, LINES).unwrap();
    let image = place.arg("fs.img");
    extant([
        "mkfs",
        "-q",
        &image,
        "--from",
        &root,
        "--contexts",
        &contexts,
    ])
    .ok();
    for (path, kind) in [
        ("/", DIRECTORY),
        ("/lost+found", DIRECTORY),
        ("/bin", LINK),
        ("/etc/shadow", FILE),
        ("/etc/passwd", FILE),
        ("/etc/hosts", FILE),
        ("/home/me/note", FILE),
        ("/usr/bin", DIRECTORY),
        ("/usr/bin/bash", FILE),
        ("/usr/bin/ping", FILE),
        ("/usr/lib/libc.so", FILE),
        ("/var/log", DIRECTORY),
    ] {
        let said = tool("selabel_lookup")
            .args(["-b", "file", "-f", &contexts, "-k", path, "-t", kind])
            .ok()
            .text();
        let label = said.trim().rsplit(' ').next().unwrap().to_owned();
        let ours = xattrs(&image, path).to_string();
        assert!(
            ours.contains(&label) && label.starts_with("u:r:"),
            "{path}: {said}{ours}"
        );
    }
}

#[test]
fn the_first_of_several_names_decides_whatever_it_gets() {
    let place = Place::new();
    let root = place.join("names");
    fs::create_dir(&root).unwrap();
    for (first, second) in [
        ("a-none", "b-none"),
        ("a-unnamed", "b-unnamed"),
        ("a-one", "b-one"),
        ("a-last", "b-last"),
    ] {
        fs::write(root.join(first), "x").unwrap();
        fs::hard_link(root.join(first), root.join(second)).unwrap();
    }
    let contexts = place.arg("file_contexts");
    fs::write(
        &contexts,
        "/ -d u:r:root_t:s0\n/lost\\+found -d u:r:lost_t:s0\n/a-none <<none>>\n\
         /b-(none|unnamed|one) u:r:second_t:s0\n/a-(one|last) u:r:first_t:s0\n/b-last <<none>>\n",
    )
    .unwrap();
    let (plain, made) = (place.arg("plain.img"), place.arg("made.img"));
    let from = root.display().to_string();
    let base = ["--from", &from, "--size", "16M"];
    extant([&["mkfs", "-q", &plain], &base[..]].concat()).ok();
    let labels = ["--contexts", &contexts];
    let mkfs = extant([&["mkfs", "-q", &made], &base[..], &labels[..]].concat()).ok();
    let relabel = extant(["relabel", &plain, "--contexts", &contexts]).ok();
    for run in [&mkfs, &relabel] {
        for sentence in [
            "/a-unnamed has no context: no line of the contexts names it\n",
            "4 files have (one is /",
            ") names with different contexts: the first name decides\n",
        ] {
            assert!(run.stderr.contains(sentence), "{sentence}: {}", run.stderr);
        }
    }
    for image in [&plain, &made] {
        for (path, label) in [
            ("/b-none", None),
            ("/b-unnamed", None),
            ("/b-one", Some("u:r:first_t:s0")),
            ("/b-last", Some("u:r:first_t:s0")),
            ("/lost+found", Some("u:r:lost_t:s0")),
        ] {
            let all = xattrs(image, path).to_string();
            let is_right = match label {
                Some(label) => all.contains(label),
                None => !all.contains("selinux"),
            };
            assert!(is_right, "{image} {path}: {all}");
        }
    }
}

#[test]
fn a_wrong_line_of_contexts_makes_no_image() {
    let place = Place::new();
    let root = source(&place);
    let (contexts, image) = (place.arg("file_contexts"), place.arg("fs.img"));
    fs::write(&contexts, "/.* u:r:t:s0\n/x(?=y) u:r:t:s0\n").unwrap();
    let run = extant(["mkfs", &image, "--from", &root, "--contexts", &contexts]).fails(1);
    assert!(run.stderr.contains("file_contexts:2: "), "{}", run.stderr);
    extant([
        "mkfs",
        &image,
        "--from",
        &root,
        "--contexts",
        &place.arg("none"),
    ])
    .fails(1);
    assert!(!Path::new(&image).exists());
}

#[test]
fn an_image_is_labelled_anew_as_setfiles_labels_it() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let root = source(&place);
    let mut rng = Rng::new(seed_from_env("labels anew"));
    tree(Path::new(&root), &mut rng, 100);
    let (old, contexts) = (place.arg("old_contexts"), place.arg("file_contexts"));
    fs::write(&old, "/.* u:r:old_t:s0\n/etc/hosts -- u:r:etc_t:s0\n").unwrap();
    fs::write(&contexts, LINES).unwrap();
    let (labelled, image) = (place.arg("labelled"), place.arg("fs.img"));
    tool("cp").args(["-a", &root, &labelled]).ok();
    for contexts in [&old, &contexts] {
        tool("setfiles")
            .args(["-F", "-r", &labelled, contexts, &labelled])
            .ok();
    }
    extant([
        "mkfs",
        "-q",
        &image,
        "--from",
        &root,
        "--size",
        "16M",
        "--contexts",
        &old,
    ])
    .ok();
    extant(["relabel", &image, "--contexts", &contexts]).ok();
    assert_clean(Path::new(&image));
    let compared = Compare {
        ctime: false,
        atime: false,
        ignore: vec![b"lost+found".to_vec()],
        ..crate::support::faithful()
    };
    let expected = Tree::snapshot(Path::new(&labelled));
    expected.assert_same(&seen_by_linux(&image), &compared);
    // One file, whatever its context was.
    let passwd = format!("{image}:/etc/passwd");
    extant(["xattr", "set", &passwd, "security.selinux", "x"]).ok();
    extant(["relabel", &passwd, "--contexts", &contexts]).ok();
    assert!(
        xattrs(&image, "/etc/passwd")
            .to_string()
            .contains("u:r:passwd_t:s0")
    );
    // What is right already is not written to.
    let all = || extant(["find", &image, "--json"]).ok().text();
    let before = all();
    extant(["relabel", &image, "--contexts", &contexts]).ok();
    assert!(all() == before, "times of files changed");
    let run = extant(["relabel", &image, "--contexts", &place.arg("none")]).fails(1);
    assert!(run.stderr.contains("none"), "{}", run.stderr);
}
