//! What comes out of container tools, and what is taken for a source by mistake.

use std::io::Write;
use std::path::Path;

use extant_mkfs::source::{
    Excludes, SourceError, SourceOptions, SourceResult, TarOptions, read_source, read_tar_stream,
};
use extant_testkit::oracle::mke2fs;
use extant_testkit::tool::tool;

use super::archive::Tar;
use super::*;

fn read(bytes: Vec<u8>) -> SourceResult<Tree> {
    let stream = std::io::Cursor::new(bytes);
    read_tar_stream(stream, Path::new("layer.tar"), &TarOptions::default())
}

fn source(path: &Path) -> SourceResult<Tree> {
    read_source(path, SourceOptions::default())
}

fn kind(tree: &Tree, path: &str) -> Option<FileType> {
    Some(tree.node(tree.lookup(path)?).kind())
}

/// The text of the refusal of an archive.
#[track_caller]
fn refusal(tar: Tar) -> String {
    read(tar.end()).expect_err("refused").to_string()
}

#[test]
fn members_beneath_symbolic_links_go_where_these_lead_and_never_outside() {
    for target in [
        "usr/lib",
        "/usr/lib",
        "./usr/../usr/lib",
        "../../usr/lib",
        "/../usr/lib/.",
    ] {
        let tar = Tar::new()
            .member("usr/lib", b'5', "", b"")
            .member("lib", b'2', target, b"")
            .file("lib/libx.so", b"X")
            .member("lib/deep/dir", b'5', "", b"");
        let tree = read(tar.end()).unwrap();
        assert_eq!(
            kind(&tree, "usr/lib/libx.so"),
            Some(FileType::Regular),
            "{target}"
        );
        assert_eq!(
            kind(&tree, "usr/lib/deep/dir"),
            Some(FileType::Directory),
            "{target}"
        );
        assert_eq!(kind(&tree, "lib"), Some(FileType::Symlink), "{target}");
    }
    // The way of pnpm: a link to a directory whose name is a link's target again, relative to where
    // the link is.
    let tar = Tar::new()
        .file("app/.pnpm/x@1/node_modules/x/src/i.js", b"js")
        .member(
            "app/node_modules/x",
            b'2',
            "../.pnpm/x@1/node_modules/x",
            b"",
        )
        .file("app/node_modules/x/src/j.js", b"js2");
    let tree = read(tar.end()).unwrap();
    assert!(
        tree.lookup("app/.pnpm/x@1/node_modules/x/src/j.js")
            .is_some()
    );
    // What a link leads to need not be there yet.
    let tar = Tar::new()
        .member("lib", b'2', "usr/lib", b"")
        .file("lib/a", b"a");
    let tree = read(tar.end()).unwrap();
    assert_eq!(kind(&tree, "usr/lib/a"), Some(FileType::Regular));
}

#[test]
fn hard_links_are_found_through_symbolic_links_to_directories() {
    let tar = Tar::new()
        .file("usr/bin/a", b"a")
        .member("bin", b'2', "usr/bin", b"")
        .member("sbin/b", b'1', "bin/a", b"")
        .member("bin/c", b'1', "sbin/b", b"");
    let tree = read(tar.end()).unwrap();
    let node = tree.lookup("usr/bin/a").unwrap();
    assert_eq!(tree.lookup("sbin/b"), Some(node));
    assert_eq!(tree.lookup("usr/bin/c"), Some(node));
    // A hard link to a symbolic link is one to the link itself.
    let tar = Tar::new()
        .file("f", b"f")
        .member("s", b'2', "f", b"")
        .member("t", b'1', "s", b"");
    let tree = read(tar.end()).unwrap();
    assert_eq!(tree.lookup("t"), tree.lookup("s"));
}

