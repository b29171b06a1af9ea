//! Options of a mount, as mount(8), fstab and users of ext4 give them.

use crate::mounting::Mount;
use crate::namespaces::apart;
use crate::support::extant;
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write, mke2fs};
use extant_testkit::require;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Runs a shell with a mount namespace of its own, in which mount(8) finds this program as the
/// helper for the type.
pub(crate) fn with_mount_8(mount: &Mount, script: &str) -> String {
    let begin = "set -e
        mount -t tmpfs tmpfs /usr/sbin
        ln -s $1 /usr/sbin/mount.fuse.extant
        image=$2 dir=$0
        shown() { grep -F \" $dir \" /proc/mounts | cut -d' ' -f4; }
        ";
    let run = Command::new("sh")
        .args(apart(&format!("{begin}{script}")))
        .arg(mount.point())
        .arg(env!("CARGO_BIN_EXE_extant"))
        .arg(mount.image())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn devices_and_set_user_id_work_where_mount_8_mounts_for_root_unless_said_otherwise() {
    require!(Fuse);
    let mount = Mount::new();
    let told = with_mount_8(
        &mount,
        "for options in defaults dev,suid nodev nosuid nodev,nosuid; do
            mount -t fuse.extant -o $options $image $dir; shown; umount $dir
        done
        echo \"$image $dir fuse.extant rw,dev,suid,data=ordered,errors=remount-ro,nofail 0 0\" > $dir.fstab
        mount --fstab $dir.fstab $dir; shown
        # It is known for what it is: nothing is mounted a second time.
        mount --fstab $dir.fstab -a; shown | wc -l; umount $dir",
    );
    let lines: Vec<&str> = told.lines().collect();
    let has = |line: usize, word: &str| lines[line].split(',').any(|o| o == word);
    let expected = [
        (false, false),
        (false, false),
        (true, false),
        (false, true),
        (true, true),
        (false, false),
    ];
    for (line, (nodev, nosuid)) in expected.into_iter().enumerate() {
        assert_eq!(
            (has(line, "nodev"), has(line, "nosuid")),
            (nodev, nosuid),
            "{told}"
        );
    }
    assert_eq!(lines[6], "1", "{told}");
    assert_clean(&mount.image());
    // A user that mounts says so.
    let both = [mount.image(), mount.point()].map(|path| path.display().to_string());
    extant(["mount", &both[0], &both[1]]).ok();
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(&both[1])).unwrap();
    assert!(line.contains("nosuid,nodev"), "{line}");
    extant(["umount", &both[1]]).ok();
}

#[test]
fn options_that_mean_nothing_here_are_refused_by_name_with_exit_code_2() {
    let mount = Mount::new();
    let both = [mount.image(), mount.point()].map(|path| path.display().to_string());
    for (options, says) in [
        ("rw,colour=red", "colour=red"),
        ("errors=panic", "errors=panic"),
        ("data=journal", "data=journal"),
        ("noload", "ro only"),
        ("memory=511", "512 at least"),
        ("memory=512,threads=100", "932 at least"),
    ] {
        let run = extant(["mount", "-o", options, &both[0], &both[1]]).fails(2);
        assert!(run.stderr.contains(says), "{options}: {}", run.stderr);
    }
}

/// Options of ext4(5), whatever Linux's parser of them knows, and of mount(8), each with a value
/// where it has one.
const OF_EXT4: &str = "\
bsddf minixdf grpid bsdgroups nogrpid sysvgroups resgid=0 resuid=0 sb=131072 errors=continue \
errors=remount-ro errors=panic nouid32 debug oldalloc orlov user_xattr nouser_xattr acl noacl \
norecovery noload bh nobh commit=30 min_batch_time=0 max_batch_time=15000 journal_dev=259 \
journal_path=/dev/sdb1 journal_checksum nojournal_checksum journal_async_commit abort data=journal \
data=ordered data=writeback data_err=abort data_err=ignore usrjquota=aquota.user \
grpjquota=aquota.group jqfmt=vfsv1 quota noquota usrquota grpquota prjquota barrier=0 barrier=1 \
barrier nobarrier i_version dax dax=always dax=never dax=inode stripe=64 delalloc nodelalloc \
warn_on_error nowarn_on_error debug_want_extra_isize=32 mblk_io_submit nomblk_io_submit \
block_validity noblock_validity inode_readahead_blks=32 journal_ioprio=3 auto_da_alloc=0 \
auto_da_alloc noauto_da_alloc dioread_nolock nodioread_nolock dioread_lock discard nodiscard \
init_itable=10 init_itable noinit_itable max_dir_size_kb=64 test_dummy_encryption inlinecrypt \
nombcache no_mbcache prefetch_block_bitmaps no_prefetch_block_bitmaps mb_optimize_scan=1 \
check=none nocheck reservation noreservation";
const OF_MOUNT_8: &str = "\
async atime noatime auto noauto context=x fscontext=x defcontext=x rootcontext=x defaults dev nodev \
diratime nodiratime dirsync exec noexec group iversion noiversion mand nomand _netdev nofail \
relatime norelatime strictatime nostrictatime lazytime nolazytime suid nosuid silent loud owner \
remount ro rw sync user user=me nouser users symfollow nosymfollow x-systemd.automount \
x-systemd.device-timeout=5 x-systemd.requires-mounts-for=/srv X-mount.mkdir comment=x loop \
loop=/dev/loop1 offset=0 sizelimit=1 encryption=aes uhelper=x helper=x";

/// A row of the manual's table: the options, and whether they are refused.
fn rows() -> Vec<(Vec<String>, bool)> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user/mount.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, table) = text
        .split_once("| option of a line in fstab |")
        .expect("the table is there");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let options = cells[0].split('`').skip(1).step_by(2);
        let refused = cells[1].starts_with("refused");
        (options.map(str::to_owned).collect(), refused)
    })
    .collect()
}

