//! Layers over layers, beside `umoci unpack`.

use std::path::{Path, PathBuf};

use extant_mkfs::source::{
    Excludes, Gathered, Source, SourceOptions, SourceResult, Whiteouts, read_source, read_sources,
};
use extant_testkit::require;
use extant_testkit::tool::tool;

use super::archive::Tar;
use super::*;
use extant_testkit::layers::{Layout, docker_archive, stacks};

/// A layer that begins with its root directory.
fn layer() -> Tar {
    Tar::layer()
}

fn gather(sources: &[&str], options: &SourceOptions) -> SourceResult<Gathered> {
    let sources: Vec<Source> = sources
        .iter()
        .map(|text| Source::parse(OsStr::new(text)).unwrap())
        .collect();
    read_sources(&sources, options)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Content of a regular file.
fn content(tree: &Tree, path: &str) -> Vec<u8> {
    let id = tree.lookup(path).unwrap_or_else(|| panic!("no {path}"));
    let mut found = vec![0; tree.node(id).size as usize];
    tree.read_at(id, 0, &mut found).unwrap();
    found
}

/// All paths, in order.
fn paths(tree: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    for dir in tree.ids().filter(|id| tree.node(*id).is_dir()) {
        for (name, _) in tree.children(dir) {
            let path = tree.path(dir).join(OsStr::from_bytes(name));
            all.push(path.to_str().unwrap().to_owned());
        }
    }
    all.sort();
    all
}

/// The tree of a stack of layers is what `umoci unpack` makes of it, whichever way it comes: as a
/// layout, an archive of one, what `docker save` writes, and as archives over each other.
#[track_caller]
fn judged(layers: Vec<Tar>) -> Tree {
    let layers: Vec<Vec<u8>> = layers.into_iter().map(Tar::end).collect();
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::of(dir.path().join("layout"), &layers);
    let bundle = dir.path().join("bundle");
    tool("umoci")
        .args(["unpack", "--image", &format!("{}:t", text(&layout.0))])
        .arg(&bundle)
        .ok();
    let rootfs = bundle.join("rootfs");
    let how = Compare {
        holes: false,
        ..ALL
    };
    let archive = dir.path().join("layout.tar");
    layout.archive(&archive);
    let docker = dir.path().join("docker.tar");
    fs::write(&docker, docker_archive(&layers, "x:1")).unwrap();
    let options = SourceOptions::default();
    let named = [
        format!("oci:{}:t", text(&layout.0)),
        text(&layout.0).to_owned(),
        format!("oci-archive:{}", text(&archive)),
        text(&archive).to_owned(),
        format!("docker-archive:{}:x:1", text(&docker)),
        text(&docker).to_owned(),
    ];
    let mut last = None;
    for name in &named {
        let tree = gather(&[name], &options).unwrap().tree;
        assert_same(&tree, &rootfs, how);
        last = Some(tree);
    }
    // An archive of nothing is no source.
    let full = layers.iter().filter(|layer| layer.len() > 1024);
    let single: Vec<PathBuf> = full
        .enumerate()
        .map(|(index, layer)| {
            let path = dir.path().join(format!("{index}.tar"));
            fs::write(&path, layer).unwrap();
            path
        })
        .collect();
    if single.len() > 1 {
        let single: Vec<&str> = single.iter().map(|path| text(path)).collect();
        assert_same(&gather(&single, &options).unwrap().tree, &rootfs, how);
    }
    last.unwrap()
}

#[test]
fn whiteouts_take_files_and_directories_away() {
    require!(Root);
    let tree = judged(stacks::whiteouts());
    assert_eq!(paths(&tree), ["etc", "etc/passwd"]);
}

#[test]
fn opaque_directories_keep_only_what_their_layer_has() {
    require!(Root);
    let tree = judged(stacks::opaque());
    assert_eq!(
        paths(&tree),
        ["var", "var/cache", "var/cache/new", "var/kept"]
    );
}

#[test]
fn a_whiteout_acts_on_lower_layers_only_in_whatever_order() {
    require!(Root);
    let below = || {
        layer()
            .dir("d/")
            .file("d/a", b"lower a")
            .file("d/b", b"lower b")
            .dir("o/")
            .file("o/x", b"lower x")
    };
    let tree = judged(stacks::late_whiteouts());
    assert_eq!(content(&tree, "d/a"), b"upper a");
    assert_eq!(paths(&tree), ["d", "d/a", "d/b", "o", "o/y"]);
    let before = layer()
        .file("d/.wh.a", b"")
        .file("o/.wh..wh..opq", b"")
        .dir("d/")
        .file("d/a", b"upper a")
        .dir("o/")
        .file("o/y", b"upper y");
    assert_eq!(paths(&judged(vec![below(), before])), paths(&tree));
    // A directory that is taken away and made again has nothing in it of before. (Where whiteouts
    // come last, umoci leaves the directory with the time of the removal.)
    let tree = judged(stacks::made_again());
    assert_eq!(paths(&tree), ["d", "d/new"]);
    let late = layer()
        .dir("d/")
        .file("d/new", b"new")
        .file(".wh.d", b"")
        .file(".wh.o", b"");
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::of(dir.path().join("layout"), &[below().end(), late.end()]);
    let options = SourceOptions::default();
    let late = gather(&[text(&layout.0)], &options).unwrap().tree;
    assert_eq!(paths(&late), paths(&tree));
    let [found, expected] = [&late, &tree].map(|tree| {
        let node = tree.node(tree.lookup("d").unwrap());
        (node.mode, node.uid, node.times)
    });
    assert_eq!(found, expected);
}

#[test]
fn hard_links_find_their_targets_in_lower_layers() {
    require!(Root);
    let tree = judged(stacks::hard_links());
    assert_eq!(content(&tree, "b"), b"a of below");
    assert_eq!(content(&tree, "usr/bin/a"), b"another a");
    let [b, c, a] = ["b", "c", "usr/bin/a"].map(|path| tree.lookup(path).unwrap());
    assert!(b == c && a != b);
    assert_eq!(tree.node(b).nlink, 2);
}

#[test]
fn kinds_take_each_others_place() {
    require!(Root);
    let tree = judged(stacks::kinds());
    assert_eq!(content(&tree, "dir"), b"now a file");
    assert_eq!(
        paths(&tree),
        ["dir", "file", "file/x", "link", "link/y", "pipe", "to file"]
    );
}

#[test]
fn directories_get_new_attributes_and_keep_what_is_in_them() {
    require!(Root);
    let tree = judged(stacks::attributes());
    let srv = tree.lookup("srv").unwrap();
    assert_eq!(tree.node(srv).mode & 0o7777, 0o2750);
    assert_eq!(tree.node(srv).uid, 77);
    assert_eq!(&*tree.xattrs(srv)[0].name, b"user.new");
    assert_eq!(content(&tree, "srv/data"), b"data");
}

#[test]
fn members_beneath_symbolic_links_of_lower_layers_go_where_these_lead() {
    require!(Root);
    let tree = judged(stacks::beneath_links());
    assert_eq!(
        paths(&tree),
        [
            "abs",
            "lib",
            "out",
            "usr",
            "usr/lib",
            "usr/lib/one",
            "usr/lib/three",
            "usr/lib/two"
        ]
    );
}

#[test]
fn extended_attributes_and_devices_come_along() {
    require!(Root);
    let tree = judged(stacks::extended_attributes());
    let f = tree.lookup("f").unwrap();
    assert_eq!(tree.xattrs(f).len(), 1);
    assert_eq!(&*tree.xattrs(f)[0].value, b"upper");
    let ping = tree.lookup("ping").unwrap();
    assert_eq!(&*tree.xattrs(ping)[0].value, stacks::CAPABILITY.as_bytes());
}

#[test]
fn devices_and_pipes_come_and_go() {
    require!(Root);
    let tree = judged(stacks::devices());
    let other = tree.node(tree.lookup("dev/other").unwrap());
    assert_eq!(other.rdev(), Some((300, 70_000)));
    assert_eq!(paths(&tree), ["dev", "dev/other", "dev/pipe"]);
}

#[test]
fn empty_layers_and_a_file_in_every_layer() {
    require!(Root);
    let tree = judged(stacks::many());
    assert_eq!(content(&tree, "same"), b"layer 8");
    assert_eq!(tree.len(), 2);
}

#[test]
fn a_large_member_with_zeros_is_read_from_every_kind_of_layer() {
    require!(Root);
    let mut data = pattern(7, 1 << 20);
    data.resize(24 << 20, 0);
    data.extend(pattern(8, 100_001));
    let below = layer().file("large", &data).file("small", b"s");
    let above = layer().file("larger", &[&data[..], b"more"].concat());
    let tree = judged(vec![below, above]);
    assert_eq!(content(&tree, "large"), data);
    let larger = tree.lookup("larger").unwrap();
    assert_eq!(tree.node(larger).size, data.len() as u64 + 4);
}

#[test]
fn a_directory_over_an_archive_joins_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("base.tar");
    let base = layer()
        .dir("etc/")
        .file("etc/hostname", b"base")
        .file("etc/passwd", b"root")
        .symlink("lib", "usr/lib")
        .end();
    fs::write(&tar, base).unwrap();
    let over = dir.path().join("over");
    fs::create_dir_all(over.join("etc/new")).unwrap();
    fs::create_dir_all(over.join("lib")).unwrap();
    fs::write(over.join("etc/hostname"), "mine").unwrap();
    fs::write(over.join("etc/new/file"), "file").unwrap();
    fs::write(over.join("etc/.wh.passwd"), "").unwrap();
    fs::hard_link(over.join("etc/hostname"), over.join("zz")).unwrap();
    let options = SourceOptions::default();
    let tree = gather(&[text(&tar), text(&over)], &options).unwrap().tree;
    assert_eq!(
        paths(&tree),
        [
            "etc",
            "etc/hostname",
            "etc/new",
            "etc/new/file",
            "lib",
            "zz"
        ]
    );
    assert_eq!(content(&tree, "etc/hostname"), b"mine");
    assert_eq!(tree.lookup("zz"), tree.lookup("etc/hostname"));
    let told = tree.concerns(256);
    assert!(
        told.iter()
            .any(|text| text.contains("place of a symbolic link")),
        "{told:?}"
    );
    // An archive over the directory: its file is read where it is, under another name too.
    let last = dir.path().join("last.tar");
    let archive = Tar::new()
        .link("a link", "etc/new/file")
        .file("etc/new/.wh.file", b"")
        .file("etc/hostname", b"last");
    fs::write(&last, archive.end()).unwrap();
    let sources = [text(&tar), text(&over), text(&last)];
    let tree = gather(&sources, &options).unwrap().tree;
    assert_eq!(content(&tree, "a link"), b"file");
    assert_eq!(content(&tree, "zz"), b"mine");
    assert_eq!(content(&tree, "etc/hostname"), b"last");
    assert!(tree.lookup("etc/new/file").is_none());
}

