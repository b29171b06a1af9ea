//! Holding owners to their limits: what they use with everything that is under way.
//!
//! What quota files say is as of a commit. A ledger adds what has changed since, and what is
//! promised to data that has no place yet, for the kinds of owners that are held to limits.
//! Everything asks here before it makes an owner use more, and gets it reserved; what the record of
//! an inode gains is then taken out of what is reserved for that inode, in one step. So nothing
//! counts twice, a limit can be used up to the last block, and what was let in once is never
//! refused later.
//!
//! # Invariants
//!
//! - An account has what the newest images of all inodes of the owner use, what is reserved for
//!   them, and inodes that were let in and are not made yet.
//! - What is reserved for an inode is what it is promised, `delayed` and `granted` together,
//!   without what the record has gained of that and nobody has given up yet: `spent`.

use super::share::Share;
use super::{Enforced, Reason};
use crate::{Error, Result};
use extant_format::Ino;
use extant_format::quota::{QuotaEntry, QuotaInfo, QuotaKind};
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::{BTreeSet, HashMap};

static LEDGER: LockClass = LockClass::new("quota ledger", Rank::Leaf);

/// What owners use by now, and may use.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    kinds: [Option<Kind>; 3],
    reserved: HashMap<Ino, Reserved>,
    /// Inodes that were let in, by their owners to be: new ones, and those that hold values.
    births: HashMap<[u32; 3], Births>,
}

/// One kind of owners that are held to limits.
#[derive(Debug)]
struct Kind {
    space_grace: u64,
    inode_grace: u64,
    accounts: HashMap<u32, Account>,
    /// Owners whose time of grace has begun or ended since it was written.
    timed: BTreeSet<u32>,
}

/// One side of an account: space or inodes.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    used: u64,
    hard: u64,
    soft: u64,
    /// When the grace ends; 0 while the soft limit is kept.
    time: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    space: Side,
    inodes: Side,
}

