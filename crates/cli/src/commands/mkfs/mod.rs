//! `extant mkfs`.
//!
//! `config` turns options into a checked [`Config`]; this file does what it says.

mod config;

use crate::args::{Mkfs, Where};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::size::human;
use config::Config;
use extant::Escaped;
use extant_mkfs::source::read_source;
use extant_mkfs::{Progress, Report, build};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn run(args: &Mkfs, place: &Where) -> Outcome {
    let config = Config::new(args, place)?;
    let tree = match &config.from {
        None => None,
        Some(from) => {
            let mut tree =
                read_source(from, config.source_options()).map_err(|e| failure(&config, e))?;
            tree.normalise(&config.normalisation);
            Some(tree)
        }
    };
    let options = config.build_options(tree.as_ref());
    let progress = Shown(Bar::new("writing"));
    let built = build(
        tree.as_ref(),
        &config.image,
        config.offset,
        &options,
        &progress,
    );
    progress.0.finish();
    let report = built.map_err(|e| failure(&config, e))?;
    if config.quiet {
        return Ok(());
    }
    tell(&config.image, &report)
}

/// A failure that says which image does not exist now.
fn failure(config: &Config, e: impl std::fmt::Display) -> Failure {
    let image = Escaped::path(&config.image);
    Failure::new(format!("{image} was not made: {e}"))
}

fn tell(image: &Path, report: &Report) -> Outcome {
    let mut output = Output::new();
    output.name(image.as_os_str().as_bytes())?;
    writeln!(
        output,
        ": {}, {} of {} blocks of {} bytes free, {} of {} inodes free",
        human(report.size),
        report.free_blocks,
        report.blocks,
        report.block_size,
        report.free_inodes,
        report.inodes
    )?;
    output.finish()
}

/// Progress of the builder on the bar.
struct Shown(Bar);

impl Progress for Shown {
    fn start(&self, total: u64) {
        self.0.total(total);
    }

    fn advance(&self, amount: u64) {
        self.0.advance(amount);
    }
}
