//! `extant xattr`.

use crate::args::{Whereabouts, Xattr, XattrDo};
use crate::closed;
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::images::change_each;
use crate::output::Output;
use crate::path::follow;
use crate::record::hex;
use crate::verbose::Verbose;
use extant::{Escaped, Filesystem, SetXattr};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub(super) fn run(args: &Xattr, location: &Whereabouts) -> Outcome {
    let path_of = |fs: &Filesystem, at: &ImagePath| {
        if args.no_dereference {
            Ok(at.path.clone())
        } else {
            follow(fs, &at.path).map_err(|e| at.failure(&e))
        }
    };
    let verbose = Verbose::new(args.verbose);
    match &args.what {
        XattrDo::Ls { path, values } => {
            let from = ImagePath::parse(path)?;
            let fs = from.open(location)?;
            list(&fs, &from, path_of(&fs, &from)?, *values)
        }
        XattrDo::Get { path, name } => {
            let from = ImagePath::parse(path)?;
            let fs = from.open(location)?;
            let found = fs.get_xattr(path_of(&fs, &from)?, name);
            let value = found.map_err(|e| from.failure(&e))?.ok_or_else(|| {
                Failure::new(format!(
                    "{}: no extended attribute {}",
                    from.shown(),
                    Escaped(name.as_bytes())
                ))
            })?;
            let mut output = Output::new();
            output.write_all(&value)?;
            output.finish()
        }
        XattrDo::Set {
            path,
            name,
            value,
            create,
            replace,
        } => {
            let value = bytes(value)?;
            let how = match (create, replace) {
                (true, _) => SetXattr::Create,
                (_, true) => SetXattr::Replace,
                _ => SetXattr::Any,
            };
            let done = change_each(std::slice::from_ref(path), location, |fs, at, _| {
                fs.set_xattr_if(path_of(fs, at)?, name, &value, how)
                    .map_err(|e| at.failure(&e))?;
                let name = Escaped(name.as_bytes());
                verbose.tell(format_args!("set {name} of {}", at.shown()));
                Ok(())
            });
            verbose.finish(done)
        }
        XattrDo::Rm { path, name } => {
            let done = change_each(std::slice::from_ref(path), location, |fs, at, _| {
                fs.remove_xattr(path_of(fs, at)?, name)
                    .map_err(|e| at.failure(&e))?;
                let name = Escaped(name.as_bytes());
                verbose.tell(format_args!("removed {name} of {}", at.shown()));
                Ok(())
            });
            verbose.finish(done)
        }
    }
}

fn list(fs: &Filesystem, from: &ImagePath, path: PathBuf, values: bool) -> Outcome {
    let mut output = Output::new();
    let mut all = fs.xattrs(path).map_err(|e| from.failure(&e))?;
    all.sort();
    for (name, value) in all {
        output.name(name.as_bytes())?;
        if values {
            let shown = std::str::from_utf8(&value)
                .ok()
                .filter(|text| !text.contains(|c: char| c.is_control()));
            match shown {
                Some(text) => write!(output, "={text:?}")?,
                None => write!(output, "=0x{}", hex(&value))?,
            }
        }
        writeln!(output)?;
    }
    output.finish()
}

/// A value of the command line: text, `0x` and hexadecimal digits, or `-` for standard input.
fn bytes(text: &std::ffi::OsStr) -> Outcome<Vec<u8>> {
    let text = text.as_bytes();
    if text == b"-" {
        closed::check_input()?;
        let mut value = Vec::new();
        // One more than any value may have is refused by the image.
        std::io::stdin()
            .take((64 << 10) + 1)
            .read_to_end(&mut value)
            .map_err(|e| Failure::new(format!("cannot read standard input: {e}")))?;
        return Ok(value);
    }
    let Some(digits) = text.strip_prefix(b"0x") else {
        return Ok(text.to_vec());
    };
    let wrong =
        || Failure::usage("a value that begins with 0x has two hexadecimal digits for each byte");
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return Err(wrong());
    }
    digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(wrong)
}