/// What is reserved for one inode, in bytes.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    owners: [u32; 3],
    /// What the accounts have of it.
    charged: u64,
    /// Promised to data without a place.
    delayed: u64,
    /// For changes under way.
    granted: u64,
    /// Of both, what the record has by now.
    spent: u64,
    /// What new owners were found to have room for: space.
    moving: Option<([u32; 3], [bool; 3], u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Births {
    /// Operations under way.
    granted: u64,
    /// Of these, what the accounts have and no inode has yet.
    charged: u64,
}

impl Side {
    fn of(used: u64, hard: u64, soft: u64, time: u64) -> Self {
        Self {
            used,
            hard,
            soft,
            time,
        }
    }

    /// Whether it may become more.
    fn admits(&self, more: u64, now: u64) -> bool {
        let then = self.used.saturating_add(more);
        let is_late = self.time != 0 && now >= self.time;
        let passes = |limit: u64| limit != 0 && then > limit;
        !(passes(self.hard) || is_late && passes(self.soft))
    }

    /// It becomes more; whether the grace begins with that.
    fn add(&mut self, more: u64, now: u64, grace: u64) -> bool {
        self.used = self.used.saturating_add(more);
        let begins = self.soft != 0 && self.used > self.soft && self.time == 0 && more > 0;
        if begins {
            self.time = now.saturating_add(grace).max(1);
        }
        begins
    }

    /// It becomes less; whether the grace is over with that.
    fn sub(&mut self, less: u64) -> bool {
        self.used = self.used.saturating_sub(less);
        let ends = self.time != 0 && self.used <= self.soft;
        if ends {
            self.time = 0;
        }
        ends
    }

    /// It has other limits: as in Linux, the grace begins anew.
    fn limit(&mut self, hard: u64, soft: u64, now: u64, grace: u64) {
        (self.hard, self.soft) = (hard, soft);
        self.time = grace_end(self.used, soft, now, grace);
    }
}

impl Account {
    fn of(entry: &QuotaEntry) -> Self {
        let bytes = |kib: u64| kib.saturating_mul(1024);
        let space = Side::of(
            entry.space,
            bytes(entry.space_hard),
            bytes(entry.space_soft),
            entry.space_time,
        );
        let inodes = Side::of(
            entry.inodes,
            entry.inode_hard,
            entry.inode_soft,
            entry.inode_time,
        );
        Self { space, inodes }
    }
}

impl Kind {
    fn new(info: &QuotaInfo) -> Self {
        Self {
            space_grace: info.space_grace.into(),
            inode_grace: info.inode_grace.into(),
            accounts: HashMap::new(),
            timed: BTreeSet::new(),
        }
    }

    fn add(&mut self, id: u32, space: u64, inodes: u64, now: u64) {
        let account = self.accounts.entry(id).or_default();
        let begins = account.space.add(space, now, self.space_grace);
        if account.inodes.add(inodes, now, self.inode_grace) || begins {
            self.timed.insert(id);
        }
    }

    fn sub(&mut self, id: u32, space: u64, inodes: u64) {
        let account = self.accounts.entry(id).or_default();
        let ends = account.space.sub(space);
        if account.inodes.sub(inodes) || ends {
            self.timed.insert(id);
        }
    }
}

impl State {
    /// Whether all owners of `which` kinds may use that much more.
    fn admits(
        &self,
        owners: [u32; 3],
        which: [bool; 3],
        space: u64,
        inodes: u64,
        now: u64,
    ) -> bool {
        let all = self.kinds.iter().zip(owners).zip(which);
        all.filter(|(_, wanted)| *wanted).all(|((kind, id), _)| {
            let account = kind.as_ref().and_then(|kind| kind.accounts.get(&id));
            account.is_none_or(|account| {
                (space == 0 || account.space.admits(space, now))
                    && (inodes == 0 || account.inodes.admits(inodes, now))
            })
        })
    }

    fn add(&mut self, owners: [u32; 3], which: [bool; 3], space: u64, inodes: u64, now: u64) {
        for ((kind, id), wanted) in self.kinds.iter_mut().zip(owners).zip(which) {
            if let (Some(kind), true) = (kind, wanted) {
                kind.add(id, space, inodes, now);
            }
        }
    }

    fn sub(&mut self, owners: [u32; 3], which: [bool; 3], space: u64, inodes: u64) {
        for ((kind, id), wanted) in self.kinds.iter_mut().zip(owners).zip(which) {
            if let (Some(kind), true) = (kind, wanted) {
                kind.sub(id, space, inodes);
            }
        }
    }

    fn reserved(&mut self, ino: Ino, owners: [u32; 3]) -> &mut Reserved {
        self.reserved.entry(ino).or_insert(Reserved {
            owners,
            charged: 0,
            delayed: 0,
            granted: 0,
            spent: 0,
            moving: None,
        })
    }

    /// Has the accounts follow what is promised to the inode.
    fn follow(&mut self, ino: Ino, now: u64) {
        let Some(reserved) = self.reserved.get_mut(&ino) else {
            return;
        };
        let (owners, had) = (reserved.owners, reserved.charged);
        let promised = reserved.delayed + reserved.granted;
        reserved.spent = reserved.spent.min(promised);
        let wanted = promised - reserved.spent;
        reserved.charged = wanted;
        if promised == 0 && reserved.moving.is_none() {
            self.reserved.remove(&ino);
        }
        match had < wanted {
            true => self.add(owners, ALL, wanted - had, 0, now),
            false if had > wanted => self.sub(owners, ALL, had - wanted, 0),
            false => {}
        }
    }
}

const ALL: [bool; 3] = [true; 3];

/// When the grace ends of limits that are set now; 0 if they are not exceeded.
pub(super) fn grace_end(used: u64, soft: u64, now: u64, grace: u64) -> u64 {
    if soft == 0 || used <= soft {
        0
    } else {
        now.saturating_add(grace).max(1)
    }
}

/// Seconds since the epoch.
pub(super) fn now() -> u64 {
    crate::clock::seconds()
}

impl Ledger {
    /// A ledger of the kinds that are `enforced`, of which there is a header each.
    pub(super) fn new(infos: [Option<&QuotaInfo>; 3]) -> Self {
        let kinds = infos.map(|info| info.map(Kind::new));
        Self {
            state: Mutex::new(
                &LEDGER,
                State {
                    kinds,
                    ..State::default()
                },
            ),
        }
    }

    /// Notes what the file says of an owner.
    pub(super) fn open(&self, kind: QuotaKind, entry: &QuotaEntry) {
        if let Some(kind) = &mut self.state.lock().kinds[place(kind)] {
            kind.accounts.insert(entry.id, Account::of(entry));
        }
    }

    /// Whether owners of this kind are held to their limits.
    pub(super) fn enforces(&self, kind: QuotaKind) -> bool {
        self.state.lock().kinds[place(kind)].is_some()
    }

    /// Bytes and inodes that an owner uses, where he is held to limits.
    pub(crate) fn in_use(&self, kind: QuotaKind, id: u32) -> Option<[u64; 2]> {
        let state = self.state.lock();
        let kind = state.kinds[place(kind)].as_ref()?;
        let account = kind.accounts.get(&id).copied().unwrap_or_default();
        Some([account.space.used, account.inodes.used])
    }

    /// What an owner uses and where he is stopped or warned first (0: nowhere), bytes and inodes,
    /// where he is held to limits.
    pub(crate) fn bounds(&self, kind: QuotaKind, id: u32) -> Option<[(u64, u64); 2]> {
        let state = self.state.lock();
        let account = state.kinds[place(kind)].as_ref()?.accounts.get(&id)?;
        Some([account.space, account.inodes].map(|side| {
            let limits = [side.soft, side.hard]
                .into_iter()
                .filter(|&limit| limit != 0);
            (side.used, limits.min().unwrap_or(0))
        }))
    }

    /// Puts the times of grace into an entry that is about to be written.
    pub(super) fn put_times(&self, kind: QuotaKind, entry: &mut QuotaEntry) {
        if let Some(kind) = &self.state.lock().kinds[place(kind)]
            && let Some(account) = kind.accounts.get(&entry.id)
        {
            entry.space_time = account.space.time;
            entry.inode_time = account.inodes.time;
        }
    }

    /// Owners whose time of grace has begun or ended since this was asked for last.
    pub(super) fn take_timed(&self, kind: QuotaKind) -> BTreeSet<u32> {
        let mut state = self.state.lock();
        let kind = state.kinds[place(kind)].as_mut();
        kind.map_or_else(BTreeSet::new, |kind| std::mem::take(&mut kind.timed))
    }

    /// Gives an owner other limits.
    pub(super) fn set_limits(&self, kind: QuotaKind, entry: &QuotaEntry) {
        let mut state = self.state.lock();
        if let Some(kind) = &mut state.kinds[place(kind)] {
            let account = kind.accounts.entry(entry.id).or_default();
            let kib = |kib: u64| kib.saturating_mul(1024);
            let (hard, soft) = (kib(entry.space_hard), kib(entry.space_soft));
            let (now, grace) = (now(), kind.inode_grace);
            account.space.limit(hard, soft, now, kind.space_grace);
            (account.inodes).limit(entry.inode_hard, entry.inode_soft, now, grace);
            kind.timed.insert(entry.id);
        }
    }

    /// Gives soft limits of this kind other times of grace, in seconds.
    pub(super) fn set_graces(&self, kind: QuotaKind, space: u32, inodes: u32) {
        if let Some(kind) = &mut self.state.lock().kinds[place(kind)] {
            (kind.space_grace, kind.inode_grace) = (space.into(), inodes.into());
        }
    }

    /// Promises `more` bytes to data of an inode, if its owners may have them or nobody is to be
    /// asked.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn promise(
        &self,
        ino: Ino,
        owners: [u32; 3],
        more: u64,
        reason: Reason,
    ) -> Result<()> {
        let now = now();
        let mut state = self.state.lock();
        let reserved = *state.reserved(ino, owners);
        let may = reason == Reason::LetIn || state.admits(reserved.owners, ALL, more, 0, now);
        if may && let Some(reserved) = state.reserved.get_mut(&ino) {
            reserved.delayed += more;
        }
        state.follow(ino, now);
        may.then_some(()).ok_or(Error::QuotaExceeded)
    }

    /// Notes what is promised to data of an inode by now, in bytes. Without `owners` it is no more
    /// than before.
    pub(crate) fn promised(&self, ino: Ino, owners: Option<[u32; 3]>, delayed: u64) {
        let mut state = self.state.lock();
        if let Some(owners) = owners {
            state.reserved(ino, owners);
        }
        if let Some(reserved) = state.reserved.get_mut(&ino) {
            let gone = reserved.delayed.saturating_sub(delayed);
            reserved.spent = reserved.spent.saturating_sub(gone);
            reserved.delayed = delayed;
            state.follow(ino, now());
        }
    }

    /// Notes that promises have been given up of all that was mapped: nodes are mapped beside what
    /// was promised.
    pub(crate) fn cap_spent(&self, ino: Ino) {
        let mut state = self.state.lock();
        if let Some(reserved) = state.reserved.get_mut(&ino) {
            reserved.spent = reserved.spent.min(reserved.granted);
            state.follow(ino, now());
        }
    }

    /// Reserves space for a change of an inode, until the result is dropped.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn grant(
        &self,
        ino: Ino,
        owners: [u32; 3],
        bytes: u64,
        reason: Reason,
    ) -> Result<Granted<'_>> {
        let now = now();
        let mut state = self.state.lock();
        let reserved = *state.reserved(ino, owners);
        let may = reason == Reason::LetIn || state.admits(reserved.owners, ALL, bytes, 0, now);
        if may && let Some(reserved) = state.reserved.get_mut(&ino) {
            reserved.granted += bytes;
        }
        state.follow(ino, now);
        if may {
            Ok(Granted {
                ledger: self,
                what: What::Space(ino, bytes),
            })
        } else {
            Err(Error::QuotaExceeded)
        }
    }

    /// How many bytes more an inode may get.
    pub(crate) fn room(&self, ino: Ino, owners: [u32; 3]) -> u64 {
        let now = now();
        let state = self.state.lock();
        let owners = state.reserved.get(&ino).map_or(owners, |r| r.owners);
        let mut room = u64::MAX;
        for (kind, id) in state.kinds.iter().zip(owners) {
            let account = kind.as_ref().and_then(|kind| kind.accounts.get(&id));
            let Some(side) = account.map(|account| account.space) else {
                continue;
            };
            let is_late = side.time != 0 && now >= side.time;
            for (limit, counts) in [(side.hard, true), (side.soft, is_late)] {
                if limit != 0 && counts {
                    room = room.min(limit.saturating_sub(side.used));
                }
            }
        }
        room
    }

    /// Lets so many inodes in that are going to be counted for `owners`; they are expected until
    /// the result is dropped.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn expect(
        &self,
        owners: [u32; 3],
        count: u64,
        reason: Reason,
    ) -> Result<Granted<'_>> {
        let now = now();
        let mut state = self.state.lock();
        if reason != Reason::LetIn && !state.admits(owners, ALL, 0, count, now) {
            return Err(Error::QuotaExceeded);
        }
        state.add(owners, ALL, 0, count, now);
        let births = state.births.entry(owners).or_default();
        births.granted += count;
        births.charged += count;
        Ok(Granted {
            ledger: self,
            what: What::Inodes(owners, count),
        })
    }

    /// Finds out whether the future owners of an inode in the place of `before` may have it with
    /// all that is reserved for it, and keeps room for it until the result is dropped.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`].
    pub(crate) fn expect_move(
        &self,
        ino: Ino,
        before: Share,
        to: [u32; 3],
        reason: Reason,
    ) -> Result<Granted<'_>> {
        let now = now();
        let mut state = self.state.lock();
        let from = before.owners();
        let which = [0, 1, 2].map(|i| from[i] != to[i]);
        let reserved = *state.reserved(ino, from);
        let space = before.space().saturating_add(reserved.charged);
        let may = reason == Reason::LetIn || state.admits(to, which, space, before.inodes(), now);
        if may {
            state.add(to, which, space, before.inodes(), now);
            state.reserved(ino, from).moving = Some((to, which, space));
        } else {
            state.follow(ino, now);
        }
        if may {
            Ok(Granted {
                ledger: self,
                what: What::Move(ino, before.inodes()),
            })
        } else {
            Err(Error::QuotaExceeded)
        }
    }

    /// The newest image of an inode is another one.
    pub(crate) fn change(&self, ino: Ino, before: Share, after: Share) {
        if before == after {
            return;
        }
        let now = now();
        let mut state = self.state.lock();
        let mut inodes = after.inodes();
        if let Some(births) = state.births.get_mut(&after.owners()) {
            let expected = inodes.saturating_sub(before.inodes()).min(births.charged);
            births.charged -= expected;
            inodes -= expected;
        }
        // What was reserved turns into what the record has. The account never falls in between.
        let gained = after.space().saturating_sub(before.space());
        let mut out = None;
        let mut kept = None;
        if let Some(reserved) = state.reserved.get_mut(&ino) {
            let part = gained.min(reserved.charged);
            reserved.charged -= part;
            reserved.spent += part;
            out = Some((reserved.owners, part));
            let moves = before != Share::NOTHING
                && after != Share::NOTHING
                && before.owners() != after.owners();
            if moves {
                kept = reserved.moving.take();
                let from = std::mem::replace(&mut reserved.owners, after.owners());
                let charged = reserved.charged;
                state.add(after.owners(), ALL, charged, 0, now);
                state.sub(from, ALL, charged, 0);
            }
        }
        if after != Share::NOTHING {
            state.add(after.owners(), ALL, after.space(), inodes, now);
        }
        if before != Share::NOTHING {
            state.sub(before.owners(), ALL, before.space(), before.inodes());
        }
        if let Some((owners, part)) = out {
            state.sub(owners, ALL, part, 0);
        }
        if let Some((to, which, space)) = kept {
            state.sub(to, which, space, before.inodes());
        }
    }
}

