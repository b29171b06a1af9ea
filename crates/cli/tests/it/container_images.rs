//! `mkfs` from container images that `umoci` and `skopeo` made.

use crate::support::{Place, extant, extant_with, seen_by_linux, small_plan};
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// An OCI layout of three layers, made by unpacking, changing and packing again; and what `umoci`
/// unpacks of it in the end.
struct Image {
    place: Place,
    expected: Tree,
}

impl Image {
    fn new() -> Self {
        let place = Place::in_memory();
        let layout = place.arg("layout");
        let image = format!("{layout}:t");
        let umoci = |args: &[&str]| {
            tool("umoci").args(args).ok();
        };
        umoci(&["init", "--layout", &layout]);
        umoci(&["new", "--image", &image]);
        umoci(&[
            "config",
            "--image",
            &image,
            "--config.entrypoint",
            "/sbin/init",
        ]);
        let bundle = place.arg("bundle");
        umoci(&["unpack", "--image", &image, &bundle]);
        let root = place.join("bundle/rootfs");
        small_plan().plant(&root);
        umoci(&["repack", "--refresh-bundle", "--image", &image, &bundle]);
        fs::remove_file(root.join("etc/hostname")).unwrap();
        fs::remove_dir_all(root.join("usr/lib")).unwrap();
        fs::create_dir(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/new"), "new").unwrap();
        fs::remove_file(root.join("loop")).unwrap();
        fs::create_dir(root.join("loop")).unwrap();
        fs::write(root.join("loop/in"), "in").unwrap();
        umoci(&["repack", "--refresh-bundle", "--image", &image, &bundle]);
        fs::write(root.join("etc/hostname"), "again").unwrap();
        fs::remove_dir_all(root.join("loop")).unwrap();
        symlink("usr", root.join("loop")).unwrap();
        umoci(&["repack", "--image", &image, &bundle]);
        let last = place.arg("last");
        umoci(&["unpack", "--image", &image, &last]);
        let expected = Tree::snapshot(&place.join("last/rootfs"));
        Self { place, expected }
    }

    /// Copies the image by `skopeo`.
    fn copy(&self, to: &str) {
        let from = format!("oci:{}:t", self.place.arg("layout"));
        tool("skopeo")
            .args(["--insecure-policy", "copy", "-q", &from, to])
            .ok();
    }

    /// What Linux shows of a new image from this source is what was unpacked.
    #[track_caller]
    fn assert_made(&self, from: &str, input: Option<Vec<u8>>) {
        let image = self.place.arg("new.img");
        extant_with(["mkfs", &image, "--from", from, "-q"], |command| {
            if let Some(input) = input {
                command.write_stdin(input);
            }
        })
        .ok();
        assert_clean(Path::new(&image));
        let seen = seen_by_linux(&image);
        // No layer says anything about the root.
        let how = Compare {
            root: false,
            ..Compare::default()
        };
        self.expected.assert_same(&seen, &how);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn images_of_other_tools_are_what_they_unpack() {
    require!(KernelExt4);
    let image = Image::new();
    assert!(image.expected.get("etc/hostname").is_some());
    assert!(image.expected.get("usr/lib/libone.so").is_none());
    let layout = image.place.arg("layout");
    image.assert_made(&layout, None);
    image.assert_made(&format!("oci:{layout}:t"), None);
    let [docker, archive, second] =
        ["docker.tar", "oci.tar", "layout2"].map(|name| image.place.arg(name));
    image.copy(&format!("docker-archive:{docker}:me/app:1"));
    image.copy(&format!("oci-archive:{archive}:t"));
    image.copy(&format!("oci:{second}:t"));
    image.assert_made(&format!("docker-archive:{docker}:me/app:1"), None);
    image.assert_made(&docker, None);
    image.assert_made("-", Some(fs::read(&docker).unwrap()));
    image.assert_made(&format!("oci-archive:{archive}"), None);
    image.assert_made("-", Some(fs::read(&archive).unwrap()));
    image.assert_made(&second, None);
    // Compressed as a whole.
    for program in ["gzip", "zstd", "xz", "bzip2", "lz4"] {
        let packed = tool(program).arg("-c").input(fs::read(&docker).unwrap());
        image.assert_made("-", Some(packed.ok().stdout));
    }
}

#[test]
fn the_configuration_of_an_image_is_written_when_asked() {
    require!(Root);
    let image = Image::new();
    let place = &image.place;
    let (new, layout, config) = (
        place.arg("new.img"),
        place.arg("layout"),
        place.arg("config.json"),
    );
    extant([
        "mkfs",
        &new,
        "--from",
        &layout,
        "--config-out",
        &config,
        "-q",
    ])
    .ok();
    let json: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    assert_eq!(json["config"]["Entrypoint"][0], "/sbin/init");
    assert_eq!(json["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
    let tree = place.planted("tree", &small_plan());
    let run = extant(["mkfs", &new, "--from", &tree, "--config-out", &config]).fails(1);
    assert!(run.stderr.contains("no source is one"), "{}", run.stderr);
    extant(["mkfs", &new, "--from", &layout, "--config-out", &new]).fails(2);
    // A configuration is replaced by another; something else is when that is said.
    let other = place.arg("other");
    let write = |more: &[&str]| {
        let args = ["mkfs", &new, "--from", &layout, "--config-out"];
        extant(args.iter().chain(more).chain(&["-q"]))
    };
    write(&[&config]).ok();
    for content in ["", "[]", "no JSON"] {
        fs::write(&other, content).unwrap();
        if !content.is_empty() {
            let said = write(&[&other]).fails(1).stderr;
            assert!(said.contains("--force"), "{said}");
            assert_eq!(fs::read_to_string(&other).unwrap(), content);
        }
        write(&[&other, "--force"]).ok();
        assert!(fs::read(&other).unwrap() == fs::read(&config).unwrap());
    }
    fs::write(&other, "").unwrap();
    write(&[&other]).ok();
    assert!(fs::read(&other).unwrap() == fs::read(&config).unwrap());
    let run = extant([
        "mkfs",
        &new,
        "--from",
        &layout,
        "--platform",
        "linux/sparc64",
    ])
    .fails(1);
    assert!(run.stderr.contains("no image is for"), "{}", run.stderr);
    extant(["mkfs", &new, "--from", &layout, "--platform", "linux"]).fails(2);
}

#[test]
fn sources_are_put_over_each_other_and_bytes_are_the_same_for_all_threads() {
    let place = Place::in_memory();
    let base = place.planted("base", &small_plan());
    let over = place.arg("over");
    fs::create_dir_all(place.join("over/etc")).unwrap();
    fs::write(place.join("over/etc/hostname"), "over").unwrap();
    fs::write(place.join("over/etc/.wh.link"), "").unwrap();
    let tar = place.arg("base.tar.xz");
    tool("tar").args(["-C", &base, "-cJf", &tar, "."]).ok();
    let make = |image: &str, threads: &str| {
        let args = [
            "mkfs",
            image,
            "--from",
            &tar,
            "--from",
            &over,
            "-q",
            "--threads",
            threads,
        ];
        extant_with(args, |command| {
            command.env("SOURCE_DATE_EPOCH", "1600000000");
        })
        .ok();
        fs::read(image).unwrap()
    };
    let (one, five) = (place.arg("1.img"), place.arg("5.img"));
    assert!(make(&one, "1") == make(&five, "5"));
    assert_clean(Path::new(&one));
    let cat = extant(["cat", &format!("{one}:/etc/hostname")]).ok();
    assert_eq!(cat.text(), "over");
    extant(["stat", &format!("{one}:/etc/link")]).fails(1);
    extant(["cat", &format!("{one}:/usr/lib/libtwo.so.6")]).ok();
    let run = extant(["mkfs", &one, "--from", "-", "--from", "-"]).fails(2);
    assert!(run.stderr.contains("read once"), "{}", run.stderr);
}

#[test]
fn a_configuration_takes_the_place_of_no_image_and_no_source() {
    let place = Place::in_memory();
    let source = place.planted("tree", &small_plan());
    fs::write(place.join("base.tar"), [0; 1024]).unwrap();
    symlink("r.img", place.join("link")).unwrap();
    fs::create_dir(place.join("sub")).unwrap();
    let refused = |image: &str, out: &str, what: &str| {
        let args = ["mkfs", image, "--from", &source, "--from", "base.tar"];
        let options = ["--config-out", out, "--force"];
        let run = extant_with(args.iter().chain(&options), |command| {
            command.current_dir(place.path());
        });
        let said = run.fails(2).stderr;
        assert!(said.contains(what), "{image}, {out}: {said}");
        assert!(!place.join("r.img").exists(), "{image}, {out}");
    };
    let full = place.arg("r.img");
    for (image, out) in [
        ("r.img", "r.img"),
        ("r.img", "./r.img"),
        ("./r.img", "sub/../r.img"),
        ("r.img", &full),
        (&full, "r.img"),
        ("r.vmdk", "./r-flat.vmdk"),
    ] {
        refused(image, out, "names the image");
    }
    refused("r.img", "./base.tar", "names a source");
    assert_eq!(fs::read(place.join("base.tar")).unwrap(), [0; 1024]);
    // Neither what a link leads to.
    fs::write(place.join("r.img"), "").unwrap();
    let args = ["mkfs", "link", "--from", &source, "--config-out", "r.img"];
    extant_with(args, |command| {
        command.current_dir(place.path());
    })
    .fails(2);
}
