//! What a build takes of memory for each entry: the difference between two sources, so that what a
//! process takes in any case does not count.
//!
//! Each build is a process of its own, this test again with [`ENTRIES`] set, which says how much
//! memory it had at most. The image goes nowhere, so that neither disk nor page cache is needed.
//! `EXTANT_FULL=1` counts a million and ten million entries of an archive, in many directories and
//! in one, and a million of a directory.

use extant_blockdev::{BlockDevice, DeviceResult};
use extant_mkfs::defaults::FormatOptions;
use extant_mkfs::output::Output;
use extant_mkfs::source::{ScanOptions, TarOptions, Tree, read_tar_stream, scan_directory};
use extant_mkfs::{BuildOptions, Headroom, Silent, Size, build_into};
use extant_testkit::facility::is_full_run;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The number of entries, in the process that builds.
const ENTRIES: &str = "EXTANT_MEMORY_ENTRIES";
/// The directory that it builds from, if it is not to be an archive.
const DIRECTORY: &str = "EXTANT_MEMORY_DIRECTORY";

/// Bytes for each entry that a build may take at most.
const MOST: u64 = 200;
/// Files of one directory.
const FILES: u32 = 1000;
const BLOCK: usize = 512;

#[test]
fn entries_of_an_archive_take_little_memory() {
    let this = "memory::entries_of_an_archive_take_little_memory";
    if let Some(entries) = entries() {
        return report(&read(Archive::new(entries, FILES)), entries);
    }
    compare("archive", numbers(), |entries| peak(this, entries, None));
}

#[test]
fn entries_of_one_directory_take_little_memory() {
    let this = "memory::entries_of_one_directory_take_little_memory";
    if let Some(entries) = entries() {
        return report(&read(Archive::new(entries, u32::MAX)), entries);
    }
    compare("one directory", numbers(), |entries| {
        peak(this, entries, None)
    });
}

/// How many entries of an archive are counted.
fn numbers() -> &'static [u32] {
    if is_full_run() {
        &[1000, 1_000_000, 10_000_000]
    } else {
        &[20_000, 120_000]
    }
}

fn read(stream: Archive) -> Tree {
    let options = TarOptions::default();
    read_tar_stream(stream, Path::new("generated"), &options).unwrap()
}

#[test]
fn entries_of_a_directory_take_little_memory() {
    let this = "memory::entries_of_a_directory_take_little_memory";
    if let Some(entries) = entries() {
        let path = std::env::var_os(DIRECTORY).expect("a directory");
        let tree = scan_directory(Path::new(&path), &ScanOptions::default()).unwrap();
        return report(&tree, entries);
    }
    let dir = tempfile::tempdir().unwrap();
    // Both have more files in a directory than are looked at together. The second one holds the
    // first.
    let (small, large) = (dir.path().join("all/few"), dir.path().join("all"));
    let files = if is_full_run() { 500_000 } else { 25_000 };
    for (path, files) in [(&small, 5_000), (&large, files)] {
        for number in 0..2 {
            let path = path.join(format!("directory-{number}"));
            fs::create_dir_all(&path).unwrap();
            for file in 0..files {
                let content: &[u8] = if file % 2 == 0 { b"" } else { b"something" };
                fs::write(path.join(format!("file-{file:08}.txt")), content).unwrap();
            }
        }
    }
    let peak = |entries| {
        let path = if entries == 10_002 { &small } else { &large };
        peak(this, entries, Some(path))
    };
    compare("directory", &[10_002, 2 * files + 10_005], peak);
}

/// Asks for the peaks of several numbers of entries, and compares what one more entry takes.
fn compare(source: &str, numbers: &[u32], peak: impl Fn(u32) -> u64) {
    let peaks: Vec<u64> = numbers.iter().map(|entries| peak(*entries)).collect();
    for (entries, peaks) in numbers.windows(2).zip(peaks.windows(2)) {
        let grown = peaks[1].saturating_sub(peaks[0]);
        let each = grown / u64::from(entries[1] - entries[0]);
        println!(
            "{source}: {each} bytes an entry, {} MiB with {} entries, {} MiB with {}",
            peaks[0] >> 20,
            entries[0],
            peaks[1] >> 20,
            entries[1]
        );
        assert!(each <= MOST, "{source}: {each} bytes an entry");
        assert!(each >= 20, "{source}: {each} bytes an entry cannot hold it");
    }
}