fn place(kind: QuotaKind) -> usize {
    match kind {
        QuotaKind::User => 0,
        QuotaKind::Group => 1,
        QuotaKind::Project => 2,
    }
}

/// Something that was let in and is kept until this goes.
#[derive(Debug)]
#[must_use = "what was let in is kept as long as this is"]
pub(crate) struct Granted<'l> {
    ledger: &'l Ledger,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Space(Ino, u64),
    Inodes([u32; 3], u64),
    Move(Ino, u64),
}

impl Drop for Granted<'_> {
    fn drop(&mut self) {
        let mut state = self.ledger.state.lock();
        match self.what {
            What::Space(ino, bytes) => {
                if let Some(reserved) = state.reserved.get_mut(&ino) {
                    reserved.granted = reserved.granted.saturating_sub(bytes);
                    reserved.spent = reserved.spent.saturating_sub(bytes);
                    state.follow(ino, now());
                }
            }
            What::Inodes(owners, count) => {
                let Some(births) = state.births.get_mut(&owners) else {
                    return;
                };
                births.granted = births.granted.saturating_sub(count);
                let left = births.charged.saturating_sub(births.granted);
                births.charged -= left;
                if births.granted == 0 {
                    state.births.remove(&owners);
                }
                state.sub(owners, ALL, 0, left);
            }
            What::Move(ino, inodes) => {
                let Some(reserved) = state.reserved.get_mut(&ino) else {
                    return;
                };
                if let Some((to, which, space)) = reserved.moving.take() {
                    state.sub(to, which, space, inodes);
                }
                state.follow(ino, now());
            }
        }
    }
}

