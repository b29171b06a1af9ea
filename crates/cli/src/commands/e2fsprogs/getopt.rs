//! Short options as getopt(3) parts them: bundled, with values attached or apart, before and behind
//! operands, up to `--`.

use crate::failure::{Failure, Outcome};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A command line, parted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Letters with their values, in order.
    pub(super) options: Vec<(char, Option<OsString>)>,
    pub(super) operands: Vec<OsString>,
}

/// Parts a command line by the letters that it may have, each with a colon behind it if it has a
/// value.
pub(super) fn read(letters: &str, args: impl IntoIterator<Item = OsString>) -> Outcome<Line> {
    let mut args = args.into_iter();
    let mut line = Line::default();
    while let Some(arg) = args.next() {
        if arg == "--" {
            line.operands.extend(args);
            break;
        }
        let Some(mut rest) = arg
            .as_bytes()
            .strip_prefix(b"-")
            .filter(|rest| !rest.is_empty())
        else {
            line.operands.push(arg);
            continue;
        };
        while let [letter, tail @ ..] = rest {
            let letter = char::from(*letter);
            let Some(has_value) = has_value(letters, letter) else {
                let letter = letter.escape_default();
                return Err(Failure::usage(format!("invalid option -- '{letter}'")));
            };
            if !has_value {
                line.options.push((letter, None));
                rest = tail;
                continue;
            }
            let attached = (!tail.is_empty()).then(|| OsString::from_vec(tail.to_vec()));
            let Some(value) = attached.or_else(|| args.next()) else {
                let text = format!("option requires an argument -- '{letter}'");
                return Err(Failure::usage(text));
            };
            line.options.push((letter, Some(value)));
            break;
        }
    }
    Ok(line)
}

/// Whether an option has a value; `None` if there is none of this letter.
fn has_value(letters: &str, letter: char) -> Option<bool> {
    let (_, behind) = letters
        .split_once(letter)
        .filter(|_| letter.is_ascii_alphabetic())?;
    Some(behind.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(args: &[&str]) -> Result<(Vec<String>, Vec<String>), String> {
        let line = read("b:qt:Fn", args.iter().map(OsString::from));
        let line = line.map_err(|e| format!("{e:?}"))?;
        let show = |(letter, value): (char, Option<OsString>)| match value {
            Some(value) => format!("{letter}={}", value.display()),
            None => letter.to_string(),
        };
        let operands = line.operands.into_iter().map(|o| o.display().to_string());
        Ok((
            line.options.into_iter().map(show).collect(),
            operands.collect(),
        ))
    }

    #[test]
    fn options_are_bundled_and_stand_where_they_like() {
        let (options, operands) =
            parts(&["-qFb4096", "img", "-t", "ext4", "-", "--", "-n"]).unwrap();
        assert_eq!(options, ["q", "F", "b=4096", "t=ext4"]);
        assert_eq!(operands, ["img", "-", "-n"]);
    }

    #[test]
    fn what_is_no_option_is_named() {
        for (args, said) in [
            (&["-qZ"][..], "invalid option -- 'Z'"),
            (&["--help"], "invalid option -- '-'"),
            (&["-:"], "invalid option -- ':'"),
            (&["-q", "-b"], "option requires an argument -- 'b'"),
        ] {
            let error = parts(args).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
