//! Scripts that change an image as a whole, or not at all.

use crate::support::{Place, Run, extant, extant_with};
use extant_testkit::crash::{Content, CrashDevice, FaultDevice, FaultRule, IoKind};
use extant_testkit::facility::is_full_run;
use extant_testkit::oracle::{
    assert_clean, debugfs, dumpe2fs_header, e2fsck_recover_beside, mke2fs,
};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn image(place: &Place) -> String {
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    image
}

fn edit(image: &str, script: &str) -> Run {
    edit_with(image, script, &[])
}

fn edit_with(image: &str, script: &str, options: &[&str]) -> Run {
    let args = [&["edit", image], options].concat();
    extant_with(args, |command| {
        command.write_stdin(script.to_owned());
    })
}

fn sha256(bytes: &[u8]) -> String {
    let dir = Place::new();
    fs::write(dir.join("file"), bytes).unwrap();
    let output = tool("sha256sum").arg(dir.join("file")).ok().text();
    output.split_whitespace().next().unwrap().to_owned()
}

/// Everything in an image, with times left out.
fn manifest(image: &str) -> String {
    let listed = extant(["ls", "-R", "--mtree", image]).ok().text();
    let words = listed.split_whitespace();
    let kept = words.filter(|word| !word.starts_with("time=") && !word.starts_with('#'));
    kept.collect::<Vec<_>>().join("\n")
}

/// Each kind of line does what the command of that name does.
#[test]
fn lines_do_what_single_commands_do() {
    let place = Place::new();
    let image = image(&place);
    let other = place.arg("other.img");
    fs::copy(&image, &other).unwrap();
    fs::create_dir(place.join("tree")).unwrap();
    fs::write(place.join("tree/one"), "one\n").unwrap();
    let tree = place.arg("tree");
    edit(
        &image,
        &format!(
            "# a comment
mkdir -p -m 700 /a/b
put {tree}/one '/a/with space'
put -r {tree} /a/tree
write -m 600 /a/text <<END
first
  second # no comment here
END
write /a/line <<< \"one line\"
write --append /a/line <<< more
mknod /null c 1 3
ln -s ../target /a/link
ln /a/text /a/hard
chmod 640 /a/line
chown 1000:1001 /a/line
xattr set /a/line user.origin here
acl set u:1000:rw- /a/tree/one
chattr +d /a/hard
touch -d @1000 /a/b
truncate -s 10000 /a/sparse
fallocate -l 8192 /a/reserved
mv /a/with* /moved
rm /a/tree/one
apply {tree} --owner 7:8
label edited
"
        ),
    )
    .ok();
    assert_clean(Path::new(&image));
    let at = |path: &str| format!("{other}:{path}");
    let run = |args: &[&str]| {
        extant(args).ok();
    };
    run(&["mkdir", "-p", "-m", "700", &at("/a/b")]);
    run(&["cp", &format!("{tree}/one"), &at("/a/with space")]);
    run(&["cp", "-r", &tree, &at("/a/tree")]);
    let write = |options: &[&str], path: &str, text: &str| {
        let path = at(path);
        let args = [&["write"], options, &[path.as_str()]].concat();
        extant_with(args, |command| {
            command.write_stdin(text.to_owned());
        })
        .ok();
    };
    write(
        &["-m", "600"],
        "/a/text",
        "first\n  second # no comment here\n",
    );
    write(&[], "/a/line", "one line\n");
    write(&["--append"], "/a/line", "more\n");
    run(&["mknod", &at("/null"), "c", "1", "3"]);
    run(&["ln", "-s", "../target", &at("/a/link")]);
    run(&["ln", &at("/a/text"), &at("/a/hard")]);
    run(&["chmod", "640", &at("/a/line")]);
    run(&["chown", "1000:1001", &at("/a/line")]);
    run(&["xattr", "set", &at("/a/line"), "user.origin", "here"]);
    run(&["acl", "set", "u:1000:rw-", &at("/a/tree/one")]);
    run(&["chattr", "+d", &at("/a/hard")]);
    run(&["touch", "-d", "@1000", &at("/a/b")]);
    run(&["truncate", "-s", "10000", &at("/a/sparse")]);
    run(&["fallocate", "-l", "8192", &at("/a/reserved")]);
    run(&["mv", &at("/a/with*"), &at("/moved")]);
    run(&["rm", &at("/a/tree/one")]);
    run(&["apply", &tree, &other, "--owner", "7:8"]);
    assert_eq!(manifest(&image), manifest(&other));
    let info = extant(["info", &image]).ok().text();
    assert!(info.contains("edited"), "{info}");
}

