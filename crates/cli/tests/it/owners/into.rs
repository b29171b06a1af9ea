//! Tables for what is put into an image that exists: `cp -a` and `apply` beside `mkfs`; and tables
//! of systems where the image is mounted somewhere.

use super::{made, paths, source, told, xattrs};
use crate::support::{Place, change, extant, extant_with, seen_by_linux};
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Tree};
use std::fs;
use std::path::Path;

/// Runs the command at a moment that does not pass.
fn at_rest(args: &[&str]) {
    extant_with(args, |command| {
        command.env("SOURCE_DATE_EPOCH", "1700000000");
    })
    .ok();
}

/// Puts the source into images with these options, by all three commands, and compares them.
#[track_caller]
fn assert_alike(place: &Place, root: &str, options: &[&str]) {
    let [built, copied, applied] = ["built.img", "copied.img", "applied.img"];
    let [built, copied, applied] = [built, copied, applied].map(|name| place.arg(name));
    let make = ["mkfs", "-q", "--force", "--size", "32M"];
    at_rest(&[&make[..], &[&built, "--from", root], options].concat());
    for image in [&copied, &applied] {
        at_rest(&[&make[..], &[image]].concat());
    }
    let all = format!("{root}/.");
    let into = format!("{copied}:/");
    at_rest(&[&["cp", "-a", &all, &into], options].concat());
    at_rest(&[&["apply", "-q", root, &applied], options].concat());
    let manifest = |image: &str| extant(["ls", "-R", "--mtree", image]).ok().text();
    let expected = manifest(&built);
    let compared = Compare {
        ignore: vec![b"lost+found".to_vec()],
        ..crate::support::faithful()
    };
    let tree = seen_by_linux(&built);
    for image in [&copied, &applied] {
        assert_clean(Path::new(image));
        assert_eq!(manifest(image), expected, "{image}");
        tree.assert_same(&seen_by_linux(image), &compared);
    }
}

#[test]
fn files_that_are_copied_and_applied_with_tables_are_what_mkfs_makes_of_them() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let root = source(&place);
    let write = |name: &str, text: &str| {
        fs::write(place.join(name), text).unwrap();
        place.arg(name)
    };
    let own = write(
        "own",
        "/home/me/** me:me -\n**/*sh* - 0755 type=f\n/etc/shadow 0:42 0640\n\
         /usr/bin/ping 0:0 0755 caps=cap_net_raw+ep\n/dev/console 0:5 0620 char=5:1\n\
         /run/lock 0:0 1777 dir\n/none 0:0 - optional\n",
    );
    let devices = write(
        "devices",
        "/dev d 755 0 0 - - - - -\n/dev/tty c 666 0 5 4 0 0 1 4\n/dev/fifo p 600 7 8 - - - - -\n",
    );
    let manifest = write(
        "mtree",
        "#mtree\n. type=dir\n./etc type=dir mode=0711\n./etc/hosts type=file uid=9 time=12345.0\n\
         ./usr/lib/libc.so type=file flags=nodump\n./srv type=dir mode=0700 uid=3 gid=4\n\
         ./srv/link type=link link=../etc\n",
    );
    let contexts = write(
        "file_contexts",
        "/.*\tu:r:any_t:s0\n/\t-d\tu:r:root_t:s0\n/usr/bin/.*\t--\tu:r:bin_t:s0\n\
         /run(/.*)?\tu:r:run_t:s0\n/etc/shadow\t--\t<<none>>\n",
    );
    let named = |kind: &str, path: &str| format!("{kind}:{path}");
    let (own, devices) = (named("extant", &own), named("genext2fs", &devices));
    let manifest = named("mtree", &manifest);
    assert_alike(&place, &root, &["--owners", &own]);
    assert_alike(&place, &root, &["--owners", &devices]);
    assert_alike(&place, &root, &["--owners", &manifest]);
    assert_alike(&place, &root, &["--map-ids", "0:100000:65536"]);
    assert_alike(&place, &root, &["--contexts", &contexts]);
    let all = [
        "--owners", &own, "--owners", &devices, "--owners", &manifest,
    ];
    let rest = ["--map-ids", "0:500:2000", "--contexts", &contexts];
    assert_alike(&place, &root, &[&all[..], &rest].concat());
    let owned = ["--owner", "6:7", "--owners", &own];
    assert_alike(&place, &root, &owned);
}

