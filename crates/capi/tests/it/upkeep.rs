//! A program in C that makes, checks and changes file systems, judged by e2fsprogs.

use crate::program::{compile, libraries};
use extant_testkit::oracle::{
    assert_clean, debugfs, debugfs_write, dumpe2fs_header, e2fsck, mke2fs,
};
use extant_testkit::tool::{Output, tool};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The program, and a place for images.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = libraries().join("libextant_capi.a");
        let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/upkeep.c");
        compile(&source, &dir.path().join("upkeep"), &link);
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, what: &str, image: &Path, arguments: &[&str]) -> Output {
        tool(self.path("upkeep").to_str().unwrap())
            .args([what.as_ref(), image.as_os_str()])
            .args(arguments)
            .run()
    }

    fn ok(&self, what: &str, image: &Path, arguments: &[&str]) -> String {
        let done = self.run(what, image, arguments);
        assert_eq!(done.code, 0, "{done}");
        done.text()
    }

    /// What is said of a failure.
    fn fails(&self, what: &str, image: &Path, arguments: &[&str]) -> String {
        let done = self.run(what, image, arguments);
        assert_eq!(done.code, 1, "{done}");
        done.text()
    }
}

#[test]
fn a_program_in_c_makes_an_image() {
    let desk = Desk::new();
    let image = desk.path("disk.img");
    let tree = desk.path("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    let from = format!("from={}", tree.display());
    let uuid = "12345678-9abc-def0-1234-56789abcdef0";
    let settings = [
        "size=64M",
        "label=made in C",
        "block-size=2K",
        "features=^resize_inode",
        "root-owner=7:8",
        &format!("uuid={uuid}"),
        &from,
    ];
    desk.ok("mkfs", &image, &settings);
    assert_clean(&image);
    let dump = dumpe2fs_header(&image);
    assert_eq!(dump.field("Filesystem volume name"), "made in C");
    assert_eq!(dump.field("Filesystem UUID"), uuid);
    assert_eq!(dump.number("Block size"), 2048);
    assert_eq!(dump.number("Block count"), (64 << 20) / 2048);
    assert!(!dump.has_feature("resize_inode"));
    assert_eq!(debugfs(&image, "cat /etc/hostname"), "box\n");
    assert!(debugfs(&image, "stat /").contains("User:     7"));
    // What others made is kept, unless that is said.
    mke2fs(&image, 8 << 20, &["-t", "ext2"]);
    let kept = fs::read(&image).unwrap();
    let said = desk.fails("mkfs", &image, &["size=16M"]);
    assert!(
        said.contains("error 17 kind 7") && said.contains("force=yes"),
        "{said}"
    );
    assert!(fs::read(&image).unwrap() == kept, "it was touched");
    desk.ok("mkfs", &image, &["size=16M", "force=yes"]);
    assert_clean(&image);
    assert_eq!(fs::metadata(&image).unwrap().len(), 16 << 20);
    let said = desk.fails("mkfs", &desk.path("none"), &["label=x"]);
    assert!(said.contains("size=1G"), "{said}");
    let said = desk.fails("mkfs", &desk.path("none"), &["size=64M", "block-size=3K"]);
    assert!(said.contains("block-size=3K: use 1K"), "{said}");
    assert!(!desk.path("none").exists());
}

#[test]
fn a_program_in_c_takes_owners_and_labels_from_tables() {
    let desk = Desk::new();
    let (image, tree) = (desk.path("disk.img"), desk.path("tree"));
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    let write = |name: &str, text: &str| {
        fs::write(desk.path(name), text).unwrap();
        desk.path(name).display().to_string()
    };
    let owners = format!(
        "owners=extant:{}",
        write("table", "/system/etc/hostname 7:8 0640\n")
    );
    let contexts = format!(
        "contexts={}",
        write(
            "contexts",
            "/.* u:object_r:any:s0\n/system/etc(/.*)? u:object_r:conf:s0\n"
        )
    );
    let from = format!("from={}", tree.display());
    let settings = [
        "size=16M",
        "owner=5:5",
        &from,
        &owners,
        &contexts,
        "mount-point=/system",
    ];
    desk.ok("mkfs", &image, &settings);
    assert_clean(&image);
    let stat = debugfs(&image, "stat /etc/hostname");
    assert!(stat.contains("User:     7   Group:     8"), "{stat}");
    assert!(stat.contains("Mode:  0640"), "{stat}");
    assert!(stat.contains("conf:s0"), "{stat}");
    let stat = debugfs(&image, "stat /etc");
    assert!(stat.contains("User:     5"), "{stat}");
    let ids = ["size=16M", "force=yes", &from, "map-ids=0:100:1000"];
    desk.ok("mkfs", &image, &ids);
    assert!(debugfs(&image, "stat /etc").contains("User:   100"));
    let none = desk.path("none");
    for (settings, why) in [
        (vec![owners.as_str()], "from=TREE"),
        (vec![&from, "mount-point=/x"], "give one of these"),
        (vec![&from, &contexts, "mount-point=x"], "absolute path"),
        (vec![&from, "map-ids=0:1"], "FROM:TO:COUNT"),
        (vec![&from, "owners=/nowhere"], "error 2 "),
        (vec![&from, "owner=1:1", "map-ids=0:1:9"], "nothing to map"),
        (vec![&from, &owners], "names nothing"),
    ] {
        let said = desk.fails("mkfs", &none, &settings);
        assert!(said.contains(why), "{said}");
        assert!(!none.exists());
    }
}

#[test]
fn a_program_in_c_makes_and_fills_an_image_on_a_device_of_its_own() {
    let desk = Desk::new();
    let image = desk.path("disk.img");
    let said = desk.ok("memory", &image, &[]);
    assert!(said.contains("clean 1 errors 0"), "{said}");
    assert_clean(&image);
    let dump = dumpe2fs_header(&image);
    assert_eq!(dump.field("Filesystem volume name"), "memory");
    assert!(!dump.has_feature("resize_inode"));
    assert_eq!(debugfs(&image, "cat /hello"), "from memory\n");
}

#[test]
fn a_program_in_c_repairs_an_image_and_takes_that_back() {
    let desk = Desk::new();
    let image = desk.path("disk.img");
    mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    assert!(desk.ok("check", &image, &[]).contains("clean 1 errors 0"));
    debugfs_write(
        &image,
        &["write /etc/hostname name", "sif /name links_count 5"],
    );
    let damaged = fs::read(&image).unwrap();
    let said = desk.ok("check", &image, &[]);
    assert!(said.contains("finding link-count severity 1: "), "{said}");
    assert!(said.contains("clean 0"), "{said}");
    // A dry run first.
    let said = desk.ok("repair", &image, &["1"]);
    assert!(said.contains("fix link-count"), "{said}");
    assert!(said.contains("clean 1") && said.contains("written 0"));
    assert!(fs::read(&image).unwrap() == damaged, "it was touched");
    let undo = desk.path("undo");
    let undo = undo.to_str().unwrap();
    let said = desk.ok("repair", &image, &["0", undo]);
    assert!(said.contains("written 1"), "{said}");
    assert_clean(&image);
    desk.ok("revert", &image, &[undo]);
    assert!(fs::read(&image).unwrap() == damaged, "it is not as it was");
    // One that is there is not written over.
    let said = desk.fails("repair", &image, &["0", undo]);
    assert!(said.contains("error 17"), "{said}");
    assert!(fs::read(&image).unwrap() == damaged, "it was touched");
}

#[test]
fn a_program_in_c_resizes_and_tunes_an_image() {
    let desk = Desk::new();
    let image = desk.path("disk.img");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-b", "4096"]);
    let size = fs::File::options().write(true).open(&image).unwrap();
    let said = desk.fails("resize", &image, &[&(96 << 20).to_string()]);
    assert!(said.contains("kind 7") || said.contains("kind 4"), "{said}");
    assert_clean(&image);
    size.set_len(96 << 20).unwrap();
    let bytes = desk.ok("resize", &image, &[&(96 << 20).to_string()]);
    assert_eq!(bytes.trim(), (96 << 20).to_string());
    assert_clean(&image);
    let least: u64 = desk.ok("minimum", &image, &[]).trim().parse().unwrap();
    let now: u64 = desk.ok("resize", &image, &["0"]).trim().parse().unwrap();
    assert_eq!(now, least);
    assert!(now < 64 << 20, "{now}");
    size.set_len(now).unwrap();
    assert_clean(&image);
    let settings = [
        "label=tuned",
        "max-mounts=33",
        "errors=remount-ro",
        "mount-options=^acl,discard",
        "features=^metadata_csum",
        "quota=user",
    ];
    desk.ok("tune", &image, &settings);
    assert_clean(&image);
    let dump = dumpe2fs_header(&image);
    assert_eq!(dump.field("Filesystem volume name"), "tuned");
    assert_eq!(dump.field("Errors behavior"), "Remount read-only");
    assert_eq!(dump.number("Maximum mount count"), 33);
    assert!(dump.has_feature("quota") && !dump.has_feature("metadata_csum"));
    let get = |name: &str| desk.ok("get", &image, &[name]).trim().to_owned();
    assert_eq!(get("label"), "tuned");
    assert_eq!(get("max-mounts"), "33");
    assert_eq!(get("uuid"), dump.field("Filesystem UUID"));
    assert_eq!(get("mount-options"), "user_xattr,discard");
    assert_eq!(get("blocks"), dump.number("Block count").to_string());
    let said = desk.fails("tune", &image, &["label=x", "mount-options=acll"]);
    assert!(
        said.contains("\"acll\" is no default mount option"),
        "{said}"
    );
    assert_eq!(get("label"), "tuned");
}

#[test]
fn a_program_in_c_tells_what_is_damaged_from_what_is_none() {
    let desk = Desk::new();
    let (none, damaged) = (desk.path("none.img"), desk.path("damaged.img"));
    fs::write(&none, vec![0x5a; 1 << 20]).unwrap();
    let said = desk.fails("get", &none, &["label"]);
    assert!(said.contains("error 124 kind 3"), "{said}");
    let said = desk.fails("check", &none, &[]);
    assert!(said.contains("error 124 kind 3"), "{said}");
    mke2fs(&damaged, 8 << 20, &["-t", "ext4"]);
    // A byte of the superblock that its checksum covers.
    let file = fs::File::options().write(true).open(&damaged).unwrap();
    file.write_all_at(b"\xff", 1024 + 0x78 + 3).unwrap();
    assert_ne!(e2fsck(&damaged, &["-fn"]).code, 0);
    let said = desk.fails("get", &damaged, &["label"]);
    assert!(
        said.contains("error 117 kind 4") || said.contains("error 74 kind 4"),
        "{said}"
    );
    assert!(desk.ok("check", &damaged, &[]).contains("clean 0"));
    // One that was cut short, also where the rest cannot be judged without what is missing.
    mke2fs(&damaged, 32 << 20, &["-t", "ext4"]);
    let file = fs::File::options().write(true).open(&damaged).unwrap();
    for mib in [31, 16, 4, 1] {
        file.set_len(mib << 20).unwrap();
        let said = desk.ok("check", &damaged, &[]);
        assert!(said.contains("finding device-too-short"), "{mib}: {said}");
        assert!(said.contains("clean 0"), "{mib}: {said}");
        for (what, arguments) in [
            ("repair", vec!["0"]),
            ("tune", vec!["label=x"]),
            ("resize", vec!["0"]),
            ("minimum", vec![]),
        ] {
            let said = desk.fails(what, &damaged, &arguments);
            assert!(said.contains("error 117 kind 4"), "{mib}: {said}");
        }
    }
}

#[test]
fn a_program_in_c_ends_work() {
    let desk = Desk::new();
    let image = desk.path("disk.img");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let said = desk.ok("end", &image, &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    for (line, what) in lines.iter().zip(["token", "progress"]) {
        assert!(
            line.starts_with(&format!("{what}: error 125 kind 8: ")),
            "{said}"
        );
    }
}

/// At whatever point long work is ended, it says so and has changed nothing; a device that fails is
/// told from that.
#[test]
fn work_of_a_program_in_c_is_ended_at_every_point() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/ending.c");
    compile(&source, &path("ending"), &link);
    fs::create_dir(path("tree")).unwrap();
    for number in 0..60 {
        fs::write(path(&format!("tree/{number}")), vec![number; 9000]).unwrap();
    }
    let tree = path("tree");
    let options = ["-t", "ext4", "-d", tree.to_str().unwrap()];
    mke2fs(&path("sound"), 12 << 20, &options);
    mke2fs(&path("small"), 8 << 20, &options);
    fs::copy(path("sound"), path("damaged")).unwrap();
    debugfs_write(&path("damaged"), &["sif /7 links_count 5"]);
    let said = tool(path("ending").to_str().unwrap())
        .args([path("sound"), path("small"), path("damaged")])
        .ok()
        .text();
    for (what, ways) in [
        ("make", "ended failed"),
        ("check", "refused ended failed"),
        ("repair", "refused ended failed"),
        ("grow", "refused ended failed"),
        ("minimum", "refused ended failed"),
        ("uuid", "refused ended failed"),
        ("journal", "refused ended failed"),
        ("bulk", "failed"),
    ] {
        assert!(said.contains(&format!("{what}: {ways}\n")), "{said}");
    }
}

/// The rounds of the smallest size can be ended too: what the last one made of it is what is told.
#[test]
fn a_program_in_c_ends_the_rounds_of_the_smallest_size() {
    let desk = Desk::new();
    let image = desk.path("disk.img");
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let number = |text: String| text.trim().parse::<u64>().unwrap();
    let minimum = number(desk.ok("minimum", &image, &[]));
    let first = number(desk.ok("rounds", &image, &[]));
    assert!(first > minimum && first < 64 << 20, "{first}, {minimum}");
    assert_eq!(dumpe2fs_header(&image).number("Block count") * 1024, first);
    assert_clean(&image);
    assert_eq!(number(desk.ok("resize", &image, &["0"])), minimum);
}

#[test]
fn a_program_in_c_takes_back_what_it_tuned_and_resized() {
    let desk = Desk::new();
    let (image, undo) = (desk.path("disk.img"), desk.path("undo"));
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-L", "before"]);
    let before = fs::read(&image).unwrap();
    let kept = undo.to_str().unwrap();
    let revert = || {
        desk.ok("revert", &image, &[kept]);
        assert!(fs::read(&image).unwrap() == before);
        fs::remove_file(&undo).unwrap();
    };
    desk.ok("tune", &image, &["label=after", &format!("undo={kept}")]);
    assert_eq!(desk.ok("get", &image, &["label"]), "after\n");
    // One that is there is kept, and nothing is changed.
    let said = desk.fails("tune", &image, &["label=again", &format!("undo={kept}")]);
    assert!(said.contains("undo file: File exists"), "{said}");
    assert_eq!(desk.ok("get", &image, &["label"]), "after\n");
    revert();
    // Where nothing changes there is nothing to keep.
    desk.ok("tune", &image, &["label=before", &format!("undo={kept}")]);
    desk.ok("repair", &image, &["0", kept]);
    let same = (64_u64 << 20).to_string();
    assert_eq!(desk.ok("resize", &image, &[&same, kept]).trim(), same);
    assert!(!undo.exists() && fs::read(&image).unwrap() == before);
    assert_eq!(desk.ok("resize", &image, &[&same]).trim(), same);
    assert!(fs::read(&image).unwrap() == before);
    for bytes in [32 << 20, 0] {
        let smaller = desk.ok("resize", &image, &[&bytes.to_string(), kept]);
        let smaller: u64 = smaller.trim().parse().unwrap();
        assert!(
            smaller < 64 << 20 && (bytes == 0 || smaller == bytes),
            "{smaller}"
        );
        assert_clean(&image);
        // It is as small as that already, so that an undo file would be of nothing.
        let now = fs::read(&image).unwrap();
        let again = desk.path("again");
        let bytes = if bytes == 0 { 0 } else { smaller };
        desk.ok(
            "resize",
            &image,
            &[&bytes.to_string(), again.to_str().unwrap()],
        );
        if fs::read(&image).unwrap() == now {
            assert!(!again.exists(), "{bytes}: an undo file of nothing");
        } else {
            // The first round may have left room for another one.
            assert_eq!(bytes, 0);
            desk.ok("revert", &image, &[again.to_str().unwrap()]);
        }
        let _ = fs::remove_file(&again);
        assert!(fs::read(&image).unwrap() == now);
        revert();
    }
    assert_clean(&image);
}

/// Formats other than qcow2, which is in a library with the feature `formats` alone.
#[test]
fn a_program_in_c_makes_images_in_formats() {
    let desk = Desk::new();
    let tree = desk.path("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/hostname"), "box\n").unwrap();
    let from = format!("from={}", tree.display());
    let asked = [
        &*from,
        "size=64M",
        "uuid=12345678-9abc-def0-1234-56789abcdef0",
    ];
    let (plain, raw) = (desk.path("plain.img"), desk.path("raw.img"));
    desk.ok(
        "mkfs",
        &plain,
        &[&asked[..], &["source-date-epoch=1700000000"]].concat(),
    );
    for (name, format, known) in [
        ("disk.vhd", None, "vpc"),
        ("fixed", Some("format=vhd-fixed"), "vpc"),
        ("disk.vmdk", None, "vmdk"),
        ("disk.simg", None, ""),
    ] {
        let image = desk.path(name);
        let time = "source-date-epoch=1700000000";
        let settings: Vec<&str> = asked.into_iter().chain([time]).chain(format).collect();
        desk.ok("mkfs", &image, &settings);
        if known.is_empty() {
            // Nothing but the library itself reads it here.
            let disk = extant::image::ImageLocation::parse(&image).unwrap();
            let disk = disk.open(&extant::image::How::reading()).unwrap();
            let bytes = extant::device::to_vec(&*disk).unwrap();
            assert!(bytes == fs::read(&plain).unwrap(), "{name}");
        } else {
            let convert = ["convert", "-f", known, "-O", "raw"];
            tool("qemu-img").args(convert).args([&image, &raw]).ok();
            let made = fs::read(&raw).unwrap();
            let whole = fs::read(&plain).unwrap();
            // Some go by cylinders, which are a little more.
            assert!(
                made.len() >= whole.len() && made[..whole.len()] == whole,
                "{name}"
            );
        }
        // What is there was made here, unless it is changed.
        let said = desk.fails("mkfs", &image, &["size=x"]);
        assert!(said.contains("kind 1"), "{said}");
    }
    let flat = desk.path("disk-flat.vmdk");
    fs::remove_file(desk.path("disk.vmdk")).unwrap();
    fs::write(&flat, "mine").unwrap();
    let said = desk.fails("mkfs", &desk.path("disk.vmdk"), &asked);
    assert!(
        said.contains("disk-flat.vmdk") && said.contains("kind 7"),
        "{said}"
    );
    assert_eq!(fs::read(&flat).unwrap(), b"mine");
    assert!(!desk.path("disk.vmdk").exists());
    for (name, setting) in [
        ("a.img", "format=vdi"),
        ("b.img.xz", "label=x"),
        ("c.img", "format="),
    ] {
        let said = desk.fails("mkfs", &desk.path(name), &["size=8M", setting]);
        assert!(said.contains("error 22 kind 1"), "{said}");
        assert!(!desk.path(name).exists());
    }
}

