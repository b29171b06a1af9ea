//! Repairs that are cut off while a journal waits: what is left is recognised, no journal is
//! replayed over what was mended, and both ways on lead to the end.

use crate::cuts::{bytes_of, stop};
use crate::support::{check_bytes, logged_superblock, problems, superblock};
use extant_blockdev::{BlockDevice, MemoryDevice, SharedDevice};
use extant_format::superblock::{SUPERBLOCK_OFFSET, State};
use extant_fsck::repair::{self, Plan, revert, write_undo};
use extant_testkit::crash::FaultDevice;
use extant_testkit::oracle::{self, debugfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn plan(device: SharedDevice) -> Plan {
    let options = repair::Options::default().now(1_700_000_000);
    let plan = repair::plan(device, options, &()).unwrap();
    assert!(plan.is_complete(), "{}", problems(&plan.left));
    plan
}

/// A block of the inode table, by what debugfs says of an inode in it.
fn block_of_inode(path: &Path, of: &str) -> usize {
    let told = debugfs(path, &format!("imap {of}"));
    let (_, rest) = told.split_once("located at block ").unwrap();
    let number = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    number.parse().unwrap()
}

/// What a journal holds, and in which file system.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Bytes in a block.
    block: usize,
    /// The label in a superblock that waits too.
    label: Option<&'static str>,
    /// Given to debugfs afterwards.
    requests: &'static [&'static str],
}

/// A journal that waits, over damage in several blocks.
struct Waiting {
    /// Bytes in a block.
    block: usize,
    path: PathBuf,
    image: Vec<u8>,
    /// What a mount would make of it.
    replayed: Vec<u8>,
    /// The byte of the journal's superblock.
    log: usize,
}

impl Waiting {
    /// In the journal is a block of the inode table as it was damaged, which is sound where it
    /// lies: to replay it once more over what was mended takes the fix back.
    fn new(dir: &Path, kind: Kind) -> Self {
        let path = dir.join("image");
        let size = kind.block.to_string();
        // A log has 1,024 blocks at least.
        let journal = format!("size={}", kind.block / 1024);
        let options = ["-t", "ext4", "-b", &size, "-N", "128", "-J", &journal];
        oracle::mke2fs(&path, (kind.block as u64 + 7168) << 10, &options);
        let source = dir.join("source");
        std::fs::write(&source, vec![7; 50_000]).unwrap();
        let mut made = vec!["mkdir dir".to_owned(), "mkdir dir/below".to_owned()];
        for name in ["one", "two", "dir/three", "dir/below/four"] {
            made.push(format!("write {} {name}", source.display()));
        }
        let made: Vec<&str> = made.iter().map(String::as_str).collect();
        oracle::debugfs_write(&path, &made);
        oracle::assert_clean(&path);
        let at = block_of_inode(&path, "/one");
        let sound = std::fs::read(&path).unwrap();
        oracle::debugfs_write(&path, &["sif /one links_count 5", "sif /two size 100"]);
        let damaged = std::fs::read(&path).unwrap();
        let block = dir.join("block");
        std::fs::write(&block, &damaged[at * kind.block..][..kind.block]).unwrap();
        std::fs::write(&path, &sound).unwrap();
        let mut logged = vec!["jo".to_owned(), format!("jw -b {at} {}", block.display())];
        if let Some(label) = kind.label {
            let (at, content) = logged_superblock(&sound, kind.block, label.as_bytes());
            let block = dir.join("superblock");
            std::fs::write(&block, content).unwrap();
            logged.push(format!("jw -b {at} {}", block.display()));
        }
        logged.push("jc".to_owned());
        let first = debugfs(&path, "blocks <8>");
        let log: usize = first.split_whitespace().next().unwrap().parse().unwrap();
        let freed = format!("freeb {} 40", log + 10);
        let more = ["unlink /dir", &freed, "set_bg 0 free_blocks_count 1"];
        oracle::debugfs_write(&path, &more);
        let logged: Vec<&str> = logged.iter().map(String::as_str).collect();
        oracle::debugfs_write(&path, &logged);
        if !kind.requests.is_empty() {
            oracle::debugfs_write(&path, kind.requests);
        }
        let image = std::fs::read(&path).unwrap();
        let twin = dir.join("twin");
        std::fs::copy(&path, &twin).unwrap();
        oracle::e2fsck(&twin, &["-y", "-E", "journal_only"]);
        Self {
            block: kind.block,
            path,
            image,
            replayed: std::fs::read(twin).unwrap(),
            log: log * kind.block,
        }
    }

    /// Whether the log holds something. Programs may replay it also where the superblock says that
    /// nothing waits.
    fn waits(&self, image: &[u8]) -> bool {
        image[self.log + 0x1c..self.log + 0x20] != [0; 4]
    }