#[test]
fn a_line_that_fails_leaves_the_image_as_it_was_and_is_named() {
    let place = Place::new();
    let image = image(&place);
    let before = fs::read(&image).unwrap();
    let script = "mkdir /a\nwrite /a/x <<< text\nrm /missing\nmkdir /b\n";
    let run = edit(&image, script).fails(1);
    assert!(run.stderr.contains("standard input:3: "), "{}", run.stderr);
    assert!(run.stderr.contains("/missing"), "{}", run.stderr);
    assert!(run.stderr.contains("nothing is changed"), "{}", run.stderr);
    assert_eq!(fs::read(&image).unwrap(), before);
    fs::write(place.join("script"), script).unwrap();
    let file = place.arg("script");
    let run = extant(["edit", &image, "-f", &file]).fails(1);
    assert!(run.stderr.contains("script:3: "), "{}", run.stderr);
    assert_eq!(fs::read(&image).unwrap(), before);
    // A disk that is full ends the script as well.
    let large = place.join("large");
    fs::File::create(&large).unwrap().set_len(1 << 20).unwrap();
    fs::write(&large, vec![1; 40 << 20]).unwrap();
    let script = format!("mkdir /a\nput {} /a/large\n", large.display());
    let run = edit(&image, &script).fails(1);
    assert!(run.stderr.contains("standard input:2: "), "{}", run.stderr);
    assert_eq!(fs::read(&image).unwrap(), before);
}

/// As for `cp` and its kin of other systems.
#[test]
fn options_stand_between_operands_too() {
    let place = Place::new();
    let image = image(&place);
    fs::write(place.join("file"), "text\n").unwrap();
    let at = |path: &str| format!("{image}:{path}");
    let file = place.arg("file");
    extant(["cp", &file, "-a", &at("/one")]).ok();
    extant(["mv", &at("/one"), "-n", &at("/two")]).ok();
    extant(["ln", &at("/two"), "--force", &at("/three")]).ok();
    extant(["ln", "two", &at("/four"), "-s"]).ok();
    extant(["mkdir", &at("/a"), "-p", &at("/b/c")]).ok();
    let run = extant(["cat", &at("/three"), &at("/four")]).ok();
    assert_eq!(run.text(), "text\ntext\n");
    for command in ["cp", "mv", "ln"] {
        let run = extant([command, &at("/two")]).fails(2);
        assert!(run.stderr.contains("nothing to"), "{}", run.stderr);
    }
    let run = extant(["apply", &image]).fails(2);
    assert!(run.stderr.contains("name layers"), "{}", run.stderr);
}

/// What makes no sense is found before anything is done: also behind lines that would fail.
#[test]
fn a_script_that_makes_no_sense_is_refused_with_its_line() {
    let place = Place::new();
    let image = image(&place);
    let before = fs::read(&image).unwrap();
    for (line, what) in [
        ("mkdirs /x", "no command of a script"),
        ("mkfs /x", "no command of a script"),
        ("mkdir x", "begin with /"),
        ("mkdir --wrong /x", "--wrong"),
        ("mkdir 'x", "no other one"),
        ("mkdir", "required"),
        ("mkdir /x <<< text", "takes no text"),
        ("write /x", "no text"),
        ("write /x <<END", "no line `END`"),
        ("rm --partition 2 /x", "said to `extant edit` itself"),
        ("xattr get /x user.y", "read by a command"),
        ("xattr set /x user.y -", "standard input"),
        ("apply -", "standard input"),
        ("tar-in - /x", "standard input"),
        ("tar-in /x", "an archive follows"),
        ("tar-in a.tar x", "begin with /"),
        ("tar-in -c a.tar /x", "cannot be used with"),
        ("tar-in -f a.tar b.tar /x", "without -f"),
        ("uuid", "a UUID follows"),
        ("uuid 12", "is not a UUID"),
        ("uuid random random", "nothing else"),
        ("expect size=x /x", "size"),
        ("expect sha256=12 /x", "64 hexadecimal"),
        ("expect there /x", "no condition"),
        ("expect exists", "a condition is"),
        ("if exists /x", "no `end`"),
        ("end", "no `if`"),
        ("else", "no `if`"),
        ("<<< text", "no command"),
        ("{\"do\": \"mkdir\", \"paths\": []}", "paths"),
        ("{\"do\": ", "EOF"),
    ] {
        let run = edit(&image, &format!("rm /missing\n\n{line}")).fails(2);
        let told = &run.stderr;
        assert!(told.contains("standard input:3: "), "{line}: {told}");
        assert!(told.contains(what), "{line}: {told}");
        assert!(!told.contains("missing"), "{line}: {told}");
    }
    assert_eq!(fs::read(&image).unwrap(), before);
    // What a text of DOS has at the end of its lines is none of it.
    edit(
        &image,
        "write /dos <<END\r\ntext\r\nEND\r\nexpect size=5 /dos\r\nexpect absent /dos/x\r\n",
    )
    .ok();
    let nested = "if exists /x\n".repeat(1000);
    let run = edit(&image, &nested).fails(2);
    assert!(run.stderr.contains("within each other"), "{}", run.stderr);
    extant(["edit", &image, "-f", &place.arg("nowhere")]).fails(1);
}

