//! Tables of owners, dialect by dialect: what a line does to a tree, and which lines are refused.

use extant_mkfs::source::{
    Content, FileType, Meta, Node, NodeId, Times, Timestamp, Tree, TreeBuilder, Xattr,
};
use extant_mkfs::tables::{Contexts, Dialect, IdMap, Table, TableError, apply};
use std::path::Path;

const NOW: Timestamp = Timestamp::from_secs(77);

/// `/etc` with accounts, `/usr/bin` with two programs, a link `/bin` to it, and `/dev`.
fn tree() -> Tree {
    let meta = |mode| Meta::plain(mode, Times::all(Timestamp::from_secs(5)));
    let mut builder = TreeBuilder::new(meta(0o755)).unwrap();
    let mut add = |parent, name: &str, content: Content<'_>| {
        let node = builder.add(meta(0o644), content).unwrap();
        builder.link(parent, name.as_bytes(), node).unwrap();
        node
    };
    let etc = add(NodeId::ROOT, "etc", Content::Directory);
    let passwd = b"root:x:0:0:root:/root:/bin/sh\nwww:x:33:44::/:/bin/sh\nwww:x:1:1::/:\n";
    add(etc, "passwd", Content::Inline(passwd));
    add(etc, "group", Content::Inline(b"root:x:0:\nshadow:x:42:\n"));
    let usr = add(NodeId::ROOT, "usr", Content::Directory);
    let bin = add(usr, "bin", Content::Directory);
    add(bin, "ping", Content::Inline(b"ping"));
    add(bin, "run.sh", Content::Inline(b"#!"));
    add(NodeId::ROOT, "bin", Content::Symlink(b"usr/bin"));
    add(NodeId::ROOT, "dev", Content::Directory);
    builder.finish().unwrap()
}

fn parsed(dialect: Option<Dialect>, text: &str) -> Result<Table, TableError> {
    Table::parse(Path::new("t"), text.as_bytes(), dialect)
}

fn applied(dialect: Option<Dialect>, text: &str) -> Result<(Tree, Vec<String>), String> {
    let table = parsed(dialect, text).map_err(|e| e.to_string())?;
    apply(tree(), &[table], NOW).map_err(|e| e.to_string())
}

/// The tree after a table, without warnings.
#[track_caller]
fn after(dialect: Option<Dialect>, text: &str) -> Tree {
    let (tree, warnings) = applied(dialect, text).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    tree
}

#[track_caller]
fn node(tree: &Tree, path: &str) -> Node {
    tree.node(tree.lookup(path).expect(path))
}

#[track_caller]
fn assert_owned(tree: &Tree, path: &str, uid: u32, gid: u32, mode: u16) {
    let node = node(tree, path);
    let found = (node.uid, node.gid, node.mode & 0o7777);
    assert_eq!(found, (uid, gid, mode), "{path}: mode {:o}", found.2);
}

#[track_caller]
fn assert_device(tree: &Tree, path: &str, kind: FileType, major: u32, minor: u32) {
    let node = node(tree, path);
    assert_eq!(
        (node.kind(), node.rdev()),
        (kind, Some((major, minor))),
        "{path}"
    );
}

#[test]
fn lines_of_the_own_table_apply_one_after_the_other() {
    let tree = after(
        None,
        "# who owns what\n\
         /usr/**         7:8      -\n\
         *.sh            -        0700\n\
         /etc/passwd     www:shadow  0640\n\
         /bin/ping       :9       4755  caps=cap_net_raw+ep\n\
         /dev/console    0:5      0620  char=5:1\n\
         /dev/disk/sda   0:6      0660  optional block=8:0\n\
         /run/lock       0:0      1777  dir\n\
         /               3:4      0711\n\
         /usr/bin/r\\165n.sh 1     -\n",
    );
    assert_owned(&tree, "usr", 0, 0, 0o644);
    assert_owned(&tree, "usr/bin", 7, 8, 0o644);
    assert_owned(&tree, "usr/bin/run.sh", 1, 8, 0o700);
    assert_owned(&tree, "etc/passwd", 33, 42, 0o640);
    assert_owned(&tree, "usr/bin/ping", 7, 9, 0o4755);
    assert_owned(&tree, "dev/console", 0, 5, 0o620);
    assert_device(&tree, "dev/console", FileType::CharDevice, 5, 1);
    assert_eq!(tree.lookup("dev/disk"), None);
    assert_owned(&tree, "run/lock", 0, 0, 0o1777);
    assert_owned(&tree, "run", 0, 0, 0o755);
    assert_owned(&tree, "", 3, 4, 0o711);
    let ping = tree.lookup("usr/bin/ping").unwrap();
    assert_eq!(&*tree.xattrs(ping)[0].name, b"security.capability");
    assert_eq!(node(&tree, "dev/console").times.mtime(), NOW);
    assert_eq!(
        node(&tree, "usr/bin/ping").times.mtime(),
        Timestamp::from_secs(5)
    );
}