#[test]
fn an_image_of_c_is_like_an_older_one() {
    let desk = Desk::new();
    let tree = desk.path("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for number in 0..40_u32 {
        let content = vec![number as u8; 10_000 + 500 * number as usize];
        fs::write(tree.join(format!("d/{number}")), content).unwrap();
    }
    let from = format!("from={}", tree.display());
    let (old, new, other) = (desk.path("old"), desk.path("new"), desk.path("other"));
    let epoch = "source-date-epoch=1700000000";
    desk.ok(
        "mkfs",
        &old,
        &["size=32M", "block-size=1K", "label=old", epoch, &from],
    );
    fs::remove_file(tree.join("d/3")).unwrap();
    fs::write(tree.join("a new one"), vec![7; 50_000]).unwrap();
    let like = format!("like={}", old.display());
    desk.ok("mkfs", &new, &[&*like, epoch, &from]);
    desk.ok(
        "mkfs",
        &other,
        &["size=32M", "block-size=1K", "label=old", epoch, &from],
    );
    assert_clean(&new);
    let (dump, before) = (dumpe2fs_header(&new), dumpe2fs_header(&old));
    for field in [
        "Filesystem UUID",
        "Filesystem volume name",
        "Block size",
        "Block count",
    ] {
        assert_eq!(dump.field(field), before.field(field));
    }
    let different = |image: &Path| {
        let (one, two) = (fs::read(&old).unwrap(), fs::read(image).unwrap());
        let blocks = one.chunks(1024).zip(two.chunks(1024));
        blocks.filter(|(one, two)| one != two).count()
    };
    let (liken, unlike) = (different(&new), different(&other));
    assert!(
        liken < 150 && unlike > 3 * liken,
        "{liken} and {unlike} blocks differ"
    );
    // No label is one that can be asked for.
    let bare = desk.path("bare");
    desk.ok("mkfs", &bare, &[&*like, "label=", epoch, &from]);
    let dump = dumpe2fs_header(&bare);
    assert_eq!(dump.field("Filesystem volume name"), "<none>");
    assert_eq!(
        dump.field("Filesystem UUID"),
        before.field("Filesystem UUID")
    );
    let said = desk.fails("mkfs", &desk.path("x"), &["like=/nowhere", &from]);
    assert!(said.contains("/nowhere"), "{said}");
}
