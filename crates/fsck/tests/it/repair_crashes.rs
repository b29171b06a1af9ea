//! Repairs that are cut off while a journal waits: what is left is recognised, no journal is replayed over what was
//! mended, and both ways on lead to the end.

use crate::support::{check_bytes, problems};
use extant_blockdev::{BlockDevice, MemoryDevice, SharedDevice};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};
use extant_fsck::repair::{self, Plan, revert, write_undo};
use extant_testkit::crash::{Fault, FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle::{self, debugfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: usize = 1024;

fn plan(device: SharedDevice) -> Plan {
    let options = repair::Options::default().now(1_700_000_000);
    let plan = repair::plan(device, options, &()).unwrap();
    assert!(plan.is_complete(), "{}", problems(&plan.left));
    plan
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn superblock(image: &[u8]) -> Superblock {
    let at = SUPERBLOCK_OFFSET as usize;
    Superblock::parse(&image[at..at + SUPERBLOCK_LEN]).unwrap()
}

/// Fails all writes after so many.
fn stop(device: &FaultDevice, after: u64) {
    device.inject(FaultRule {
        kind: IoKind::Write,
        within: None,
        after,
        times: u64::MAX,
        fault: Fault::Error(5),
    });
}

/// A block of the inode table, by what debugfs says of an inode in it.
fn block_of_inode(path: &Path, of: &str) -> usize {
    let told = debugfs(path, &format!("imap {of}"));
    let (_, rest) = told.split_once("located at block ").unwrap();
    let number = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    number.parse().unwrap()
}

/// A journal that waits, over damage in several blocks.
struct Waiting {
    path: PathBuf,
    image: Vec<u8>,
    /// What a mount would make of it.
    replayed: Vec<u8>,
    /// The byte of the journal's superblock.
    log: usize,
}

impl Waiting {
    /// In the journal is a block of the inode table as it was damaged, which is sound where it lies: to replay it once more
    /// over what was mended takes the mend back. Requests are given to debugfs afterwards.
    fn new(dir: &Path, requests: &[&str]) -> Self {
        let path = dir.join("image");
        let options = ["-t", "ext4", "-b", "1024", "-N", "128", "-J", "size=1"];
        oracle::mke2fs(&path, 8 << 20, &options);
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
        std::fs::write(&block, &damaged[at * BLOCK..][..BLOCK]).unwrap();
        std::fs::write(&path, &sound).unwrap();
        let write = format!("jw -b {at} {}", block.display());
        let first = debugfs(&path, "blocks <8>");
        let log: usize = first.split_whitespace().next().unwrap().parse().unwrap();
        let more = [
            "unlink /dir",
            "freeb 4000 40",
            "set_bg 0 free_blocks_count 1",
        ];
        oracle::debugfs_write(&path, &more);
        oracle::debugfs_write(&path, &["jo", &write, "jc"]);
        if !requests.is_empty() {
            oracle::debugfs_write(&path, requests);
        }
        let image = std::fs::read(&path).unwrap();
        let twin = dir.join("twin");
        std::fs::copy(&path, &twin).unwrap();
        oracle::e2fsck(&twin, &["-y", "-E", "journal_only"]);
        Self {
            path,
            image,
            replayed: std::fs::read(twin).unwrap(),
            log: log * BLOCK,
        }
    }

    /// Whether the log holds something. Programs may replay it also where the superblock says that nothing waits.
    fn waits(&self, image: &[u8]) -> bool {
        image[self.log + 0x1c..self.log + 0x20] != [0; 4]
    }

    /// What a crash left is recognised, and a journal that waits meets nothing that was mended.
    fn judge(&self, name: &str, image: &[u8]) {
        if *image == self.image {
            return;
        }
        let is_sound = check_bytes(image, false).unwrap().is_clean();
        let says_so = superblock(image).state() == State::CLEAN;
        assert!(
            is_sound || !says_so,
            "{name}: is not sound, and says that it is"
        );
        if !self.waits(image) {
            return;
        }
        let blocks = image.chunks(BLOCK).zip(self.image.chunks(BLOCK));
        for (i, ((now, before), replayed)) in blocks.zip(self.replayed.chunks(BLOCK)).enumerate() {
            let is_primary = i * BLOCK == SUPERBLOCK_OFFSET as usize;
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
    let kinds: [&[&str]; 3] = [&[], &["ssv state 0"], &["feature -needs_recovery"]];
    for requests in kinds {
        let dir = tempfile::tempdir().unwrap();
        let waiting = Waiting::new(dir.path(), requests);
        let start = &waiting.image;
        assert!(waiting.waits(start), "{requests:?}");
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
        let mut between = 0;
        // Without any write it is as it was.
        for cut in 1..writes {
            let name = format!("{requests:?}, {cut} of {writes} writes");
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
            let differs = done.chunks(BLOCK).zip(repaired.chunks(BLOCK));
            let differs: Vec<usize> = differs
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(i, _)| i)
                .filter(|i| i * BLOCK != SUPERBLOCK_OFFSET as usize && i * BLOCK != waiting.log)
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
            waiting.judge(&format!("{requests:?}, back by {cut}"), &bytes_of(&memory));
            revert(&*device, || Ok(&undo[..])).unwrap();
            assert!(bytes_of(&memory) == *start, "back by {cut}");
            if is_whole {
                break;
            }
        }
    }
}
