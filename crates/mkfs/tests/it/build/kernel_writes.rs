//! The kernel goes on where the builder stopped: what it writes into a dense image is sound.

use super::*;
use extant_testkit::require;
use extant_testkit::torture::TortureSpec;
use std::fs;
use std::io::Write;

/// Adds to every kind of structure a builder makes, and takes from it.
fn write_everywhere(mount: &KernelMount) {
    let at = |path: &str| mount.join(path);
    // Names into packed leaves, far and wide, and out of them.
    for n in 0..1500 {
        fs::write(at(&format!("entries/new-{n}")), n.to_string()).unwrap();
        fs::create_dir(at(&format!("subdirs/new-{n}"))).unwrap();
    }
    for entry in fs::read_dir(at("entries")).unwrap().step_by(3) {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for entry in fs::read_dir(at("subdirs")).unwrap().step_by(4) {
        fs::remove_dir(entry.unwrap().path()).unwrap();
    }
    // Blocks into holes, at ends, and out of the middle of maps.
    let append = |path: &str, bytes: usize| {
        let mut file = fs::File::options().append(true).open(at(path)).unwrap();
        file.write_all(&vec![0x5a; bytes]).unwrap();
    };
    for path in ["holes/fragmented", "holes/only", "sizes/65537", "sizes/0"] {
        append(path, 300_000);
    }
    {
        use std::os::unix::fs::FileExt;
        let open = |path| fs::File::options().write(true).open(at(path)).unwrap();
        let file = open("holes/fragmented");
        for n in (0..300).step_by(7) {
            file.write_all_at(&[7; 5000], n * 8192 + 4096).unwrap();
        }
        open("holes/alternating-64k").set_len(1_000_003).unwrap();
        open("holes/sparse").set_len(20_000).unwrap();
    }
    fs::remove_file(at("holes/sparse-with-tail-hole")).unwrap();
    fs::remove_file(at("types/symlink-1000")).unwrap();
    fs::remove_dir_all(at("names")).unwrap();
    // Attributes out of shared blocks and into new ones.
    let set = |path: &str, name: &str, value: &[u8]| {
        let none = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(at(path), name, value, none).unwrap();
    };
    for n in 0..20 {
        set(
            &format!("xattrs/shared-{n}"),
            "user.shared",
            b"not any more",
        );
        set(&format!("xattrs/shared-{}", n + 20), "user.more", &[n; 200]);
        fs::remove_file(at(&format!("xattrs/shared-{}", n + 40))).unwrap();
    }
    set("xattrs/small", "user.a", &[1; 400]);
    rustix::fs::lremovexattr(at("xattrs/overflow"), "user.big").unwrap();
}

#[test]
fn the_kernel_adds_and_removes_everywhere_and_the_image_stays_sound() {
    require!(KernelExt4, TmpfsXattrs);
    let dir = scratch();
    let spec = TortureSpec {
        subdirs_in_one_dir: 300,
        extents: 300,
        longest_path: 3700,
        ..TortureSpec::small().for_image(1024, 256, false)
    };
    let source = scan(&planted(&spec.plan(), dir.path(), "source"));
    let image = dir.path().join("image");
    let variant = |block, profile, features| Variant::new(block, 256, profile, features);
    for variant in [
        variant(1024, Profile::Latest, ""),
        variant(4096, Profile::Default, "ea_inode,large_dir"),
        variant(1024, Profile::Linux310, "^extent"),
        variant(4096, Profile::Default, "bigalloc"),
        variant(2048, Profile::Android, "^dir_index,^has_journal").without_journal(),
        variant(1024, Profile::Default, "^resize_inode,meta_bg,^flex_bg"),
    ] {
        println!("{variant:?}");
        let mut options = with(variant.format(0), Size::Auto(Headroom::Percent(150.0)));
        options.format.table_init = extant_mkfs::defaults::TableInit::Lazy;
        build_clean(&source, &image, &options);
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
        write_everywhere(&mount);
        mount.unmount();
        oracle::assert_clean(&image);
    }
}