#[test]
fn a_pattern_without_files_is_told_and_a_path_without_one_refused() {
    let (_, warnings) = applied(None, "/etc/*.none 0:0 600\n").unwrap();
    assert_eq!(warnings, ["t:1: matches nothing"]);
    let refused = applied(None, "\n/etc/none 0:0 600\n").unwrap_err();
    assert!(refused.starts_with("t:2: names nothing"), "{refused}");
    after(
        None,
        "/etc/none 0:0 600 optional\n/etc/*.none 0 - optional\n",
    );
}

#[test]
fn wrong_lines_are_named() {
    for (dialect, text, line) in [
        (Dialect::Own, "/a 0:0 9\n", 1),
        (Dialect::Own, "/a 0:0 600\n/a 4294967295 600\n", 2),
        (Dialect::Own, "/a 0\n", 1),
        (Dialect::Own, "/a 0 600 caps=cap_no+p\n", 1),
        (Dialect::Own, "/a 0 600 what\n", 1),
        (Dialect::Own, "/a/* 0 600 dir\n", 1),
        (Dialect::Own, "/a/../b 0 600\n", 1),
        (Dialect::Own, "/a[b 0 600\n", 1),
        (Dialect::Own, "/a 0 600 char=5\n", 1),
        (Dialect::Genext2fs, "/dev d 755 0 0\n/dev/a q 755 0 0\n", 2),
        (Dialect::Genext2fs, "/dev/a d\n", 1),
        (Dialect::Genext2fs, "/dev/a c 644 0 0 1 2 - - 7\n", 1),
        (Dialect::Genext2fs, "/dev/a c 644 0 0 1 2 5 1 5\n", 1),
        (Dialect::Genext2fs, "/dev/a c 644 0 0 1 0 9 0 10\n", 1),
        (Dialect::Genext2fs, "/dev/a d 644 0 0 0 0 0 1 10\n", 1),
        (Dialect::Makedevs, "/dev/a s 755 0 0\n", 1),
        (Dialect::Makedevs, "/dev/a c 755 0 0 1048576\n", 1),
        (Dialect::Makedevs, "/dev/a c 755\n", 1),
        (Dialect::Makedevs, "|xattr cap_chown+p\n", 1),
        (Dialect::FsConfig, "a 0 0 755\nb 0 0\n", 2),
        (Dialect::FsConfig, "a 0 0 755 capabilities=x\n", 1),
        (Dialect::Mtree, ". type=dir\nx type=what\n", 2),
        (Dialect::Mtree, ". type=dir\n..\n..\n", 2),
        (Dialect::Mtree, "x uid=0\n", 1),
        (Dialect::Mtree, ". type=dir mode=u+x\n", 1),
        (Dialect::Mtree, ". type=dir flags=archived\n", 1),
        (Dialect::Mtree, ". type=dir color=red\n", 1),
        (Dialect::Mtree, "/what x\n", 1),
        (Dialect::Mtree, ". type=dir \\\n", 1),
        (Dialect::Mtree, "a\\q/b type=dir\n", 1),
    ] {
        let refused = parsed(Some(dialect), text).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("t:{line}: ")),
            "{text}{refused}"
        );
    }
}

