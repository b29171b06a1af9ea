//! Owners and permissions that a mount shows instead of those in the image: `uid=`, `gid=`,
//! `umask=`, `fmask=`, `dmask=`.
//!
//! What is shown is what the kernel checks. What is stored stays: nothing that a program does in
//! such a view puts the numbers of the view into the image. So where owners are hidden, a new file
//! gets those of its directory; and where modes are, a change of mode can say no more than whether
//! a file is executable.

use crate::options::Options;
use crate::service::{Answer, Errno};
use extant_core::inode::{FileType, Metadata};
use extant_format::inode::Mode;

/// Permission bits of all: to read, to write, to execute.
const READ: u16 = 0o444;
const READ_WRITE: u16 = 0o666;
const EXECUTE: u16 = 0o111;
const ALL: u16 = 0o777;
/// The owner may execute.
const OWNER_EXECUTES: u16 = 0o100;
/// How far the right to execute is from that to read.
const READ_TO_EXECUTE: u32 = 2;

/// What is shown instead; nothing unless the mount is told so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    uid: Option<u32>,
    gid: Option<u32>,
    file_mask: Option<u16>,
    dir_mask: Option<u16>,
    /// New files get the group of their directory.
    group_of_directory: bool,
}

impl View {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            uid: options.uid,
            gid: options.gid,
            file_mask: options.file_mask,
            dir_mask: options.dir_mask,
            group_of_directory: options.group_of_directory,
        }
    }

    /// Tells whether access control lists are hidden: what they grant is granted to owners and
    /// modes that are not shown.
    pub(crate) fn hides_lists(&self) -> bool {
        let owners = self.uid.or(self.gid).is_some();
        owners || self.file_mask.or(self.dir_mask).is_some()
    }

    /// Turns what is stored into what is shown.
    pub(crate) fn show(&self, metadata: &mut Metadata) {
        metadata.uid = self.uid.unwrap_or(metadata.uid);
        metadata.gid = self.gid.unwrap_or(metadata.gid);
        let stored = metadata.mode.permissions();
        if let Some(shown) = self.permissions(metadata.file_type, stored) {
            metadata.mode = Mode::new(metadata.file_type, shown);
        }
    }

    /// Returns the permissions that are shown for those that are stored, if others are.
    fn permissions(&self, file_type: FileType, stored: u16) -> Option<u16> {
        let all = match file_type {
            FileType::Regular if stored & EXECUTE == 0 => READ_WRITE,
            _ => ALL,
        };
        Some(all & !self.mask(file_type)?)
    }

    /// Returns the mask for files of a type. Links have the permissions that all have everywhere.
    fn mask(&self, file_type: FileType) -> Option<u16> {
        match file_type {
            FileType::Directory => self.dir_mask,
            FileType::Symlink => None,
            _ => self.file_mask,
        }
    }

    /// Returns the owner and the group that are stored for a new file that `caller` makes, in a
    /// directory with these.
    ///
    /// # Errors
    /// `EOVERFLOW` for a caller without a number, of which the kernel asks for nothing that is
    /// made.
    pub(crate) fn owners_of_new(
        &self,
        caller: (u32, u32),
        directory: (u32, u32),
    ) -> Answer<(u32, u32)> {
        if [caller.0, caller.1].contains(&u32::MAX) {
            return Err(Errno::OVERFLOW);
        }
        let hides_group = self.gid.is_some() || self.group_of_directory;
        Ok((
            if self.uid.is_some() {
                directory.0
            } else {
                caller.0
            },
            if hides_group { directory.1 } else { caller.1 },
        ))
    }

    /// Tells whether the owner of a directory says what a new file in it gets.
    pub(crate) fn asks_directory(&self) -> bool {
        self.uid.or(self.gid).is_some() || self.group_of_directory
    }

    /// Turns owners that are asked for into those that are to be stored: what is hidden stays, and
    /// can only be asked to be what is shown.
    ///
    /// # Errors
    /// `EPERM` for others.
    pub(crate) fn owners_asked(
        &self,
        (uid, gid): (Option<u32>, Option<u32>),
        stored: (u32, u32),
    ) -> Answer<(Option<u32>, Option<u32>)> {
        let one = |asked: Option<u32>, shown: Option<u32>, stored| match (asked, shown) {
            (Some(asked), Some(shown)) if asked != shown => Err(Errno::NOT_PERMITTED),
            (Some(_), Some(_)) => Ok(Some(stored)),
            (asked, _) => Ok(asked),
        };
        Ok((one(uid, self.uid, stored.0)?, one(gid, self.gid, stored.1)?))
    }

    /// Turns permissions that are asked for into those that are to be stored.
    ///
    /// # Errors
    /// `EPERM` for what the view cannot show.
    pub(crate) fn permissions_asked(
        &self,
        file_type: FileType,
        asked: u16,
        stored: u16,
    ) -> Answer<u16> {
        let Some(mask) = self.mask(file_type) else {
            return Ok(asked);
        };
        if Some(asked) == self.permissions(file_type, stored) {
            return Ok(stored);
        }
        let is_regular = file_type == FileType::Regular;
        if is_regular && asked == READ_WRITE & !mask {
            return Ok(stored & !EXECUTE);
        }
        if is_regular && asked == ALL & !mask {
            // Those who may read it may execute it.
            let executes = (stored & READ) >> READ_TO_EXECUTE | OWNER_EXECUTES;
            return Ok(stored | executes);
        }
        Err(Errno::NOT_PERMITTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(list: &str) -> View {
        let mut options = Options::default();
        options.parse(list).unwrap();
        View::new(&options)
    }

    #[test]
    fn masks_say_what_is_not_there_and_files_stay_executable_or_not() {
        let shown = |list: &str, file_type, stored| view(list).permissions(file_type, stored);
        let (file, dir) = (FileType::Regular, FileType::Directory);
        assert_eq!(shown("", file, 0o600), None);
        assert_eq!(shown("umask=022", file, 0o600), Some(0o644));
        assert_eq!(shown("umask=022", file, 0o4710), Some(0o755));
        assert_eq!(shown("umask=022", dir, 0o1700), Some(0o755));
        assert_eq!(shown("dmask=077", dir, 0o755), Some(0o700));
        assert_eq!(shown("dmask=077", file, 0o755), None);
        assert_eq!(shown("fmask=111", file, 0o755), Some(0o666));
        assert_eq!(shown("umask=077", FileType::Symlink, 0o777), None);
        assert_eq!(shown("umask=077", FileType::Fifo, 0), Some(0o700));
    }

    #[test]
    fn a_change_of_mode_says_no_more_than_whether_a_file_is_executable() {
        let masked = view("umask=022");
        let asked = |asked, stored| masked.permissions_asked(FileType::Regular, asked, stored);
        assert_eq!(asked(0o644, 0o600), Ok(0o600));
        assert_eq!(asked(0o755, 0o640), Ok(0o750));
        assert_eq!(asked(0o755, 0o200), Ok(0o300));
        assert_eq!(asked(0o755, 0o4711), Ok(0o4711));
        assert_eq!(asked(0o644, 0o751), Ok(0o640));
        for wrong in [0o600, 0o4755, 0o777, 0o666] {
            assert_eq!(asked(wrong, 0o644), Err(Errno::NOT_PERMITTED), "{wrong:o}");
        }
        let dir = |asked| masked.permissions_asked(FileType::Directory, asked, 0o700);
        assert_eq!(dir(0o755), Ok(0o700));
        assert_eq!(dir(0o700), Err(Errno::NOT_PERMITTED));
        let plain = view("uid=7").permissions_asked(FileType::Regular, 0o4755, 0o600);
        assert_eq!(plain, Ok(0o4755));
    }

    #[test]
    fn hidden_owners_stay_and_new_files_get_those_of_their_directory() {
        let asked = |list: &str, uid, gid| view(list).owners_asked((uid, gid), (10, 20));
        assert_eq!(asked("", Some(1), None), Ok((Some(1), None)));
        assert_eq!(asked("uid=5", Some(5), Some(6)), Ok((Some(10), Some(6))));
        assert_eq!(asked("uid=5", Some(10), None), Err(Errno::NOT_PERMITTED));
        assert_eq!(asked("gid=5", None, Some(6)), Err(Errno::NOT_PERMITTED));
        let made = |list: &str| view(list).owners_of_new((1, 2), (10, 20));
        assert_eq!(made("umask=022"), Ok((1, 2)));
        assert_eq!(made("uid=1"), Ok((10, 2)));
        assert_eq!(made("gid=1"), Ok((1, 20)));
        assert_eq!(made("grpid"), Ok((1, 20)));
        let nobody = view("").owners_of_new((u32::MAX, 0), (10, 20));
        assert_eq!(nobody, Err(Errno::OVERFLOW));
    }
}
