//! `extant cmp` and `extant digest` beside cmp(1) and sha256sum(1).

use super::{Looked, plan, sorted};
use crate::support::{Place, extant, extant_with, small_plan};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::path::Path;

/// Files that differ in all ways.
fn pairs(dir: &Path) {
    let dir = dir.join("pairs");
    std::fs::create_dir(&dir).unwrap();
    let large: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let mut changed = large.clone();
    changed[600_001] ^= 7;
    for (name, content) in [
        ("empty", &b""[..]),
        ("abc", b"abc\n"),
        ("abd", b"abd\n"),
        ("longer", b"abc\ndef\nghi"),
        ("prefix", b"abc\nde"),
        ("skipped", b"xxabc\n"),
        ("large", &large),
        ("changed", &changed),
    ] {
        std::fs::write(dir.join(name), content).unwrap();
    }
}

#[test]
fn differences_are_those_that_cmp_tells() {
    require!(KernelExt4);
    let looked = Looked::with(&plan(), pairs);
    let names = [
        "empty", "abc", "abd", "longer", "prefix", "skipped", "large", "changed",
    ];
    let mounted = looked.mounted();
    for one in names {
        for other in names {
            for options in [
                &[][..],
                &["-s"],
                &["-l"],
                &["-n", "3"],
                &["-n", "0"],
                &["-i", "2:0"],
                &["-i", "1"],
                &["-l", "-n", "4"],
                &["-i", "2", "-n", "2", "-l"],
            ] {
                let files = [one, other].map(|name| format!("{mounted}/pairs/{name}"));
                let peer = tool("cmp").args(options).args(&files).run();
                let inside = |name: &str| format!("{}:/pairs/{name}", looked.image);
                let host = |name: &str| format!("{mounted}/pairs/{name}");
                for files in [
                    [inside(one), inside(other)],
                    [host(one), inside(other)],
                    [inside(one), host(other)],
                ] {
                    let mut args = vec!["cmp"];
                    args.extend(options);
                    args.extend(files.iter().map(String::as_str));
                    let mine = extant(args);
                    assert_eq!(mine.code, peer.code, "{options:?} {files:?}");
                    let plain = |text: &str| {
                        text.replace(&format!("{mounted}/"), "")
                            .replace(&format!("{}:/", looked.image), "")
                    };
                    // In this language alone cmp calls bytes characters.
                    let text = peer.text().replace("differ: char", "differ: byte");
                    assert_eq!(plain(&mine.text()), plain(&text), "{options:?} {files:?}");
                    let said = String::from_utf8_lossy(&peer.stderr).replace("cmp: ", "extant: ");
                    assert_eq!(plain(&mine.stderr), plain(&said), "{options:?} {files:?}");
                }
            }
        }
    }
}

#[test]
fn standard_input_is_compared_and_trouble_has_its_own_code() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let at = format!("{image}:/etc/hostname");
    let content = extant(["cat", &at]).ok().stdout;
    let with_input = |args: &[&str], input: Vec<u8>| {
        extant_with(args, |command| {
            command.write_stdin(input);
        })
    };
    with_input(&["cmp", &at, "-"], content.clone()).ok();
    with_input(&["cmp", "-", &at], content[..2].to_vec()).fails(1);
    let skipped = [b"??", &content[..]].concat();
    with_input(&["cmp", "-i", "2:0", "-", &at], skipped).ok();
    let told = with_input(&["cmp", "--json", &at, "-"], b"zz".to_vec());
    assert_eq!(told.code, 1);
    assert_eq!(told.json()["equal"], false);
    assert_eq!(told.json()["byte"], 1);
    extant(["cmp", &at, &format!("{image}:/nothing")]).fails(2);
    extant(["cmp", &at, &format!("{image}:/etc")]).fails(2);
    extant(["cmp", &at, &place.arg("nothing")]).fails(2);
    extant(["cmp", &at, &place.path().display().to_string()]).fails(2);
    extant(["cmp", "-i", "x", &at, &at]).fails(2);
}

