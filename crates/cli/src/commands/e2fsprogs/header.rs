//! A superblock field by field, as `dumpe2fs -h` and `tune2fs -l` show it.

use crate::record::uuid;
use crate::time::rfc3339;
use extant::{Escaped, Timestamp};
use extant_format::dir::HashVersion;
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::superblock::{
    ErrorRecord, ErrorsBehaviour, MountDefaults, State, Superblock, SuperblockFlags,
};
use std::io::{self, Write};

/// Default mount options, in the order in which they are shown.
const MOUNT_DEFAULTS: &[(MountDefaults, &str)] = &[
    (MountDefaults::DEBUG, "debug"),
    (MountDefaults::BSD_GROUPS, "bsdgroups"),
    (MountDefaults::USER_XATTR, "user_xattr"),
    (MountDefaults::ACL, "acl"),
    (MountDefaults::UID16, "uid16"),
    (MountDefaults::NO_BARRIER, "nobarrier"),
    (MountDefaults::BLOCK_VALIDITY, "block_validity"),
    (MountDefaults::DISCARD, "discard"),
    (MountDefaults::NO_DELALLOC, "nodelalloc"),
];

/// Writes a field: its name, filled up to the column of values, and what it has.
fn field(output: &mut dyn Write, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
    let name = format!("{name}:");
    writeln!(output, "{name:<25} {value}")
}

/// Writes all fields.
pub(in crate::commands) fn write(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    identity(output, sb)?;
    sizes(output, sb)?;
    history(output, sb)?;
    inodes_and_journal(output, sb)?;
    errors(output, sb)?;
    parts(output, sb)
}

fn identity(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let raw = sb.raw();
    let or = |text: &[u8], none: &str| {
        if text.is_empty() {
            none.to_owned()
        } else {
            Escaped(text).to_string()
        }
    };
    field(output, "Filesystem volume name", or(sb.label(), "<none>"))?;
    let mounted = or(sb.last_mounted(), "<not available>");
    field(output, "Last mounted on", mounted)?;
    field(output, "Filesystem UUID", uuid_or_none(sb.uuid()))?;
    let magic = format!("0x{:04X}", raw.magic.get());
    field(output, "Filesystem magic number", magic)?;
    let revision = match raw.rev_level.get() {
        0 => "0 (original)".to_owned(),
        1 => "1 (dynamic)".to_owned(),
        other => format!("{other} (unknown)"),
    };
    field(output, "Filesystem revision #", revision)?;
    let features = sb.features().names();
    field(output, "Filesystem features", words(&features, "(none)"))?;
    if raw.flags.get() != 0 {
        let flags = sb.flags();
        let names: String = [
            (SuperblockFlags::SIGNED_HASH, "signed_directory_hash "),
            (SuperblockFlags::UNSIGNED_HASH, "unsigned_directory_hash "),
            (SuperblockFlags::TEST_FILESYS, "test_filesystem "),
        ]
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .map(|(_, name)| name)
        .collect();
        let names = if names.is_empty() { "(none)" } else { &names };
        field(output, "Filesystem flags", names)?;
    }
    let options = mount_defaults(sb.mount_defaults());
    field(output, "Default mount options", words(&options, "(none)"))?;
    if !sb.mount_options().is_empty() {
        field(output, "Mount options", Escaped(sb.mount_options()))?;
    }
    let state = sb.state();
    let clean = if state.contains(State::CLEAN) {
        "clean"
    } else {
        "not clean"
    };
    let errors = if state.contains(State::ERRORS) {
        " with errors"
    } else {
        ""
    };
    field(output, "Filesystem state", format!("{clean}{errors}"))?;
    let behaviour = match sb.errors_behaviour() {
        ErrorsBehaviour::Continue => "Continue",
        ErrorsBehaviour::RemountReadOnly => "Remount read-only",
        ErrorsBehaviour::Panic => "Panic",
        ErrorsBehaviour::Unknown(_) => "Unknown (continue)",
    };
    field(output, "Errors behavior", behaviour)?;
    let systems = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];
    let system = systems.get(raw.creator_os.get() as usize);
    field(output, "Filesystem OS type", system.unwrap_or(&"unknown"))
}

/// Names with spaces between them.
fn words(names: &[String], none: &str) -> String {
    if names.is_empty() {
        none.to_owned()
    } else {
        names.join(" ")
    }
}

