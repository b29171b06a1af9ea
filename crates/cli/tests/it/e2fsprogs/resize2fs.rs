//! `resize2fs` beside the real one.

use super::{Links, stderr};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use std::fs::{self, File};
use std::path::Path;

fn blocks(image: &str) -> u64 {
    dumpe2fs_header(Path::new(image)).number("Block count")
}

#[test]
fn sizes_mean_what_they_mean_to_resize2fs() {
    let links = Links::new();
    let original = links.arg("original");
    for (made, steps) in [
        (
            "-b1024",
            &["40000", "48M", "65536s", "70000k", "", "200m"][..],
        ),
        ("-b4096", &["10000", "0x3000", "96M", "1G", "524288K"]),
        ("-b4096 -O ^resize_inode,^flex_bg", &["9000", "20M"]),
    ] {
        let options: Vec<&str> = ["-t", "ext4"].into_iter().chain(made.split(' ')).collect();
        mke2fs(Path::new(&original), 64 << 20, &options);
        let of = |is_ours: bool| {
            let image = links.arg(if is_ours { "ours" } else { "theirs" });
            fs::copy(&original, &image).unwrap();
            image
        };
        let (ours, theirs) = (of(true), of(false));
        for step in steps {
            let run = |is_ours: bool, image: &str| {
                if step.is_empty() {
                    let file = File::options().write(true).open(image).unwrap();
                    file.set_len(80 << 20).unwrap();
                }
                let program = links.program("resize2fs", is_ours);
                let args = [image, step];
                let given = if step.is_empty() { &args[..1] } else { &args };
                program.args(given).run()
            };
            let (we, they) = (run(true, &ours), run(false, &theirs));
            assert_eq!((we.code, they.code), (0, 0), "{made} {step}: {we} {they}");
            let told = we.text().replace(&ours, "IMAGE");
            assert_eq!(told, they.text().replace(&theirs, "IMAGE"), "{made} {step}");
            assert_eq!(blocks(&ours), blocks(&theirs), "{made} {step}");
            let len = |image: &str| fs::metadata(image).unwrap().len();
            assert_eq!(len(&ours), len(&theirs), "{made} {step}");
            assert_clean(Path::new(&ours));
        }
    }
}

#[test]
fn the_minimum_is_told_and_reached() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 256 << 20, &["-t", "ext4", "-b4096"]);
    let told = links.ours("resize2fs").args(["-P", &image]).ok().text();
    let least: u64 = told
        .strip_prefix("Estimated minimum size of the filesystem: ")
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("{told}"));
    assert_eq!(blocks(&image), 65_536);
    let done = links
        .ours("resize2fs")
        .args(["-f", "-M", &image])
        .ok()
        .text();
    let now = blocks(&image);
    assert!(now <= least && now < 16_384, "{now}, {least}");
    assert!(
        done.contains(&format!("is now {now} (4k) blocks long.\n")),
        "{done}"
    );
    assert_clean(Path::new(&image));
    let again = links
        .ours("resize2fs")
        .args(["-p", &image, &now.to_string()])
        .ok();
    assert!(stderr(&again).contains(&format!(
        "The filesystem is already {now} (4k) blocks long.  Nothing to do!"
    )));
}

#[test]
fn what_is_not_done_is_named() {
    let links = Links::new();
    let image = links.arg("image");
    mke2fs(Path::new(&image), 64 << 20, &["-t", "ext4"]);
    let before = fs::read(&image).unwrap();
    for (args, said) in [
        (&[&*image, "10X"][..], "Invalid new size: 10X"),
        (&[&image, "0"], "Invalid new size: 0"),
        (&[&image, "1M"], ""),
        (&["-S", "4", &image], "-S: "),
        (&["-z", "undo", &image], "-z: "),
        (&["-M", &image, "5"], "Usage: "),
        (&["-Q", &image], "invalid option -- 'Q'"),
        (&["/nonexistent"], "/nonexistent"),
        (&[], "Usage: "),
    ] {
        let refused = links.ours("resize2fs").args(args).run();
        assert_eq!(refused.code, 1, "{args:?}: {refused}");
        assert!(stderr(&refused).contains(said), "{args:?}: {refused}");
    }
    let wide = links.ours("resize2fs").args(["-b", &image]).ok();
    assert!(
        stderr(&wide).contains("The filesystem is already 64-bit."),
        "{wide}"
    );
    assert!(fs::read(&image).unwrap() == before);
    for (option, is_wide) in [("-s", false), ("-b", true)] {
        let other = links.ours("resize2fs").args([option, &image]).ok();
        assert!(
            other.text().contains("Converting the filesystem to"),
            "{other}"
        );
        let header = dumpe2fs_header(Path::new(&image));
        assert_eq!(header.has_feature("64bit"), is_wide);
        assert_clean(Path::new(&image));
    }
}
