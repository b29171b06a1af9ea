//! Words for what can be changed, as command lines and other programs have them.

use extant_format::dir::HashVersion;
use extant_format::superblock::MountDefaults;

/// Mount options that can be defaults, by their names.
const MOUNT_DEFAULTS: &[(&str, MountDefaults)] = &[
    ("debug", MountDefaults::DEBUG),
    ("bsdgroups", MountDefaults::BSD_GROUPS),
    ("user_xattr", MountDefaults::USER_XATTR),
    ("acl", MountDefaults::ACL),
    ("uid16", MountDefaults::UID16),
    ("journal_data_writeback", MountDefaults::JOURNAL_WRITEBACK),
    ("journal_data_ordered", MountDefaults::JOURNAL_ORDERED),
    ("journal_data", MountDefaults::JOURNAL_DATA),
    ("nobarrier", MountDefaults::NO_BARRIER),
    ("block_validity", MountDefaults::BLOCK_VALIDITY),
    ("discard", MountDefaults::DISCARD),
    ("nodelalloc", MountDefaults::NO_DELALLOC),
];

/// Returns the names of mount options that are defaults.
#[must_use]
pub fn mount_defaults(defaults: MountDefaults) -> Vec<&'static str> {
    let journal = MountDefaults::JOURNAL_WRITEBACK;
    let is_on = |option: MountDefaults| {
        if journal.contains(option) {
            defaults & journal == option
        } else {
            defaults.contains(option)
        }
    };
    let options = MOUNT_DEFAULTS.iter().filter(|(_, option)| is_on(*option));
    options.map(|(name, _)| *name).collect()
}

/// Returns the hash of this name, `None` if it is no name.
#[must_use]
pub fn hash_named(name: &str) -> Option<HashVersion> {
    Some(match name {
        "legacy" => HashVersion::Legacy,
        "half_md4" => HashVersion::HalfMd4,
        "tea" => HashVersion::Tea,
        _ => return None,
    })
}

/// Returns which quota files are asked for, or are to go: of users, groups and projects.
///
/// # Errors
/// A sentence about a name that has no quotas.
pub fn quotas(lists: &[impl AsRef<str>]) -> Result<[Option<bool>; 3], String> {
    const NAMES: [[&str; 2]; 3] = [
        ["user", "usrquota"],
        ["group", "grpquota"],
        ["project", "prjquota"],
    ];
    let mut kinds = [None; 3];
    for (name, on) in switches(lists) {
        let kind = NAMES.iter().position(|names| names.contains(&name));
        let place = kind.and_then(|kind| kinds.get_mut(kind));
        let place =
            place.ok_or_else(|| format!("{name:?} has no quotas: user, group and project have"))?;
        *place = Some(on);
    }
    Ok(kinds)
}

/// Returns the mount option of this name, if it can be a default.
#[must_use]
pub fn mount_default(name: &str) -> Option<MountDefaults> {
    let known = MOUNT_DEFAULTS.iter().find(|(known, _)| *known == name);
    known.map(|(_, option)| *option)
}

/// Takes lists of names apart, each with whether it is to be on: `^` in front means off.
pub fn switches(lists: &[impl AsRef<str>]) -> impl Iterator<Item = (&str, bool)> {
    let names = lists.iter().flat_map(|list| list.as_ref().split(','));
    names
        .filter(|name| !name.is_empty())
        .map(|name| match name.strip_prefix('^') {
            Some(name) => (name, false),
            None => (name, true),
        })
}
