//! What `expect` and `if` ask.

use super::operand;
use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::path::look_at_link;
use extant::{FileType, Filesystem};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Something that is so in an image, or not.
#[derive(Debug)]
pub(super) struct Condition {
    what: What,
    /// With the image in front.
    at: OsString,
    /// As it is written.
    path: OsString,
}

#[derive(Debug)]
enum What {
    Exists,
    Absent,
    Size(u64),
    Sha256(String),
    Target(OsString),
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(words: &[OsString], image: &OsStr) -> Result<Self, String> {
        let [what, path] = words else {
            return Err(
                "a condition is exists, absent, size=BYTES, sha256=HEX or target=TEXT, and a path"
                    .to_owned(),
            );
        };
        if !path.as_bytes().starts_with(b"/") {
            let path = path.to_string_lossy();
            return Err(format!(
                "{path} is no path in the image: those begin with /"
            ));
        }
        Ok(Self {
            what: What::of(what)?,
            at: operand(image, path),
            path: path.clone(),
        })
    }

    /// Whether it is so. A symbolic link at the end of the path is not followed but for content.
    pub(super) fn holds(&self, place: &Whereabouts) -> Outcome<bool> {
        self.differs(place).map(|differs| differs.is_none())
    }

    /// How it is otherwise, if it is not so.
    pub(super) fn differs(&self, place: &Whereabouts) -> Outcome<Option<String>> {
        let at = ImagePath::inside(&self.at)?;
        let fs = at.open(place)?;
        let fail = |e: extant::Error| at.failure(&e);
        let there = match look_at_link(&fs, &at.path) {
            // Nothing is beneath a file.
            Err(e) if e.errno() == extant::errno::ENOTDIR => None,
            there => there.map_err(fail)?,
        };
        let name = self.path.to_string_lossy();
        let Some(there) = there else {
            let is_so = matches!(self.what, What::Absent);
            return Ok((!is_so).then(|| format!("{name} does not exist")));
        };
        Ok(match &self.what {
            What::Exists => None,
            What::Absent => Some(format!("{name} exists")),
            What::Size(size) => {
                let found = fs.metadata(&at.path).map_err(fail)?.len();
                (found != *size).then(|| format!("{name} has {found} bytes"))
            }
            What::Sha256(sum) => {
                let found = sum_of(&fs, &at).map_err(fail)?;
                (found != *sum).then(|| format!("{name} has the SHA-256 {found}"))
            }
            What::Target(_) if there.file_type() != FileType::Symlink => {
                Some(format!("{name} is no symbolic link"))
            }
            What::Target(target) => {
                let found = fs.read_link(&at.path).map_err(fail)?;
                let is_so = found.as_os_str() == target;
                let found = extant::Escaped::path(&found).to_string();
                (!is_so).then(|| format!("{name} leads to {found}"))
            }
        })
    }

    /// Fails if it is not so.
    pub(super) fn expect(&self, place: &Whereabouts) -> Outcome {
        match self.differs(place)? {
            Some(how) => Err(Failure::new(how)),
            None => Ok(()),
        }
    }
}

impl What {
    fn of(word: &OsStr) -> Result<Self, String> {
        let bytes = word.as_bytes();
        if let Some(target) = bytes.strip_prefix(b"target=") {
            return Ok(Self::Target(OsStr::from_bytes(target).to_owned()));
        }
        let text = word.to_string_lossy();
        if let Some(size) = text.strip_prefix("size=") {
            let size = crate::size::parse(size)?;
            return Ok(Self::Size(size));
        }
        if let Some(sum) = text.strip_prefix("sha256=") {
            let is_sum = sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_sum {
                return Err(format!("{sum} is no SHA-256: it has 64 hexadecimal digits"));
            }
            return Ok(Self::Sha256(sum.to_ascii_lowercase()));
        }
        match &*text {
            "exists" => Ok(Self::Exists),
            "absent" => Ok(Self::Absent),
            other => Err(format!(
                "{other} is no condition: write exists, absent, size=BYTES, sha256=HEX or target=TEXT"
            )),
        }
    }
}

/// The SHA-256 of a file's content.
fn sum_of(fs: &Filesystem, at: &ImagePath) -> extant::Result<String> {
    let file = fs.open_file(&at.path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut buffer, offset)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        offset += read as u64;
    }
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}
