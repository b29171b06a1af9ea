//! `extant man`.

use crate::args::{Args, Man};
use crate::failure::{Failure, Outcome};
use clap::CommandFactory;
use std::io::Write;

pub(super) fn run(args: &Man) -> Outcome {
    let command = Args::command();
    match &args.dir {
        Some(dir) => clap_mangen::generate_to(command, dir).map_err(|e| {
            let dir = extant::Escaped::path(dir);
            Failure::new(format!("cannot write manual pages to {dir}: {e}"))
        }),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            std::io::stdout().write_all(&page)?;
            Ok(())
        }
    }
}
