//! Resizing that is cut off: no mixture of before and after says that it is sound, and the undo
//! file takes it back.

use crate::cuts::Cuts;
use crate::support::check_bytes;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};
use extant_fsck::repair::resize::{self, Size};
use extant_fsck::repair::{self, Plan};
use extant_testkit::oracle;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// An image with room in its first groups and files in later ones.
fn made(dir: &Path, mib: u64) -> Vec<u8> {
    let path = dir.join("image");
    let options = ["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "640"];
    let more = ["-O", "^flex_bg", "-J", "size=1"];
    oracle::mke2fs(&path, mib * MIB, &[&options[..], &more].concat());
    let (early, late) = (dir.join("early"), dir.join("late"));
    std::fs::write(&early, vec![1; 7 << 20]).unwrap();
    std::fs::write(&late, vec![2; 20_000]).unwrap();
    let mut requests = vec![format!("write {} early", early.display())];
    requests.extend((0..120).map(|i| format!("write {} before{i}", late.display())));
    requests.push("mkdir dir".to_owned());
    requests.extend((0..120).map(|i| format!("write {} dir/late{i}", late.display())));
    requests.push("rm early".to_owned());
    requests.extend((0..120).map(|i| format!("rm before{i}")));
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    oracle::debugfs_write(&path, &requests);
    oracle::assert_clean(&path);
    std::fs::read(&path).unwrap()
}

fn says_all_is_well(image: &[u8]) -> bool {
    let at = SUPERBLOCK_OFFSET as usize;
    let sb = Superblock::parse(&image[at..at + SUPERBLOCK_LEN]).unwrap();
    sb.state() == State::CLEAN
}

fn plan(device: Arc<dyn BlockDevice>, mib: u64) -> Plan {
    let blocks = Size::Blocks(mib * 1024);
    let plan = resize::plan(device, blocks, repair::Options::default(), &()).unwrap();
    assert!(plan.is_complete());
    plan
}

/// Judges what a crash left.
fn judge(name: &str, image: &[u8]) -> bool {
    // Where a part is taken back, nothing judges it.
    let is_sound = check_bytes(image, false).is_ok_and(|report| report.is_clean());
    assert!(
        is_sound || !says_all_is_well(image),
        "{name}: is not sound, and says that it is"
    );
    is_sound
}

#[test]
fn what_a_crash_leaves_asks_for_a_check_and_can_be_taken_back() {
    for (before, after) in [(20, 8), (20, 60)] {
        let dir = tempfile::tempdir().unwrap();
        let mut image = made(dir.path(), before);
        image.resize((before.max(after) * MIB) as usize, 0);
        let cuts = Cuts::new(&image, |device| plan(device, after));
        let writes = cuts.writes;
        assert!(judge("all of it", &cuts.done));
        assert!(writes > 40, "{writes} writes");
        let mut unsound = 0;
        for cut in cuts.some(9) {
            let name = format!("{before} to {after}, {cut} of {writes} writes");
            unsound += usize::from(!judge(&name, &cuts.left_after(cut)));
            // Taking it back may be cut off too.
            judge(&format!("{name}, and back"), &cuts.taken_back_until(cut));
            let kept = cuts.taken_back().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(kept == cuts.start, "{name}: it is not as it was");
        }
        assert!(unsound > 4, "{unsound} cuts left something unsound");
    }
}

/// What a first change gives up and leaves as it lies, a second one may give to files.
#[test]
fn undo_files_are_taken_back_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(MemoryDevice::from_image(&made(dir.path(), 20)));
    let bytes = || {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let mut kept = Vec::new();
    for mib in [12, 8, 5] {
        let before = bytes();
        let plan = plan(Arc::clone(&device) as _, mib);
        let mut undo = Vec::new();
        repair::write_undo(&plan.changes, &mut undo).unwrap();
        plan.apply().unwrap();
        assert!(bytes() != before, "{mib} MiB");
        assert!(judge("smaller", &bytes()));
        kept.push((mib, before, undo));
    }
    while let Some((mib, before, undo)) = kept.pop() {
        repair::revert(&*device, || Ok(&undo[..])).unwrap();
        assert!(bytes() == before, "from {mib} MiB");
    }
}

#[test]
fn a_copy_in_a_group_that_no_number_names_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = ["-t", "ext4", "-b", "1024", "-O", "sparse_super2"];
    oracle::mke2fs(&path, 40 * MIB, &options);
    oracle::debugfs_write(&path, &["set_super_value backup_bgs[1] 4294967295"]);
    let mut image = std::fs::read(&path).unwrap();
    image.resize(60 << 20, 0);
    let device = Arc::new(MemoryDevice::from_image(&image));
    let blocks = Size::Blocks(60 * 1024);
    let done = resize::plan(device, blocks, repair::Options::default(), &());
    let why = done.unwrap_err().to_string();
    assert!(why.contains("not sound"), "{why}");
}
