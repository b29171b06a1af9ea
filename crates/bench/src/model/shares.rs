//! `shares`: how often an operation of each mechanism's workloads takes a lock or changes an
//! atomic, by workers, and how much of that others of them do too.
//!
//! | column | what it is |
//! |---|---|
//! | uses | locks taken and atomics changed by an operation, whoever has them |
//! | shared | each use, weighted by the chance that another worker's is of the same lock or atomic ([`stat::meetings`]) |
//!
//! Workers stay on processors, by turns, but for those that the engine starts (`bulkstat`). What is
//! shared is told for as many workers as there are processors: more of them share what
//! each processor has one of, which costs nobody a cache line. Uses are told for all: one that
//! grows is a search that gets longer, or an attempt that is made again. More workers are compared
//! with one and two, which are always measured: of what is shared, that takes a third processor.

use super::{MEASURED, Seen, look};
use crate::args::{Config, KernelForm, Side, WorkloadName};
use crate::crew;
use crate::runner;
use crate::workload::Case;
use extant_sync::stat;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::thread;

/// The workloads of a mechanism, and their variants.
type Subject = (&'static str, WorkloadName, &'static [&'static str]);

const DELAYED_OR_NOT: &[&str] = &["delalloc", "nodelalloc"];

const SUBJECTS: &[Subject] = &[
    ("preallocations", WorkloadName::Sparse, DELAYED_OR_NOT),
    ("preallocations", WorkloadName::Fill, DELAYED_OR_NOT),
    ("preallocations", WorkloadName::Fill4, DELAYED_OR_NOT),
    ("preallocations", WorkloadName::Smallfiles, DELAYED_OR_NOT),
    ("allocation", WorkloadName::Fallocate2, &["default"]),
    ("allocation", WorkloadName::Append64, &["default"]),
    (
        "inodes in memory",
        WorkloadName::Bulkstat,
        &["warm", "cold", "cycle", "recycle", "tables"],
    ),
    (
        "orphans",
        WorkloadName::Orphan,
        &[
            "file",
            "file-blocks",
            "file-unlink",
            "list",
            "list-blocks",
            "list-unlink",
        ],
    ),
    (
        "overwrites",
        WorkloadName::Overwrite,
        &["direct", "buffered", "dax"],
    ),
];

/// Worker counts unless others are asked for, beside those that more are compared with.
const WORKERS: &[usize] = &[1, 2, 4, 16, 64];

/// What many workers may need more of than few, as a factor and in uses of an operation: an image
/// of which many use the groups has no two alike.
const MORE: (f64, f64) = (1.25, 0.25);

/// Uses of an operation, of which fewer are not named.
const NAMED: f64 = 0.02;

/// A row of the list.
#[derive(Debug, Default)]
struct Line {
    mechanism: &'static str,
    title: String,
    /// By workers.
    uses: Vec<(usize, f64)>,
    /// By workers, as far as there are processors.
    shared: Vec<(usize, f64)>,
    /// What most workers of these share, by how much.
    classes: Vec<(String, f64)>,
}

/// Measures and prints the list.
///
/// # Errors
/// A build without statistics, a measurement that fails, or an operation that needs more the more
/// workers there are.
pub(crate) fn run(config: &Config) -> Result<(), String> {
    if !stat::enabled() {
        return Err("shares needs a build with `--features lockstat`".to_owned());
    }
    let config = Config {
        locks: true,
        ..config.clone()
    };
    crew::spread();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let workers = counts(config.workers.as_deref().unwrap_or(WORKERS));
    let mut lines = Vec::new();
    for (mechanism, name, variants) in SUBJECTS {
        let mut workload = runner::workload(*name, &config)?;
        for variant in *variants {
            let mut seen = Vec::new();
            for &workers in &workers {
                let case = Case {
                    side: Side::Engine,
                    variant,
                    workers,
                    form: KernelForm::Plain,
                };
                seen.push((workers, look(&config, &mut *workload, &case)?));
            }
            lines.push(Line {
                mechanism,
                title: format!("{} {variant}", workload.name()),
                ..line(&seen, processors)
            });
        }
    }
    println!("{}", table(&lines, processors));
    let grown: Vec<String> = lines.iter().filter_map(Line::grows).collect();
    if grown.is_empty() {
        Ok(())
    } else {
        Err(format!("more workers need more: {}", grown.join("; ")))
    }
}

/// The worker counts that are measured if these are asked for, fewest first: also those that more
/// are compared with.
fn counts(asked: &[usize]) -> BTreeSet<usize> {
    asked.iter().copied().chain(MEASURED).collect()
}

/// What was seen by workers, one worker first.
fn line(seen: &[(usize, Seen)], processors: usize) -> Line {
    let mut line = Line::default();
    let Some((_, alone)) = seen.first() else {
        return line;
    };
    for (workers, together) in seen {
        let per_operation = |uses: u64| uses as f64 / together.operations as f64;
        let all: u64 = together.classes.values().map(|used| used.uses).sum();
        line.uses.push((*workers, per_operation(all)));
        if *workers < 2 || *workers > processors {
            continue;
        }
        line.classes = together
            .classes
            .iter()
            .map(|(name, used)| {
                let single = alone.classes.get(name).copied().unwrap_or_default();
                let met = stat::meetings(
                    (single.uses, single.squares),
                    (used.uses, used.squares),
                    *workers,
                );
                (name.clone(), met * per_operation(used.uses))
            })
            .collect();
        let shared = line.classes.iter().map(|(_, shared)| shared).sum();
        line.shared.push((*workers, shared));
    }
    line.classes.retain(|(_, shared)| *shared >= NAMED);
    line.classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    line
}

impl Line {
    /// What grows with workers, in words.
    fn grows(&self) -> Option<String> {
        let more = |what: &str, by_workers: &[(usize, f64)], from: usize| {
            let few = by_workers
                .iter()
                .take_while(|(workers, _)| *workers <= from);
            let few = few.map(|(_, few)| *few).fold(0.0, f64::max);
            let (workers, many) = by_workers.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            (*many > few * MORE.0 + MORE.1).then(|| {
                format!(
                    "{}: {many:.2} {what} by one of {workers} workers, {few:.2} by one of {from}",
                    self.title
                )
            })
        };
        let few = MEASURED[1];
        more("uses", &self.uses, few).or_else(|| more("shared", &self.shared, few))
    }
}

/// The list as a table of Markdown.
fn table(lines: &[Line], processors: usize) -> String {
    let mut table = String::new();
    let columns = |of: fn(&Line) -> &[(usize, f64)]| -> Vec<String> {
        let first = lines.first().map_or(&[][..], of);
        first.iter().map(|(n, _)| n.to_string()).collect()
    };
    let (uses, shared) = (columns(|line| &line.uses), columns(|line| &line.shared));
    let _ = writeln!(
        table,
        "| mechanism | workload | uses, {} workers | shared, {} workers | what is shared |\n\
         |---|---|--:|--:|---|",
        uses.join(" / "),
        shared.join(" / ")
    );
    let figures = |by_workers: &[(usize, f64)]| -> String {
        let each = by_workers.iter().map(|(_, n)| format!("{n:.2}"));
        each.collect::<Vec<_>>().join(" / ")
    };
    for line in lines {
        let classes = line.classes.iter().take(4);
        let classes: Vec<String> = classes.map(|(name, n)| format!("{name} {n:.2}")).collect();
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} |",
            line.mechanism,
            line.title,
            figures(&line.uses),
            figures(&line.shared),
            classes.join("; ")
        );
    }
    let _ = write!(table, "\n{processors} processors; growth of uses is judged");
    // Two workers are compared with none.
    let is_more = |(workers, _): &(usize, f64)| *workers > MEASURED[1];
    let shared_too = lines.iter().any(|line| line.shared.iter().any(is_more));
    table.push_str(if shared_too {
        ", and that of what is shared"
    } else {
        ", that of what is shared is not: it takes three workers on three processors"
    });
    table
}