#[test]
fn conditions_decide_what_is_done() {
    let place = Place::new();
    let image = image(&place);
    edit(&image, "write /file <<< text\nln -s file /link\nmkdir /dir").ok();
    let sum = sha256(b"text\n");
    edit(
        &image,
        &format!(
            "expect exists /file
expect absent /missing
expect size=5 /file
expect size=5 /link
expect sha256={sum} /file
expect target=file /link
if exists /missing
  mkdir /wrong
else
  if absent /dir
    mkdir /wrong2
  end
  if size=5 /file
    mkdir /right
    expect exists /right
  else
    mkdir /wrong3
  end
end
"
        ),
    )
    .ok();
    let listed = extant(["ls", &image]).ok().text();
    assert!(
        listed.contains("right") && !listed.contains("wrong"),
        "{listed}"
    );
    for (condition, told) in [
        ("exists /missing", "/missing does not exist"),
        ("absent /file", "/file exists"),
        ("size=6 /file", "/file has 5 bytes"),
        (&*format!("sha256={} /file", "0".repeat(64)), &*sum),
        ("target=other /link", "/link leads to file"),
        ("target=file /file", "/file is no symbolic link"),
        (
            "sha256=0000000000000000000000000000000000000000000000000000000000000000 /dir",
            "directory",
        ),
    ] {
        let run = edit(&image, &format!("mkdir /never\nexpect {condition}")).fails(1);
        assert!(run.stderr.contains(told), "{condition}: {}", run.stderr);
    }
    let listed = extant(["ls", &image]).ok().text();
    assert!(!listed.contains("never"), "{listed}");
}

#[test]
fn objects_of_json_are_lines_and_each_line_has_one() {
    let place = Place::new();
    let image = image(&place);
    let line = json!({"do": "write", "args": ["-m", "600", "/a b"], "input": "text\n"});
    let script = format!(
        "{line}\nmkdir /dir\n{}",
        json!({"do": "rm", "args": ["/a b"]})
    );
    let run = edit_with(&image, &script, &["--json"]).ok();
    let lines = run.lines();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[0],
        json!({"line": 1, "do": ["write", "-m", "600", "/a b"], "ok": true})
    );
    assert_eq!(lines[3]["committed"], true);
    assert_eq!(lines[3]["lines_done"], 3);
    assert!(lines[3]["journaled_blocks"].as_u64() > Some(0));
    let run = edit_with(&image, "mkdir /new\nexpect exists /a\n", &["--json"]).fails(1);
    let lines = run.lines();
    assert_eq!(lines[1]["ok"], false);
    assert_eq!(lines[1]["error"], "/a does not exist");
    assert_eq!(lines[2], json!({"lines_done": 1, "committed": false}));
    // A reader that has gone does not keep the image from being changed.
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["edit", &image, "--json", "-e", "mkdir /heard"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    extant(["stat", &format!("{image}:/heard")]).ok();
}