#[test]
fn a_lone_layer_is_refused_and_overlayfs_gets_its_marks_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("layer.tar");
    let one = Tar::new()
        .file("etc/.wh.passwd", b"")
        .file("etc/keep", b"k")
        .file("opt/.wh..wh..opq", b"")
        .file(".wh.made", b"")
        .file("made/again", b"a");
    fs::write(&tar, one.end()).unwrap();
    let error = read_source(&tar, SourceOptions::default()).expect_err("a lone layer");
    assert!(error.to_string().contains("--whiteouts overlay"), "{error}");
    let mut options = SourceOptions::default();
    options.whiteouts = Some(Whiteouts::Overlay);
    let tree = read_source(&tar, options.clone()).unwrap();
    let passwd = tree.node(tree.lookup("etc/passwd").unwrap());
    assert_eq!(passwd.kind(), FileType::CharDevice);
    assert_eq!(passwd.rdev(), Some((0, 0)));
    for opaque in ["opt", "made"] {
        let id = tree.lookup(opaque).unwrap();
        assert!(tree.node(id).is_dir(), "{opaque}");
        assert_eq!(&*tree.xattrs(id)[0].name, b"trusted.overlay.opaque");
        assert_eq!(&*tree.xattrs(id)[0].value, b"y");
    }
    assert!(tree.xattrs(tree.lookup("etc").unwrap()).is_empty());
    options.whiteouts = Some(Whiteouts::Apply);
    let tree = read_source(&tar, options.clone()).unwrap();
    assert_eq!(paths(&tree), ["etc", "etc/keep", "made", "made/again"]);
    options.whiteouts = Some(Whiteouts::Refuse);
    let base = dir.path().join("base.tar");
    fs::write(&base, layer().file("x", b"x").end()).unwrap();
    let error = gather(&[text(&base), text(&tar)], &options).expect_err("refused");
    assert!(error.to_string().contains("etc/.wh.passwd"), "{error}");
}