#[cfg(test)]
mod tests {
    use super::super::Used;
    use super::*;

    fn seen(uses: &[(&str, u64, u64)]) -> Seen {
        let class = |&(name, uses, squares): &(&str, u64, u64)| {
            let used = Used {
                uses,
                squares,
                held_ns: 0,
            };
            (name.to_owned(), used)
        };
        Seen {
            rate: 1.0,
            operations: 1000,
            classes: uses.iter().map(class).collect(),
        }
    }

    #[test]
    fn what_each_has_of_its_own_is_used_and_not_shared() {
        let alone = seen(&[("all", 1000, 1_000_000), ("own", 2000, 4_000_000)]);
        let both = seen(&[("all", 1000, 1_000_000), ("own", 2000, 2_000_000)]);
        let many = seen(&[("all", 1000, 1_000_000), ("own", 2000, 500_000)]);
        let found = line(&[(1, alone), (2, both), (8, many)], 2);
        assert_eq!(found.uses, [(1, 3.0), (2, 3.0), (8, 3.0)]);
        assert_eq!(found.shared, [(2, 1.0)]);
        assert_eq!(found.classes, [("all".to_owned(), 1.0)]);
        assert_eq!(found.grows(), None);
        let text = table(&[found], 2);
        assert!(
            text.contains("| 3.00 / 3.00 / 3.00 | 1.00 | all 1.00 |"),
            "{text}"
        );
    }

