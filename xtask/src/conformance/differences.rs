//! What is known to differ from the kernel's ext4, and why. A difference that is not here fails the
//! run, and so does one that is here and is not found any more.

use super::place::Whose;

/// A test of pjdfstest that the kernel's ext4 passes and a mount does not.
pub(super) struct Difference {
    pub(super) test: &'static str,
    pub(super) why: &'static str,
    /// The mounts in which it shows.
    whose: &'static [Whose],
}

/// All of a mount.
pub(super) fn all(whose: Whose) -> impl Iterator<Item = &'static Difference> {
    ALL.iter().filter(move |known| known.whose.contains(&whose))
}

const ALL: &[Difference] = &[Difference {
    test: "link::link_count_max",
    why: "skipped: the C library answers `pathconf(_PC_LINK_MAX)` by the type of the file system, and knows no number for FUSE; \
          the limit is ext4's own, as the suite `links` shows",
    whose: &[Whose::Root, Whose::User, Whose::Container],
}];

/// The difference in a test, if it is known.
pub(super) fn of(whose: Whose, test: &str) -> Option<&'static Difference> {
    all(whose).find(|known| known.test == test)
}