#[test]
fn a_hard_link_may_lead_to_what_its_own_layer_takes_away() {
    let dir = tempfile::tempdir().unwrap();
    let base = layer()
        .file("old", b"content")
        .dir("d/")
        .file("d/in", b"in")
        .end();
    let moved = Tar::new()
        .file(".wh.old", b"")
        .link("new", "old")
        .file("d/.wh..wh..opq", b"")
        .link("out", "d/in")
        .end();
    let (first, second) = (dir.path().join("1.tar"), dir.path().join("2.tar"));
    fs::write(&first, base).unwrap();
    fs::write(&second, moved).unwrap();
    let mut options = SourceOptions::default();
    for (how, expected) in [
        (Whiteouts::Apply, &["d", "new", "out"][..]),
        (Whiteouts::Overlay, &["d", "new", "old", "out"]),
    ] {
        options.whiteouts = Some(how);
        let both = gather(&[text(&first), text(&second)], &options);
        let tree = both.unwrap().tree;
        assert_eq!(paths(&tree), expected, "{how:?}");
        assert_eq!(content(&tree, "new"), b"content", "{how:?}");
        assert_eq!(content(&tree, "out"), b"in", "{how:?}");
    }
    let third = dir.path().join("3.tar");
    // What an earlier layer has taken away is gone, also when it is taken away again.
    let late = Tar::new().file(".wh.old", b"").link("late", "old");
    fs::write(&third, late.end()).unwrap();
    let sources = [text(&first), text(&second), text(&third)];
    for how in [Whiteouts::Apply, Whiteouts::Overlay] {
        options.whiteouts = Some(how);
        let error = gather(&sources, &options).expect_err("nothing to link to");
        assert!(error.to_string().contains("late"), "{how:?}: {error}");
    }
    // Another name of a mark that the layer itself holds is one more mark.
    let marks = Tar::new()
        .member("mark", b'3', "", b"")
        .link("more", "mark");
    fs::write(&third, marks.end()).unwrap();
    let tree = gather(&[text(&first), text(&third)], &options)
        .unwrap()
        .tree;
    assert_eq!(tree.lookup("more"), tree.lookup("mark"));
    let mark = tree.node(tree.lookup("more").unwrap());
    assert_eq!(mark.rdev(), Some((0, 0)));
}