impl Enforced {
    /// Whether owners of this kind are held to limits.
    pub(super) fn has(self, kind: QuotaKind) -> bool {
        match kind {
            QuotaKind::User => self.users,
            QuotaKind::Group => self.groups,
            QuotaKind::Project => self.projects,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_its_place_counts_once_while_more_is_promised() {
        let info = QuotaInfo::empty(QuotaKind::User);
        let ledger = Ledger::new([Some(&info), None, None]);
        let owners = [7, 7, 0];
        let limit = QuotaEntry {
            space_hard: 12,
            ..QuotaEntry::of(7)
        };
        ledger.set_limits(QuotaKind::User, &limit);
        let share = |blocks: u64| Share::made(owners, blocks << 10);
        let used = || ledger.in_use(QuotaKind::User, 7).unwrap()[0] >> 10;
        let ino = Ino::new(20);
        ledger.change(ino, Share::NOTHING, share(0));
        ledger
            .promise(ino, owners, 10 << 10, Reason::Asked)
            .unwrap();
        // Written back, which the keeper of the promises was not told of yet.
        ledger.change(ino, share(0), share(10));
        assert_eq!(used(), 10);
        ledger.promise(ino, owners, 1 << 10, Reason::Asked).unwrap();
        assert_eq!(used(), 11);
        ledger.promise(ino, owners, 1 << 10, Reason::Asked).unwrap();
        ledger.promised(ino, None, 2 << 10);
        ledger.cap_spent(ino);
        assert_eq!(used(), 12);
        ledger.change(ino, share(10), share(12));
        ledger.promised(ino, None, 0);
        ledger.cap_spent(ino);
        assert_eq!(used(), 12);
        ledger
            .promise(ino, owners, 1 << 10, Reason::Asked)
            .unwrap_err();
        assert!(ledger.state.lock().reserved.is_empty());
    }
}