#[test]
fn tables_of_a_whole_image_are_taken_for_a_part_of_it() {
    require!(Root);
    let place = Place::in_memory();
    let root = source(&place);
    let image = made(&place, "fs.img", &["--size", "32M", "--from", &root]);
    let new = place.join("new");
    fs::create_dir_all(new.join("app")).unwrap();
    for name in ["app/run", "app/data", "note"] {
        fs::write(new.join(name), name).unwrap();
    }
    let table = |text: &str| {
        fs::write(place.join("table"), text).unwrap();
        let (new, into) = (format!("{}/.", new.display()), format!("{image}:/home/me"));
        change(
            &image,
            [
                "cp",
                "-a",
                &new,
                &into,
                "--owners",
                &format!("extant:{}", place.arg("table")),
            ],
        )
    };
    // What is there is named by the table, too, and stays; accounts are those of the image.
    let whole = "/etc/shadow 0:42 0600\n/usr/** 5:5 -\n/home/me/** me:me -\n\
                 /home/me/app/run - 0750\n/dev/zero 0:0 0666 char=1:5\n*.none 1:1 -\n";
    let before: Vec<String> = ["/etc/shadow", "/usr/bin/sh"]
        .map(|at| told(&image, at))
        .into();
    let run = table(whole).ok();
    assert_eq!(run.stderr, "");
    assert_eq!(
        ["/etc/shadow", "/usr/bin/sh"]
            .map(|at| told(&image, at))
            .to_vec(),
        before
    );
    let stat = |path: &str| {
        let json = extant(["stat", "--json", &format!("{image}:{path}")]).ok();
        json.lines()[0].clone()
    };
    let file = stat("/home/me/app/run");
    assert_eq!((&file["uid"], &file["gid"]), (&1000.into(), &1001.into()));
    assert_eq!(file["mode"], "0750");
    // It was there before, and its content is that of the copy.
    assert_eq!(stat("/home/me/note")["uid"], 1000);
    assert_eq!(
        extant(["cat", &format!("{image}:/home/me/note")])
            .ok()
            .text(),
        "note"
    );
    assert_eq!(stat("/dev/zero")["type"], "char-device");
    // What is nowhere is refused, as `mkfs` refuses it, before anything is copied.
    let all = paths(&image);
    fs::write(new.join("more"), "more").unwrap();
    let said = table("/home/me/nowhere 0:0 -\n").fails(1).stderr;
    assert!(said.contains("table:1: names nothing"), "{said}");
    let said = table("/home/me/app nobody -\n").fails(1).stderr;
    assert!(said.contains("nobody"), "{said}");
    assert_eq!(paths(&image), all);
}

#[test]
fn tables_are_for_what_goes_into_an_image_with_all_that_it_has() {
    let place = Place::in_memory();
    let image = place.arg("fs.img");
    extant(["mkfs", "-q", "--size", "16M", &image]).ok();
    fs::write(place.join("f"), "f").unwrap();
    fs::write(place.join("table"), "/f 1:1 -\n").unwrap();
    let (file, table) = (place.arg("f"), format!("extant:{}", place.arg("table")));
    let into = format!("{image}:/");
    let mut wrong: Vec<Vec<&str>> = vec![
        vec!["cp", &file, &into, "--owners", &table],
        vec!["cp", "-a", "--no-xattrs", &file, &into, "--owners", &table],
        vec!["cp", "-a", &file, &into, "--mount-point", "/system"],
    ];
    let out = place.arg("out");
    wrong.push(vec!["cp", "-a", &into, &out, "--owners", &table]);
    for args in wrong {
        extant(&args).fails(2);
    }
    extant(["cp", "-a", &file, &into, "--owners", &table]).ok();
    assert_clean(Path::new(&image));
    assert!(told(&image, "/f").contains('1'), "{}", told(&image, "/f"));
}