fn mount_defaults(defaults: MountDefaults) -> Vec<String> {
    let journal = match defaults & MountDefaults::JOURNAL_WRITEBACK {
        MountDefaults::JOURNAL_DATA => Some("journal_data"),
        MountDefaults::JOURNAL_ORDERED => Some("journal_data_ordered"),
        MountDefaults::JOURNAL_WRITEBACK => Some("journal_data_writeback"),
        _ => None,
    };
    let is_on = |(option, _): &&(MountDefaults, &str)| defaults.contains(*option);
    let names = MOUNT_DEFAULTS.iter().filter(is_on).map(|(_, name)| *name);
    let names = names.map(str::to_owned);
    let mut names: Vec<String> = names.collect();
    if let Some(journal) = journal {
        names.insert(0, journal.to_owned());
    }
    names
}

fn sizes(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let (raw, geometry) = (sb.raw(), Geometry::new(sb));
    let block = sb.block_size().bytes();
    field(output, "Inode count", sb.inodes_count())?;
    field(output, "Block count", sb.blocks_count())?;
    field(output, "Reserved block count", sb.reserved_blocks_count())?;
    if raw.overhead_clusters.get() != 0 {
        field(output, "Overhead clusters", raw.overhead_clusters.get())?;
    }
    field(output, "Free blocks", sb.free_blocks_count())?;
    field(output, "Free inodes", sb.free_inodes_count())?;
    field(output, "First block", raw.first_data_block.get())?;
    field(output, "Block size", block)?;
    let bigalloc = sb.has_ro_compat(RoCompat::BIGALLOC);
    let clusters = raw.clusters_per_group.get();
    if bigalloc {
        field(output, "Cluster size", block * sb.cluster_ratio())?;
    } else {
        let fragment = 1024_u32.checked_shl(raw.log_cluster_size.get());
        field(output, "Fragment size", fragment.unwrap_or(0))?;
    }
    if sb.has_incompat(Incompat::BIT64) {
        field(output, "Group descriptor size", raw.desc_size.get())?;
    }
    if raw.reserved_gdt_blocks.get() != 0 {
        field(output, "Reserved GDT blocks", raw.reserved_gdt_blocks.get())?;
    }
    field(output, "Blocks per group", raw.blocks_per_group.get())?;
    if bigalloc {
        field(output, "Clusters per group", clusters)?;
    } else {
        field(output, "Fragments per group", clusters)?;
    }
    field(output, "Inodes per group", raw.inodes_per_group.get())?;
    let table = geometry.inode_table_blocks();
    field(output, "Inode blocks per group", table)?;
    if raw.first_meta_bg.get() != 0 {
        field(output, "First meta block group", raw.first_meta_bg.get())?;
    }
    if raw.raid_stride.get() != 0 {
        field(output, "RAID stride", raw.raid_stride.get())?;
    }
    if raw.raid_stripe_width.get() != 0 {
        field(output, "RAID stripe width", raw.raid_stripe_width.get())?;
    }
    if raw.log_groups_per_flex != 0 {
        let groups = 1_u64.checked_shl(raw.log_groups_per_flex.into());
        field(output, "Flex block group size", groups.unwrap_or(0))?;
    }
    Ok(())
}

fn history(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let raw = sb.raw();
    if sb.mkfs_time() != 0 {
        field(output, "Filesystem created", date(sb.mkfs_time()))?;
    }
    let mounted = match sb.mount_time() {
        0 => "n/a".to_owned(),
        time => date(time),
    };
    field(output, "Last mount time", mounted)?;
    field(output, "Last write time", date(sb.write_time()))?;
    field(output, "Mount count", raw.mnt_count.get())?;
    let most = raw.max_mnt_count.get() as i16;
    field(output, "Maximum mount count", most)?;
    field(output, "Last checked", date(sb.last_check()))?;
    let seconds = raw.checkinterval.get();
    let shown = format!("{seconds} ({})", interval(seconds));
    field(output, "Check interval", shown)?;
    if seconds != 0 {
        let next = sb.last_check().saturating_add(seconds.into());
        field(output, "Next check after", date(next))?;
    }
    let written = raw.kbytes_written.get();
    if written != 0 {
        field(output, "Lifetime writes", size(written))?;
    }
    let (uid, gid) = sb.reserved_for();
    let user = name_of(uid, "/etc/passwd", "user");
    field(output, "Reserved blocks uid", user)?;
    let group = name_of(gid, "/etc/group", "group");
    field(output, "Reserved blocks gid", group)
}

