//! A thread that works on files of its own, between those of others, and knows what must be in
//! them.

use super::crew::Post;
use super::{NO_SPACE, errno};
use extant::{File, Filesystem, OpenOptions, Result};
use extant_testkit::rng::Rng;
use std::collections::BTreeMap;

/// Largest file, in bytes.
const LARGEST: u64 = 200 << 10;

/// A directory: of everybody, or this thread's own inside another one.
struct OwnDir {
    parent: Option<u64>,
    name: String,
}

struct OwnFile {
    /// Directories and names in them.
    names: Vec<(u64, String)>,
    content: Vec<u8>,
    mode: u16,
}

/// What one thread has made, and does to it.
pub(crate) struct Owner {
    number: usize,
    fs: Filesystem,
    rng: Rng,
    dirs: BTreeMap<u64, OwnDir>,
    files: Vec<OwnFile>,
    /// Files without names, and what is in them.
    open: Vec<(File, Vec<u8>)>,
    symlinks: Vec<(u64, String, String)>,
    next: u64,
    /// Bytes that all its files together may have.
    quota: u64,
    /// Whether space may run out.
    tight: bool,
}

impl Owner {
    /// An owner that may use the directories `places`.
    pub(crate) fn new(
        number: usize,
        fs: Filesystem,
        rng: Rng,
        places: &[String],
        quota: u64,
        tight: bool,
    ) -> Self {
        let place = |(id, name): (usize, &String)| {
            let dir = OwnDir {
                parent: None,
                name: name.clone(),
            };
            (id as u64, dir)
        };
        Self {
            number,
            fs,
            rng,
            dirs: places.iter().enumerate().map(place).collect(),
            files: Vec::new(),
            open: Vec::new(),
            symlinks: Vec::new(),
            next: 1000,
            quota,
            tight,
        }
    }

    /// Does one thing.
    pub(crate) fn step(&mut self, post: &Post) {
        let total: usize = self.files.iter().map(|file| file.content.len()).sum();
        let full = total as u64 > self.quota || self.files.len() > 200;
        let done = match self.rng.below(if full { 4 } else { 24 }) {
            _ if self.files.is_empty() => self.create(post),
            0 => self.unlink(post),
            1 => self.truncate(post),
            2 => self.replace(post),
            3 => self.use_open(post),
            4..=7 => self.create(post),
            8..=10 => self.write(post),
            11 | 12 => self.append(post),
            13 | 14 => self.rename(post),
            15 => self.link(post),
            16 => self.mkdir(post),
            17 => self.rmdir(post),
            18 => self.move_dir(post),
            19 => self.symlink(post),
            20 => self.chmod(post),
            21 => self.sync(post),
            _ => self.look(post),
        };
        match done {
            Err(e) if self.tight && errno(&e) == NO_SPACE => self.thin_out(post),
            done => done.unwrap_or_else(|e| panic!("thread {}: {e}", self.number)),
        }
    }

    /// Removes half of the files.
    fn thin_out(&mut self, post: &Post) {
        for _ in 0..self.files.len().div_ceil(2) {
            self.unlink(post).unwrap();
        }
        if self.rng.one_in(2) {
            self.open.clear();
        }
    }

    fn dir_path(&self, id: u64) -> String {
        let dir = &self.dirs[&id];
        match dir.parent {
            Some(parent) => format!("{}/{}", self.dir_path(parent), dir.name),
            None => dir.name.clone(),
        }
    }

    fn path(&self, (dir, name): &(u64, String)) -> String {
        format!("{}/{name}", self.dir_path(*dir))
    }

    fn any_dir(&mut self) -> u64 {
        let ids: Vec<u64> = self.dirs.keys().copied().collect();
        *self.rng.pick(&ids)
    }

    /// A name that nobody has, in one of the directories.
    fn fresh(&mut self) -> (u64, String) {
        self.next += 1;
        let long = match self.rng.below(8) {
            0 => "-with-a-name-that-is-longer-than-most".repeat(4),
            _ => String::new(),
        };
        (
            self.any_dir(),
            format!("t{}-{}{long}", self.number, self.next),
        )
    }

