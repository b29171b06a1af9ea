//! `fakeroot` and `pseudo`: what they let an ordinary user see is what goes into images, and what
//! comes out of images is what they let the user see.

use crate::support::{Place, extant, ordinary_user};
use extant_testkit::require;
use std::path::Path;

/// Makes a tree whose owners, devices and attributes are pretended, puts it into images both ways,
/// takes it out of one, and shows what came out, as the pretending program has it.
const STORY: &str = r#"
set -e
cd "$1"
mkdir tree tree/d out
echo a > tree/f; chown 5:6 tree/f; chmod 4755 tree/f; ln tree/f tree/h
mknod tree/null c 1 3; mknod tree/disk b 8 1; mkfifo tree/p
ln -s f tree/l; chown -h 7:8 tree/l
chown 9:10 tree/d; chmod 2775 tree/d
echo s > tree/secret; chmod 0 tree/secret
setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 tree/f
setfattr -n trusted.t -v t tree/f
"$2" mkfs -q --size 8M --from tree made.img
"$2" mkfs -q --size 8M filled.img
"$2" cp -a tree/. filled.img:/
echo older > out/f
"$2" cp -a made.img:/. out
cd out
stat -c '%n %A %u:%g %t,%T %h' d disk f h l null p secret
getfattr -d -m - -e hex f
"#;

const SHOWN: &str = "\
d drwxrwsr-x 9:10 0,0 2
disk brw-r--r-- 0:0 8,1 1
f -rwsr-xr-x 5:6 0,0 2
h -rwsr-xr-x 5:6 0,0 2
l lrwxrwxrwx 7:8 0,0 1
null crw-r--r-- 0:0 1,3 1
p prw-r--r-- 0:0 0,0 1
secret ---------- 0:0 0,0 1
# file: f
security.capability=0x0100000200040000000000000000000000000000
trusted.t=0x74
";

fn tell(pretender: &[&str]) {
    require!(Root);
    let place = Place::new();
    let script = place.arg("story.sh");
    std::fs::write(&script, STORY).unwrap();
    let run = ordinary_user(&place, pretender[0])
        .args(&pretender[1..])
        .args(["bash", &script, &place.arg("public"), &place.arg("extant")])
        .ok();
    let shown = run.text();
    let shown: String = shown
        .lines()
        .filter(|line| !line.starts_with("user.") && !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(shown, SHOWN);
    for image in ["public/made.img", "public/filled.img"] {
        let image = place.arg(image);
        extant_testkit::oracle::assert_clean(Path::new(&image));
        let found = |name: &str| {
            extant(["stat", "--json", &format!("{image}:/{name}")])
                .ok()
                .lines()[0]
                .clone()
        };
        let device = found("null");
        assert_eq!(device["type"], "char-device", "{device}");
        let file = found("f");
        assert_eq!(
            (&file["uid"], &file["gid"], &file["mode"]),
            (&5.into(), &6.into(), &"4755".into()),
            "{file}"
        );
        let link = found("l");
        assert_eq!(
            (&link["uid"], &link["gid"]),
            (&7.into(), &8.into()),
            "{link}"
        );
        let value = extant(["xattr", "get", &format!("{image}:/f"), "trusted.t"])
            .ok()
            .text();
        assert!(value.contains('t'), "{value}");
    }
}

#[test]
fn what_fakeroot_shows_goes_into_images_and_comes_out_of_them() {
    tell(&["fakeroot"]);
}

#[test]
fn what_pseudo_shows_goes_into_images_and_comes_out_of_them() {
    tell(&["fakeroot-pseudo"]);
}

#[test]
fn a_pretence_that_is_asked_for_and_not_heard_is_refused_with_advice() {
    require!(Root);
    let place = Place::new();
    std::fs::create_dir(place.join("tree")).unwrap();
    std::fs::write(place.join("tree/f"), "f").unwrap();
    let (tree, image) = (place.arg("tree"), place.arg("public/fs.img"));
    let unheard = |args: &[&str]| {
        // Another test may fork while the copy of the command is written.
        let mut tries = (0..50).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            ordinary_user(&place, "")
                .env("LD_PRELOAD", "/nowhere/libfakeroot-sysv.so")
                .args(args)
                .run()
        });
        let run = tries.find(|run| run.code != 126).unwrap();
        (run.code, String::from_utf8_lossy(&run.stderr).into_owned())
    };
    let refused = |args: &[&str]| {
        let (code, said) = unheard(args);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("libfakeroot"), "{said}");
        assert!(said.contains("tar archive"), "{said}");
    };
    refused(&["mkfs", "-q", "--from", &tree, &image]);
    assert!(!Path::new(&image).exists());
    // Where owners play no part there is nothing to refuse.
    assert_eq!(unheard(&["mkfs", "-q", "--size", "8M", &image]).0, 0);
    assert_eq!(unheard(&["cp", "-r", &tree, &format!("{image}:/")]).0, 0);
    refused(&["cp", "-a", &tree, &format!("{image}:/")]);
    refused(&[
        "cp",
        "-a",
        &format!("{image}:/tree"),
        &place.arg("public/out"),
    ]);
    assert!(!place.join("public/out").exists());
}
