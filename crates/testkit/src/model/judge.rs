//! Whether any legal state fits what was recovered, and a sentence if none does.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::compare::{Comparison, LaneTree};
use super::data::When;
use super::history::{History, Lane, Outcome, Step, Sync, mark_of};
use super::state::Id;
use super::{FoundKind, Recovered};
use crate::crash::{CrashImage, CrashLog};

/// No legal state fits: why, with the seed of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Illegal {
    reason: String,
    seed: u64,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (seed {:#x})", self.reason, self.seed)
    }
}

impl std::error::Error for Illegal {}

/// Where an operation began and ended in the log.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    begin: usize,
    end: usize,
    /// When it was certainly over: it ended, or the next one of its lane began.
    over: usize,
}

/// A completed sync.
#[derive(Debug)]
struct Barrier {
    end: usize,
    /// For each lane, how many operations it made durable.
    prefixes: Vec<usize>,
    data: BarrierData,
}

#[derive(Debug)]
enum BarrierData {
    /// Writes to one file, before an operation of one lane.
    One(usize, Id, usize),
    /// All writes, before an operation of each lane.
    All,
}

/// What is promised at one moment.
#[derive(Debug)]
struct Moment {
    point: usize,
    /// For each lane: operations that must be there, and operations that may be.
    bounds: Vec<(usize, usize)>,
    durable: HashMap<(usize, Id), usize>,
    durable_all: Vec<usize>,
}

/// Judges crash images of one run.
#[derive(Debug)]
pub struct Judge<'a> {
    history: &'a History,
    spans: Vec<Vec<Span>>,
    barriers: Vec<Barrier>,
    last: Mutex<Option<Arc<Moment>>>,
}

impl<'a> Judge<'a> {
    /// Returns a judge of what a crash in the run recorded in `log` may leave.
    pub fn new(history: &'a History, log: &CrashLog) -> Judge<'a> {
        let span = |lane: &Lane, op: usize| {
            if op < lane.durable_steps() {
                return Span::default();
            }
            let position = |op, is_end| {
                let place = log.position_of(mark_of(lane.number(), op, is_end));
                place.unwrap_or(usize::MAX)
            };
            Span {
                begin: position(op, false),
                end: position(op, true),
                over: position(op, true).min(position(op + 1, false)),
            }
        };
        Judge::with_spans(history, |lane| {
            (0..lane.len()).map(|op| span(lane, op)).collect()
        })
    }

    fn with_spans(history: &'a History, spans: impl Fn(&Lane) -> Vec<Span>) -> Judge<'a> {
        let spans: Vec<Vec<Span>> = history.lanes.iter().map(spans).collect();
        let mut judge = Judge {
            history,
            spans,
            barriers: Vec::new(),
            last: Mutex::new(None),
        };
        judge.barriers = judge.find_barriers();
        judge
    }

    fn find_barriers(&self) -> Vec<Barrier> {
        let mut barriers = Vec::new();
        for (l, lane) in self.history.lanes.iter().enumerate() {
            for (op, step) in lane.steps().iter().enumerate() {
                let Some(sync) = step.sync.filter(|_| step.outcome == Outcome::Done) else {
                    continue;
                };
                let (upto, data) = match sync {
                    Sync::One { id, last_change } => (last_change, BarrierData::One(l, id, op)),
                    Sync::All => (Some(op), BarrierData::All),
                };
                let began = upto.map_or(0, |upto| self.spans[l][upto].begin);
                let mut prefixes: Vec<usize> = (0..self.spans.len())
                    .map(|other| self.ended_before(other, began))
                    .collect();
                prefixes[l] = match sync {
                    Sync::One { .. } => upto.map_or(0, |upto| upto + 1),
                    Sync::All => op,
                };
                barriers.push(Barrier {
                    end: self.spans[l][op].end,
                    prefixes,
                    data,
                });
            }
        }
        barriers.sort_by_key(|barrier| barrier.end);
        barriers
    }

    /// How many operations of a lane had ended before a place in the log.
    fn ended_before(&self, lane: usize, place: usize) -> usize {
        let durable_steps = self.history.lanes[lane].durable_steps();
        durable_steps + self.spans[lane][durable_steps..].partition_point(|span| span.over < place)
    }

    fn moment(&self, point: usize) -> Arc<Moment> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(moment) = last.as_ref().filter(|moment| moment.point == point) {
            return Arc::clone(moment);
        }
        let lanes = &self.history.lanes;
        let mut moment = Moment {
            point,
            bounds: Vec::new(),
            durable: HashMap::new(),
            durable_all: lanes.iter().map(Lane::durable_steps).collect(),
        };
        for (lane, spans) in lanes.iter().zip(&self.spans) {
            let durable_steps = lane.durable_steps();
            let begun = spans[durable_steps..].partition_point(|span| span.begin < point);
            moment.bounds.push((durable_steps, durable_steps + begun));
        }
        let over = self.barriers.partition_point(|b| b.end < point);
        for barrier in &self.barriers[..over] {
            for (bound, prefix) in moment.bounds.iter_mut().zip(&barrier.prefixes) {
                bound.0 = bound.0.max(*prefix);
            }
            match barrier.data {
                BarrierData::One(lane, id, op) => {
                    let durable = moment.durable.entry((lane, id)).or_default();
                    *durable = op.max(*durable);
                }
                BarrierData::All => {
                    for (durable, prefix) in moment.durable_all.iter_mut().zip(&barrier.prefixes) {
                        *durable = prefix.max(durable).to_owned();
                    }
                }
            }
        }
        let moment = Arc::new(moment);
        *last = Some(Arc::clone(&moment));
        moment
    }

    /// Returns whether `found`, recovered from `image`, is legal. Returns how many operations of
    /// each lane are in it.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn image(&self, image: &CrashImage, found: &Recovered) -> Result<Vec<usize>, Illegal> {
        self.at(&self.moment(image.point()), found)
            .map_err(|e| Illegal {
                reason: format!("{}; {image}", e.reason),
                ..e
            })
    }

