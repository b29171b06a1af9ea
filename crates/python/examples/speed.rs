//! What the measurement of the Python package (`crates/python/bench/speed.py`) compares with: the
//! same work by the library alone. Prints the seconds that one run took.
//!
//! ```console
//! cargo run --release -p extant-python --example speed -- read disk.img /big
//! ```

use extant::{Bulkstat, BulkstatWay, Filesystem};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, image, path] = args.as_slice() else {
        return Err("give what to measure, the image, and a path in it".into());
    };
    let fs = Filesystem::open(image)?;
    let begun = Instant::now();
    match what.as_str() {
        "read" => read(&fs, path)?,
        "whole" => {
            black_box(fs.read(path)?);
        }
        "bulkstat" => {
            fs.bulkstat(Bulkstat::new(BulkstatWay::Tables, 2), |found| {
                black_box(found.is_ok());
            });
        }
        other => return Err(format!("nothing to measure is called {other}").into()),
    }
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}

fn read(fs: &Filesystem, path: &str) -> extant::Result<()> {
    let file = fs.open_file(path)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut piece, at)?;
        if read == 0 {
            return Ok(());
        }
        black_box(&piece);
        at += read as u64;
    }
}
