//! Two images compared, one made like a directory, and one listed as it is mended. The command that
//! is measured is the one beside the bench.

use crate::{cases, check_row, rows};
use extant_testkit::require;

#[test]
fn comparing_measures_both_sides_that_find_the_same() {
    require!(KernelExt4);
    let rows = rows(&[
        "compare",
        "--entries",
        "400",
        "--bytes",
        "2000000",
        "--workers",
        "2",
    ]);
    rows.iter().for_each(check_row);
    let mut expected = Vec::new();
    for variant in ["diff-same-layout", "diff-other-layout", "sync"] {
        expected.extend([("engine", variant, 2), ("kernel", variant, 1)]);
    }
    for variant in ["mend-sound", "mend-damaged"] {
        let sides = [("engine", 2), ("kernel", 1), ("check", 1)];
        expected.extend(sides.map(|(side, workers)| (side, variant, workers)));
    }
    assert_eq!(cases(&rows), expected);
    for row in &rows {
        let options = row["options"].as_str().unwrap();
        let done = match row["variant"].as_str().unwrap() {
            "mend-sound" => "sound",
            "mend-damaged" => "10 maps damaged",
            _ => "10 files changed",
        };
        assert!(options.contains(done), "{row}");
    }
}
