//! The bench as a program: small runs of what works in an image, with their reports.

mod compare;
mod edit;
mod mounted;
mod remote;
mod report;
mod sources;

use extant_testkit::require;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs the bench and gives its standard output.
fn bench(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_extant-bench"))
        .args(args)
        .output()
        .expect("the bench starts");
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the bench, which has to fail, and gives what it says.
fn refused(args: &[&str]) -> String {
    refused_in(Path::new("."), args)
}

/// Runs the bench in the folder `dir`, where it has to fail, and gives what it says.
fn refused_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_extant-bench"))
        .current_dir(dir)
        .args(args)
        .output()
        .expect("the bench starts");
    assert!(!output.status.success(), "{args:?} succeeded");
    String::from_utf8(output.stderr).expect("text")
}

/// A small run of a workload on a 64 MiB image, one repetition, as JSON rows.
fn rows(args: &[&str]) -> Vec<Value> {
    let common = ["--runs", "1", "--image-mib", "64", "--json"];
    bench(&[args, &common].concat())
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object on each line"))
        .collect()
}

fn check_row(row: &Value) {
    for text in ["workload", "side", "variant", "unit", "better", "options"] {
        assert!(row[text].is_string(), "{text} in {row}");
    }
    for number in ["workers", "median", "min", "max"] {
        assert!(row[number].is_number(), "{number} in {row}");
    }
    assert_eq!(row["runs"].as_array().map(Vec::len), Some(1), "{row}");
    assert!(row["median"].as_f64() > Some(0.0), "{row}");
}

/// Side, variant and workers of each row.
fn cases(rows: &[Value]) -> Vec<(&str, &str, u64)> {
    rows.iter()
        .map(|r| {
            let text = |key: &str| r[key].as_str().expect("text");
            let workers = r["workers"].as_u64().expect("a number");
            (text("side"), text("variant"), workers)
        })
        .collect()
}

#[test]
fn metadata_measures_both_sides_with_each_worker_count() {
    require!(KernelExt4);
    let rows = rows(&["metadata", "--files", "600", "--workers", "1,2"]);
    rows.iter().for_each(check_row);
    let mut expected = Vec::new();
    for variant in ["create-own", "create-shared", "stat", "unlink"] {
        for workers in [1, 2] {
            expected.push(("engine", variant, workers));
            expected.push(("kernel", variant, workers));
        }
    }
    assert_eq!(cases(&rows), expected);
}

#[test]
fn fsync_reports_what_commits_carried_flushes_and_stops_beside_rates() {
    require!(KernelExt4);
    let measured = |args: &[&str]| rows(&[&["fsync", "--operations", "800"][..], args].concat());
    let rows = measured(&["--workers", "1,16"]);
    rows.iter().for_each(check_row);
    let expected = [
        ("engine", "default", 1),
        ("kernel", "default", 1),
        ("engine", "default", 16),
        ("kernel", "default", 16),
    ];
    assert_eq!(cases(&rows), expected);
    let figure = |row: usize, name: &str| {
        let value = rows[row]["figures"][name].as_f64();
        value.unwrap_or_else(|| panic!("{name} in {}", rows[row]))
    };
    for row in 0..rows.len() {
        let (commits, carried) = (figure(row, "commits"), figure(row, "operations per commit"));
        assert!(commits >= 1.0 && (commits * carried - 800.0).abs() < 0.01);
        assert!(figure(row, "flushes per operation") > 0.0);
    }
    for row in [0, 2] {
        let (average, longest) = (
            figure(row, "average stop in us"),
            figure(row, "longest stop in us"),
        );
        assert!(0.0 < average && average <= longest, "{}", rows[row]);
    }
    // A thread alone has none to share a commit with but the thread in the background, which comes
    // every few seconds; each append of his is one.
    assert!(figure(0, "merged into the commit of another") <= 5.0);
    assert!(
        (795.0..=805.0).contains(&figure(0, "commits")),
        "{}",
        rows[0]
    );
    // Of sixteen some do: the others' commits carry them, and the flushes are shared. (A machine
    // that is busy with other things may let one after the other do all its work in one go.)
    let sixteen = ["--workers", "16", "--against", "engine"];
    let again = std::iter::repeat_with(|| measured(&sixteen).remove(0)).take(20);
    let shared =
        |row: &Value| row["figures"]["merged into the commit of another"].as_f64() >= Some(1.0);
    let row = [rows[2].clone()].into_iter().chain(again).find(shared);
    let row = row.expect("sixteen workers share a commit in one run of 21");
    let figure_of = |name: &str| row["figures"][name].as_f64().expect("a figure");
    assert!(figure_of("commits") < 800.0, "{row}");
    assert!(figure_of("flushes per operation") < figure(0, "flushes per operation"));
}