/// KiB, rounded in the unit that suits.
fn size(kib: u64) -> String {
    let rounded = |shift: u32| ((kib >> (shift - 1)) + 1) >> 1;
    match kib.checked_ilog2().unwrap_or(0) {
        0..13 => format!("{kib} kB"),
        13..23 => format!("{} MB", rounded(10)),
        23..33 => format!("{} GB", rounded(20)),
        33..43 => format!("{} TB", rounded(30)),
        _ => format!("{} PB", rounded(40)),
    }
}

/// An interval in months, weeks, days, hours, minutes and seconds.
fn interval(seconds: u32) -> String {
    if seconds == 0 {
        return "<none>".to_owned();
    }
    let mut left = seconds;
    let mut parts = Vec::new();
    for (unit, name) in [
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3600, "hour"),
        (60, "minute"),
        (1, "second"),
    ] {
        let count = left / unit;
        left %= unit;
        if count > 0 {
            let many = if count == 1 { "" } else { "s" };
            parts.push(format!("{count} {name}{many}"));
        }
    }
    parts.join(", ")
}

/// A number with the name that it has in a table of users or groups.
fn name_of(id: u32, table: &str, kind: &str) -> String {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let name = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| Escaped(name.as_bytes()).to_string())
    });
    match name {
        Some(name) => format!("{id} ({kind} {name})"),
        None => format!("{id} ({kind} unknown)"),
    }
}

fn inodes_and_journal(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let raw = sb.raw();
    if raw.rev_level.get() >= 1 {
        field(output, "First inode", raw.first_ino.get())?;
        writeln!(output, "Inode size:\t          {}", raw.inode_size.get())?;
        if raw.min_extra_isize.get() != 0 {
            field(output, "Required extra isize", raw.min_extra_isize.get())?;
        }
        if raw.want_extra_isize.get() != 0 {
            field(output, "Desired extra isize", raw.want_extra_isize.get())?;
        }
    }
    if raw.journal_uuid != [0; 16] {
        field(output, "Journal UUID", uuid(raw.journal_uuid))?;
    }
    if raw.journal_inum.get() != 0 {
        field(output, "Journal inode", raw.journal_inum.get())?;
    }
    if raw.journal_dev.get() != 0 {
        let device = raw.journal_dev.get();
        writeln!(output, "Journal device:\t          0x{device:04x}")?;
    }
    if raw.last_orphan.get() != 0 {
        field(output, "First orphan inode", raw.last_orphan.get())?;
    }
    if sb.has_compat(Compat::DIR_INDEX) || raw.def_hash_version != 0 {
        let hash = match sb.hash_version().map(HashVersion::stored) {
            Ok(HashVersion::Legacy) => "legacy".to_owned(),
            Ok(HashVersion::HalfMd4) => "half_md4".to_owned(),
            Ok(HashVersion::Tea) => "tea".to_owned(),
            Ok(HashVersion::SipHash) => "siphash".to_owned(),
            _ => format!("{}", raw.def_hash_version),
        };
        field(output, "Default directory hash", hash)?;
    }
    let mut seed = [0; 16];
    for (to, word) in seed.chunks_mut(4).zip(raw.hash_seed) {
        to.copy_from_slice(&word.get().to_le_bytes());
    }
    if seed != [0; 16] {
        field(output, "Directory Hash Seed", uuid(seed))?;
    }
    match raw.jnl_backup_type {
        0 => {}
        1 => field(output, "Journal backup", "inode blocks")?,
        other => field(output, "Journal backup", format!("type {other}"))?,
    }
    let backups = raw.backup_bgs.map(|group| group.get());
    if backups != [0; 2] {
        let groups = backups.iter().filter(|group| **group != 0);
        let groups: String = groups.map(|group| format!("{group} ")).collect();
        field(output, "Backup block groups", groups)?;
    }
    Ok(())
}

fn errors(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    if sb.error_count() != 0 {
        field(output, "FS Error count", sb.error_count())?;
    }
    let records = [("First", sb.first_error()), ("Last", sb.last_error())];
    for (which, record) in records {
        if let Some(record) = record {
            error(output, which, &record)?;
        }
    }
    Ok(())
}