#[test]
fn overlayfs_does_not_see_through_a_directory_in_the_place_of_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let base = layer()
        .file("file", b"f")
        .file("grafted", b"g")
        .symlink("link", "kept")
        .dir("kept/")
        .end();
    let over = Tar::new()
        .dir("file/")
        .file("file/in", b"in")
        .dir("link/")
        .dir("kept/")
        .dir("new/")
        .end();
    let (first, second) = (dir.path().join("1.tar"), dir.path().join("2.tar"));
    let third = dir.path().join("3");
    fs::write(&first, base).unwrap();
    fs::write(&second, over).unwrap();
    fs::create_dir_all(third.join("grafted")).unwrap();
    fs::create_dir_all(third.join("kept/deep")).unwrap();
    let sources = [text(&first), text(&second), text(&third)];
    let mut options = SourceOptions::default();
    for how in [Whiteouts::Apply, Whiteouts::Overlay] {
        options.whiteouts = Some(how);
        let tree = gather(&sources, &options).unwrap().tree;
        for (path, replaces) in [
            ("file", true),
            ("grafted", true),
            ("link", true),
            ("kept", false),
            ("kept/deep", false),
            ("new", false),
        ] {
            let id = tree.lookup(path).unwrap();
            assert!(tree.node(id).is_dir(), "{path}");
            let is_opaque = tree
                .xattrs(id)
                .iter()
                .any(|x| &*x.name == b"trusted.overlay.opaque");
            let expected = replaces && how == Whiteouts::Overlay;
            assert_eq!(is_opaque, expected, "{path}, {how:?}");
        }
    }
}

