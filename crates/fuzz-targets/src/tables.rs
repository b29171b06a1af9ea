//! Tables of owners, and labels.

use extant_mkfs::source::{Content, FileType, Meta, NodeId, Times, Timestamp, TreeBuilder};
use extant_mkfs::tables::{self, Contexts, Dialect, Table};
use std::path::Path;

/// A table of owners in any dialect, applied to a small tree.
pub fn owners_table(input: &[u8]) -> bool {
    let dialects = [
        None,
        Some(Dialect::Own),
        Some(Dialect::Devices),
        Some(Dialect::Genext2fs),
        Some(Dialect::Makedevs),
        Some(Dialect::FsConfig),
        Some(Dialect::Mtree),
    ];
    let Some((&first, text)) = input.split_first() else {
        return false;
    };
    let dialect = dialects[usize::from(first) % dialects.len()];
    let Ok(table) = Table::parse(Path::new("table"), text, dialect) else {
        return false;
    };
    let now = Timestamp::from_secs(0);
    let meta = || Meta::plain(0o755, Times::all(now));
    let built = TreeBuilder::new(meta()).and_then(|mut builder| {
        let dev = builder.add(meta(), Content::Directory)?;
        builder.link(NodeId::ROOT, b"dev", dev)?;
        let file = builder.add(meta(), Content::Inline(b"root:x:0:0"))?;
        builder.link(dev, b"file", file)?;
        builder.finish()
    });
    let tree = built.expect("names and kinds are sound");
    if let Ok((tree, _)) = tables::apply(tree, &[table], now) {
        let root = tree.node(NodeId::ROOT);
        assert!(root.is_dir() && tree.lookup("dev/file").is_some());
    }
    true
}

/// A `file_contexts`, asked for a few paths.
pub fn file_contexts(input: &[u8]) -> bool {
    let Ok(mut contexts) = Contexts::parse(Path::new("contexts"), input) else {
        return false;
    };
    for path in [b"/".as_slice(), b"/usr/bin/a", b"/etc/\xff\n", &[b'/'; 300]] {
        for kind in [FileType::Regular, FileType::Directory] {
            if let Ok(Some(context)) = contexts.lookup(path, kind) {
                assert!(!context.contains(&0) && context != b"<<none>>");
            }
        }
    }
    true
}