#[test]
fn a_file_takes_the_place_of_a_symbolic_link_and_does_not_write_through_it() {
    let tar = Tar::new()
        .file("bin/busybox", b"busybox")
        .member("usr/bin/env", b'2', "/bin/busybox", b"")
        .file("usr/bin/env", b"env of coreutils");
    let tree = read(tar.end()).unwrap();
    assert_eq!(kind(&tree, "usr/bin/env"), Some(FileType::Regular));
    assert_eq!(tree.node(tree.lookup("bin/busybox").unwrap()).size, 7);
    let tar = Tar::new()
        .member("usr/lib", b'5', "", b"")
        .member("lib", b'2', "usr/lib", b"")
        .member("lib", b'5', "", b"")
        .file("lib/a", b"a");
    let tree = read(tar.end()).unwrap();
    assert_eq!(kind(&tree, "lib/a"), Some(FileType::Regular));
    assert_eq!(kind(&tree, "usr/lib/a"), None);
}

#[test]
fn a_hard_link_to_itself_is_the_file_of_that_name_or_refused() {
    let tar = Tar::new().file("g", b"g").member("g", b'1', "g", b"");
    assert_eq!(read(tar.end()).unwrap().len(), 2);
    let tar = Tar::new().member("g", b'1', "g", b"").file("g", b"later");
    assert_eq!(read(tar.end()).unwrap().len(), 2);
    assert!(refusal(Tar::new().member("g", b'1', "g", b"")).contains("hard link to itself"));
}

#[test]
fn members_of_an_unknown_type_are_regular_files_and_told() {
    let tar = Tar::new().member("odd", b'A', "", b"abc").file("ok", b"ok");
    let tree = read(tar.end()).unwrap();
    assert_eq!(kind(&tree, "odd"), Some(FileType::Regular));
    assert_eq!(tree.node(tree.lookup("odd").unwrap()).size, 3);
    let told = tree.concerns(256);
    assert!(told.iter().any(|text| text.contains("\"odd\"")), "{told:?}");
}

#[test]
fn whiteouts_are_refused_whatever_they_are_unless_excluded() {
    for (name, kind, link) in [
        ("etc/.wh.passwd", b'0', ""),
        ("etc/.wh..wh..opq", b'0', ""),
        (".wh.KEY", b'1', "etc/a"),
        ("etc/.wh.dir", b'5', ""),
    ] {
        let tar = Tar::new().file("etc/a", b"a").member(name, kind, link, b"");
        let text = refusal(tar);
        assert!(
            text.contains("whiteout") && text.contains("docker export"),
            "{text}"
        );
    }
    let mut options = TarOptions::default();
    options.excludes = Excludes::new([b".wh.*".to_vec()]).unwrap();
    let tar = Tar::new().file("etc/a", b"a").file("etc/.wh.b", b"").end();
    let tree = read_tar_stream(std::io::Cursor::new(tar), Path::new("t"), &options).unwrap();
    assert!(tree.lookup("etc/.wh.b").is_none());
}

#[test]
fn what_looks_like_a_container_image_is_read_as_one_or_refused() {
    let digest = "0123456789abcdef".repeat(4);
    let layer = format!("{digest}/layer.tar");
    let dir = tempfile::tempdir().unwrap();
    for names in [
        &["oci-layout", "index.json", "blobs/sha256/x"][..],
        &["manifest.json", "repositories", &layer],
        &["manifest.json", &format!("{digest}.tar")],
        &["manifest.json", "oci-layout", "blobs/sha256/x"],
        &["manifest.json", &format!("blobs/sha256/{digest}")],
        &["index.json", &format!("blobs/sha256/{digest}")],
        &["manifest.json", &format!("sha256:{digest}.tar.gz")],
        &["manifest.json", "version", &digest],
        &["repositories", &layer],
    ] {
        let mut tar = Tar::new();
        let tree = tempfile::tempdir_in(&dir).unwrap();
        for name in names {
            tar = tar.file(name, b"{}");
            fs::create_dir_all(tree.path().join(name).parent().unwrap()).unwrap();
            fs::write(tree.path().join(name), "{}").unwrap();
        }
        let archive = dir.path().join("archive");
        fs::write(&archive, tar.end()).unwrap();
        for path in [&archive, tree.path()] {
            let error = source(path).expect_err("refused").to_string();
            assert!(error.contains("container image"), "{error}");
        }
    }
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("manifest.json"), "{}").unwrap();
    fs::write(tree.path().join("index.json"), "{}").unwrap();
    fs::create_dir_all(tree.path().join("blobs/sha256")).unwrap();
    fs::write(tree.path().join("blobs/sha256/x"), "").unwrap();
    fs::write(tree.path().join("app.tar"), "").unwrap();
    assert!(
        source(tree.path()).is_ok(),
        "these names alone are anybody's"
    );
}