#[test]
fn names_of_accounts_are_those_of_the_tree() {
    let tree = after(None, "/usr www:root -\n");
    assert_owned(&tree, "usr", 33, 0, 0o644);
    let refused = applied(None, "/usr nobody -\n").unwrap_err();
    assert!(refused.contains("/etc/passwd"), "{refused}");
}

#[test]
fn makedevs_makes_what_its_help_says() {
    let tree = after(
        Some(Dialect::Makedevs),
        "#<name> <type> <mode> <uid> <gid> <major> <minor> <start> <inc> <count>\n\
         /dev         d    755    0    0     -       -       -       -     -\n\
         /dev/console c    666    0    0     5       1       -       -     -\n\
         /dev/hda     b    640    0    6     3       0       0       0     -\n\
         /dev/hda     b    640    0    6     3       1       1       1     15\n\
         /dev/rtp     b    640    0    0     250     0       0       1     5\n\
         /dev/gps     b    640    0    0     251     0       1       1     5\n\
         /dev/uio     b    640    0    0     252     0       1       2     5\n\
         /dev/uio     b    640    0    0     252     1       6       2     5\n\
         /dev/one     c    640    0    0     9       3       7       1     1\n\
         /var/lib/x   d    700    www  shadow -      -       -       -     -\n\
         /usr         r    -1     5    6     -       -       -       -     -\n\
         /bin/ping    f    4755   0    0     -       -       -       -     -\n\
         |xattr cap_net_raw+p\n\
         |xattr cap_net_raw+e\n\
         /etc/none    F    4755   0    0     -       -       -       -     -\n",
    );
    let names = tree.children(tree.lookup("dev").unwrap());
    let names: Vec<String> = names
        .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
        .collect();
    assert_eq!(names.len(), 1 + 16 + 5 + 5 + 10 + 1, "{names:?}");
    for (path, major, minor) in [
        ("dev/hda", 3, 0),
        ("dev/hda1", 3, 1),
        ("dev/hda15", 3, 15),
        ("dev/rtp0", 250, 0),
        ("dev/rtp4", 250, 4),
        ("dev/gps1", 251, 0),
        ("dev/gps5", 251, 4),
        ("dev/uio1", 252, 0),
        ("dev/uio5", 252, 8),
        ("dev/uio6", 252, 1),
        ("dev/uio10", 252, 9),
    ] {
        assert_device(&tree, path, FileType::BlockDevice, major, minor);
    }
    assert_device(&tree, "dev/one", FileType::CharDevice, 9, 3);
    assert_owned(&tree, "dev/hda7", 0, 6, 0o640);
    assert_owned(&tree, "var/lib/x", 33, 42, 0o700);
    assert_owned(&tree, "usr/bin/run.sh", 5, 6, 0o644);
    assert_owned(&tree, "usr/bin/ping", 0, 0, 0o4755);
    let ping = tree.lookup("usr/bin/ping").unwrap();
    assert_eq!(tree.xattrs(ping)[0].value[..8], [1, 0, 0, 2, 0, 0x20, 0, 0]);
}

#[test]
fn a_device_table_that_two_programs_read_differently_is_refused() {
    let same = "/dev d 755 0 0 - - - - -\n\
                /dev/null c 666 0 0 1 3 0 0 -\n\
                /dev/tty c 666 0 5 4 0 0 1 4\n\
                /etc/passwd f 600 0 0 - - - - -\n";
    let tree = after(None, same);
    assert_device(&tree, "dev/tty3", FileType::CharDevice, 4, 3);
    assert_owned(&tree, "etc/passwd", 0, 0, 0o600);
    let differs = "/dev d 755 0 0 - - - - -\n/dev/hda b 640 0 0 3 1 1 1 15\n";
    let refused = parsed(None, differs).unwrap_err().to_string();
    assert!(
        refused.starts_with("t:2: ") && refused.contains("makedevs:FILE"),
        "{refused}"
    );
    let genext2fs = after(Some(Dialect::Genext2fs), differs);
    assert!(genext2fs.lookup("dev/hda14").is_some() && genext2fs.lookup("dev/hda15").is_none());
    // What one of them cannot read is the other's.
    assert!(applied(None, "/etc r -1 5 6\n").is_ok());
    assert!(applied(None, "/etc/new f 600 0 0 - - - - -\n").is_err());
    assert_owned(
        &after(Some(Dialect::Genext2fs), "/etc/new f 600 1 2\n"),
        "etc/new",
        1,
        2,
        0o600,
    );
}