#[test]
fn digests_are_those_of_coreutils_and_each_checks_the_other() {
    require!(KernelExt4);
    let looked = Looked::with(&plan(), |dir| {
        for name in ["back\\slash", "new\nline", "a *b"] {
            std::fs::write(dir.join("tree").join(name), name).unwrap();
        }
    });
    let mounted = looked.mounted();
    for (algorithm, program) in [
        ("sha256", "sha256sum"),
        ("sha512", "sha512sum"),
        ("sha1", "sha1sum"),
        ("md5", "md5sum"),
    ] {
        let find = "find . -type f -exec \"$0\" {} +";
        let shell = format!("cd '{mounted}' && {}", find.replace("$0", program));
        let peer = tool("sh").args(["-c", &shell]).ok().text();
        let line = [
            "digest",
            "-r",
            "--algorithm",
            algorithm,
            "--prefix",
            ".",
            &looked.image,
        ];
        let mine = extant(line).ok().text();
        assert_eq!(sorted(&mine), sorted(&peer), "{algorithm}");
        let list = looked.place.arg("list");
        std::fs::write(&list, &mine).unwrap();
        let shell = format!("cd '{mounted}' && {program} --strict --quiet -c '{list}'");
        tool("sh").args(["-c", &shell]).ok();
        std::fs::write(&list, &peer).unwrap();
        let check = ["digest", "--check", &list, "--prefix", ".", &looked.image];
        let run = extant(check).ok();
        assert_eq!(
            run.text().lines().count(),
            sorted(&peer).len(),
            "{algorithm}"
        );
        let tagged = format!("cd '{mounted}' && {program} --tag etc/passwd tree/old");
        let tagged = tool("sh").args(["-c", &tagged]).ok().text();
        std::fs::write(&list, tagged).unwrap();
        let run = extant(["digest", "--check", &list, &looked.image]).ok();
        assert_eq!(run.text(), "etc/passwd: OK\ntree/old: OK\n");
    }
}

#[test]
fn a_file_that_is_another_one_fails_the_check() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = place.arg("list");
    let sums = extant(["digest", "-r", &image]).ok().stdout;
    std::fs::write(&list, &sums).unwrap();
    extant(["digest", "-q", "--check", &list, &image]).ok();
    extant_with(["write", &format!("{image}:/etc/hostname")], |command| {
        command.write_stdin("another");
    })
    .ok();
    extant(["rm", &format!("{image}:/usr/lib/sparse")]).ok();
    let run = extant(["digest", "-q", "--check", &list, &image]).fails(1);
    let expected = "/etc/hostname: FAILED\n/usr/lib/sparse: FAILED to be read\n";
    assert_eq!(sorted(&run.text()), sorted(expected));
    assert!(
        run.stderr.contains("1 file has another digest"),
        "{}",
        run.stderr
    );
    let lines = extant(["digest", "--json", "--check", &list, &image]).lines();
    let one = lines.iter().find(|line| line["path"] == "/etc/hostname");
    assert_eq!(one.unwrap()["ok"], false);
    for (text, said) in [
        ("no digest\n", "1 lines are no digests"),
        ("", "no digest in it"),
    ] {
        std::fs::write(&list, text).unwrap();
        let run = extant(["digest", "--check", &list, &image]).fails(1);
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
}

#[test]
fn digests_of_single_files_and_what_cannot_be_read() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    extant_with(["write", &format!("{image}:/etc/digits")], |command| {
        command.write_stdin("123456789");
    })
    .ok();
    let at = |path: &str| format!("{image}:{path}");
    let run = extant(["digest", "--algorithm", "crc32c", &at("/etc/dig*")]).ok();
    assert_eq!(run.text(), "e3069283  /etc/digits\n");
    let run = extant(["digest", &at("/nothing"), &at("/etc"), &at("/etc/digits")]).fails(1);
    assert_eq!(
        run.text(),
        "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225  /etc/digits\n"
    );
    assert!(run.stderr.contains("-r reads all files"), "{}", run.stderr);
    let line = &extant(["digest", "--json", &at("/etc/digits")])
        .ok()
        .lines()[0];
    assert_eq!(
        (&line["size"], &line["algorithm"]),
        (&9.into(), &"sha256".into())
    );
}

#[test]
fn many_files_come_in_the_order_of_their_names() {
    let place = Place::new();
    let seed = seed_from_env("many_files_come_in_the_order_of_their_names");
    let mut rng = Rng::new(seed);
    let dir = place.join("many");
    std::fs::create_dir(&dir).unwrap();
    for number in 0..2000 {
        let content = vec![b'x'; rng.below(20_000) as usize];
        std::fs::write(dir.join(format!("f{number:04}")), content).unwrap();
    }
    let image = place.arg("many.img");
    extant(["mkfs", &image, "--from", &dir.display().to_string(), "-q"]).ok();
    let mine = extant(["digest", "-r", &image]).ok().text();
    let list = sorted(&mine);
    assert_eq!(list.len(), 2000);
    let names: Vec<&str> = mine.lines().map(|line| &line[66..]).collect();
    assert!(names.is_sorted());
    let shell = format!("cd '{}' && sha256sum *", dir.display());
    let peer = tool("sh").args(["-c", &shell]).ok().text();
    assert_eq!(mine.replace("  /", "  "), peer);
}