    /// As [`Judge::image`], for a crash when `point` events of the log had happened.
    ///
    /// # Errors
    ///
    /// Why it is not legal.
    pub fn point(&self, point: usize, found: &Recovered) -> Result<Vec<usize>, Illegal> {
        self.at(&self.moment(point), found)
    }

    fn at(&self, moment: &Moment, found: &Recovered) -> Result<Vec<usize>, Illegal> {
        let illegal = |reason| Illegal {
            reason,
            seed: self.history.seed,
        };
        self.history.check_strangers(found).map_err(illegal)?;
        let mut fitting = Vec::new();
        for lane in 0..self.history.lanes.len() {
            fitting.push(self.fitting(lane, moment, found).map_err(illegal)?);
        }
        self.cut(&fitting, moment).map_err(illegal)
    }

    /// The prefixes of a lane that fit, ascending.
    fn fitting(
        &self,
        number: usize,
        moment: &Moment,
        found: &Recovered,
    ) -> Result<Vec<usize>, String> {
        let lane = &self.history.lanes[number];
        let tree = lane.tree_in(self.history, found);
        let (least, most) = moment.bounds[number];
        let durable = |id| {
            let one = moment.durable.get(&(number, id)).copied();
            one.unwrap_or(0).max(moment.durable_all[number])
        };
        let differences = |prefix, limit| {
            let when = When {
                lane: lane.number(),
                prefix,
                begun: most,
                size: 0,
                durable: 0,
                promise: self.history.promise,
            };
            let comparison = Comparison {
                lane,
                when,
                durable: &durable,
            };
            comparison.differences(&tree, limit)
        };
        let fits = |prefix: &usize| differences(*prefix, 1).is_empty();
        let all = (least..=most).rev();
        // A lone lane needs no more than one.
        let mut fitting: Vec<usize> = match self.history.lanes.len() {
            1 => all.filter(fits).take(1).collect(),
            _ => all.filter(fits).collect(),
        };
        fitting.reverse();
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        let closest = (least..=most)
            .map(|prefix| (prefix, differences(prefix, 50)))
            .min_by_key(|(prefix, differences)| (differences.len(), usize::MAX - prefix));
        let Some((prefix, what)) = closest else {
            return Err(format!(
                "{least} operations of lane {} must be there, but only {most} had begun",
                lane.number()
            ));
        };
        Err(self.explain(lane, (least, most), prefix, &what))
    }

