//! What looks into images: listing, finding, reading, comparing.

use super::held::Held;
use super::{at, inside};
use crate::comparing::changed;
use crate::support::{Place, copy_of, extant};
use extant_testkit::oracle::mke2fs;
use extant_testkit::tool::tool;
use std::ffi::{OsStr, OsString};
use std::fs;

/// Files of all kinds, with names and texts that are no UTF-8.
const FILES: &str = "\
mkdir dir; printf 'one\\ntwo\\n' > dir/text; printf 'two\\000\\n' > dir/binary
printf 'b\\377d\\n' > \"dir/$(printf 'b\\377d')\"; ln -s \"$(printf 'to b\\377d')\" dir/link
mknod dir/null c 1 3; mkfifo dir/pipe; truncate -s 1M dir/hole
setfattr -n user.text -v value dir/text; setfattr -n user.bytes -v 0xff00 dir/text
setfattr -n \"user.$(printf 'b\\377d')\" -v x dir/text";

/// An image with these files.
pub(super) fn image(place: &Place) -> OsString {
    let image = place.join("fs.img");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-I", "256"]);
    changed(image.to_str().expect("a name"), FILES);
    let image = image.into_os_string();
    tool("tune2fs").args(["-O", "project"]).arg(&image).ok();
    in_project(7, &inside(&image, b"/dir/binary"));
    image
}

/// Gives a file to a project, which Linux does only where it is built with quotas.
fn in_project(project: u32, path: &OsStr) {
    let project = project.to_string();
    extant(
        ["chattr", "-p", &project]
            .map(OsStr::new)
            .into_iter()
            .chain([path]),
    )
    .ok();
}

pub(super) fn run(held: &mut Held) {
    let place = Place::in_memory();
    let image = image(&place);
    let dir = inside(&image, b"/dir");
    held.run(0, "ls", &[&"-R", &image]);
    held.run(0, "find", &[&image, &"-type", &"f"]);
    let all: Vec<OsString> = [&b"text"[..], b"link", b"null", b"b\xffd", b"binary"]
        .iter()
        .map(|name| inside(&image, &[&b"/dir/"[..], *name].concat()))
        .collect();
    let operands: Vec<&dyn AsRef<OsStr>> =
        all.iter().map(|path| path as &dyn AsRef<OsStr>).collect();
    held.run(0, "stat", &operands);
    held.run(1, "stat", &[&inside(&image, b"/none"), &all[0]]);
    held.run(0, "du", &[&"-ac", &image]);
    for option in ["--recursive", "-rc", "-rl", "-ro"] {
        held.run(0, "grep", &[&option, &"[a-z]*", &dir]);
    }
    held.run(1, "grep", &[&"nothing like it", &all[0]]);
    digests(held, &place, &image);
    cmp(held, &place, &all[0]);
    diff(held);
}

fn digests(held: &mut Held, place: &Place, image: &OsString) {
    held.run(0, "digest", &[&"-r", image]);
    let list = at(place, b"list");
    let written = extant(["digest", "-r", image.to_str().expect("a name")]).ok();
    fs::write(&list, &written.stdout).expect("a list");
    held.run(0, "digest", &[&"--check", &list, image]);
    let wrong = written.text().replace('0', "1");
    fs::write(&list, wrong).expect("a list");
    held.run(1, "digest", &[&"--check", &list, image]);
}

fn cmp(held: &mut Held, place: &Place, text: &OsString) {
    let other = at(place, b"b\xffd");
    for (content, code) in [("one\ntwo\n", 0), ("one\nTWO\n", 1), ("one\n", 1)] {
        fs::write(&other, content).expect("a file");
        held.run(code, "cmp", &[text, &other]);
    }
}

/// What one image has and the other has not, in a directory whose name is no UTF-8.
const BEFORE: &str = "\
d=$(printf 'd\\377'); mkdir \"$d\"; cd \"$d\"
for f in content size mode owner time one two flags gone kind project; do echo $f > $f; done
head -c 100000 /dev/zero | tr '\\0' x > moved; ln -s \"$(printf 'b\\377d')\" target
mknod device c 1 3; ln one linked; echo > xattr; setfattr -n \"user.$(printf 'b\\377d')\" -v 1 xattr
find . -exec touch -h -d @1000000000 {} +";
const AFTER: &str = "\
cd \"$(printf 'd\\377')\"
echo CONTENT > content; echo longer > size; chmod 4755 mode; chown 7:8 owner
touch -d @1000000001.5 time; setfattr -n \"user.$(printf 'b\\377d')\" -v 2 xattr
setfattr -n user.new -v 2 xattr; ln -f two linked; echo -n > new; rm gone kind device; mkdir kind
mknod device c 1 5; ln -sfn \"$(printf 'w\\377rse')\" target; chattr +d flags
cp moved copy; mv copy moved; find . ! -name time -exec touch -h -d @1000000000 {} +";

fn diff(held: &mut Held) {
    let place = Place::in_memory();
    let image = place.join("a.img");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-I", "256"]);
    let (one, other) = (place.arg("a.img"), place.arg("b.img"));
    changed(&one, BEFORE);
    copy_of(&one, &other);
    changed(&other, AFTER);
    for image in [&one, &other] {
        tool("tune2fs").args(["-O", "project", image]).ok();
    }
    in_project(9, &inside(other.as_ref(), b"/d\xff/project"));
    held.run(1, "diff", &[&"--blocks", &one, &other]);
    held.run(1, "diff", &[&other, &one]);
    held.run(0, "diff", &[&one, &one]);
}