#[test]
fn what_is_there_and_is_something_else_is_refused() {
    for (text, why) in [
        (
            "/dev/a 0 600 char=1:3\n/dev/a 0 600 char=1:5\n",
            "is the device 1:3",
        ),
        (
            "/etc/passwd 0 600 dir\n",
            "is a regular file and not a directory",
        ),
        ("/etc/passwd/x 0 600 fifo\n", "lies beneath"),
        ("/none/x 0 600 fifo\n", "directory that is not there"),
        ("/etc 0 755 caps=cap_chown+p\n", "is no regular file"),
    ] {
        let refused = applied(None, text).unwrap_err();
        assert!(refused.contains(why), "{text}{refused}");
    }
    let link = applied(Some(Dialect::Mtree), "./bin type=link link=sbin\n").unwrap_err();
    assert!(link.contains("leads to"), "{link}");
}

#[test]
fn fs_config_names_every_file_and_the_last_line_counts() {
    let all = " 0 0 755\netc 0 0 755\netc/passwd 9 9 600\netc/group 0 0 644\nusr 0 0 755\n\
               usr/bin 0 2000 0755\nusr/bin/ping 0 0 0755 capabilities=0x2000 selabel=x\n\
               usr/bin/run.sh 0 2000 0750\n/dev 0 0 755\nnot/there 0 0 644\n\
               etc/passwd 1000 1000 640\n";
    let refused = applied(None, all).unwrap_err();
    assert!(
        refused.contains("does not name 1 of the files, of which one is /bin"),
        "{refused}"
    );
    let tree = after(None, &format!("{all}bin 0 0 777\n"));
    assert_owned(&tree, "etc/passwd", 1000, 1000, 0o640);
    assert_owned(&tree, "", 0, 0, 0o755);
    let ping = tree.lookup("usr/bin/ping").unwrap();
    let value: Vec<u8> = [0x0200_0001_u32, 0x2000, 0, 0, 0]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(*tree.xattrs(ping)[0].value, *value);
}

#[test]
fn mtree_goes_into_directories_and_out_of_them() {
    let tree = after(
        None,
        "#mtree v2.0\n\
         # A tree.\n\
         /set type=file uid=5 gid=6 mode=0600\n\
         . type=dir mode=0755 uid=0\n\
         \x20   usr type=dir mode=0711\n\
         \x20       bin  type=dir \\\n\
         \x20            mode=0700 nlink=2\n\
         \x20           ping uname=www sha256=00 size=4 flags=nodump,schg\n\
         \x20       ..\n\
         \x20   ..\n\
         /unset mode uid\n\
         \x20   dev type=dir\n\
         \x20       nu\\154l type=char device=native,1,3 mode=666 uid=0 time=9.5\n\
         \x20       \\040s\\s type=dir\n\
         \x20       ..\n\
         \x20       sd type=block device=2049 mode=600\n\
         \x20   ..\n\
         ./etc/new type=link link=pass\\167d\n\
         ./etc/passwd nochange\n\
         ./etc/none optional type=file\n",
    );
    assert_owned(&tree, "", 0, 6, 0o755);
    assert_owned(&tree, "usr", 5, 6, 0o711);
    assert_owned(&tree, "usr/bin", 5, 6, 0o700);
    assert_owned(&tree, "usr/bin/ping", 5, 6, 0o600);
    assert_eq!(
        tree.flags(tree.lookup("usr/bin/ping").unwrap()).unwrap(),
        0x50
    );
    assert_device(&tree, "dev/null", FileType::CharDevice, 1, 3);
    assert_owned(&tree, "dev/null", 0, 6, 0o666);
    let time = Timestamp { secs: 9, nanos: 5 };
    assert_eq!(node(&tree, "dev/null").times.mtime(), time);
    assert_device(&tree, "dev/sd", FileType::BlockDevice, 8, 1);
    assert!(node(&tree, "dev/ s ").is_dir());
    let link = tree.lookup("etc/new").unwrap();
    assert_eq!(tree.symlink_target(link), Some(b"passwd".as_slice()));
    assert_owned(&tree, "etc/passwd", 0, 0, 0o644);
}