    fn any_file(&mut self) -> usize {
        self.rng.below(self.files.len() as u64) as usize
    }

    /// One of the names of a file.
    fn any_path(&mut self, file: usize) -> String {
        let names = &self.files[file].names;
        let name = self.rng.pick(names).clone();
        self.path(&name)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.rng.below(10) {
            0..=4 => self.rng.between(1, 300),
            5..=7 => self.rng.between(1, 9000),
            8 => self.rng.between(1, 40_000),
            _ => self.rng.between(1, 100_000),
        };
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    fn create(&mut self, post: &Post) -> Result<()> {
        let name = self.fresh();
        let path = self.path(&name);
        post.doing(format!("create {path}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&self.fs, &path)?;
        let (names, content) = (vec![name], Vec::new());
        let mode = 0o644;
        self.files.push(OwnFile {
            names,
            content,
            mode,
        });
        let bytes = self.bytes();
        let offset = match self.rng.below(5) {
            0 => self.rng.below(50_000),
            _ => 0,
        };
        post.doing(format!("write to new {path}"));
        let content = &mut self.files.last_mut().unwrap().content;
        put(&file, content, offset, &bytes, self.tight)
    }

    fn write(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let path = self.any_path(which);
        let bytes = self.bytes();
        let size = self.files[which].content.len() as u64;
        let beyond = if self.rng.one_in(4) { 20_000 } else { 0 };
        let offset = self.rng.below((size + 1 + beyond).min(LARGEST));
        post.doing(format!("write {} bytes at {offset} of {path}", bytes.len()));
        let file = OpenOptions::new().write(true).open(&self.fs, &path)?;
        put(
            &file,
            &mut self.files[which].content,
            offset,
            &bytes,
            self.tight,
        )?;
        if self.rng.one_in(30) {
            post.doing(format!("fsync {path}"));
            file.sync_all()?;
        }
        Ok(())
    }

    fn append(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let path = self.any_path(which);
        let bytes = self.bytes();
        if self.files[which].content.len() as u64 > LARGEST {
            return Ok(());
        }
        post.doing(format!("append {} bytes to {path}", bytes.len()));
        let file = OpenOptions::new().append(true).open(&self.fs, &path)?;
        let (at, len) = file.append(&bytes)?;
        let content = &mut self.files[which].content;
        assert_eq!(at, content.len() as u64, "{path}");
        assert!(len == bytes.len() || self.tight, "{path}: {len} appended");
        content.extend_from_slice(&bytes[..len]);
        Ok(())
    }

    fn truncate(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let path = self.any_path(which);
        let size = self.files[which].content.len() as u64;
        let to = match self.rng.below(4) {
            0 => 0,
            1 => (size + self.rng.below(30_000)).min(LARGEST),
            _ => self.rng.below(size + 1),
        };
        post.doing(format!("truncate {path} from {size} to {to}"));
        self.fs.set_len(&path, to)?;
        self.files[which].content.resize(to as usize, 0);
        Ok(())
    }

    fn rename(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let name = self.rng.below(self.files[which].names.len() as u64) as usize;
        let new = self.fresh();
        let (from, to) = (self.path(&self.files[which].names[name]), self.path(&new));
        post.doing(format!("rename {from} to {to}"));
        self.fs.rename(&from, &to)?;
        self.files[which].names[name] = new;
        Ok(())
    }

    /// Renames over another file.
    fn replace(&mut self, post: &Post) -> Result<()> {
        let (which, victim) = (self.any_file(), self.any_file());
        if which == victim {
            return Ok(());
        }
        let from = self.files[which].names.last().unwrap().clone();
        let to = self.files[victim].names.last().unwrap().clone();
        let (old, new) = (self.path(&from), self.path(&to));
        post.doing(format!("rename {old} over {new}"));
        let held = match self.rng.below(6) {
            0 => Some(self.open_both(&new)?),
            _ => None,
        };
        self.fs.rename(&old, &new)?;
        *self.files[which].names.last_mut().unwrap() = to;
        self.files[victim].names.pop();
        self.forget_if_nameless(victim, held);
        Ok(())
    }

    fn open_both(&self, path: &str) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).open(&self.fs, path)
    }

    fn forget_if_nameless(&mut self, which: usize, held: Option<File>) {
        if self.files[which].names.is_empty() {
            let file = self.files.swap_remove(which);
            self.open.extend(held.map(|held| (held, file.content)));
        }
    }

    fn link(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let from = self.any_path(which);
        let new = self.fresh();
        let to = self.path(&new);
        post.doing(format!("link {from} as {to}"));
        self.fs.hard_link(&from, &to)?;
        self.files[which].names.push(new);
        Ok(())
    }

    fn unlink(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let count = self.files[which].names.len() as u64;
        let name = self.rng.below(count) as usize;
        let path = self.path(&self.files[which].names[name]);
        let held = match self.rng.below(6) {
            0 => Some(self.open_both(&path)?),
            _ => None,
        };
        post.doing(format!("unlink {path}"));
        self.fs.remove_file(&path)?;
        self.files[which].names.swap_remove(name);
        self.forget_if_nameless(which, held);
        Ok(())
    }

    /// Goes on with a file without names, or lets it go.
    fn use_open(&mut self, post: &Post) -> Result<()> {
        let Some((file, mut content)) = self.open.pop() else {
            return Ok(());
        };
        post.doing("use a file without names");
        assert_eq!(file.metadata().nlink(), 0);
        same(&read_all(&file)?, &content, "a file without names");
        match self.rng.below(4) {
            0 => {
                let bytes = self.bytes();
                let offset = self.rng.below(content.len() as u64 + 1);
                put(&file, &mut content, offset, &bytes, self.tight)?;
            }
            1 => {
                let size = self.rng.below(content.len() as u64 + 5000);
                file.set_len(size)?;
                content.resize(size as usize, 0);
            }
            2 => file.sync_all()?,
            _ => {}
        }
        if self.rng.one_in(2) || self.open.len() > 5 {
            drop(file)
        } else {
            self.open.insert(0, (file, content))
        }
        Ok(())
    }

    fn mkdir(&mut self, post: &Post) -> Result<()> {
        let (parent, name) = self.fresh();
        if self.dirs.len() > 12 {
            return Ok(());
        }
        let path = format!("{}/{name}", self.dir_path(parent));
        post.doing(format!("mkdir {path}"));
        self.fs.create_dir(&path)?;
        let parent = Some(parent);
        self.dirs.insert(self.next, OwnDir { parent, name });
        Ok(())
    }

    fn is_empty(&self, dir: u64) -> bool {
        let mut names = self.files.iter().flat_map(|file| &file.names);
        names.all(|(in_dir, _)| *in_dir != dir)
            && self.symlinks.iter().all(|(in_dir, ..)| *in_dir != dir)
            && self.dirs.values().all(|child| child.parent != Some(dir))
    }

    fn rmdir(&mut self, post: &Post) -> Result<()> {
        let dir = self.any_dir();
        if self.dirs[&dir].parent.is_none() {
            return Ok(());
        }
        let path = self.dir_path(dir);
        post.doing(format!("rmdir {path}"));
        match (self.fs.remove_dir(&path), self.is_empty(dir)) {
            (Ok(()), true) => drop(self.dirs.remove(&dir)),
            (Err(e), false) if errno(&e) == 39 => {}
            (done, empty) => panic!("rmdir {path}: {done:?}, empty: {empty}"),
        }
        Ok(())
    }

    /// Moves a directory with what is in it into another one, or into itself, which is refused.
    fn move_dir(&mut self, post: &Post) -> Result<()> {
        let (dir, to) = (self.any_dir(), self.any_dir());
        if self.dirs[&dir].parent.is_none() {
            return Ok(());
        }
        let mut up = Some(to);
        while up.is_some_and(|at| at != dir) {
            up = self.dirs[&up.unwrap()].parent;
        }
        let into_itself = up.is_some();
        let name = self.fresh().1;
        let (from, target) = (self.dir_path(dir), format!("{}/{name}", self.dir_path(to)));
        post.doing(format!("move {from} to {target}"));
        match self.fs.rename(&from, &target) {
            Err(e) if into_itself && errno(&e) == 22 => return Ok(()),
            done => done?,
        }
        assert!(!into_itself, "{from} moved to {target}");
        let parent = Some(to);
        self.dirs.insert(dir, OwnDir { parent, name });
        Ok(())
    }

    fn symlink(&mut self, post: &Post) -> Result<()> {
        if self.symlinks.len() > 20 {
            let (dir, name, target) = self.symlinks.remove(0);
            let path = self.path(&(dir, name));
            post.doing(format!("remove link {path}"));
            let found = self.fs.read_link(&path)?;
            assert_eq!(found.to_str(), Some(&*target), "{path}");
            return self.fs.remove_file(&path);
        }
        let (dir, name) = self.fresh();
        let target = format!("{:0>1$}", self.next, self.rng.between(5, 400) as usize);
        let path = self.path(&(dir, name.clone()));
        post.doing(format!("symlink {path}"));
        self.fs.symlink(&target, &path)?;
        self.symlinks.push((dir, name, target));
        Ok(())
    }

    fn chmod(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let path = self.any_path(which);
        let mode = self.rng.below(0o1000) as u16;
        post.doing(format!("chmod {mode:o} {path}"));
        self.fs.set_permissions(&path, mode)?;
        self.files[which].mode = mode;
        Ok(())
    }

    fn sync(&mut self, post: &Post) -> Result<()> {
        if self.rng.one_in(8) {
            post.doing("sync");
            return self.fs.sync();
        }
        let which = self.any_file();
        let path = self.any_path(which);
        post.doing(format!("fsync {path}"));
        let file = self.fs.open_file(&path)?;
        if self.rng.one_in(2) {
            file.sync_all()
        } else {
            file.sync_data()
        }
    }

    fn look(&mut self, post: &Post) -> Result<()> {
        let which = self.any_file();
        let path = self.any_path(which);
        post.doing(format!("look at {path}"));
        let meta = self.fs.metadata(&path)?;
        let file = &self.files[which];
        assert_eq!(meta.len(), file.content.len() as u64, "{path}");
        assert_eq!(meta.nlink() as usize, file.names.len(), "{path}");
        assert_eq!(meta.mode().permissions(), file.mode, "{path}");
        same(&self.fs.read(&path)?, &file.content, &path);
        Ok(())
    }

    /// Lets go of what has no names, which can be checked no longer.
    pub(crate) fn finish(&mut self) {
        for (file, content) in self.open.drain(..) {
            same(&read_all(&file).unwrap(), &content, "a file without names");
        }
    }

    /// Requires that everything is there, as `read` and `read_link` find it by path.
    pub(crate) fn check(
        &self,
        read: impl Fn(&str) -> std::result::Result<Vec<u8>, String>,
        read_link: impl Fn(&str) -> std::result::Result<String, String>,
    ) {
        for file in &self.files {
            for name in &file.names {
                let path = self.path(name);
                let found = read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
                same(&found, &file.content, &path);
            }
        }
        for (dir, name, target) in &self.symlinks {
            let path = self.path(&(*dir, name.clone()));
            assert_eq!(read_link(&path).as_ref(), Ok(target), "{path}");
        }
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }
}

/// Writes, and notes how far that got.
fn put(file: &File, content: &mut Vec<u8>, offset: u64, bytes: &[u8], tight: bool) -> Result<()> {
    let len = file.write_at(bytes, offset)?;
    assert!(len == bytes.len() || (tight && len > 0), "{len} written");
    let (start, end) = (offset as usize, offset as usize + len);
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(&bytes[..len]);
    Ok(())
}

fn read_all(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.metadata().len() as usize];
    let len = file.read_at(&mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Compares contents without printing all of them.
pub(crate) fn same(found: &[u8], expected: &[u8], path: &str) {
    if found == expected {
        return;
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    panic!(
        "{path}: {} bytes instead of {}, different at {at:?}: {:x?} instead of {:x?}",
        found.len(),
        expected.len(),
        at.map(|at| &found[at..found.len().min(at + 16)]),
        at.map(|at| &expected[at..expected.len().min(at + 16)]),
    );
}
