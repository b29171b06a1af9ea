//! Which thread loads which block right now, and which wait for it.

use super::BlockRef;
use crate::Result;
use extant_format::Pblk;
use extant_sync::{LockClass, Rank};

static CLAIMS: LockClass = LockClass::new("meta claims", Rank::CacheLoad);
static OUTCOME: LockClass = LockClass::new("meta load", Rank::CacheLoad);

const SHARDS: usize = 64;

/// The loads in flight: of a block, or the device failed at this very block.
pub(super) type InFlight = extant_sync::InFlight<Pblk, Result<BlockRef>>;
/// The duty to load a block.
pub(super) type Claim<'a> = extant_sync::Claim<'a, Pblk, Result<BlockRef>>;
/// What came of trying to claim a block.
pub(super) type Claimed<'a> = extant_sync::Claimed<'a, Pblk, Result<BlockRef>, BlockRef>;

/// No loads.
pub(super) fn none() -> InFlight {
    InFlight::new(&CLAIMS, &OUTCOME, SHARDS, |block| block.get() as usize)
}