/// The number of entries to build, in the process that does.
fn entries() -> Option<u32> {
    let text = std::env::var(ENTRIES).ok()?;
    Some(text.parse().expect("a number"))
}

/// Has a process of its own build this many entries, and gives the most memory that it had.
fn peak(test: &str, entries: u32, directory: Option<&Path>) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ENTRIES, entries.to_string());
    if let Some(directory) = directory {
        command.env(DIRECTORY, directory);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let peak = text.lines().find_map(|line| line.split_once("peak: "));
    match peak {
        Some((_, kib)) if output.status.success() => kib.parse::<u64>().unwrap() << 10,
        _ => panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Builds an image of a tree, and says how much memory this process has had at most.
fn report(tree: &Tree, entries: u32) {
    assert_eq!(tree.len(), entries as usize + 1);
    let format = FormatOptions::reproducible(0, 0, b"");
    let options = BuildOptions::new(format, Size::Auto(Headroom::Bytes(0)));
    let output = |size| Ok(Output::on_device(Arc::new(Nowhere(size)), true));
    build_into(Some(tree), output, &options, &Silent).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!("\npeak: {}", line.unwrap().trim().trim_end_matches(" kB"));
}

/// A device that forgets.
#[derive(Debug)]
struct Nowhere(u64);

impl BlockDevice for Nowhere {
    fn size(&self) -> u64 {
        self.0
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> DeviceResult<()> {
        panic!("nothing is read while an image is built")
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "nowhere".to_owned()
    }
}

/// An archive of directories with so many files, of which every other one is empty, each changed
/// at a time of its own.
struct Archive {
    entries: u32,
    files: u32,
    next: u32,
    piece: Vec<u8>,
    taken: usize,
}

impl Archive {
    fn new(entries: u32, files: u32) -> Self {
        Self {
            entries,
            files,
            next: 0,
            piece: Vec::new(),
            taken: 0,
        }
    }

    /// Makes the next member, or the end.
    fn make(&mut self) {
        self.piece.clear();
        self.taken = 0;
        let number = self.next;
        self.next += 1;
        if number == self.entries {
            self.piece.resize(2 * BLOCK, 0);
        } else if number < self.entries {
            let members = self.files.saturating_add(1);
            let dir = number / members;
            match number % members {
                0 => self.header(&format!("directory-{dir:05}/"), b'5', 0),
                file => {
                    let size = if file % 2 == 0 {
                        0
                    } else {
                        100 + file as usize % 300
                    };
                    let name = format!("directory-{dir:05}/file-{number:08}.txt");
                    self.header(&name, b'0', size);
                    if size > 0 {
                        self.piece.resize(2 * BLOCK, b'x');
                        self.piece[BLOCK + size..].fill(0);
                    }
                }
            }
        }
    }

    fn header(&mut self, name: &str, kind: u8, size: usize) {
        let mut header = [0; BLOCK];
        let time = 1_500_000_000 + u64::from(self.next);
        let fields = [
            (0, name.to_owned()),
            (100, "0000644\0".to_owned()),
            (108, "0001750\0".to_owned()),
            (116, "0001750\0".to_owned()),
            (124, format!("{size:011o}\0")),
            (136, format!("{time:011o}\0")),
            (148, " ".repeat(8)),
            (156, char::from(kind).to_string()),
            (257, "ustar\x0000".to_owned()),
        ];
        for (at, text) in fields {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.piece.extend(header);
    }
}

impl Read for Archive {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            self.make();
        }
        let len = buf.len().min(self.piece.len() - self.taken);
        buf[..len].copy_from_slice(&self.piece[self.taken..][..len]);
        self.taken += len;
        Ok(len)
    }
}
