//! Twenty changes by a script. The command that is measured is the one beside the bench.

use crate::{cases, check_row, rows};

#[test]
fn editing_measures_sides_that_make_the_same_changes() {
    let rows = rows(&["edit", "--against", "debugfs"]);
    rows.iter().for_each(check_row);
    let expected = [("engine", "default", 1), ("debugfs", "default", 1)];
    assert_eq!(cases(&rows), expected);
    for row in &rows {
        let options = row["options"].as_str().unwrap();
        assert!(options.contains("20 changes"), "{row}");
    }
}