/// Lines see what lines before them did, by whatever name the image goes.
#[test]
fn the_image_by_another_name_is_the_image() {
    let place = Place::new();
    let image = image(&place);
    let other = place.arg("other-name");
    std::os::unix::fs::symlink(&image, &other).unwrap();
    let script = format!("write /new <<< text\nput {other}:/new /copy\nexpect size=5 /copy\n");
    edit(&image, &script).ok();
    assert_clean(Path::new(&image));
}

#[test]
fn a_dry_run_changes_neither_the_image_nor_the_host() {
    let place = Place::new();
    let image = image(&place);
    edit(&image, "write /file <<< text").ok();
    let before = fs::read(&image).unwrap();
    let out = place.arg("out");
    let script = format!("mkdir /dir\nget /file {out}\nrm /file\n");
    let run = edit_with(&image, &script, &["--dry-run", "--json"]).ok();
    assert_eq!(run.lines()[3]["committed"], false);
    assert_eq!(fs::read(&image).unwrap(), before);
    assert!(!place.join("out").exists());
    edit_with(&image, "rm /missing", &["-n"]).fails(1);
    edit(&image, &script).ok();
    assert_eq!(fs::read_to_string(place.join("out")).unwrap(), "text\n");
}

#[test]
fn two_that_edit_at_once_do_one_after_the_other_or_are_told() {
    let place = Place::new();
    let image = image(&place);
    let mut first = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["edit", &image, "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It reads its script before it takes the image.
    extant(["edit", &image, "-e", "mkdir /second"]).ok();
    let mut script = first.stdin.take().unwrap();
    script.write_all(b"mkdir /first\n").unwrap();
    drop(script);
    assert!(first.wait().unwrap().success());
    let listed = extant(["ls", &image]).ok().text();
    assert!(
        listed.contains("first") && listed.contains("second"),
        "{listed}"
    );
    let holder = extant::Filesystem::open_writable(&image).unwrap();
    let run = extant(["edit", &image, "-e", "mkdir /third"]).fails(1);
    assert!(run.stderr.contains("open elsewhere"), "{}", run.stderr);
    drop(holder);
}

/// A virtual machine locks its disk in another way than we do.
#[test]
fn a_disk_that_qemu_has_open_is_not_changed() {
    let place = Place::new();
    let image = image(&place);
    let socket = place.join("socket");
    let mut qemu = tool("qemu-nbd")
        .args(["-t", "-f", "raw", "-k"])
        .arg(&socket)
        .arg(&image)
        .background(&place.join("log"));
    qemu.wait_for_socket(&socket);
    let before = fs::read(&image).unwrap();
    let file = format!("{image}:/file");
    for command in [
        &["edit", &image, "-e", "mkdir /x"][..],
        &["mkdir", &file],
        &["tune", &image, "--label", "x"],
        &["repair", &image],
        &["resize", &image, "64M"],
        &["trim", &image],
        &["mkfs", &image, "--offset", "1M", "--size", "4M", "--force"],
    ] {
        let run = extant(command).fails_somehow();
        let told = &run.stderr;
        assert!(
            told.contains("in use") || told.contains("open elsewhere"),
            "{command:?}: {told}"
        );
        assert!(fs::read(&image).unwrap() == before, "{command:?}");
    }
    extant(["ls", &image]).ok();
    drop(qemu);
    extant(["mkdir", &file]).ok();
    assert_clean(Path::new(&image));
}

/// Whether there is a journal, and how large it is, makes no difference but to how it is done.
#[test]
fn what_no_journal_holds_is_changed_as_a_whole_too() {
    let place = Place::new();
    let image = place.arg("ext2.img");
    mke2fs(Path::new(&image), 16 << 20, &["-t", "ext2"]);
    let run = edit_with(&image, "mkdir /x", &["--json"]).ok();
    assert!(run.lines()[1]["waited_blocks"].as_u64() > Some(0));
    assert_eq!(run.lines()[1]["journaled_blocks"], 0);
    extant(["stat", &format!("{image}:/x")]).ok();
    assert_clean(Path::new(&image));
    // Overwritten in place: more than the journal has room for.
    let image = place.arg("small-log.img");
    mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4", "-J", "size=4"]);
    let large = place.arg("large");
    fs::write(&large, vec![b'7'; 8 << 20]).unwrap();
    edit(&image, &format!("put {large} /large")).ok();
    let text = "8".repeat((8 << 20) - 1);
    let over = format!("write --at 0 /large <<END\n{text}\nEND\n");
    let run = edit_with(&image, &over, &["--json"]).ok();
    assert!(run.lines()[1]["waited_blocks"].as_u64() >= Some(2048));
    let out = extant(["cat", &format!("{image}:/large")]).ok().stdout;
    assert!(out.starts_with(b"88") && out.len() == 8 << 20);
    assert_clean(Path::new(&image));
    // Neither the journal nor free blocks have room for it.
    fs::write(&large, vec![b'7'; 35 << 20]).unwrap();
    edit(&image, &format!("rm /large\nput {large} /large")).ok();
    let text = "9".repeat((35 << 20) - 1);
    let over = format!("write --at 0 /large <<END\n{text}\nEND\n");
    let run = edit(&image, &over).fails(1);
    assert!(run.stderr.contains("free blocks"), "{}", run.stderr);
    let out = extant(["cat", &format!("{image}:/large")]).ok().stdout;
    assert!(out.iter().all(|byte| *byte == b'7'), "the old content");
    assert_clean(Path::new(&image));
}

/// Between the commit and its end, nothing looks at an image but what finishes the work.
#[test]
fn an_edit_that_was_cut_off_is_finished_by_the_next_command_and_left_alone_by_others() {
    let place = Place::new();
    let image = place.arg("fs.img");
    mke2fs(Path::new(&image), 16 << 20, &["-t", "ext2"]);
    let device = CrashDevice::over(Content::of_file(Path::new(&image)));
    let faulty = Arc::new(FaultDevice::new(Arc::new(device.clone())));
    let shared: extant::SharedDevice = Arc::<FaultDevice>::clone(&faulty);
    let options = extant::MountOptions::read_write();
    let transaction = extant::Transaction::open_device(shared, "", options).unwrap();
    transaction.filesystem().write("/file", "text\n").unwrap();
    // The superblock that says it is the second one that is written.
    let superblocks = FaultRule::fail_nth(IoKind::Write, 2).from_then_on();
    faulty.inject(FaultRule {
        within: Some(1024..2048),
        ..superblocks
    });
    let cut = transaction.commit().unwrap_err().to_string();
    assert!(cut.contains("wait in the image"), "{cut}");
    device.content().write_to(Path::new(&image)).unwrap();
    let before = fs::read(&image).unwrap();
    let file = format!("{image}:/file");
    assert_eq!(extant(["cat", &file]).ok().text(), "text\n");
    // What is only tried finds them in place, and leaves them where they are.
    let tried = "expect size=5 /file\nrm /file\nmkdir /file\n";
    edit_with(&image, tried, &["--dry-run"]).ok();
    assert_eq!(fs::read(&image).unwrap(), before, "a dry run touched it");
    let hashes = place.arg("hashes");
    for command in [
        &["check", &image][..],
        &["repair", &image],
        &["tune", &image, "--label", "x"],
        &["resize", &image, "32M"],
        &["verity", &image, "--dm-verity", &hashes],
        &["verity", &image, "--dm-verity", "append"],
    ] {
        let run = extant(command).fails_somehow();
        assert!(run.stderr.contains("extant replay"), "{}", run.stderr);
    }
    let refused = extant_testkit::oracle::e2fsck(Path::new(&image), &["-fy"]);
    assert!(refused.code >= 8, "{refused}");
    assert_eq!(fs::read(&image).unwrap(), before, "it was touched");
    let copy = place.arg("copy.img");
    fs::copy(&image, &copy).unwrap();
    let replay = |args: &[&str]| {
        let run = tool(env!("CARGO_BIN_EXE_extant")).args(args);
        run.env("SOURCE_DATE_EPOCH", "1700000000").ok().text()
    };
    let run = replay(&["replay", &copy]);
    assert!(run.contains("put in place"), "{run}");
    let run = replay(&["replay", "--json", &image]);
    let told: serde_json::Value = serde_json::from_str(run.lines().next().unwrap()).unwrap();
    assert!(told["put_in_place"].as_u64() > Some(0));
    assert_eq!(fs::read(&image).unwrap(), fs::read(&copy).unwrap());
    assert_clean(Path::new(&image));
    assert_eq!(extant(["cat", &file]).ok().text(), "text\n");
}

/// As `tar -x` of the same archive, plain and compressed, by words and by JSON.
#[test]
fn an_archive_is_put_in_as_tar_puts_it_in() {
    let place = Place::new();
    let (image, other) = (image(&place), place.arg("other.img"));
    fs::copy(&image, &other).unwrap();
    fs::create_dir_all(place.join("tree/sub")).unwrap();
    fs::write(place.join("tree/sub/file"), "text\n").unwrap();
    fs::write(place.join("tree/.wh.gone"), "").unwrap();
    std::os::unix::fs::symlink("sub/file", place.join("tree/link")).unwrap();
    let archive = place.arg("tree.tar.gz");
    tool("tar")
        .args(["-czf", &archive, "-C", &place.arg("tree"), "."])
        .ok();
    let object = json!({"do": "tar-in", "args": ["--exclude", "link", archive, "/two"]});
    let script = format!("mkdir /one /two\ntar-in {archive} /one\n{object}\n");
    edit(&image, &script).ok();
    assert_clean(Path::new(&image));
    extant(["mkdir", &format!("{other}:/one"), &format!("{other}:/two")]).ok();
    extant(["tar", "-x", "-f", &archive, &format!("{other}:/one")]).ok();
    let two = format!("{other}:/two");
    extant(["tar", "-x", "--exclude", "link", "-f", &archive, &two]).ok();
    assert_eq!(manifest(&image), manifest(&other));
    // The line that fails is named, and nothing of it is left.
    let before = fs::read(&image).unwrap();
    fs::write(place.join("bad.tar"), vec![7; 2048]).unwrap();
    let script = format!("mkdir /new\ntar-in {} /new\n", place.arg("bad.tar"));
    let run = edit(&image, &script).fails(1);
    assert!(run.stderr.contains("standard input:2: "), "{}", run.stderr);
    let run = edit(&image, &format!("tar-in {archive} /nowhere")).fails(1);
    assert!(run.stderr.contains("/nowhere"), "{}", run.stderr);
    let script = format!("tar-in {archive} /one\n");
    edit_with(&image, &script, &["--dry-run"]).ok();
    assert_eq!(fs::read(&image).unwrap(), before);
}

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// With the rules of `tune`: what it does is done, and what it refuses is refused.
#[test]
fn a_uuid_is_given_where_tune_gives_it() {
    let place = Place::new();
    let image = place.arg("fs.img");
    let other = place.arg("other.img");
    for (options, has_effect) in [
        (&["-t", "ext4"][..], true),
        (&["-t", "ext4", "-O", "metadata_csum_seed"], true),
        (&["-t", "ext4", "-O", "^metadata_csum"], true),
        (&["-t", "ext4", "-O", "orphan_file,ea_inode"], true),
        (&["-t", "ext2"], true),
        (&["-t", "ext3"], true),
        (&["-t", "ext4", "-O", "stable_inodes"], false),
    ] {
        mke2fs(Path::new(&image), 32 << 20, options);
        fs::copy(&image, &other).unwrap();
        let before = fs::read(&image).unwrap();
        let script = format!("mkdir -p /a/b\nuuid {UUID}\nwrite /a/b/c <<< text\nlabel new\n");
        let run = edit_with(&image, &script, &["--dry-run"]);
        assert_eq!(run.code == 0, has_effect, "{options:?}: {}", run.stderr);
        assert_eq!(fs::read(&image).unwrap(), before, "{options:?}");
        let run = edit(&image, &script);
        let tuned = extant(["tune", "--uuid", UUID, &other]);
        assert_eq!(run.code == 0, has_effect, "{options:?}: {}", run.stderr);
        assert_eq!(tuned.code == 0, has_effect, "{options:?}: {}", tuned.stderr);
        if !has_effect {
            let why = tuned.stderr.split("other.img: ").last().unwrap();
            assert!(run.stderr.contains(why.trim()), "{}", run.stderr);
            assert!(run.stderr.contains("standard input:2: "), "{}", run.stderr);
            assert_eq!(fs::read(&image).unwrap(), before, "{options:?}");
            continue;
        }
        assert_clean(Path::new(&image));
        let dump = dumpe2fs_header(Path::new(&image));
        assert_eq!(dump.field("Filesystem UUID"), UUID, "{options:?}");
        assert_eq!(dump.field("Filesystem volume name"), "new", "{options:?}");
        let text = extant(["cat", &format!("{image}:/a/b/c")]).ok().text();
        assert_eq!(text, "text\n", "{options:?}");
    }
    // Values in inodes of their own have hashes that start from it.
    mke2fs(
        Path::new(&image),
        32 << 20,
        &["-t", "ext4", "-O", "ea_inode"],
    );
    let script = format!(
        "write /x <<< x\nxattr set /x user.long {}\n",
        "y".repeat(60_000)
    );
    edit(&image, &script).ok();
    let before = fs::read(&image).unwrap();
    let run = edit(&image, "mkdir /new\nuuid random").fails(1);
    let tuned = extant(["tune", "--uuid", "random", &image]).fails_somehow();
    let why = tuned.stderr.split("fs.img: ").last().unwrap();
    assert!(run.stderr.contains(why.trim()), "{}", run.stderr);
    assert_eq!(fs::read(&image).unwrap(), before);
    let words = json!({"do": "uuid", "args": ["clear"]}).to_string();
    mke2fs(Path::new(&image), 32 << 20, &["-t", "ext4"]);
    edit(&image, &words).ok();
    assert_clean(Path::new(&image));
    let dump = dumpe2fs_header(Path::new(&image));
    assert_eq!(dump.field("Filesystem UUID"), "<none>");
    edit(&image, "uuid random\nexpect exists /\nuuid random").ok();
    assert_clean(Path::new(&image));
}

/// The temporary file has no room: the image stays as it was.
#[test]
fn a_host_without_room_for_changes_leaves_the_image_as_it_was() {
    require!(Root);
    let place = Place::new();
    let image = image(&place);
    let before = fs::read(&image).unwrap();
    fs::write(place.join("large"), vec![1; 16 << 20]).unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$1\" && export TMPDIR=\"$1\" && exec \"$2\" edit \"$3\" -e \"put $4 /x\"";
    let point = place.join("tmp");
    fs::create_dir(&point).unwrap();
    let output = tool("sh")
        .args(crate::namespaces::apart(script))
        .arg("sh")
        .arg(&point)
        .args([env!("CARGO_BIN_EXE_extant"), &image])
        .arg(place.join("large"))
        .run();
    assert_eq!(output.code, 1, "{output}");
    assert_eq!(fs::read(&image).unwrap(), before);
}

/// Killed at a random moment, many times: Linux and we find all of the script, or nothing.
#[test]
fn a_script_that_is_killed_is_done_whole_or_not_at_all() {
    let place = Place::new();
    let image = image(&place);
    let seed = seed_from_env("killed edits");
    let mut rng = Rng::new(seed);
    let mut script = String::from("rm -rf /dir\nmkdir /dir\n");
    for number in 0..40 {
        script += &format!("write /dir/file-{number} <<< 'text of {number} @'\n");
    }
    let times = if is_full_run() { 200 } else { 25 };
    let mut version = 0;
    let mut seen = [0; 2];
    edit(&image, &script.replace('@', "0")).ok();
    for round in 1..=times {
        let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(["edit", &image])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input
            .write_all(script.replace('@', &round.to_string()).as_bytes())
            .unwrap();
        drop(input);
        std::thread::sleep(Duration::from_micros(rng.below(60_000)));
        let _ = child.kill();
        child.wait().unwrap();
        let look = |image: &str| {
            let found = extant(["cat", &format!("{image}:/dir/file-*")]).ok().text();
            let versions: Vec<&str> = found.lines().filter_map(|l| l.rsplit(' ').next()).collect();
            assert_eq!(versions.len(), 40, "round {round}: {found}");
            assert!(
                versions.iter().all(|v| *v == versions[0]),
                "round {round}: {found}"
            );
            versions[0].parse::<usize>().unwrap()
        };
        let found = look(&image);
        assert!(
            found == round || found == version,
            "round {round}: {found}, was {version}"
        );
        seen[usize::from(found == round)] += 1;
        version = found;
        let copy = place.arg("copy.img");
        fs::copy(&image, &copy).unwrap();
        e2fsck_recover_beside(Path::new(&copy)).unwrap();
        assert_clean(Path::new(&copy));
        assert_eq!(look(&copy), found, "round {round}");
    }
    println!("{} without, {} with", seen[0], seen[1]);
    edit(&image, "expect exists /dir").ok();
    assert_clean(Path::new(&image));
    let journal = debugfs(Path::new(&image), "show_super_stats -h");
    assert!(!journal.contains("needs_recovery"), "{journal}");
}
