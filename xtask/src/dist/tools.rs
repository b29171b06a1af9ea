//! Programs of the system that compress and digest: chores are built without crates for that.

use crate::programs::Done;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// The programs that packages are made by, and the Debian packages that have them.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("gzip", "gzip"),
    ("md5sum", "coreutils"),
    ("sha1sum", "coreutils"),
    ("sha256sum", "coreutils"),
    ("xz", "xz-utils"),
];

/// What a program makes of its standard input.
pub(super) fn filter(program: &str, args: &[&str], input: &[u8]) -> Done<Vec<u8>> {
    let failed = |e: std::io::Error| format!("{program}: {e}");
    let mut command = Command::new(program);
    // Options of the caller would change what comes out.
    command.args(args).env_remove("GZIP").env_remove("XZ_OPT");
    command.env_remove("XZ_DEFAULTS").env("LC_ALL", "C");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.spawn().map_err(failed)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut output = Vec::new();
    let both = std::thread::scope(|scope| {
        let writing = scope.spawn(move || stdin.map_or(Ok(()), |mut pipe| pipe.write_all(input)));
        let reading = stdout.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut output));
        // One that has seen enough, or failed, is told by its end.
        let _ = writing.join();
        reading.map(drop)
    });
    let ended = child.wait().map_err(failed)?;
    both.map_err(failed)?;
    if ended.success() {
        Ok(output)
    } else {
        Err(format!("{program} {}: {ended}", args.join(" ")))
    }
}

/// Compresses so that everything can read it. No name and no time are kept.
pub(super) fn gzip(input: &[u8]) -> Done<Vec<u8>> {
    filter("gzip", &["-9nc"], input)
}

/// Compresses well. More than one thread would cut the content in other places.
pub(super) fn xz(input: &[u8]) -> Done<Vec<u8>> {
    filter("xz", &["-6c", "-T1"], input)
}

/// A digest in hexadecimal digits.
fn digest(program: &str, input: &[u8]) -> Done<String> {
    let told = String::from_utf8_lossy(&filter(program, &[], input)?).into_owned();
    let digits = told.split(' ').next().unwrap_or_default();
    if digits.len() >= 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(digits.to_owned())
    } else {
        Err(format!("{program} says {told:?}"))
    }
}

/// SHA-256, in hexadecimal digits.
pub(super) fn sha256(input: &[u8]) -> Done<String> {
    digest("sha256sum", input)
}

/// SHA-1, in hexadecimal digits.
pub(super) fn sha1(input: &[u8]) -> Done<String> {
    digest("sha1sum", input)
}

/// MD5, in hexadecimal digits.
pub(super) fn md5(input: &[u8]) -> Done<String> {
    digest("md5sum", input)
}

#[cfg(test)]
mod tests {
    use super::{filter, gzip, md5, sha256};

    #[test]
    fn programs_take_more_than_a_pipe_holds() {
        let input = vec![5; 3 << 20];
        assert_eq!(filter("cat", &[], &input).unwrap(), input);
        let packed = gzip(&input).unwrap();
        assert_eq!(packed, gzip(&input).unwrap());
        assert_eq!(filter("gzip", &["-dc"], &packed).unwrap(), input);
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        let sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").unwrap(), sha);
        assert_eq!(md5(b"abc").unwrap(), "900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn a_program_that_fails_is_an_error() {
        let error = filter("false", &[], b"").unwrap_err();
        assert!(error.contains("false"), "{error}");
        assert!(filter("no-such-program", &[], b"").is_err());
    }
}