#[test]
fn whiteouts_in_a_directory_are_refused_unless_excluded() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    fs::write(dir.path().join("etc/.wh.passwd"), "").unwrap();
    fs::write(dir.path().join("etc/.where"), "").unwrap();
    let error = source(dir.path()).expect_err("a layer").to_string();
    assert!(error.contains("whiteout etc/.wh.passwd"), "{error}");
    let mut options = SourceOptions::default();
    options.excludes = Excludes::new([b".wh.*".to_vec()]).unwrap();
    let tree = read_source(dir.path(), options).unwrap();
    assert!(tree.lookup("etc/.where").is_some());
    assert!(tree.lookup("etc/.wh.passwd").is_none());
}

#[test]
fn joined_archives_and_garbage_behind_one_are_refused() {
    let one = || Tar::new().file("a", b"a").end();
    let two = [one(), one()].concat();
    let text = read(two).expect_err("two archives").to_string();
    assert!(text.contains("another archive follows"), "{text}");
    let lone = [one()[..1536].to_vec(), one()].concat();
    assert!(
        read(lone)
            .expect_err("a lone zero block")
            .to_string()
            .contains("another archive")
    );
    let text = read([one(), b"GARBAGE".repeat(100)].concat())
        .expect_err("garbage")
        .to_string();
    assert!(text.contains("no archive follows"), "{text}");
    for (program, args) in [("gzip", ["-c"]), ("zstd", ["-qc"])] {
        let packed = tool(program).args(args).input(one()).ok().stdout;
        assert!(
            read([&packed[..], &packed].concat()).is_err(),
            "{program}: two archives"
        );
        assert!(
            read([packed.clone(), b"hello world".to_vec()].concat()).is_err(),
            "{program}: garbage"
        );
        assert!(
            read(packed[..packed.len() - 8].to_vec()).is_err(),
            "{program}: cut"
        );
        assert!(read(packed).is_ok());
    }
    let packed = tool("gzip").arg("-c").input(one()).ok().stdout;
    assert!(
        read([packed, vec![0; 512]].concat()).is_ok(),
        "tapes are padded with zeros"
    );
}

#[test]
fn what_is_no_archive_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("source");
    let image = dir.path().join("image");
    mke2fs(&image, 4 << 20, &["-t", "ext4"]);
    let image = fs::read(image).unwrap();
    let gzip = |bytes: Vec<u8>| tool("gzip").arg("-c").input(bytes).ok().stdout;
    let mut iso = vec![0; 40_000];
    iso[32_769..32_774].copy_from_slice(b"CD001");
    for (bytes, says) in [
        (image.clone(), "ext4 file system"),
        (gzip(image), "ext4 file system"),
        (iso, "ISO 9660"),
        (vec![0; 100], "zeros"),
        (vec![0; 10_240], "zeros"),
        (vec![0; 1 << 20], "zeros"),
        (gzip(vec![0; 10_240]), "zeros"),
        (Vec::new(), "is empty"),
        (gzip(Vec::new()), "is empty"),
        (gzip(gzip(b"twice".to_vec())), "compressed with gzip"),
        (b"PK\x03\x04 and so on".to_vec(), "zip archive"),
        (b"7z\xbc\xaf\x27\x1c and so on".to_vec(), "7z archive"),
        (b"\xed\xab\xee\xdb and so on".to_vec(), "RPM package"),
        (b"!<arch>\ndebian-binary".to_vec(), "Debian package"),
        (b"QFI\xfb\0\0\0\x03 and so on".to_vec(), "QCOW"),
        (b"just a text\n".repeat(100), "text file"),
        (b"BZh91AY&SY".to_vec(), "bzip2"),
        (pattern(3, 5000), "at byte 0"),
    ] {
        fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        let error = source(&path).expect_err(says).to_string();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
        let error = read(bytes).expect_err(says);
        assert!(matches!(
            error,
            SourceError::NotASource { .. } | SourceError::Archive { .. } | SourceError::Io { .. }
        ));
        assert!(
            error.to_string().contains(says),
            "{error} does not say {says:?}"
        );
    }
}

