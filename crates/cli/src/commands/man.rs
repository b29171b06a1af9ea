//! `extant man`.

use crate::args::Man;
use crate::failure::{Failure, Outcome};
use crate::help::{main_page, manual_pages};
use std::io::Write;

pub(super) fn run(args: &Man) -> Outcome {
    let Some(dir) = &args.dir else {
        std::io::stdout().write_all(main_page()?.as_bytes())?;
        return Ok(());
    };
    for (name, page) in manual_pages()? {
        std::fs::write(dir.join(name), page).map_err(|e| {
            let dir = extant::Escaped::path(dir);
            Failure::new(format!("cannot write manual pages to {dir}: {e}"))
        })?;
    }
    Ok(())
}