#[test]
fn permissions_change_the_access_list_that_a_file_has() {
    let entry = |tag: u16, perm: u16, id: u32| {
        [
            &tag.to_le_bytes()[..],
            &perm.to_le_bytes(),
            &id.to_le_bytes(),
        ]
        .concat()
    };
    let list = |mask, other| {
        let none = u32::MAX;
        let entries = [
            entry(1, 6, none),
            entry(2, 7, 1000),
            entry(4, 5, none),
            entry(8, 4, 2000),
            entry(16, mask, none),
            entry(32, other, none),
        ];
        [&2_u32.to_le_bytes()[..], &entries.concat()].concat()
    };
    let mut meta = Meta::plain(0o674, Times::all(NOW));
    let name = Box::from(b"system.posix_acl_access".as_slice());
    let value = list(7, 4).into();
    meta.xattrs.push(Xattr { name, value });
    let mut builder = TreeBuilder::new(Meta::plain(0o755, Times::all(NOW))).unwrap();
    let file = builder.add(meta, Content::Inline(b"x")).unwrap();
    builder.link(NodeId::ROOT, b"f", file).unwrap();
    let tree = builder.finish().unwrap();

    let table = parsed(None, "/f 0:0 0650\n").unwrap();
    let (mut tree, _) = apply(tree, &[table], NOW).unwrap();
    let file = tree.lookup("f").unwrap();
    assert_eq!(*tree.xattrs(file)[0].value, *list(5, 0));

    let ranges = ["u:0:100:1", "u:1000:50:1", "g:0:0:3000"].map(|range| range.parse().unwrap());
    IdMap::new(ranges).unwrap().apply(&mut tree).unwrap();
    let value = &tree.xattrs(file)[0].value;
    assert_eq!(value[12..20], *entry(2, 7, 50));
    assert_eq!(tree.node(file).uid, 100);
    let narrow = IdMap::new(["g:0:0:2000".parse().unwrap()]).unwrap();
    let refused = narrow.apply(&mut tree).unwrap_err().to_string();
    assert!(refused.contains("group 2000 is in no range"), "{refused}");
}

#[test]
fn ambiguous_tables_are_refused_with_what_to_say() {
    let refused = parsed(None, "/dev d 755\n").unwrap_err().to_string();
    assert!(refused.contains("--owners KIND:FILE"), "{refused}");
}

#[test]
fn wrong_lines_of_contexts_are_named() {
    for text in [
        "/a\n",
        "/a -x u:r:t\n",
        "/a u:r\n",
        "/a -- u:r:t more\n",
        "/a( u:r:t\n",
        "/a(?=b) u:r:t\n",
        "/ok -- u:r:other\n",
    ] {
        let text = format!("# one\n/ok u:r:t\n{text}");
        let refused = Contexts::parse(Path::new("c"), text.as_bytes()).unwrap_err();
        assert!(refused.to_string().starts_with("c:3: "), "{text}{refused}");
    }
    let mut large = Contexts::parse(Path::new("c"), b"/((a{500}){500}){500} u:r:t\n").unwrap();
    let refused = large
        .lookup(b"/a", FileType::Regular)
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("c:1: "), "{refused}");
}