fn error(output: &mut dyn Write, which: &str, record: &ErrorRecord) -> io::Result<()> {
    let mut field = |what: &str, value: &dyn std::fmt::Display| {
        field(output, &format!("{which} error {what}"), value)
    };
    field("time", &date(record.time))?;
    let end = record.function.iter().position(|byte| *byte == 0);
    let function = record.function.get(..end.unwrap_or(record.function.len()));
    field("function", &Escaped(function.unwrap_or_default()))?;
    field("line #", &record.line)?;
    if record.ino.get() != 0 {
        field("inode #", &record.ino.get())?;
    }
    if record.block.get() != 0 {
        field("block #", &record.block.get())?;
    }
    Ok(())
}

/// What features add.
fn parts(output: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let raw = sb.raw();
    if sb.has_incompat(Incompat::MMP) {
        field(output, "MMP block number", raw.mmp_block.get())?;
        field(output, "MMP update interval", raw.mmp_update_interval.get())?;
    }
    for (name, ino) in [
        ("User quota inode", raw.usr_quota_inum),
        ("Group quota inode", raw.grp_quota_inum),
        ("Project quota inode", raw.prj_quota_inum),
    ] {
        if sb.has_ro_compat(RoCompat::QUOTA) && ino.get() != 0 {
            field(output, name, ino.get())?;
        }
    }
    if sb.has_metadata_csum() {
        let kind = match raw.checksum_type {
            1 => "crc32c",
            _ => "unknown!",
        };
        field(output, "Checksum type", kind)?;
        let checksum = format!("0x{:08x}", raw.checksum.get());
        field(output, "Checksum", checksum)?;
    }
    if raw.encrypt_pw_salt != [0; 16] {
        let salt = uuid(raw.encrypt_pw_salt);
        field(output, "Encryption PW Salt", salt)?;
    }
    if sb.has_incompat(Incompat::CSUM_SEED) {
        let seed = format!("0x{:08x}", raw.checksum_seed.get());
        field(output, "Checksum seed", seed)?;
    }
    if sb.has_incompat(Incompat::CASEFOLD) {
        let encoding = match raw.encoding.get() {
            1 => "utf8-12.1",
            _ => "unknown",
        };
        field(output, "Character encoding", encoding)?;
    }
    if sb.has_compat(Compat::ORPHAN_FILE) {
        let ino = raw.orphan_file_inum.get();
        field(output, "Orphan file inode", ino)?;
    }
    Ok(())
}

fn uuid_or_none(bytes: [u8; 16]) -> String {
    if bytes == [0; 16] {
        "<none>".to_owned()
    } else {
        uuid(bytes)
    }
}

/// A moment as ctime(3) has it, in UTC: `Thu Nov 26 08:32:46 2026`.
pub(super) fn date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let day = DAYS.get((seconds / 86_400 % 7) as usize).unwrap_or(&"");
    let secs = i64::try_from(seconds).unwrap_or(i64::MAX);
    let full = rfc3339(Timestamp { secs, nanos: 0 });
    let part = |range: std::ops::Range<usize>| full.get(range).unwrap_or_default();
    let month = part(5..7).parse::<usize>().unwrap_or(1);
    let month = MONTHS.get(month.saturating_sub(1)).unwrap_or(&"");
    let of_month = part(8..10).parse::<u32>().unwrap_or(0);
    format!("{day} {month} {of_month:2} {} {}", part(11..19), part(0..4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_ctime() {
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(1_577_836_800), "Wed Jan  1 00:00:00 2020");
        assert_eq!(date(1_795_681_966), "Thu Nov 26 08:32:46 2026");
    }

    #[test]
    fn intervals_and_sizes_have_units() {
        assert_eq!(interval(0), "<none>");
        assert_eq!(interval(1_209_600), "2 weeks");
        assert_eq!(interval(15_552_000), "6 months");
        assert_eq!(
            interval(2_592_000 + 86_400 + 3661),
            "1 month, 1 day, 1 hour, 1 minute, 1 second"
        );
        assert_eq!(size(279), "279 kB");
        assert_eq!(size(8191), "8191 kB");
        assert_eq!(size(8192), "8 MB");
        assert_eq!(size(20 << 20), "20 GB");
    }
}