    fn explain(
        &self,
        lane: &Lane,
        (least, most): (usize, usize),
        prefix: usize,
        what: &[String],
    ) -> String {
        let name = |count: usize| match count.checked_sub(1) {
            Some(last) => format!("operation {last} ({})", lane.steps()[last].op),
            None => "no operation".to_owned(),
        };
        let promised = match least {
            0 => "nothing was promised".to_owned(),
            _ => format!("{} was promised to last", name(least)),
        };
        let shown = what.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        let more = match what.len().saturating_sub(4) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "lane {}: {promised} and {} had begun, but no state in between fits; after {}: \
             {shown}{more}",
            lane.number(),
            name(most),
            name(prefix),
        )
    }

    /// One fitting prefix for each lane such that nothing is there without what ended before it
    /// began.
    fn cut(&self, fitting: &[Vec<usize>], moment: &Moment) -> Result<Vec<usize>, String> {
        let mut cut: Vec<usize> = fitting.iter().map(|all| all[0]).collect();
        loop {
            let mut moved = false;
            for lane in 0..cut.len() {
                let Some(last) = cut[lane].checked_sub(1) else {
                    continue;
                };
                let began = self.spans[lane][last].begin;
                for other in (0..cut.len()).filter(|other| *other != lane) {
                    let needed = self.ended_before(other, began);
                    if cut[other] >= needed {
                        continue;
                    }
                    let next = fitting[other].iter().find(|prefix| **prefix >= needed);
                    let Some(next) = next else {
                        let (l, o) = (&self.history.lanes[lane], &self.history.lanes[other]);
                        return Err(format!(
                            "operation {last} of lane {} ({}) is there, but operation {} of lane {} \
                             ({}), which ended before it began, is not",
                            l.number(),
                            l.steps()[last].op,
                            needed - 1,
                            o.number(),
                            o.steps()[needed - 1].op,
                        ));
                    };
                    cut[other] = *next;
                    moved = true;
                }
            }
            if !moved {
                debug_assert!(cut.len() == moment.bounds.len());
                return Ok(cut);
            }
        }
    }
}

impl History {
    /// Returns whether `found` is what all operations made, with everything that was written: for a
    /// file system that is mounted, or was closed cleanly.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check_final(&self, found: &Recovered) -> Result<(), Illegal> {
        let judge = Judge::with_spans(self, |lane| vec![Span::default(); lane.len()]);
        // What failed at the end may be there or not.
        let certain = |lane: &Lane| {
            let steps = lane.steps();
            let is_open = |step: &Step| matches!(step.outcome, Outcome::Unknown(_));
            lane.len() - usize::from(steps.last().is_some_and(is_open))
        };
        let bounds = self.lanes.iter().map(|lane| (certain(lane), lane.len()));
        let moment = Moment {
            point: usize::MAX,
            bounds: bounds.collect(),
            durable: HashMap::new(),
            durable_all: self.lanes.iter().map(certain).collect(),
        };
        judge.at(&moment, found).map(drop)
    }

    /// Refuses what no lane owns.
    fn check_strangers(&self, found: &Recovered) -> Result<(), String> {
        for (path, what) in &found.entries {
            let is_known = self.lanes.iter().any(|lane| lane.owns(path)) || self.is_bystander(path);
            let leads_to = |lane: &Lane| path.is_empty() || is_inside(lane.prefix(), path);
            let is_way = what.kind == FoundKind::Directory && self.lanes.iter().any(leads_to);
            if !is_known && !is_way {
                return Err(format!("{path} should not be there"));
            }
        }
        Ok(())
    }

    fn is_bystander(&self, path: &str) -> bool {
        self.bystanders.iter().any(|other| is_inside(path, other))
    }
}

/// Whether `path` is `above` or lies below it.
fn is_inside(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Lane {
    fn owns(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix())
            .is_some_and(|rest| !rest.is_empty())
    }

    /// What was found of this lane.
    fn tree_in<'a>(&self, history: &History, found: &'a Recovered) -> LaneTree<'a> {
        let prefix = self.prefix();
        let mut tree: LaneTree<'a> = found
            .entries
            .iter()
            .filter(|(path, _)| !history.is_bystander(path))
            .filter_map(|(path, found)| Some((path.strip_prefix(prefix)?, found)))
            .filter(|(path, _)| !path.is_empty())
            .collect();
        if (prefix.is_empty() || prefix.ends_with('/'))
            && let Some(root) = found.entries.get(prefix.trim_end_matches('/'))
        {
            tree.insert("", root);
        }
        tree
    }
}
