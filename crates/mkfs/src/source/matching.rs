//! Which files of a tree patterns mean.

use super::exclude::Excludes;
use super::model::{FileType, NodeId, Tree};

impl Tree {
    /// Returns the regular files that patterns match, or that lie in directories that they match,
    /// by any of their names. The patterns are those of [`Excludes`].
    #[must_use]
    pub fn matching(&self, patterns: &Excludes) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut waiting: Vec<(NodeId, Vec<&[u8]>, bool)> = vec![(NodeId::ROOT, Vec::new(), false)];
        while let Some((dir, mut path, all)) = waiting.pop() {
            for (name, id) in self.children(dir) {
                let node = self.node(id);
                path.push(name);
                let is_meant = all || patterns.excludes(&path, node.is_dir());
                if node.is_dir() {
                    waiting.push((id, path.clone(), is_meant));
                } else if is_meant && node.kind() == FileType::Regular {
                    found.push(id);
                }
                path.pop();
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::{Content, Meta, TreeBuilder};
    use super::super::model::Times;
    use super::*;

    #[test]
    fn files_are_meant_by_any_name_and_by_directories_above() {
        let meta = |mode| Meta::plain(mode, Times::default());
        let mut builder = TreeBuilder::new(meta(0o755)).unwrap();
        let dir = builder.add(meta(0o755), Content::Directory).unwrap();
        builder.link(NodeId::ROOT, b"bin", dir).unwrap();
        let link = builder.add(meta(0o777), Content::Symlink(b"x")).unwrap();
        builder.link(dir, b"link", link).unwrap();
        for name in [b"a.so", b"b.so"] {
            let file = builder.add(meta(0o644), Content::Inline(b"x")).unwrap();
            builder.link(dir, name, file).unwrap();
        }
        let other = builder.add(meta(0o644), Content::Inline(b"y")).unwrap();
        builder.link(NodeId::ROOT, b"other", other).unwrap();
        builder.link(NodeId::ROOT, b"other.so", other).unwrap();
        let tree = builder.finish().unwrap();
        let count = |pattern: &str| {
            let patterns = Excludes::new([pattern]).unwrap();
            tree.matching(&patterns).len()
        };
        assert_eq!(count("/bin"), 2);
        assert_eq!(count("*.so"), 3);
        assert_eq!(count("/bin/a.so"), 1);
        assert_eq!(count("link"), 0);
        assert_eq!(count("other*"), 1);
    }
}
