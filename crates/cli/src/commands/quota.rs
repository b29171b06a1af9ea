//! `extant quota`.

use crate::args::{Quota as Args, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::size::human;
use crate::time::short;
use extant::{Filesystem, Limits, Quota, QuotaChange, QuotaKind, SideChange, Timestamp};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// What an image says of one kind.
#[derive(Debug, Serialize)]
struct Kind {
    space_grace_seconds: u64,
    inode_grace_seconds: u64,
    entries: Vec<Entry>,
}

/// What an image says of one id. Space in bytes, times in seconds since the epoch.
#[derive(Debug, Serialize)]
struct Entry {
    id: u32,
    space: u64,
    space_soft: Option<u64>,
    space_hard: Option<u64>,
    space_grace_ends: Option<u64>,
    inodes: u64,
    inode_soft: Option<u64>,
    inode_hard: Option<u64>,
    inode_grace_ends: Option<u64>,
}

impl From<Quota> for Entry {
    fn from(quota: Quota) -> Self {
        let (space, inodes) = (quota.space_limits, quota.inode_limits);
        Self {
            id: quota.id,
            space: quota.space,
            space_soft: space.soft,
            space_hard: space.hard,
            space_grace_ends: space.grace_ends,
            inodes: quota.inodes,
            inode_soft: inodes.soft,
            inode_hard: inodes.hard,
            inode_grace_ends: inodes.grace_ends,
        }
    }
}

pub(super) fn run(args: &Args, location: &Whereabouts) -> Outcome {
    let from = ImagePath::parse(&args.image)?;
    if !from.is_root() {
        return Err(Failure::usage(
            "quota is about a whole image: give it without a path",
        ));
    }
    if args.changes_something() {
        return set(args, &from, location);
    }
    let fs = from.open(location)?;
    let chosen = [args.user, args.group, args.project];
    let all = !chosen.contains(&true);
    let mut found = BTreeMap::new();
    for (kind, is_chosen) in QuotaKind::ALL.into_iter().zip(chosen) {
        if !is_chosen && !all {
            continue;
        }
        let quotas = of_kind(&fs, kind, args.id).map_err(|e| from.failure(&e))?;
        match quotas {
            Some(quotas) => {
                found.insert(kind, quotas);
            }
            None if all => {}
            None => return Err(uncounted(&from, kind)),
        }
    }
    if found.is_empty() {
        let text = format!(
            "{}: the image counts for nobody: it has no feature quota",
            from.shown()
        );
        return Err(Failure::new(text));
    }
    let mut output = Output::new();
    if args.json {
        let named: BTreeMap<_, Kind> = found
            .into_iter()
            .map(|(kind, quotas)| (kind.name(), quotas.into()))
            .collect();
        output.json_pretty(&named)?;
    } else {
        for (i, (kind, quotas)) in found.iter().enumerate() {
            if i > 0 {
                writeln!(output)?;
            }
            print(&mut output, *kind, &quotas.entries)?;
        }
    }
    output.finish()
}

fn uncounted(from: &ImagePath, kind: QuotaKind) -> Failure {
    let what = kind.name();
    Failure::new(format!(
        "{}: the image does not count what {what}s use",
        from.shown()
    ))
}

/// Sets limits of one owner, or times of grace.
fn set(args: &Args, from: &ImagePath, location: &Whereabouts) -> Outcome {
    let chosen = [args.user, args.group, args.project];
    let kinds: Vec<QuotaKind> = QuotaKind::ALL
        .into_iter()
        .zip(chosen)
        .filter_map(|(kind, is_chosen)| is_chosen.then_some(kind))
        .collect();
    if kinds.is_empty() {
        return Err(Failure::usage(
            "say whose limits are meant: --user, --group or --project",
        ));
    }
    if args.json {
        return Err(Failure::usage("--json is for showing: set limits first"));
    }
    let fs = from.open_writable(location)?;
    let fail = |e: extant::Error| from.failure(&e);
    let mut graces = Vec::new();
    for &kind in &kinds {
        let grace = fs.quota_grace(kind).map_err(fail)?;
        graces.push(grace.ok_or_else(|| uncounted(from, kind))?);
    }
    for (kind, grace) in kinds.into_iter().zip(graces) {
        if let Some(id) = args.id.filter(|_| args.sets_limits()) {
            let side = |soft, hard| SideChange { soft, hard };
            let change = QuotaChange {
                space: side(args.space_soft, args.space_hard),
                inodes: side(args.inode_soft, args.inode_hard),
            };
            fs.set_quota(kind, id, change).map_err(fail)?;
        } else {
            let grace = extant::Grace {
                space: args.space_grace.unwrap_or(grace.space),
                inodes: args.inode_grace.unwrap_or(grace.inodes),
            };
            fs.set_quota_grace(kind, grace).map_err(fail)?;
        }
    }
    fs.close().map_err(fail)
}

struct Quotas {
    grace: extant::Grace,
    entries: Vec<Quota>,
}

impl From<Quotas> for Kind {
    fn from(quotas: Quotas) -> Self {
        Self {
            space_grace_seconds: quotas.grace.space.as_secs(),
            inode_grace_seconds: quotas.grace.inodes.as_secs(),
            entries: quotas.entries.into_iter().map(Entry::from).collect(),
        }
    }
}

fn of_kind(fs: &Filesystem, kind: QuotaKind, id: Option<u32>) -> extant::Result<Option<Quotas>> {
    let Some(grace) = fs.quota_grace(kind)? else {
        return Ok(None);
    };
    let entries = match id {
        Some(id) => fs.quota(kind, id)?.into_iter().collect(),
        None => fs.quotas(kind)?.unwrap_or_default(),
    };
    Ok(Some(Quotas { grace, entries }))
}

fn print(output: &mut Output, kind: QuotaKind, entries: &[Quota]) -> Outcome {
    let mut row = |cells: [&str; 9]| {
        let [
            id,
            used,
            soft,
            hard,
            grace,
            inodes,
            inode_soft,
            inode_hard,
            inode_grace,
        ] = cells;
        let line = format!(
            "{id:<10} {used:>10} {soft:>10} {hard:>10} {grace:>16} \
             {inodes:>10} {inode_soft:>10} {inode_hard:>10} {inode_grace:>16}"
        );
        writeln!(output, "{}", line.trim_end())
    };
    row([
        kind.name(),
        "space",
        "soft",
        "hard",
        "until",
        "inodes",
        "soft",
        "hard",
        "until",
    ])?;
    for quota in entries {
        let [soft, hard, until] = limits(quota.space_limits, &human);
        let [inode_soft, inode_hard, inode_until] =
            limits(quota.inode_limits, &|number| number.to_string());
        row([
            &quota.id.to_string(),
            &human(quota.space),
            &soft,
            &hard,
            &until,
            &quota.inodes.to_string(),
            &inode_soft,
            &inode_hard,
            &inode_until,
        ])?;
    }
    Ok(())
}

/// The soft limit, the hard one, and until when the soft one may be exceeded.
fn limits(limits: Limits, shown: &dyn Fn(u64) -> String) -> [String; 3] {
    let shown = |limit: Option<u64>| limit.map_or("-".to_owned(), shown);
    let until = limits.grace_ends.map(|secs| {
        let secs = i64::try_from(secs).unwrap_or(i64::MAX);
        short(Timestamp { secs, nanos: 0 })
    });
    [
        shown(limits.soft),
        shown(limits.hard),
        until.unwrap_or_default(),
    ]
}