#[test]
fn hostile_tables_end_soon() {
    // A pattern with many stars, on long names.
    let stars = "*a".repeat(200);
    let table = parsed(
        None,
        &format!("/{stars}/x 0 600 optional\n{stars}b 0 600 optional\n"),
    );
    let meta = || Meta::plain(0o644, Times::all(NOW));
    let mut builder = TreeBuilder::new(meta()).unwrap();
    for index in 0..200 {
        let file = builder.add(meta(), Content::Fifo).unwrap();
        let name = format!("{index:03}{}", "a".repeat(250));
        builder.link(NodeId::ROOT, name.as_bytes(), file).unwrap();
    }
    apply(builder.finish().unwrap(), &[table.unwrap()], NOW).unwrap();
    // More devices than a table may have.
    let many = "/dev/x c 600 0 0 1 0 0 0 1000000\n".repeat(100);
    let refused = parsed(Some(Dialect::Makedevs), &many)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("too many"), "{refused}");
    let nested = format!("/{}a{}.* u:r:t\n", "(".repeat(9000), ")".repeat(9000));
    assert!(Contexts::parse(Path::new("c"), nested.as_bytes()).is_err());
    hostile_paths_end_soon();
    hostile_expressions_end_soon();
}

/// Lines that stand for more bytes than they have.
fn hostile_paths_end_soon() {
    let nested = "a type=dir\n".repeat(100_000);
    let long = format!("/{}", "a/".repeat(200_000));
    let counted = |path: &str| format!("{path} c 600 0 0 1 0 0 0 262000\n");
    let most = format!("/{}", "a/".repeat(2040));
    let name = "u".repeat(1 << 20);
    let xattrs = "|xattr cap_chown=ep\n".repeat(100_000);
    let links = format!("/set type=link link={}\n", "l/".repeat(2040));
    for (dialect, text, problem) in [
        (Dialect::Mtree, nested, "more than 4095 bytes"),
        (Dialect::Makedevs, counted(&long), "more than 4095 bytes"),
        (Dialect::Genext2fs, counted(&long), "more than 4095 bytes"),
        (Dialect::Makedevs, counted(&most), "256 MiB"),
        (Dialect::Genext2fs, counted(&most), "256 MiB"),
        (Dialect::Devices, counted(&most), "256 MiB"),
        (
            Dialect::Makedevs,
            format!("{most} f 600 0 0\n{xattrs}"),
            "256 MiB",
        ),
        (
            Dialect::Makedevs,
            format!("/a c 600 {name} 0 1 0 0 0 262000\n"),
            "more than 255 bytes",
        ),
        (
            Dialect::Mtree,
            format!("/set uname={name}\n"),
            "more than 255 bytes",
        ),
        (Dialect::Mtree, links + &"./a\n".repeat(100_000), "256 MiB"),
    ] {
        let refused = parsed(Some(dialect), &text).unwrap_err().to_string();
        assert!(refused.contains(problem), "{dialect:?} {refused}");
    }
    // Parts of one line, each of which was copied with all before it.
    let continued = format!("./a type=dir {}mode=700\n", "size=1 \\\n".repeat(2_000_000));
    parsed(Some(Dialect::Mtree), &continued).unwrap();
}

/// Expressions that each are small enough, and equal ones.
fn hostile_expressions_end_soon() {
    let lines =
        |count: u32, line: &dyn Fn(u32) -> String| -> String { (0..count).map(line).collect() };
    let text = lines(20_000, &|at| format!("/(a{{100}}){{400}}{at}.* u:r:t\n"));
    let mut large = Contexts::parse(Path::new("c"), text.as_bytes()).unwrap();
    let mut lookup = |path: &[u8]| {
        let found = large.lookup(path, FileType::Regular);
        found.map(|context| context.map(<[u8]>::to_vec))
    };
    let refused = lookup(b"/a").unwrap_err().to_string();
    assert!(refused.contains("256 MiB together"), "{refused}");
    let equal = lines(300_000, &|_| "/a.* -- u:r:t\n".to_owned());
    let mut equal = Contexts::parse(Path::new("c"), equal.as_bytes()).unwrap();
    let found = equal.lookup(b"/ab", FileType::Regular).unwrap();
    assert_eq!(found, Some(b"u:r:t".as_slice()));
    let wrong = "/a.* u:r:t\n/a.* -d u:r:t\n/a.* u:r:t\n/a.* -d u:r:other\n";
    let refused = Contexts::parse(Path::new("c"), wrong.as_bytes()).unwrap_err();
    assert!(refused.to_string().starts_with("c:4: "), "{refused}");
}