#[test]
fn what_allocates_reports_fragmentation_beside_rates() {
    require!(KernelExt4);
    for (args, workers) in [
        (&["fallocate2", "--fallocations", "600"][..], 2),
        (&["append64", "--fallocations", "300"], 3),
        (&["sparse", "--writes", "200"], 1),
        (&["fill", "--fill-mib", "1"], 1),
        (&["fill4", "--fill-mib", "1"], 1),
        (&["smallfiles", "--files", "100"], 4),
        (
            &[
                "live",
                "--variant",
                "1e3,random-1e3",
                "--fallocations",
                "500",
            ],
            1,
        ),
    ] {
        let workers = workers.to_string();
        let rows = rows(&[args, &["--workers", &workers]].concat());
        rows.iter().for_each(check_row);
        assert!(rows.len().is_multiple_of(2), "{args:?}");
        for (row, side) in rows.iter().zip(["engine", "kernel"].iter().cycle()) {
            assert_eq!(row["side"], **side, "{args:?}");
            let free = row["figures"]["free extents"].as_f64();
            assert!(free >= Some(1.0), "{row}");
        }
    }
}

#[test]
fn forms_of_the_kernel_are_told_apart_by_their_options() {
    require!(KernelExt4);
    let rows = rows(&[
        "metadata",
        "--files",
        "50",
        "--workers",
        "1",
        "--variant",
        "unlink",
        "--peers-only",
        "--kernel",
        "plain,orphan-file",
    ]);
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0]["options"], rows[1]["options"]);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_can() {
    for (args, expected) in [
        (["metadata", "--variant", "rename"], "create-shared"),
        (["fsync", "--against", "mke2fs"], "peers: mount, kernel"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_extant-bench"))
            .args(args)
            .output()
            .expect("the bench starts");
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn overwrite_measures_each_variant_beside_what_bounds_it() {
    require!(KernelExt4);
    let rows = rows(&["overwrite", "--transfers", "4000", "--workers", "2"]);
    rows.iter().for_each(check_row);
    let expected = [
        ("engine", "direct", 2),
        ("raw", "direct", 2),
        ("kernel", "direct", 2),
        ("engine", "buffered", 2),
        ("kernel", "buffered", 2),
        ("engine", "dax", 2),
        ("memcpy", "dax", 2),
    ];
    assert_eq!(cases(&rows), expected);
    // No transfer takes part in a transaction.
    for row in rows.iter().filter(|row| row["side"] == "engine") {
        assert_eq!(row["figures"]["commits"].as_f64(), Some(0.0), "{row}");
        assert_eq!(
            row["figures"]["handles per commit"].as_f64(),
            Some(0.0),
            "{row}"
        );
    }
}

/// Runs two workers of the engine, which fails if they share anything.
#[cfg(feature = "lockstat")]
fn share_nothing(workload: &str, variant: &'static str, amount: [&str; 2]) {
    let mut args = vec![workload, "--variant", variant, "--workers", "2"];
    args.extend(amount);
    args.extend(["--engine-only", "--locks"]);
    assert_eq!(cases(&rows(&args)), [("engine", variant, 2)]);
}

#[cfg(feature = "lockstat")]
#[test]
fn overwriting_past_memory_shares_nothing_between_workers() {
    share_nothing("overwrite", "direct", ["--transfers", "40000"]);
}

#[cfg(feature = "lockstat")]
#[test]
fn looking_at_inodes_in_memory_shares_nothing_between_workers() {
    share_nothing("bulkstat", "warm", ["--inodes", "50000"]);
}

#[cfg(feature = "lockstat")]
#[test]
fn looking_up_names_that_are_known_shares_nothing_between_workers() {
    share_nothing("metadata", "stat", ["--files", "50000"]);
}

#[cfg(feature = "lockstat")]
#[test]
fn reserving_space_for_files_shares_nothing_between_workers() {
    share_nothing("fallocate2", "default", ["--fallocations", "200000"]);
}

#[cfg(feature = "lockstat")]
#[test]
fn noting_orphans_in_the_orphan_file_shares_nothing_between_workers() {
    share_nothing("orphan", "file", ["--truncations", "100000"]);
}

#[cfg(feature = "lockstat")]
#[test]
fn no_operation_of_any_mechanism_needs_more_the_more_workers_there_are() {
    let amounts = "--transfers 4000 --fallocations 4000 --inodes 3000 --truncations 8000 \
                   --writes 2000 --fill-mib 2 --files 2000";
    let common = "shares --runs 1 --image-mib 64 --workers 1,2,16";
    let args: Vec<&str> = common
        .split(' ')
        .chain(amounts.split_whitespace())
        .collect();
    // It fails if one does.
    let list = bench(&args);
    for mechanism in [
        "preallocations",
        "allocation",
        "inodes in memory",
        "orphans",
        "overwrites",
    ] {
        assert!(
            list.contains(&format!("| {mechanism} |")),
            "{mechanism} in {list}"
        );
    }
    let rows = list.lines().filter(|line| line.starts_with("| "));
    // With the names of the columns.
    assert_eq!(rows.count(), 1 + 24, "{list}");
}

/// Each variant, and `fsync`, with what its operations cost in locks.
#[cfg(feature = "lockstat")]
#[test]
fn a_table_of_locks_comes_with_each_variant() {
    let common = ["--runs", "1", "--image-mib", "64", "--workers", "2"];
    let amount = ["--files", "400", "--operations", "100"];
    let tables = |workload: &str| {
        bench(
            &[
                &[workload, "--engine-only", "--locks"],
                &common[..],
                &amount,
            ]
            .concat(),
        )
    };
    let metadata = tables("metadata");
    for variant in ["create-own", "create-shared", "stat", "unlink"] {
        let title = format!("\nmetadata {variant}, engine, 2 workers\n");
        let Some((_, table)) = metadata.split_once(&title) else {
            panic!("no {title:?} in {metadata}");
        };
        let table = table.split("\nmetadata ").next().unwrap_or_default();
        for column in [
            "acq/op",
            "contended/op",
            "hold avg ns",
            "hold max ns",
            "rmw/op",
        ] {
            assert!(table.contains(column), "{column} in {table}");
        }
        assert!(
            table.contains("\nall: ") && table.contains("\nbound: "),
            "{table}"
        );
        // An operation takes the lock of its name, but for one that only looks at it.
        let row = table
            .lines()
            .find(|line| line.trim_start().starts_with("name  "));
        let per_operation = row.and_then(|row| row.split_whitespace().nth(1)?.parse::<f64>().ok());
        match variant {
            "stat" => assert!(per_operation.is_none_or(|n| n < 0.01), "{table}"),
            _ => assert!(per_operation >= Some(1.0), "{table}"),
        }
    }
    // The journal's part, and how long commits kept others waiting.
    assert!(metadata.contains("average stop in us"), "{metadata}");
    let fsync = tables("fsync");
    assert!(
        fsync.contains("\nfsync default, engine, 2 workers\n"),
        "{fsync}"
    );
    assert!(fsync.contains("journal progress"), "{fsync}");
}