#[test]
fn contexts_of_a_mount_point_are_those_that_setfiles_gives_there() {
    require!(Root, KernelExt4);
    let place = Place::in_memory();
    let root = source(&place);
    let contexts = place.arg("file_contexts");
    fs::write(
        &contexts,
        "/.*\tu:r:outside_t:s0\n/system(/.*)?\tu:r:system_t:s0\n/system\t-d\tu:r:top_t:s0\n\
         /usr/bin/.*\tu:r:wrong_t:s0\n/system/usr/bin/.*\t--\tu:r:exec_t:s0\n\
         /system/etc/shadow\t<<none>>\n",
    )
    .unwrap();
    let labelled = place.arg("labelled");
    fs::create_dir(&labelled).unwrap();
    let inside = format!("{labelled}/system");
    tool("cp").args(["-a", &root, &inside]).ok();
    tool("setfiles")
        .args(["-F", "-r", &labelled, &contexts, &inside])
        .ok();
    let expected = Tree::snapshot(Path::new(&inside));
    let compared = Compare {
        mtime: false,
        ignore: vec![b"lost+found".to_vec()],
        ..crate::support::faithful()
    };
    let at = ["--contexts", &contexts, "--mount-point", "/system/"];
    let built = made(&place, "built.img", &[&["--from", &root][..], &at].concat());
    expected.assert_same(&seen_by_linux(&built), &compared);
    let shown = xattrs(&built, "/lost+found").to_string();
    assert!(shown.contains("system_t"), "{shown}");
    let plain = made(&place, "plain.img", &["--from", &root]);
    let relabel = [&["relabel", &plain][..], &at].concat();
    change(&plain, relabel).ok();
    expected.assert_same(&seen_by_linux(&plain), &compared);
    let empty = made(&place, "empty.img", &["--size", "32M"]);
    change(&empty, [&["apply", "-q", &root, &empty][..], &at].concat()).ok();
    expected.assert_same(&seen_by_linux(&empty), &compared);
    extant([
        "relabel",
        &plain,
        "--contexts",
        &contexts,
        "--mount-point",
        "system",
    ])
    .fails(2);
}

#[test]
fn an_android_table_names_files_by_their_mount_point() {
    let place = Place::in_memory();
    let root = place.join("tree");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(root.join("bin/sh"), "sh").unwrap();
    fs::write(root.join("build.prop"), "p").unwrap();
    let root = root.display().to_string();
    // As the tables of a whole device have them: the root of the partition is the directory
    // `system`, and other partitions stand beside it.
    let table = place.arg("fs_config.txt");
    fs::write(
        &table,
        " 0 0 0777\nsystem 0 0 0755 capabilities=0x0\nsystem/bin 0 2000 0751\n\
         system/bin/sh 0 2000 0755 capabilities=0x2000\nsystem/build.prop 0 0 0600\n\
         vendor/bin/sh 9 9 0700\nsystemic 9 9 0700\nbin/sh 9 9 0700\n",
    )
    .unwrap();
    let owners = format!("fs_config:{table}");
    let at = ["--owners", &owners, "--mount-point", "/system"];
    let image = made(
        &place,
        "system.img",
        &[&["--from", &root][..], &at].concat(),
    );
    let copied = made(&place, "copied.img", &["--size", "16M"]);
    let into = format!("{copied}:/");
    extant([&["cp", "-a", &format!("{root}/."), &into][..], &at].concat()).ok();
    for image in [&image, &copied] {
        let stat = |path: &str| {
            let json = extant(["stat", "--json", &format!("{image}:{path}")]).ok();
            let json = json.lines()[0].clone();
            format!("{} {} {}", json["uid"], json["gid"], json["mode"])
        };
        assert_eq!(stat("/"), "0 0 \"0755\"");
        assert_eq!(stat("/bin"), "0 2000 \"0751\"");
        assert_eq!(stat("/bin/sh"), "0 2000 \"0755\"");
        assert_eq!(stat("/build.prop"), "0 0 \"0600\"");
        let shown = xattrs(image, "/bin/sh").to_string();
        assert!(shown.contains("security.capability"), "{shown}");
    }
    // All files of the partition have to be named.
    let missing = "system 0 0 0755\nsystem/bin 0 2000 0751\nsystem/bin/sh 0 0 0755\n";
    fs::write(&table, missing).unwrap();
    let image = place.arg("new.img");
    let args = [&["mkfs", &image, "--from", &root][..], &at].concat();
    let said = extant(args).fails(1).stderr;
    assert!(said.contains("/build.prop"), "{said}");
    // Patterns of other tables begin with it, too.
    let own = place.arg("own");
    fs::write(
        &own,
        "/system/** 7:8 -\n/vendor/** 9:9 -\n/system 5:5 -\n*.prop - 0604\n",
    )
    .unwrap();
    let own = format!("extant:{own}");
    let at = ["--owners", &own, "--mount-point", "/system"];
    let image = made(&place, "own.img", &[&["--from", &root][..], &at].concat());
    let owner = |path: &str| {
        let json = extant(["stat", "--json", &format!("{image}:{path}")]).ok();
        let json = json.lines()[0].clone();
        format!("{} {} {}", json["uid"], json["gid"], json["mode"])
    };
    assert_eq!(owner("/bin/sh"), "7 8 \"0644\"");
    assert_eq!(owner("/build.prop"), "7 8 \"0604\"");
    assert!(owner("/").starts_with("5 5"), "{}", owner("/"));
}