#[test]
fn every_option_of_ext4_is_taken_or_refused_by_name_as_the_manual_says() {
    let rows = rows();
    let all = OF_EXT4
        .split_whitespace()
        .chain(OF_MOUNT_8.split_whitespace());
    for option in all {
        let mut options = extant_fuse::Options::default();
        let taken = options.parse(option);
        if let Err(e) = &taken {
            let said = e.to_string();
            assert!(
                said.contains(option) && !said.contains("no such option"),
                "{said}"
            );
        }
        // The manual has it whole, or its name with any value, or what its name begins with.
        let name = option.split('=').next().unwrap();
        let is_named = |row: &&(Vec<String>, bool), wanted: &str| row.0.iter().any(|o| o == wanted);
        let family = name
            .split_once('-')
            .map(|(family, _)| format!("{family}-*"));
        let row = rows
            .iter()
            .find(|row| is_named(row, option))
            .or_else(|| rows.iter().find(|row| is_named(row, &format!("{name}="))))
            .or_else(|| {
                let family = family.as_deref()?;
                rows.iter().find(|row| is_named(row, family))
            });
        let Some((_, refused)) = row else {
            panic!("{option} is not in the manual");
        };
        assert_eq!(taken.is_err(), *refused, "{option}: {taken:?}");
    }
    // Nor has the manual what no program gives.
    for option in rows.iter().flat_map(|row| &row.0) {
        let value = if option.ends_with('=') { "1" } else { "" };
        let given = format!("{}{value}", option.replace('*', "y"));
        let mut options = extant_fuse::Options::default();
        let said = options.parse(&given).err().map(|e| e.to_string());
        assert!(
            !said.is_some_and(|said| said.contains("no such option")),
            "{option}"
        );
    }
}

#[test]
fn noload_shows_what_is_there_without_the_journal() {
    require!(Fuse);
    let mount = Mount::new();
    let link = "write /dev/null file";
    debugfs_write(&mount.image(), &[link]);
    // A journal that cannot be read, which is what the option is for.
    debugfs_write(
        &mount.image(),
        &["feature needs_recovery", "zap_block -f <8> 0"],
    );
    let both = [mount.image(), mount.point()].map(|path| path.display().to_string());
    extant(["mount", "-o", "ro", &both[0], &both[1]]).fails(1);
    extant(["mount", "-o", "ro,noload", &both[0], &both[1]]).ok();
    assert!(mount.at("file").exists());
    extant(["umount", &both[1]]).ok();
}

#[test]
fn a_file_system_without_a_root_directory_is_not_mounted() {
    require!(Fuse);
    for damage in ["clri <2>", "set_inode_field <2> mode 0100644"] {
        let mount = Mount::new();
        debugfs_write(&mount.image(), &[damage]);
        let both = [mount.image(), mount.point()].map(|path| path.display().to_string());
        let run = extant(["mount", &both[0], &both[1]]).fails(1);
        assert!(run.stderr.contains("root"), "{damage}: {}", run.stderr);
        let table = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!table.contains(&both[1]), "{damage}: {table}");
    }
}

