//! Images from a directory and from layers. The command that is measured is the one beside the
//! bench.

use crate::{cases, check_row, rows};

#[test]
fn sources_are_measured_beside_what_reading_them_costs() {
    let rows = rows(&[
        "sources",
        "--entries",
        "400",
        "--bytes",
        "2000000",
        "--workers",
        "2",
    ]);
    rows.iter().for_each(check_row);
    let expected = [
        ("engine", "directory", 2),
        ("tar", "directory", 2),
        ("engine", "layers", 2),
        ("one-tar", "layers", 2),
        ("openssl", "layers", 2),
    ];
    assert_eq!(cases(&rows), expected);
    let options = rows[2]["options"].as_str().unwrap();
    assert!(options.contains("10 layers"), "{options}");
}
