//! Writes the corpus of every target, for cargo-fuzz.
//!
//! ```console
//! cargo run -p extant-fuzz-targets --example corpus -- fuzz/corpus
//! ```

use extant_fuzz_targets::{TARGETS, corpus};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give a folder")?;
    let folder = PathBuf::from(folder);
    for target in TARGETS {
        let of_target = folder.join(target.name);
        std::fs::create_dir_all(&of_target)?;
        for (index, input) in corpus::of(target.name).iter().enumerate() {
            std::fs::write(of_target.join(format!("valid-{index}")), input)?;
        }
    }
    Ok(())
}
