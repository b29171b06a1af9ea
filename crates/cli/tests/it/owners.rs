//! `mkfs` with tables of owners, maps of numbers, labels and texts: judged by the programs whose
//! tables they are.

use crate::support::{Place, extant, extant_with};
use extant_testkit::oracle::{assert_clean, debugfs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

/// A small root file system of the user's own.
fn source(place: &Place) -> String {
    let root = place.join("root");
    for dir in ["dev", "etc", "home/me", "usr/bin", "usr/lib", "var/log"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in [
        "etc/shadow",
        "etc/hosts",
        "home/me/note",
        "usr/bin/ping",
        "usr/bin/sh",
        "usr/lib/libc.so",
    ] {
        fs::write(root.join(file), file).unwrap();
    }
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0::/:/bin/sh\nme:x:1000:1001::/:\n",
    )
    .unwrap();
    fs::write(root.join("etc/group"), "root:x:0:\nme:x:1001:\n").unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    fs::hard_link(root.join("usr/bin/sh"), root.join("usr/bin/bash")).unwrap();
    root.display().to_string()
}

/// Makes `name` in a place from the source with these options; it must be clean.
#[track_caller]
fn made(place: &Place, name: &str, options: &[&str]) -> String {
    let image = place.arg(name);
    extant([&["mkfs", "-q", &image], options].concat()).ok();
    assert_clean(Path::new(&image));
    image
}

/// What debugfs shows of a file's kind, permissions, owners and device.
fn told(image: &str, path: &str) -> String {
    let text = debugfs(Path::new(image), &format!("stat \"{path}\""));
    let field = |key: &str| {
        let from = text.find(key).unwrap_or_else(|| panic!("{path}: {text}")) + key.len();
        let word = text[from..].trim_start();
        word[..word.find("  ").unwrap_or(word.len())]
            .trim()
            .to_owned()
    };
    let device = text.lines().find(|line| line.starts_with("Device major"));
    format!(
        "{} {} {}:{} {}",
        field("Type:"),
        field("Mode:"),
        field("User:"),
        field("Group:"),
        device.unwrap_or_default()
    )
}

/// Every path of an image but `lost+found`, in order.
fn paths(image: &str) -> Vec<String> {
    let found = extant(["find", image, "--json"]).ok().lines();
    let paths = found.iter().map(|e| e["path"].as_str().unwrap().to_owned());
    let mut paths: Vec<String> = paths.filter(|path| path != "/lost+found").collect();
    paths.sort();
    paths
}

#[track_caller]
fn assert_told_alike(a: &str, b: &str) {
    assert_eq!(paths(a), paths(b));
    for path in paths(a) {
        assert_eq!(told(a, &path), told(b, &path), "{path}");
    }
}

fn xattrs(image: &str, path: &str) -> serde_json::Value {
    let run = extant(["stat", "--json", &format!("{image}:{path}")]).ok();
    run.lines()[0]["xattrs"].clone()
}

#[test]
fn capabilities_of_a_table_are_those_that_setcap_sets() {
    require!(Root);
    let place = Place::in_memory();
    let from = source(&place);
    let texts = [
        ("cap_net_raw+ep", "cap_net_raw+ep"),
        ("cap_chown,cap_bpf=eip", "cap_chown,cap_bpf=eip"),
        ("cap_kill=p", "cap_kill=p"),
    ];
    for (index, (text, other)) in texts.into_iter().enumerate() {
        let table = format!("/bin/ping 0:0 0755 caps={text}\n");
        fs::write(place.join("table"), table).unwrap();
        let ours = made(
            &place,
            "a.img",
            &["--from", &from, "--owners", &place.arg("table")],
        );
        let ping = format!("{from}/usr/bin/ping");
        tool("setcap").args([other, &ping]).ok();
        let theirs = made(&place, &format!("b{index}.img"), &["--from", &from]);
        tool("setcap").args(["-r", &ping]).ok();
        let value = xattrs(&theirs, "/usr/bin/ping");
        assert_ne!(value, serde_json::json!([]));
        assert_eq!(xattrs(&ours, "/usr/bin/ping"), value, "{text}");
    }
}

#[test]
fn a_device_table_makes_what_genext2fs_makes_of_it() {
    let place = Place::new();
    let from = source(&place);
    let table = place.arg("table");
    fs::write(
        &table,
        "# name type mode uid gid major minor start inc count\n\
         /            d  711  0   0   - - - - -\n\
         /dev         d  755  1   2   - - - - -\n\
         /dev/null    c  666  0   0   1 3 0 0 -   # a device\n\
         /dev/hda     b  640  0   6   3 1 1 1 15\n\
         /dev/tty     c  666  0   5   4 0 0 1 4\n\
         /dev/odd     c  600  0   0   9 5 2 3 6\n\
         /dev/pipe    p  622  7   8   - - - - -\n\
         /dev/sock    s  622  7   8   - - - - -\n\
         /etc/shadow  f  600  0   42  - - - - -\n\
         /etc/new     f  644  0   42  - - - - -\n\
         /var/mail    d  2775 0   8   - - - - -\n",
    )
    .unwrap();
    let theirs = place.arg("theirs.img");
    tool("genext2fs")
        .args([
            "-b", "8192", "-N", "500", "-d", &from, "-D", &table, &theirs,
        ])
        .ok();
    let said = format!("genext2fs:{table}");
    let ours = made(&place, "ours.img", &["--from", &from, "--owners", &said]);
    assert_told_alike(&ours, &theirs);
    // Without saying what it is, where the two programs differ.
    let image = place.arg("never.img");
    fs::write(
        &table,
        "# a\n\n/dev d 755 0 0\n/dev/a c 600 0 0 1 1 0 0 -\n/dev/hda b 640 0 6 3 1 1 1 15\n",
    )
    .unwrap();
    let run = extant(["mkfs", &image, "--from", &from, "--owners", &table]).fails(1);
    assert!(run.stderr.contains(":5: "), "{}", run.stderr);
    assert!(!Path::new(&image).exists());
}

#[test]
fn an_mtree_specification_is_read_as_bsdtar_reads_it() {
    let place = Place::new();
    let from = source(&place);
    let spec = place.arg("spec");
    fs::write(
        &spec,
        "#mtree\n\
         /set type=file uid=3 gid=4 mode=0640\n\
         . type=dir mode=0755\n\
         \x20dev type=dir mode=0755\n\
         \x20 null type=char mode=0666 uid=0 gid=0 device=native,1,3\n\
         \x20 sda type=block mode=0660 uid=0 gid=6 device=native,8,0\n\
         \x20 log type=fifo mode=0622\n\
         \x20..\n\
         \x20etc type=dir mode=0750\n\
         \x20 shadow mode=0600 uid=0 gid=42\n\
         \x20 hosts\n\
         \x20 passwd mode=0644\n\
         \x20 group mode=0644\n\
         \x20..\n\
         \x20home type=dir mode=0755\n\
         \x20 me type=dir mode=0700 uid=1000 gid=1001\n\
         \x20  note uid=1000 gid=1001\n\
         \x20 ..\n\
         \x20..\n\
         \x20usr type=dir mode=0755\n\
         \x20 bin type=dir mode=0755\n\
         \x20  ping mode=04755 uid=0\n\
         \x20  sh mode=0755\n\
         \x20  bash mode=0755\n\
         \x20 ..\n\
         \x20 lib type=dir mode=0755\n\
         \x20  libc.so\n\
         \x20 ..\n\
         \x20..\n\
         \x20var type=dir mode=0755\n\
         \x20 log type=dir mode=02775\n\
         \x20  ..\n\
         \x20 with\\040space type=dir mode=0700\n\
         \x20 ..\n\
         \x20..\n\
         bin type=link mode=0777 link=usr/bin\n",
    )
    .unwrap();
    let tar = place.arg("spec.tar");
    tool("bsdtar")
        .args([
            "-C",
            &from,
            "--format=pax",
            "-cf",
            &tar,
            &format!("@{spec}"),
        ])
        .ok();
    let theirs = made(&place, "theirs.img", &["--from", &tar]);
    let ours = made(&place, "ours.img", &["--from", &from, "--owners", &spec]);
    assert_told_alike(&ours, &theirs);
}

#[test]
fn a_manifest_of_bsdtar_brings_owners_back() {
    require!(Root);
    let place = Place::new();
    let from = source(&place);
    chown(format!("{from}/home/me/note"), Some(1000), Some(1001)).unwrap();
    chown(format!("{from}/etc/shadow"), Some(0), Some(42)).unwrap();
    let shadow = fs::Permissions::from_mode(0o640);
    fs::set_permissions(format!("{from}/etc/shadow"), shadow).unwrap();
    let spec = place.arg("spec");
    for options in [
        "mtree:all",
        "mtree:!all,mtree:use-set,mtree:type,mtree:uid,mtree:gid,mtree:mode,mtree:link",
    ] {
        tool("bsdtar")
            .args([
                "-C",
                &from,
                "--format=mtree",
                "--options",
                options,
                "-cf",
                &spec,
                ".",
            ])
            .ok();
        let theirs = made(&place, "theirs.img", &["--from", &from]);
        let lost = place.arg("lost");
        tool("cp")
            .args(["-r", "--no-dereference", &from, &lost])
            .ok();
        tool("chown").args(["-Rh", "9:9", &lost]).ok();
        let ours = made(&place, "ours.img", &["--from", &lost, "--owners", &spec]);
        fs::remove_dir_all(&lost).unwrap();
        assert_told_alike(&ours, &theirs);
        for image in [ours, theirs] {
            fs::remove_file(image).unwrap();
        }
    }
}

#[test]
fn owners_are_mapped_in_ranges_and_others_are_refused_with_advice() {
    require!(Root);
    let place = Place::new();
    let from = source(&place);
    tool("chown").args(["-Rh", "100000:100000", &from]).ok();
    let note = format!("{from}/home/me/note");
    chown(&note, Some(101_000), Some(101_001)).unwrap();
    tool("setfacl")
        .args(["-n", "-m", "u:100005:rw,g:100006:r,m::rw", &note])
        .ok();
    let map = ["--from", &from, "--map-ids", "100000:0:65536"];
    let image = made(&place, "fs.img", &map);
    assert!(
        told(&image, "/etc").contains(" 0:0 "),
        "{}",
        told(&image, "/etc")
    );
    assert!(told(&image, "/home/me/note").contains(" 1000:1001 "));
    let list = extant(["acl", "get", &format!("{image}:/home/me/note")])
        .ok()
        .text();
    assert!(
        list.contains("user:5:rw-") && list.contains("group:6:r--"),
        "{list}"
    );
    let never = place.arg("never.img");
    let narrow = extant([
        "mkfs",
        &never,
        "--from",
        &from,
        "--map-ids",
        "100000:0:1000",
    ])
    .fails(1);
    assert!(
        narrow.stderr.contains("--map-ids u:101000:"),
        "{}",
        narrow.stderr
    );
    assert!(!Path::new(&never).exists());
    extant(["mkfs", &never, "--from", &from, "--map-ids", "1:2"]).fails(2);
    extant([
        "mkfs",
        &never,
        "--from",
        &from,
        "--map-ids",
        "0:0:9",
        "--owner",
        "0",
    ])
    .fails(2);
}

#[test]
fn a_later_step_is_stronger_than_the_ones_before() {
    let place = Place::new();
    let from = source(&place);
    fs::write(place.join("first"), "/etc/** 5:5 0600\n/motd 6:6 -\n").unwrap();
    fs::write(place.join("second"), "/etc/hosts me:me -\n").unwrap();
    let (first, second) = (place.arg("first"), place.arg("second"));
    let image = made(
        &place,
        "fs.img",
        &[
            "--from",
            &from,
            "--owner",
            "9:9",
            "--write",
            "/motd=hello",
            "--write",
            "/etc/hosts=one",
            "--write",
            "/opt/x/empty=",
            "--owners",
            &first,
            "--owners",
            &second,
            "--root-owner",
            "3:4",
            "--mtime",
            "1000",
        ],
    );
    for (path, owners, mode) in [
        ("/", "3:4", ""),
        ("/usr", "9:9", ""),
        ("/etc/shadow", "5:5", "0600"),
        ("/etc/hosts", "1000:1001", "0600"),
        ("/motd", "6:6", "0644"),
        ("/opt/x", "9:9", "0755"),
    ] {
        let told = told(&image, path);
        assert!(
            told.contains(owners) && told.contains(mode),
            "{path}: {told}"
        );
    }
    let cat = |path: &str| extant(["cat", &format!("{image}:{path}")]).ok().text();
    assert_eq!(
        cat("/motd") + &cat("/etc/hosts") + &cat("/opt/x/empty"),
        "hello\none\n"
    );
    let stat = extant(["stat", "--json", &format!("{image}:/motd")])
        .ok()
        .lines();
    assert!(
        stat[0]["mtime"].to_string().contains("1970-01-01T00:16:40"),
        "{}",
        stat[0]
    );
}

#[test]
fn tables_alone_fill_an_image_the_same_way_each_time() {
    let place = Place::new();
    let table = place.arg("table");
    fs::write(&table, "/dev 0:0 0755 dir\n/dev/null 0:0 0666 char=1:3\n").unwrap();
    let make = |name: &str| {
        let image = place.arg(name);
        let options = ["--owners", &table, "--write", "/etc/hostname=box", "-q"];
        extant_with([&["mkfs", &image], &options[..]].concat(), |command| {
            command.env("SOURCE_DATE_EPOCH", "1000000000");
        })
        .ok();
        assert_clean(Path::new(&image));
        image
    };
    let (a, b) = (make("a.img"), make("b.img"));
    assert_eq!(fs::read(&a).unwrap(), fs::read(&b).unwrap());
    assert_eq!(
        paths(&a),
        ["/", "/dev", "/dev/null", "/etc", "/etc/hostname"]
    );
    assert!(told(&a, "/dev/null").contains("character special"));
}

#[test]
fn what_is_added_from_the_host_is_what_cp_adds_to_the_source() {
    require!(Root);
    let place = Place::in_memory();
    let from = source(&place);
    let site = place.join("site");
    fs::create_dir_all(site.join("deep/er")).unwrap();
    fs::write(site.join("index"), vec![7; 300_000]).unwrap();
    fs::hard_link(site.join("index"), site.join("deep/again")).unwrap();
    fs::write(site.join("ping"), "mine").unwrap();
    fs::write(site.join("empty"), "").unwrap();
    symlink("index", site.join("link")).unwrap();
    let sparse = fs::File::create(site.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[1; 4096], 1 << 20).unwrap();
    tool("mknod")
        .args([&format!("{}/null", site.display()), "c", "1", "3"])
        .ok();
    chown(site.join("deep"), Some(5), Some(6)).unwrap();
    fs::set_permissions(&site, fs::Permissions::from_mode(0o2750)).unwrap();
    rustix::fs::lsetxattr(
        site.join("index"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let site = site.display().to_string();
    // A name of a file with several is given to another: its content is read all the same.
    let note = format!("{from}/home/me/note");
    fs::hard_link(&note, format!("{from}/zzz")).unwrap();
    let hosts = place.arg("hosts");
    fs::write(&hosts, "127.0.0.1 box\n").unwrap();

    let expected = place.arg("expected");
    tool("cp").args(["-a", &from, &expected]).ok();
    tool("cp")
        .args(["-a", &format!("{site}/."), &format!("{expected}/usr/bin/")])
        .ok();
    for dir in ["srv", "srv/a", "srv/a/site"] {
        fs::create_dir(format!("{expected}/{dir}")).unwrap();
    }
    tool("cp")
        .args([
            "-a",
            &format!("{site}/."),
            &format!("{expected}/srv/a/site/"),
        ])
        .ok();
    for name in ["etc/hosts", "home/me/note"] {
        tool("cp")
            .args([
                "-a",
                "--remove-destination",
                &hosts,
                &format!("{expected}/{name}"),
            ])
            .ok();
    }
    let add = |host: &str, path: &str| format!("{host}={path}");
    let image = made(
        &place,
        "fs.img",
        &[
            "--from",
            &from,
            "--add",
            &add(&site, "/bin"),
            "--add",
            &add(&site, "/srv/a/site/"),
            "--add",
            &add(&hosts, "/etc/"),
            "--add",
            &add(&hosts, "/home/me/note"),
        ],
    );
    extant(["cp", "-a", &image, &place.arg("back")]).ok();
    let compared = Compare {
        // Those of directories that are made or changed on the way differ.
        mtime: false,
        ctime: false,
        atime: false,
        links: false,
        nlink: false,
        ignore: vec![b"lost+found".to_vec(), b"srv".to_vec()],
        ..crate::support::faithful()
    };
    let back = Tree::snapshot(&place.join("back"));
    Tree::snapshot(Path::new(&expected)).assert_same(&back, &compared);
    let (a, b) = ("expected/srv/a/site", "back/srv/a/site");
    let whole = Compare {
        mtime: true,
        links: true,
        nlink: true,
        ignore: Vec::new(),
        ..compared
    };
    Tree::snapshot(&place.join(a)).assert_same(&Tree::snapshot(&place.join(b)), &whole);
    let told = told(&image, "/srv/a");
    assert!(told.contains("0755 0:0"), "{told}");
}

#[test]
fn what_cannot_be_added_is_refused() {
    let place = Place::new();
    let from = source(&place);
    let image = place.arg("fs.img");
    for (host, path, code) in [
        ("none", "/x", 1),
        ("root/etc/hosts", "/etc", 1),
        ("root/etc/hosts", "/etc/passwd/x", 1),
        ("root/etc/hosts", "/", 0),
        ("root/etc", "/usr/bin/sh", 0),
        ("root/etc", "/../x", 1),
    ] {
        let add = format!("{}={path}", place.arg(host));
        let run = extant(["mkfs", "-q", &image, "--from", &from, "--add", &add]);
        assert_eq!(run.code, code, "{add}: {}", run.stderr);
        assert_eq!(Path::new(&image).exists(), code == 0, "{add}");
        let _ = fs::remove_file(&image);
    }
    for wrong in ["x", "/x", "=/x", "a=b"] {
        extant(["mkfs", "-q", &image, "--from", &from, "--add", wrong]).fails(2);
    }
    // The image of the last run is no part of the next.
    let add = format!("{}=/all", place.path().display());
    for _ in 0..2 {
        let run = extant(["mkfs", "-q", &image, "--add", &add]).ok();
        assert_eq!(run.stderr, "");
        assert!(!paths(&image).contains(&"/all/fs.img".to_owned()));
    }
    assert!(paths(&image).contains(&"/all/root/etc/hosts".to_owned()));
}

#[test]
fn a_text_goes_nowhere_but_into_the_tree() {
    let place = Place::new();
    let from = source(&place);
    symlink("../../../../../../../tmp", place.join("root/up")).unwrap();
    let image = made(
        &place,
        "fs.img",
        &[
            "--from",
            &from,
            "--write",
            "/up/x=1",
            "--write",
            "/bin/sh=2",
        ],
    );
    let cat = |path: &str| extant(["cat", &format!("{image}:{path}")]).ok().text();
    assert_eq!(
        (cat("/tmp/x"), cat("/usr/bin/bash")),
        ("1\n".to_owned(), "2\n".to_owned())
    );
    let never = place.arg("never.img");
    for (wrong, code) in [
        ("x=1", 2),
        ("/x", 2),
        ("/etc=1", 1),
        ("/etc/hosts/x=1", 1),
        ("/../x=1", 1),
        ("/=1", 1),
    ] {
        extant(["mkfs", &never, "--from", &from, "--write", wrong]).fails(code);
        assert!(!Path::new(&never).exists(), "{wrong}");
    }
}

#[test]
fn a_manifest_of_an_image_gives_another_one_its_owners() {
    let place = Place::new();
    let from = source(&place);
    fs::write(place.join("root/usr/lib/od d #*\\=\u{1}é"), "x").unwrap();
    let table = place.arg("table");
    fs::write(
        &table,
        "/etc/** 5:6 0640\n/usr/bin/ping 0:0 4755\n/dev/null 0:0 666 char=1:3\n\
         /dev/sda 0:6 660 block=8:0\n/dev/pipe 7:7 622 fifo\n/usr/lib/od* 8:8 0604\n",
    )
    .unwrap();
    let first = made(&place, "first.img", &["--from", &from, "--owners", &table]);
    let spec = extant(["ls", "-R", "--mtree", &first]).ok().stdout;
    fs::write(place.join("spec"), &spec).unwrap();
    let second = made(
        &place,
        "second.img",
        &["--from", &from, "--owners", &place.arg("spec")],
    );
    assert_told_alike(&first, &second);
    let again = extant(["ls", "-R", "--mtree", &second]).ok().stdout;
    let without_lost = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("./lost+found "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(without_lost(&again), without_lost(&spec));
    // bsdtar and NetBSD's mtree read it as well.
    let listed = tool("bsdtar").args(["-tf", &place.arg("spec")]).ok().text();
    assert_eq!(listed.lines().count(), paths(&first).len() + 1, "{listed}");
    let copied = place.arg("copied");
    // Devices take root, and are not copied here.
    let copying = extant(["cp", "-r", &format!("{second}:/"), &copied]);
    assert!(copying.stderr.contains("/dev/null"), "{}", copying.stderr);
    let checked = tool("mtree")
        .args(["-p", &copied, "-f", &place.arg("spec")])
        .run();
    let complaint = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(complaint, "", "mtree reads the manifest");
    // Owners, permissions and times are those of the copy.
    let told = checked.text();
    let mut missing: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("missing"))
        .collect();
    missing.sort_unstable();
    assert_eq!(missing, ["missing: ./dev/null", "missing: ./dev/sda"]);
    for wrong in ["extra", "type (", "size (", "link"] {
        assert!(!told.contains(wrong), "{wrong}: {told}");
    }
    // It compares what it read with the copy.
    assert!(told.contains("user (5, "), "{told}");
    extant(["ls", "--mtree", &first]).fails(2);
    extant(["ls", "-R", "--mtree", &first, &second]).fails(2);
    let part = extant(["ls", "-R", "--mtree", &format!("{first}:/etc")])
        .ok()
        .text();
    assert!(
        part.contains("\n./shadow type=file ") && part.contains("\n. type=dir "),
        "{part}"
    );
}

mod contexts;
mod into;
