//! Tuning in steps that is cut off while checksums get another start: what is left says that it is
//! not sound, can be taken back, and can be repaired without a loss.

use crate::cuts::{Cuts, bytes_of};
use crate::support::check_bytes;
use extant_blockdev::BlockDevice;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};
use extant_fsck::repair::{self, Plan, tune};
use extant_testkit::oracle;
use std::path::Path;
use std::sync::Arc;

const UUID: [u8; 16] = *b"another identity";
const FILES: usize = 90;

/// An image with an index, nodes of extent trees and inodes in several groups.
fn made(dir: &Path) -> Vec<u8> {
    let path = dir.join("image");
    let options = ["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "640"];
    let more = [
        "-O",
        "orphan_file,^metadata_csum_seed,^flex_bg",
        "-J",
        "size=1",
    ];
    oracle::mke2fs(&path, 12 << 20, &[&options[..], &more].concat());
    let content = dir.join("content");
    std::fs::write(&content, vec![7; 3000]).unwrap();
    let mut requests = vec!["mkdir dir".to_owned()];
    let name = "a name of some length, so that there are several blocks of names";
    requests.extend((0..FILES).map(|i| format!("write {} \"dir/{name} {i}\"", content.display())));
    // Every other one goes: what is written then lies in pieces.
    requests.extend(
        (0..FILES)
            .step_by(2)
            .map(|i| format!("rm \"dir/{name} {i}\"")),
    );
    let large = dir.join("large");
    std::fs::write(&large, vec![9; 9 << 20]).unwrap();
    requests.push(format!("write {} large", large.display()));
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    oracle::debugfs_write(&path, &requests);
    oracle::assert_clean(&path);
    std::fs::read(&path).unwrap()
}

fn superblock(image: &[u8]) -> Superblock {
    let at = SUPERBLOCK_OFFSET as usize;
    Superblock::parse(&image[at..at + SUPERBLOCK_LEN]).unwrap()
}

fn plan(device: Arc<dyn BlockDevice>) -> Plan {
    let settings = tune::Settings {
        uuid: Some(UUID),
        ..tune::Settings::default()
    };
    // As where there is no room for a log.
    let options = repair::Options::default().in_front(true);
    let plan = tune::plan(device, &settings, options, &()).unwrap();
    assert!(!plan.is_whole());
    assert!(plan.is_complete());
    plan
}

#[test]
fn what_a_crash_leaves_between_two_uuids_is_recognised_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    let start = made(dir.path());
    let inodes = check_bytes(&start, false).unwrap().totals.inodes;
    let cuts = Cuts::new(&start, plan);
    let (writes, memory) = (cuts.writes, &cuts.memory);
    assert_eq!(superblock(&cuts.done).uuid(), UUID);
    assert!(check_bytes(&cuts.done, false).unwrap().is_clean());
    let path = dir.path().join("done");
    std::fs::write(&path, &cuts.done).unwrap();
    oracle::assert_clean(&path);
    assert!(writes > 30, "{writes} writes");

    let mut unsound = 0;
    for cut in cuts.some(8) {
        let name = format!("{cut} of {writes} writes");
        let left = cuts.left_after(cut);
        let is_sound = check_bytes(&left, false).unwrap().is_clean();
        assert!(
            is_sound || superblock(&left).state() != State::CLEAN,
            "{name}"
        );
        unsound += u64::from(!is_sound);

        let mended = repair::plan(memory.clone(), repair::Options::default(), &()).unwrap();
        assert!(mended.is_complete(), "{name}: {:?}", mended.left.findings);
        assert!(mended.losses.is_empty(), "{name}: {:?}", mended.losses);
        mended.apply().unwrap();
        let repaired = bytes_of(memory);
        let report = check_bytes(&repaired, false).unwrap();
        assert!(report.is_clean(), "{name}");
        assert_eq!(report.totals.inodes, inodes, "{name}");
        std::fs::write(&path, &repaired).unwrap();
        oracle::assert_clean(&path);

        memory.write_at(0, &left).unwrap();
        let back = cuts.taken_back().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(back == start, "{name}: not every byte is back");
    }
    assert!(unsound > 4, "{unsound} cuts left something unsound");
}