    #[test]
    fn any_workers_are_compared_with_one_and_two() {
        for asked in [&[4, 16][..], &[16, 2], &[16, 4, 1]] {
            let seen = counts(asked).into_iter().map(|workers| {
                let squares = 1_000_000 / workers as u64;
                (workers, seen(&[("own", 1000, squares)]))
            });
            let found = line(&seen.collect::<Vec<_>>(), 2);
            let first: Vec<usize> = found.uses.iter().take(2).map(|seen| seen.0).collect();
            assert_eq!(first, MEASURED);
            // Each of two has its own, as seen beside one alone.
            assert_eq!(found.shared, [(2, 0.0)], "{asked:?}");
            assert_eq!(found.grows(), None, "{asked:?}");
        }
    }

    #[test]
    fn more_that_is_shared_is_judged_where_three_have_a_processor_each() {
        let by_workers = || {
            let [alone, both] = [1_000_000, 500_000].map(|squares| seen(&[("own", 1000, squares)]));
            [
                (1, alone),
                (2, both),
                (4, seen(&[("own", 1000, 1_000_000)])),
            ]
        };
        let two = line(&by_workers(), 2);
        assert_eq!(two.grows(), None);
        let text = table(&[two], 2);
        assert!(text.ends_with("shared is not: it takes three workers on three processors"));
        let four = line(&by_workers(), 4);
        let told = four.grows().unwrap_or_default();
        assert!(
            told.contains("1.00 shared by one of 4 workers, 0.00"),
            "{told}"
        );
        assert!(table(&[four], 4).ends_with("judged, and that of what is shared"));
    }

    #[test]
    fn a_search_that_gets_longer_is_told() {
        let one = || seen(&[("group", 1000, 1_000_000)]);
        let longer = seen(&[("group", 2000, 4_000_000)]);
        let found = line(&[(1, one()), (2, one()), (16, longer)], 2);
        let told = found.grows().unwrap_or_default();
        assert!(
            told.contains("2.00 uses by one of 16 workers, 1.00"),
            "{told}"
        );
        assert_eq!(
            line(&[(1, one()), (2, one()), (16, one())], 2).grows(),
            None
        );
    }
}
