//! Digests of files, by several threads: what was handed over first is told first.

use crate::args::Algorithm;
use crate::image_path::ImagePath;
use crate::record::hex;
use md5::Digest as _;
use sha2::Digest as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, available_parallelism};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Files that wait for each thread, or that it is done with and nobody has been told of.
const WAITING: usize = 32;
/// More threads than this wait for the same device.
const MOST_THREADS: usize = 64;

/// A file to be read.
pub(super) struct Job<'a> {
    /// Its name in the output.
    pub(super) shown: Vec<u8>,
    pub(super) from: &'a ImagePath,
    pub(super) algorithm: Algorithm,
    /// The digest that a list has, in hexadecimal.
    pub(super) expected: Option<String>,
    pub(super) file: extant::File,
}

/// What came of a file: its digest in hexadecimal.
pub(super) struct Done<'a> {
    pub(super) job: Job<'a>,
    pub(super) outcome: extant::Result<String>,
}

/// Threads that read files, each in its turn.
pub(super) struct Readers<'a> {
    threads: Vec<(SyncSender<Job<'a>>, Receiver<Done<'a>>)>,
    /// Files handed over, and files told of.
    added: usize,
    told: usize,
}

impl<'a> Readers<'a> {
    pub(super) fn start<'scope>(scope: &'scope Scope<'scope, '_>) -> Self
    where
        'a: 'scope,
    {
        let threads = available_parallelism().map_or(1, usize::from);
        let start = |_| {
            let (to, jobs) = sync_channel::<Job<'a>>(WAITING);
            let (results, from) = sync_channel::<Done<'a>>(WAITING);
            scope.spawn(move || {
                let mut buffer = vec![0; CHUNK];
                for job in jobs {
                    let outcome = digest(&job, &mut buffer);
                    if results.send(Done { job, outcome }).is_err() {
                        return;
                    }
                }
            });
            (to, from)
        };
        Self {
            threads: (0..threads.min(MOST_THREADS)).map(start).collect(),
            added: 0,
            told: 0,
        }
    }

    /// Whether the oldest file is to be told of before another one is added.
    pub(super) fn are_full(&self) -> bool {
        self.added - self.told >= WAITING * self.threads.len()
    }

    /// Hands a file over to the thread whose turn it is.
    pub(super) fn add(&mut self, job: Job<'a>) {
        let turn = self.added % self.threads.len().max(1);
        if let Some((to, _)) = self.threads.get(turn) {
            // A thread ends after this end of the channel, so it is there.
            let sent = to.send(job);
            assert!(sent.is_ok(), "a thread that reads files has ended");
            self.added += 1;
        }
    }

    /// Waits for the file that was handed over first, if there is one.
    pub(super) fn oldest(&mut self) -> Option<Done<'a>> {
        if self.told == self.added {
            return None;
        }
        let turn = self.told % self.threads.len().max(1);
        self.told += 1;
        self.threads.get(turn)?.1.recv().ok()
    }
}

fn digest(job: &Job<'_>, buffer: &mut [u8]) -> extant::Result<String> {
    let mut sum = Sum::new(job.algorithm);
    let mut at = 0;
    loop {
        let read = job.file.read_at(buffer, at)?;
        if read == 0 {
            return Ok(sum.finish());
        }
        sum.add(buffer.get(..read).unwrap_or_default());
        at += read as u64;
    }
}

/// A digest as it grows.
enum Sum {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Sha1(sha1_smol::Sha1),
    Md5(md5::Md5),
    Crc32c(u32),
}

impl Sum {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(sha2::Sha256::default()),
            Algorithm::Sha512 => Self::Sha512(sha2::Sha512::default()),
            Algorithm::Sha1 => Self::Sha1(sha1_smol::Sha1::new()),
            Algorithm::Md5 => Self::Md5(md5::Md5::default()),
            Algorithm::Crc32c => Self::Crc32c(0),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(sum) => sum.update(bytes),
            Self::Sha512(sum) => sum.update(bytes),
            Self::Sha1(sum) => sum.update(bytes),
            Self::Md5(sum) => sum.update(bytes),
            Self::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Sha256(sum) => hex(&sum.finalize()),
            Self::Sha512(sum) => hex(&sum.finalize()),
            Self::Sha1(sum) => sum.digest().to_string(),
            Self::Md5(sum) => hex(&sum.finalize()),
            Self::Crc32c(sum) => format!("{sum:08x}"),
        }
    }
}

/// What an algorithm is called.
pub(super) fn name_of(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Sha256 => "sha256",
        Algorithm::Sha512 => "sha512",
        Algorithm::Sha1 => "sha1",
        Algorithm::Md5 => "md5",
        Algorithm::Crc32c => "crc32c",
    }
}

/// Digits of its digests.
pub(super) fn length_of(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Sha256 => 64,
        Algorithm::Sha512 => 128,
        Algorithm::Sha1 => 40,
        Algorithm::Md5 => 32,
        Algorithm::Crc32c => 8,
    }
}
