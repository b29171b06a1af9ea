//! What all threads do in the same places.

use super::crew::Post;
use super::owner::same;
use super::{NO_SPACE, errno};
use extant::{Error, Filesystem, OpenOptions, Result};
use extant_testkit::rng::Rng;
use std::collections::BTreeMap;

/// Logs that everybody appends to.
const LOGS: u64 = 3;
/// Where a log ends.
const LOG_FULL: u64 = 3 << 20;
/// Names that stay, and names that come and go.
const STEADY: usize = 150;
const FLUX: u64 = 100;

/// What the shared places are made of.
pub(crate) fn furnish(fs: &Filesystem) {
    fs.create_dir("chaos").unwrap();
    fs.create_dir("steady").unwrap();
    for i in 0..STEADY {
        fs.write(format!("steady/keep-{i}"), i.to_string()).unwrap();
    }
    for log in 0..LOGS {
        fs.create(format!("log-{log}")).unwrap();
    }
}

/// One thread among the others.
pub(crate) struct Member {
    number: usize,
    fs: Filesystem,
    rng: Rng,
    /// Records appended to each log.
    pub(crate) appended: [u32; LOGS as usize],
    tight: bool,
}

impl Member {
    pub(crate) fn new(number: usize, fs: Filesystem, rng: Rng, tight: bool) -> Self {
        Self {
            number,
            fs,
            rng,
            appended: [0; LOGS as usize],
            tight,
        }
    }

    /// Does one thing.
    pub(crate) fn step(&mut self, post: &Post) {
        let done = match self.rng.below(8) {
            0 => self.append_record(post),
            1 => self.flux(post),
            2 => self.list(post),
            _ => self.chaos(post),
        };
        match done {
            Err(e) if self.tight && errno(&e) == NO_SPACE => {}
            done => done.unwrap_or_else(|e| panic!("thread {}: {e}", self.number)),
        }
    }

    fn append_record(&mut self, post: &Post) -> Result<()> {
        let log = self.rng.below(LOGS) as usize;
        let path = format!("log-{log}");
        // A record that was cut short by the end of space would not be whole.
        if self.tight || self.fs.metadata(&path)?.len() > LOG_FULL {
            return Ok(());
        }
        post.doing(format!("append a record to {path}"));
        let record = record(self.number as u32, self.appended[log]);
        let file = OpenOptions::new().append(true).open(&self.fs, &path)?;
        let (_, len) = file.append(&record)?;
        assert_eq!(len, record.len());
        self.appended[log] += 1;
        if self.rng.one_in(20) {
            post.doing(format!("fdatasync {path}"));
            file.sync_data()?;
        }
        if self.rng.one_in(50) {
            post.doing(format!("read {path}"));
            records(&self.fs.read(&path)?);
        }
        Ok(())
    }

    /// Makes or removes a file that says its name, or reads it.
    fn flux(&mut self, post: &Post) -> Result<()> {
        let name = format!("steady/flux-{}", self.rng.below(FLUX));
        post.doing(format!("make, read or remove {name}"));
        let done = match self.rng.below(4) {
            0 => self.fs.remove_file(&name),
            1 | 2 => {
                let mut options = OpenOptions::new();
                let new = options.write(true).create_new(true).open(&self.fs, &name);
                new.and_then(|file| file.write_all_at(name.as_bytes(), 0))
            }
            _ => self.fs.read(&name).map(|content| {
                // Never a file that has another name.
                if !content.is_empty() {
                    same(&content, name.as_bytes(), &name);
                }
            }),
        };
        tolerate(done, &[2, 17])
    }

    /// Everything that was there throughout is listed exactly once.
    fn list(&mut self, post: &Post) -> Result<()> {
        post.doing("list steady");
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for entry in self.fs.read_dir("steady")? {
            let name = entry?.file_name().to_str().unwrap().to_owned();
            *seen.entry(name).or_default() += 1;
            if self.rng.one_in(20) {
                self.flux(post)?;
            }
        }
        for i in 0..STEADY {
            let count = seen.get(&format!("keep-{i}"));
            assert_eq!(count, Some(&1), "keep-{i} in {seen:?}");
        }
        Ok(())
    }

    /// A path of few that there are; files, directories and links take turns there.
    fn chaos_path(&mut self) -> String {
        let mut path = "chaos".to_owned();
        for _ in 0..self.rng.between(1, 4) {
            path.push('/');
            path.push_str(["a", "b", "c", "d", "e"][self.rng.below(5) as usize]);
        }
        path
    }

    fn chaos(&mut self, post: &Post) -> Result<()> {
        let (path, other) = (self.chaos_path(), self.chaos_path());
        let fs = self.fs.clone();
        let kind = self.rng.below(16);
        post.doing(format!("chaos {kind}: {path}, {other}"));
        let done = match kind {
            0 | 1 => {
                let mut options = OpenOptions::new();
                let file = options.append(true).create(true).open(&fs, &path);
                file.and_then(|file| file.append(&[7; 5000]).map(drop))
            }
            2..=4 => fs.create_dir(&path),
            5 => fs.remove_file(&path),
            6 => fs.remove_dir(&path),
            7..=10 => fs.rename(&path, &other),
            11 => fs.hard_link(&path, &other),
            12 => fs.symlink("nowhere", &path),
            13 => fs.set_len(&path, self.rng.below(20_000)),
            14 => fs.read(&path).map(drop),
            _ => fs.read_dir(&path).and_then(|entries| {
                for entry in entries {
                    entry?.metadata()?;
                }
                Ok(())
            }),
        };
        // Not found, exists, not a directory, a directory, into itself, not empty, not a file, a
        // directory cannot be linked.
        tolerate(done, &[2, 17, 20, 21, 22, 39, 1])
    }
}

fn tolerate(done: Result<()>, expected: &[i32]) -> Result<()> {
    match done {
        Err(e) if expected.contains(&errno(&e)) => Ok(()),
        done => done,
    }
}

/// A record that can be told from all others.
fn record(thread: u32, number: u32) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(thread) << 32 | u64::from(number));
    let len = match rng.below(10) {
        0 => rng.between(3000, 12_000),
        _ => rng.between(12, 800),
    };
    let mut bytes = vec![0; len as usize];
    rng.fill(&mut bytes);
    bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
    bytes[4..8].copy_from_slice(&thread.to_le_bytes());
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// How many records of each thread a log has. All are whole, each is there once and in order.
fn records(mut log: &[u8]) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    while !log.is_empty() {
        assert!(log.len() >= 12, "the end of a record is missing");
        let word = |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().unwrap());
        let (len, thread, number) = (word(0) as usize, word(4), word(8));
        assert!(
            len <= log.len(),
            "{len} bytes of thread {thread}'s {number}"
        );
        let expected = counts.entry(thread).or_insert(0);
        assert_eq!(number, *expected, "the next record of thread {thread}");
        same(&log[..len], &record(thread, number), "a record");
        *expected += 1;
        log = &log[len..];
    }
    counts
}

/// Requires that each log has all records of all.
pub(crate) fn check_logs(
    appended: &[[u32; LOGS as usize]],
    read: impl Fn(&str) -> std::result::Result<Vec<u8>, String>,
) {
    for log in 0..LOGS as usize {
        let content = read(&format!("log-{log}")).unwrap();
        let found = records(&content);
        for (thread, counts) in appended.iter().enumerate() {
            let count = found.get(&(thread as u32)).copied().unwrap_or(0);
            assert_eq!(
                count, counts[log],
                "records of thread {thread} in log-{log}"
            );
        }
    }
}

/// The error as text.
pub(crate) fn text(e: Error) -> String {
    e.to_string()
}