#[test]
fn errors_remount_ro_ends_all_changes_when_damage_is_found() {
    require!(Fuse);
    for (asked, goes_on) in [("continue", true), ("remount-ro", false)] {
        let mount = Mount::new();
        // The file system itself asks for the opposite.
        let own = ["remount-ro", "continue"][usize::from(!goes_on)];
        mke2fs(&mount.image(), 64 << 20, &["-t", "ext4", "-e", own]);
        let both = [mount.image(), mount.point()].map(|path| path.display().to_string());
        // A bitmap that is not what its checksum says, which every allocation comes upon.
        damage_block_bitmaps(&mount);
        let options = format!("errors={asked}");
        extant(["mount", "-o", &options, &both[0], &both[1]]).ok();
        let _ = fs::write(mount.at("file"), vec![1; 1 << 20])
            .and_then(|()| fs::File::open(mount.at("file"))?.sync_all());
        let made = fs::create_dir(mount.at("dir"));
        assert_eq!(made.is_ok(), goes_on, "{asked}: {made:?}");
        let _ = extant(["umount", &both[1]]);
    }
}

/// Linux's number for a structure that is not what its checksum says.
const EBADMSG: i32 = 74;

#[test]
fn damage_that_reading_finds_is_recorded_and_with_remount_ro_ends_all_changes() {
    require!(Fuse);
    for (asked, goes_on) in [("continue", true), ("remount-ro", false)] {
        let mount = Mount::new();
        let image = mount.image();
        mke2fs(&image, 16 << 20, &["-t", "ext4", "-b", "1024"]);
        debugfs_write(&image, &["mkdir damaged"]);
        // Its first entry.
        let block = debugfs(&image, "blocks damaged");
        let block: u64 = block.trim().parse().unwrap();
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[0xff; 64], block * 1024).unwrap();
        let both = [image.clone(), mount.point()].map(|path| path.display().to_string());
        let options = format!("errors={asked}");
        extant(["mount", "-o", &options, &both[0], &both[1]]).ok();
        // Linux looks for the name first, and asks for no change where that fails.
        let refused = fs::create_dir(mount.at("damaged/new")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(EBADMSG), "{refused}");
        let made = fs::create_dir(mount.at("other"));
        assert_eq!(made.is_ok(), goes_on, "{asked}: {made:?}");
        let _ = extant(["umount", &both[1]]);
        let shown = extant_testkit::oracle::dumpe2fs_header(&image);
        assert!(shown.number("FS Error count") > 0, "{asked}");
        let state = shown.field("Filesystem state");
        assert!(state.contains("with errors"), "{asked}: {state}");
    }
}

/// Flips a bit in each block bitmap.
pub(crate) fn damage_block_bitmaps(mount: &Mount) {
    let shown = extant_testkit::oracle::dumpe2fs(&mount.image());
    let image = fs::File::options()
        .read(true)
        .write(true)
        .open(mount.image())
        .unwrap();
    let size = shown.number("Block size");
    for block in shown.groups.iter().map(|group| group.block_bitmap) {
        let mut byte = [0];
        image.read_exact_at(&mut byte, block * size + 100).unwrap();
        image
            .write_all_at(&[byte[0] ^ 0x10], block * size + 100)
            .unwrap();
    }
}

#[test]
fn the_least_memory_that_is_taken_is_enough_to_work_with() {
    require!(Fuse);
    let mount = Mount::new();
    let both = [mount.image(), mount.point()].map(|path| path.display().to_string());
    let options = "memory=512,threads=16,direct_from=0";
    extant(["mount", "-o", options, &both[0], &both[1]]).ok();
    let content = vec![7; 40 << 20];
    fs::write(mount.at("file"), &content).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                let dir = mount.at(&format!("dir-{thread}"));
                fs::create_dir(&dir).unwrap();
                for n in 0..300 {
                    fs::write(dir.join(n.to_string()), [1; 3000]).unwrap();
                }
            });
        }
    });
    assert!(fs::read(mount.at("file")).unwrap() == content);
    extant(["umount", &both[1]]).ok();
    assert_clean(&mount.image());
}
