//! The tree that images are built from: the shape of an operating-system image.
//!
//! One entry in ten is a directory, one in fifteen a symbolic link, the rest are files whose sizes
//! spread over four orders of magnitude around their mean. As in `/usr` of a Debian machine, one
//! file in five lies in one of a few directories with more than a thousand entries, one in six in a
//! directory with more than a hundred, the others anywhere. Deterministic: the same parameters give
//! the same bytes.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A file of the tree, for sampling.
pub(crate) struct Sample {
    /// Path below the root of the tree.
    pub(crate) path: PathBuf,
}

/// What was generated.
pub(crate) struct SourceTree {
    /// The root folder.
    pub(crate) root: PathBuf,
    /// Entries below the root.
    pub(crate) entries: u64,
    /// Bytes of file content.
    pub(crate) bytes: u64,
    /// Files whose content is compared after each run.
    pub(crate) samples: Vec<Sample>,
}

/// A small fast generator (splitmix64); not for secrets.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// Relative sizes: most files small, a few large.
fn weight(random: &mut Random) -> u64 {
    match random.below(100) {
        0..=49 => 1 + random.below(4),
        50..=79 => 4 + random.below(12),
        80..=94 => 16 + random.below(48),
        95..=98 => 64 + random.below(512),
        _ => 512 + random.below(4096),
    }
}

/// The directory of a file: see the module for the shares.
fn home(random: &mut Random, dirs: u64) -> usize {
    let among = match random.below(30) {
        0..=5 => (dirs / 1000).max(1),
        6..=10 => (dirs / 100).max(1),
        _ => dirs,
    };
    random.below(among) as usize
}

/// Generates a tree of `entries` entries and `bytes` bytes of content at `root`.
pub(crate) fn generate(root: &Path, entries: u64, bytes: u64) -> io::Result<SourceTree> {
    fs::create_dir(root)?;
    let mut random = Random(0x0e47_0a47);
    let dir_count = (entries / 10).max(1);
    let link_count = entries / 15;
    let file_count = entries - dir_count - link_count;

    let mut dirs = vec![PathBuf::new()];
    for i in 0..dir_count {
        // Prefer recent parents: gives depth without one endless chain.
        let back = random.below(dirs.len().min(40) as u64) as usize;
        let parent = if i % 4 == 0 {
            random.below(dirs.len() as u64) as usize
        } else {
            dirs.len() - 1 - back
        };
        let mut path = dirs[parent].clone();
        if path.components().count() > 12 {
            path = PathBuf::new();
        }
        path.push(format!("directory-{i:05}"));
        fs::create_dir(root.join(&path))?;
        dirs.push(path);
    }

    let weights: Vec<u64> = (0..file_count).map(|_| weight(&mut random)).collect();
    let total: u64 = weights.iter().sum::<u64>().max(1);
    let mut pattern = vec![0u8; 1 << 20];
    for chunk in pattern.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes());
    }
    let mut samples = Vec::new();
    let mut written = 0;
    let step = (file_count / 200).max(1);
    let mut files = Vec::with_capacity(file_count as usize);
    for (i, weight) in weights.iter().enumerate() {
        let size =
            (u128::from(*weight) * u128::from(bytes) / u128::from(total)) as u64 + random.below(7);
        let path = dirs[home(&mut random, dirs.len() as u64)].join(format!("file-{i:06}.dat"));
        let mut file = fs::File::create(root.join(&path))?;
        let mut left = size;
        let mut shift = random.below(1 << 19) as usize & !7;
        while left > 0 {
            let n = (pattern.len() - shift).min(left as usize);
            file.write_all(&pattern[shift..shift + n])?;
            left -= n as u64;
            shift = 0;
        }
        written += size;
        if (i as u64).is_multiple_of(step) {
            samples.push(Sample { path: path.clone() });
        }
        files.push(path);
    }
    for i in 0..link_count {
        let dir = &dirs[random.below(dirs.len() as u64) as usize];
        let target = &files[random.below(files.len() as u64) as usize];
        let target = Path::new("/").join(target);
        symlink(target, root.join(dir).join(format!("link-{i:05}")))?;
    }
    Ok(SourceTree {
        root: root.to_owned(),
        entries,
        bytes: written,
        samples,
    })
}