    /// What a crash left is recognised, and a journal that waits meets nothing that was mended.
    fn judge(&self, name: &str, image: &[u8]) {
        if *image == self.image {
            return;
        }
        // Where a part is taken back, nothing judges it.
        let is_sound = check_bytes(image, false).is_ok_and(|report| report.is_clean());
        let says_so = superblock(image).state() == State::CLEAN;
        assert!(
            is_sound || !says_so,
            "{name}: is not sound, and says that it is"
        );
        if !self.waits(image) {
            return;
        }
        let [now, before, replayed] =
            [image, &self.image, &self.replayed].map(|image| image.chunks(self.block));
        for (i, ((now, before), replayed)) in now.zip(before).zip(replayed).enumerate() {
            let is_primary = i == SUPERBLOCK_OFFSET as usize / self.block;
            let is_known = now == before || now == replayed || is_primary;
            assert!(
                is_known,
                "{name}: block {i} is mended, and the journal waits"
            );
        }
    }
}

#[test]
fn a_repair_that_is_cut_off_while_a_journal_waits_is_recognised_and_can_go_on_or_back() {
    let kinds: [(usize, Option<&str>, &[&str]); 5] = [
        (1024, None, &[]),
        (1024, None, &["ssv state 0"]),
        (1024, None, &["feature -needs_recovery"]),
        // Linux logs the superblock for the list of orphans, the label and when the file system is
        // made larger.
        (1024, Some("logged"), &[]),
        (4096, Some("logged"), &["ssv state 0"]),
    ];
    for (block, label, requests) in kinds {
        let dir = tempfile::tempdir().unwrap();
        let kind = Kind {
            block,
            label,
            requests,
        };
        let waiting = Waiting::new(dir.path(), kind);
        let start = &waiting.image;
        assert!(waiting.waits(start), "{kind:?}");
        let memory = Arc::new(MemoryDevice::from_image(start));
        let device = Arc::new(FaultDevice::new(memory.clone()));
        let all = plan(device.clone());
        let mut undo = Vec::new();
        write_undo(&all.changes, &mut undo).unwrap();
        device.reset_counts();
        all.apply().unwrap();
        let writes = device.counts().writes;
        assert!(writes > 5, "{writes} writes");
        let repaired = bytes_of(&memory);
        assert!(check_bytes(&repaired, true).unwrap().is_clean());
        std::fs::write(&waiting.path, &repaired).unwrap();
        oracle::assert_clean(&waiting.path);
        let label = label.unwrap_or_default().as_bytes();
        assert_eq!(superblock(&repaired).label(), label, "{kind:?}");
        let mut between = 0;
        // Without any write it is as it was.
        for cut in 1..writes {
            let name = format!("{kind:?}, {cut} of {writes} writes");
            memory.write_at(0, start).unwrap();
            stop(&device, cut);
            all.apply().unwrap_err();
            device.heal();
            let left = bytes_of(&memory);
            waiting.judge(&name, &left);
            between += usize::from(!waiting.waits(&left));

            // Repairing again goes on to the same.
            let twin = Arc::new(MemoryDevice::from_image(&left));
            let again = plan(twin.clone());
            assert_eq!(again.losses_count, 0, "{name}");
            again.apply().unwrap();
            let done = bytes_of(&twin);
            assert!(check_bytes(&done, true).unwrap().is_clean(), "{name}");
            assert_eq!(superblock(&done).label(), label, "{name}: lost the label");
            let differs = done.chunks(block).zip(repaired.chunks(block));
            let differs: Vec<usize> = differs
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(i, _)| i)
                .filter(|i| *i != SUPERBLOCK_OFFSET as usize / block && i * block != waiting.log)
                .collect();
            assert_eq!(differs, [0; 0], "{name}: repaired otherwise");

            // Taking it back may be cut off too, anywhere.
            stop(&device, cut % 7);
            let _ = revert(&*device, || Ok(&undo[..]));
            device.heal();
            waiting.judge(&format!("{name}, and back"), &bytes_of(&memory));
            revert(&*device, || Ok(&undo[..])).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(bytes_of(&memory) == *start, "{name}: is not as it was");
        }
        assert!(between > 2, "{between} cuts without a journal that waits");

        // All of it is taken back, as far as that comes.
        for cut in 1.. {
            memory.write_at(0, &repaired).unwrap();
            stop(&device, cut);
            let is_whole = revert(&*device, || Ok(&undo[..])).is_ok();
            device.heal();
            waiting.judge(&format!("{kind:?}, back by {cut}"), &bytes_of(&memory));
            revert(&*device, || Ok(&undo[..])).unwrap();
            assert!(bytes_of(&memory) == *start, "back by {cut}");
            if is_whole {
                break;
            }
        }
    }
}