#[test]
fn an_access_list_gives_the_mode_its_bits_as_linux_does() {
    let with = |mode: &[u8], kind, records: &[(&str, &str)]| {
        let mut tar = Tar::new().pax(b'x', records);
        let mut header = Tar::header(b"f", kind, b"", 0);
        header[100..108].copy_from_slice(mode);
        Tar::seal(&mut header);
        tar.0.extend(header);
        read(tar.end()).unwrap()
    };
    let list = "user::rw-,group::---,other::---,user:77:rw-,mask::rw-";
    let tree = with(b"0004600\0", b'0', &[("SCHILY.acl.access", list)]);
    let node = tree.lookup("f").unwrap();
    assert_eq!(tree.node(node).mode & 0o7777, 0o4660);
    assert_eq!(tree.xattrs(node).len(), 1);
    let minimal = "user::r--,group::r-x,other::--x";
    let tree = with(b"0000777\0", b'0', &[("SCHILY.acl.access", minimal)]);
    let node = tree.lookup("f").unwrap();
    assert_eq!(tree.node(node).mode & 0o7777, 0o451);
    assert!(tree.xattrs(node).is_empty(), "it says what the mode says");
    let lists = |tree: &Tree| tree.xattrs(tree.lookup("f").unwrap()).len();
    let both = [("SCHILY.acl.access", list), ("SCHILY.acl.default", list)];
    assert_eq!(lists(&with(b"0000755\0", b'5', &both)), 2);
    assert_eq!(
        lists(&with(b"0000755\0", b'0', &both)),
        1,
        "a file has no default list"
    );
}

#[test]
fn symbolic_links_have_all_permissions_and_no_lists() {
    let list = "user::rw-,group::---,other::---,user:77:rw-,mask::rw-";
    let tar = Tar::new()
        .pax(b'x', &[("SCHILY.acl.access", list)])
        .member("s", b'2', "t", b"");
    let tree = read(tar.end()).unwrap();
    let node = tree.lookup("s").unwrap();
    assert_eq!(tree.node(node).mode, 0o120_777);
    assert!(tree.xattrs(node).is_empty());
}

#[test]
fn times_that_do_not_fit_and_paths_too_long_to_use_are_told() {
    let tar = Tar::new()
        .pax(b'x', &[("mtime", "99999999999")])
        .file("late", b"");
    let tree = read(tar.end()).unwrap();
    // The root directory has the time of what is in it.
    let told = tree.concerns(256);
    assert!(
        told[0].contains("a time that ext4 does not keep"),
        "{told:?}"
    );
    let tar = Tar::new()
        .pax(b'x', &[("mtime", "4000000000")])
        .file("later", b"");
    let tree = read(tar.end()).unwrap();
    assert!(tree.concerns(256).is_empty());
    assert!(tree.concerns(128)[0].contains("2038"));
    let deep = format!("{}f", "0123456789/".repeat(380));
    let tar = Tar::new().pax(b'x', &[("path", &deep)]).file("f", b"");
    let told = read(tar.end()).unwrap().concerns(256);
    assert!(told[0].contains("4095"), "{told:?}");
}
