//! What became of each block, by the bitmaps in the log and by the one that lies there now.

use crate::Journal;
use crate::error::{Error, Result};
use crate::timeline::{Moment, Timeline};
use crate::volume::Volume;
use extant_format::{Group, bitmap};

/// What became of the clusters of one group.
#[derive(Debug)]
pub(crate) struct Fates {
    /// The bitmap now; `None` where all is free but fixed structures.
    now: Option<Vec<u8>>,
    /// By cluster, the last moment in which it was taken and freed, plus one.
    taken: Vec<Moment>,
    freed: Vec<Moment>,
    /// The first image of the bitmap.
    first: Option<(Moment, Vec<u8>)>,
    /// The last moment in which the bitmap was logged.
    last: Option<Moment>,
}

/// What became of a cluster since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in use.
    InUse,
    /// It was given away since, and is free again.
    GivenAway,
    /// It was freed by the last transaction that changed the bitmap at all.
    Untouched(Moment),
    /// It is free, and the log says nothing more.
    Free,
}

impl Fates {
    pub(crate) fn read(
        volume: &Volume,
        journal: Option<&Journal>,
        timeline: &Timeline,
        group: Group,
    ) -> Result<Self> {
        let clusters = volume.geo.clusters_per_group();
        let mut fates = Self {
            now: volume.block_bitmap(group)?,
            taken: Vec::new(),
            freed: Vec::new(),
            first: None,
            last: None,
        };
        let (Some(state), Some(journal)) = (volume.group(group), journal) else {
            return Ok(fates);
        };
        let images = timeline.images_of(state.desc.block_bitmap.get());
        if images.is_empty() {
            return Ok(fates);
        }
        fates.taken = vec![0; clusters as usize];
        fates.freed = vec![0; clusters as usize];
        let log = journal.log()?;
        let mut before: Option<Vec<u8>> = None;
        let mut bytes = vec![0; volume.block_size().len()];
        for (_, at, image) in images {
            log.read_logged(image, &mut bytes)
                .map_err(Error::of_journal)?;
            match &before {
                Some(before) => fates.compare(before, &bytes, *at),
                None => fates.first = Some((*at, bytes.clone())),
            }
            fates.last = Some(*at);
            before = Some(bytes.clone());
        }
        Ok(fates)
    }

    /// Notes what is different in two bitmaps that follow each other.
    fn compare(&mut self, before: &[u8], after: &[u8], at: Moment) {
        let bits = 0..self.taken.len() as u32;
        for (byte, (a, b)) in (0..).zip(before.iter().zip(after)) {
            if a == b {
                continue;
            }
            for bit in (byte * 8..byte * 8 + 8).filter(|bit| bits.contains(bit)) {
                let (was, is) = (bitmap::test(before, bit), bitmap::test(after, bit));
                let events = match (was, is) {
                    (false, true) => &mut self.taken,
                    (true, false) => &mut self.freed,
                    _ => continue,
                };
                if let Some(event) = events.get_mut(bit as usize) {
                    *event = at + 1;
                }
            }
        }
    }

    /// What became of a cluster that a file had at `since`.
    pub(crate) fn since(&self, cluster: u32, since: Option<Moment>) -> Fate {
        let is_set = |map: &Vec<u8>| bitmap::test(map, cluster);
        if self.now.as_ref().is_some_and(is_set) {
            return Fate::InUse;
        }
        let event = |events: &[Moment]| {
            let moment = events.get(cluster as usize).copied().unwrap_or(0);
            moment.checked_sub(1)
        };
        let Some(since) = since else {
            return Fate::Free;
        };
        if event(&self.taken).is_some_and(|taken| taken > since) {
            return Fate::GivenAway;
        }
        // It was taken at `since`: where the first image behind that has it free, that freed it.
        let by_first = self
            .first
            .as_ref()
            .and_then(|(at, map)| (*at > since && !bitmap::test(map, cluster)).then_some(*at));
        match (event(&self.freed).or(by_first), self.last) {
            (Some(freed), Some(last)) if freed == last && freed > since => Fate::Untouched(freed),
            _ => Fate::Free,
        }
    }
}