#[test]
fn a_directory_that_is_a_whiteout_has_nothing_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base.tar");
    let has = layer().file("gone", b"g").file("kept", b"k").end();
    fs::write(&base, has).unwrap();
    let over = dir.path().join("over");
    fs::create_dir_all(over.join(".wh.gone")).unwrap();
    fs::create_dir_all(over.join(".wh..wh.plnk/7.1")).unwrap();
    let sources = [text(&base), text(&over)];
    let mut options = SourceOptions::default();
    let tree = gather(&sources, &options).unwrap().tree;
    assert_eq!(paths(&tree), ["kept"]);
    fs::write(over.join(".wh.gone/lost"), "lost").unwrap();
    let overlay = {
        let mut options = SourceOptions::default();
        options.whiteouts = Some(Whiteouts::Overlay);
        options
    };
    for options in [&options, &overlay] {
        let error = gather(&sources, options).expect_err("something in a whiteout");
        let text = error.to_string();
        assert!(text.contains(".wh.gone") && text.contains("lost"), "{text}");
    }
    options.excludes = Excludes::new(["lost"]).unwrap();
    let tree = gather(&sources, &options).unwrap().tree;
    assert_eq!(paths(&tree), ["kept"]);
}

#[test]
fn members_beneath_the_mark_of_an_opaque_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (base, over) = (dir.path().join("base.tar"), dir.path().join("over.tar"));
    fs::write(&base, layer().dir("d/").file("d/old", b"old").end()).unwrap();
    let mark = layer().dir("d/").dir("d/.wh..wh..opq/");
    let options = SourceOptions::default();
    // A directory is a mark, too, as long as it is empty.
    fs::write(&over, mark.end()).unwrap();
    let tree = gather(&[text(&base), text(&over)], &options).unwrap().tree;
    assert_eq!(paths(&tree), ["d"]);
    let full = layer()
        .dir("d/")
        .dir("d/.wh..wh..opq/")
        .file("d/.wh..wh..opq/lost", b"lost");
    fs::write(&over, full.end()).unwrap();
    let error = gather(&[text(&base), text(&over)], &options).expect_err("something in a mark");
    let said = error.to_string();
    assert!(
        said.contains("lost") && said.contains("nothing in it"),
        "{said}"
    );
}

#[test]
fn the_threads_that_read_do_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let layers: Vec<Vec<u8>> = (0..12_u8)
        .map(|number| {
            let mut tar = layer();
            for file in 0..20 {
                let name = format!("d{}/f{}", file % 5, (file + u32::from(number)) % 23);
                tar = tar.file(&name, &[number; 700]);
            }
            tar.file(&format!("d1/.wh.f{number}"), b"").end()
        })
        .collect();
    let layout = Layout::of(dir.path().join("layout"), &layers);
    let name = format!("oci:{}", text(&layout.0));
    let tree = |threads| {
        let mut options = SourceOptions::default();
        options.threads = std::num::NonZero::new(threads);
        gather(&[&name], &options).unwrap().tree
    };
    let one = tree(1);
    for threads in [2, 7] {
        let other = tree(threads);
        assert_eq!(one, other);
        assert_eq!(one.fingerprint(), other.fingerprint());
    }
}
