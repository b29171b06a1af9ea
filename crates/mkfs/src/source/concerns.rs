//! What is not kept as the source has it, or is kept and will surprise: told beside a result, never
//! in silence.

use super::model::{NodeId, Tree};

/// Bytes of the longest path that Linux takes, its end not counted.
const PATH_MAX: usize = 4095;
/// Seconds since 1970 that inodes with extra fields hold; smaller ones hold the first of it, up to
/// `i32::MAX`.
const TIME_MIN: i64 = i32::MIN as i64;
const TIME_MAX: i64 = i32::MAX as i64 + (3 << 32);

impl Tree {
    /// Sentences about what the image will not have as the source has it, in inodes of this many
    /// bytes, and about what programs will not be able to use. Each names one example and says how
    /// many there are.
    #[must_use]
    pub fn concerns(&self, inode_size: u32) -> Vec<String> {
        let mut all = self.warnings.clone();
        let latest = if inode_size > 128 {
            TIME_MAX
        } else {
            i32::MAX.into()
        };
        let clamped = self.ids().filter(|id| {
            self.node(*id)
                .times
                .seconds()
                .iter()
                .any(|secs| !(TIME_MIN..=latest).contains(secs))
        });
        all.extend(self.told(clamped, |what, years| {
            format!(
                "{what} a time that ext4 does not keep in inodes of {inode_size} bytes ({years}): the nearest one is stored"
            )
        }, if inode_size > 128 { "1901 to 2446" } else { "1901 to 2038" }));
        let mut lengths = vec![0_u32; self.len()];
        let mut deep = Vec::new();
        // A directory comes before what is in it.
        for dir in self.ids().filter(|id| self.node(*id).is_dir()) {
            for entry in self.entries(dir) {
                let len = lengths[dir.index()].saturating_add(1 + self.name(entry).len() as u32);
                lengths[entry.node.index()] = len;
                if len as usize > PATH_MAX {
                    deep.push(entry.node);
                }
            }
        }
        all.extend(self.told(deep.into_iter(), |what, most| {
            format!("{what} a path of more than {most} bytes: find, tar and rm cannot use it by its full name")
        }, "4095"));
        all
    }

    fn told(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        sentence: impl Fn(&str, &str) -> String,
        limit: &str,
    ) -> Option<String> {
        let mut nodes = nodes.peekable();
        let example = *nodes.peek()?;
        let mut path = self.path(example).display().to_string();
        if path.is_empty() {
            path.push('/');
        }
        if path.len() > 100 {
            let end = (0..=100)
                .rev()
                .find(|at| path.is_char_boundary(*at))
                .unwrap_or(0);
            path.truncate(end);
            path.push_str("...");
        }
        let what = match nodes.count() {
            1 => format!("{path} has"),
            count => format!("{count} files have (one is {path})"),
        };
        Some(sentence(&what, limit))
    }
}
