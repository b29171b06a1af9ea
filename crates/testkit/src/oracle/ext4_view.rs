//! The `ext4-view` crate: a reader with none of our code and none of the kernel's.

use std::path::Path;

use ext4_view::{Ext4, Ext4Error, Metadata};

use crate::tree::{ContentHasher, Entry, Kind, Time, Tree};

/// Returns the whole tree of `image` as ext4-view sees it.
///
/// It reports neither xattrs, link identity nor device numbers: compare with
/// [`Compare::ext4_view`](crate::tree::Compare::ext4_view).
///
/// # Errors
///
/// What ext4-view returned: it refuses some features (a test names which it tolerates), and takes
/// times before 1970 and after 2038 for corruption. Of preallocated blocks it shows the stale bytes
/// where the kernel shows zeros.
pub fn view_tree(image: &Path) -> Result<Tree, Ext4Error> {
    let fs = Ext4::load_from_path(image)?;
    let mut tree = Tree::new();
    tree.insert(b"", entry(&fs.metadata("/")?, Kind::Directory));
    let mut pending: Vec<Vec<u8>> = vec![b"/".to_vec()];
    while let Some(dir) = pending.pop() {
        for item in fs.read_dir(dir.as_slice())? {
            let item = item?;
            let name = item.file_name();
            if name == "." || name == ".." {
                continue;
            }
            let mut path = dir.clone();
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_ref());
            let meta = item.metadata()?;
            let kind = kind(&fs, &path, &meta)?;
            if kind == Kind::Directory {
                pending.push(path.clone());
            }
            tree.insert(&path[1..], entry(&meta, kind));
        }
    }
    Ok(tree)
}

fn kind(fs: &Ext4, path: &[u8], meta: &Metadata) -> Result<Kind, Ext4Error> {
    let t = meta.file_type();
    Ok(if t.is_dir() {
        Kind::Directory
    } else if t.is_symlink() {
        Kind::Symlink(fs.read_link(path)?.as_ref().to_vec())
    } else if t.is_regular_file() {
        let mut file = fs.open(path)?;
        let mut hasher = ContentHasher::new();
        let mut buffer = vec![0u8; 64 << 10];
        loop {
            let n = file.read_bytes(&mut buffer)?;
            if n == 0 {
                break;
            }
            hasher.write(&buffer[..n]);
        }
        Kind::File {
            size: meta.len(),
            digest: hasher.finish(),
            data: None,
        }
    } else if t.is_fifo() {
        Kind::Fifo
    } else if t.is_socket() {
        Kind::Socket
    } else if t.is_char_dev() {
        Kind::CharDevice(0, 0)
    } else {
        Kind::BlockDevice(0, 0)
    })
}

fn entry(meta: &Metadata, kind: Kind) -> Entry {
    let modified = meta.modified();
    let mut entry = Entry::new(kind);
    entry.mode = meta.mode() & 0o7777;
    entry.uid = meta.uid();
    entry.gid = meta.gid();
    entry.mtime = Time::new(modified.seconds(), modified.nanoseconds());
    entry
}
