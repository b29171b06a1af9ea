//! Checks an image and prints what was found: `cargo run --release -p extant-fsck --example
//! check -- IMAGE`.

use extant_blockdev::OpenSpec;
use extant_fsck::Options;
use std::path::Path;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let image = std::env::args_os().nth(1).ok_or("which image?")?;
    let device = OpenSpec::read_only(Path::new(&image)).open()?;
    let report = extant_fsck::check(device, Options::default(), &())?;
    for finding in &report.findings {
        println!("{finding}");
    }
    println!("clean: {}, {:?}", report.is_clean(), report.totals);
    Ok(ExitCode::from(if report.is_clean() { 0 } else { 4 }))
}
