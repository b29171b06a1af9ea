//! Access control lists and quotas.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use crate::call::{Failure, counted, done};
use crate::constants::{
    ACL_ACCESS, ACL_DEFAULT, ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ,
    QUOTA_GROUP, QUOTA_PROJECT, QUOTA_USER,
};
use crate::pointers::{object, optional, path, put, put_some};
use crate::types::{AclEntry, Fs, Quota};
use extant::{Acl, AclKind, AclWho, QuotaChange, QuotaKind, SideChange};
use std::ffi::{c_char, c_int};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_get_acl(
    fs: *const Fs,
    file: *const c_char,
    kind: u32,
    entries: *mut AclEntry,
    count: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let acl = object(fs)?.0.acl(path(file)?, acl_kind(kind)?)?;
        let there = acl.as_ref().map_or(&[][..], Acl::entries);
        if count != 0 && count < there.len() {
            let text = format!(
                "the list has {} entries, and room is for {count}",
                there.len()
            );
            return Err(Failure::too_few(text));
        }
        put_some(entries, count, there.iter().map(AclEntry::from))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_set_acl(
    fs: *const Fs,
    file: *const c_char,
    kind: u32,
    entries: *const AclEntry,
    count: usize,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let kind = acl_kind(kind)?;
        // Before anything is read.
        if count > MOST_ENTRIES {
            let message = format!("a list of {count} entries is larger than any file can have");
            return Err(Failure::invalid(message));
        }
        let given = match (count, optional(entries, count)) {
            (0, _) => &[],
            (_, Some(given)) => given,
            (_, None) => return Err(Failure::null("a list of entries")),
        };
        let entries: Vec<_> = given.iter().map(entry).collect::<Result<_, _>>()?;
        let acl = if entries.is_empty() {
            None
        } else {
            Some(Acl::new(entries)?)
        };
        Ok(object(fs)?.0.set_acl(path(file)?, kind, acl.as_ref())?)
    })
}

/// Entries of the largest attribute that Linux knows (64 KiB), of which each takes 4 bytes or more.
const MOST_ENTRIES: usize = (64 << 10) / 4;

fn acl_kind(kind: u32) -> Result<AclKind, Failure> {
    match kind {
        ACL_ACCESS => Ok(AclKind::Access),
        ACL_DEFAULT => Ok(AclKind::Default),
        other => Err(Failure::unknown("the kind of a list", other)),
    }
}

impl From<&extant::AclEntry> for AclEntry {
    fn from(entry: &extant::AclEntry) -> Self {
        let (tag, id) = match entry.who {
            AclWho::Owner => (ACL_USER_OBJ, 0),
            AclWho::User(id) => (ACL_USER, id),
            AclWho::Group => (ACL_GROUP_OBJ, 0),
            AclWho::NamedGroup(id) => (ACL_GROUP, id),
            AclWho::Mask => (ACL_MASK, 0),
            AclWho::Other => (ACL_OTHER, 0),
        };
        Self {
            tag,
            id,
            permissions: entry.permissions.into(),
        }
    }
}

fn entry(entry: &AclEntry) -> Result<extant::AclEntry, Failure> {
    let who = match entry.tag {
        ACL_USER_OBJ => AclWho::Owner,
        ACL_USER => AclWho::User(entry.id),
        ACL_GROUP_OBJ => AclWho::Group,
        ACL_GROUP => AclWho::NamedGroup(entry.id),
        ACL_MASK => AclWho::Mask,
        ACL_OTHER => AclWho::Other,
        other => return Err(Failure::unknown("the tag of an entry", other)),
    };
    let permissions = u8::try_from(entry.permissions)
        .ok()
        .filter(|bits| *bits <= 7);
    let permissions = permissions
        .ok_or_else(|| Failure::unknown("the permissions of an entry", entry.permissions))?;
    Ok(extant::AclEntry { who, permissions })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_get_quota(
    fs: *const Fs,
    kind: u32,
    id: u32,
    quota: *mut Quota,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let found = object(fs)?.0.quota(quota_kind(kind)?, id)?;
        put(quota, (&found.ok_or_else(not_counted)?).into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_get_quotas(
    fs: *const Fs,
    kind: u32,
    quotas: *mut Quota,
    count: usize,
) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| unsafe {
        let found = object(fs)?.0.quotas(quota_kind(kind)?)?;
        let found = found.ok_or_else(not_counted)?;
        put_some(quotas, count, found.iter().map(Quota::from))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_set_quota(fs: *const Fs, kind: u32, quota: *const Quota) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let quota = object(quota)?;
        let side = |soft, hard| SideChange {
            soft: Some(soft),
            hard: Some(hard),
        };
        let change = QuotaChange {
            space: side(quota.space_soft, quota.space_hard),
            inodes: side(quota.inode_soft, quota.inode_hard),
        };
        let is_counted = object(fs)?
            .0
            .set_quota(quota_kind(kind)?, quota.id, change)?;
        is_counted.then_some(()).ok_or_else(not_counted)
    })
}

fn quota_kind(kind: u32) -> Result<QuotaKind, Failure> {
    match kind {
        QUOTA_USER => Ok(QuotaKind::User),
        QUOTA_GROUP => Ok(QuotaKind::Group),
        QUOTA_PROJECT => Ok(QuotaKind::Project),
        other => Err(Failure::unknown("the kind of a quota", other)),
    }
}

fn not_counted() -> Failure {
    Failure::unsupported(
        "the file system does not count this: a setting such as quota=user turns that on",
    )
}
