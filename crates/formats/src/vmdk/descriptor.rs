//! The text that describes a VMDK disk.

use std::path::PathBuf;

/// What the text begins with.
const MARK: &[u8] = b"# Disk DescriptorFile";

/// Most extents of a disk; each is a file that is open.
const MOST_EXTENTS: usize = 4096;

/// What a description says, as far as it matters.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) extents: Vec<Line>,
    pub(super) has_parent: bool,
}

/// One extent.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) sectors: u64,
    pub(super) may_be_written: bool,
    pub(super) place: Place,
}

/// Where an extent's bytes are.
#[derive(Debug)]
pub(super) enum Place {
    /// In a file as they are, from a sector on.
    Flat { file: PathBuf, sector: u64 },
    /// Nowhere: they are zeros.
    Zero,
    /// In a form that is not known here.
    Other(String),
}

/// Whether a file begins as a description does.
pub(crate) fn is_descriptor(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    text.get(..MARK.len())
        .is_some_and(|mark| mark.eq_ignore_ascii_case(MARK))
}

impl Descriptor {
    /// Takes the text apart. What is wrong is said in words.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        // Zeros may fill the file up.
        let end = text.iter().position(|&byte| byte == 0);
        let text = std::str::from_utf8(&text[..end.unwrap_or(text.len())])
            .map_err(|e| format!("byte {} is not UTF-8", e.valid_up_to()))?;
        let mut found = Self {
            extents: Vec::new(),
            has_parent: false,
        };
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            let word = line.split_ascii_whitespace().next().unwrap_or_default();
            let access = match word {
                "RW" => Some(true),
                "RDONLY" | "NOACCESS" => Some(false),
                _ => None,
            };
            if let Some(may_be_written) = access {
                let extent = extent(line, may_be_written)
                    .ok_or_else(|| format!("line {} describes no extent: {line:?}", n + 1))?;
                found.extents.push(extent);
                if found.extents.len() > MOST_EXTENTS {
                    return Err(format!("it has more than {MOST_EXTENTS} extents"));
                }
            } else if let Some((key, value)) = line.split_once('=') {
                let value = value.trim().trim_matches('"');
                match key.trim() {
                    "version" if !matches!(value, "1" | "2" | "3") => {
                        return Err(format!("it has the version {value:?}, and 1 was expected"));
                    }
                    "parentCID" => {
                        found.has_parent = !value.eq_ignore_ascii_case("ffffffff");
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }
}

/// An extent: `RW 4192256 FLAT "name" 0`.
fn extent(line: &str, may_be_written: bool) -> Option<Line> {
    let (before, quoted) = match line.split_once('"') {
        Some((before, rest)) => (before, Some(rest.rsplit_once('"')?)),
        None => (line, None),
    };
    let mut words = before.split_ascii_whitespace().skip(1);
    let sectors = words.next()?.parse().ok()?;
    let kind = words.next()?;
    if words.next().is_some() {
        return None;
    }
    let place = match (kind, quoted) {
        ("ZERO", None) => Place::Zero,
        ("FLAT" | "VMFS", Some((file, rest))) => {
            let mut rest = rest.split_ascii_whitespace();
            let sector = match rest.next() {
                Some(sector) => sector.parse().ok()?,
                None if kind == "VMFS" => 0,
                None => return None,
            };
            Place::Flat {
                file: PathBuf::from(file),
                sector,
            }
        }
        ("FLAT" | "VMFS" | "ZERO", _) => return None,
        (other, _) => Place::Other(other.to_ascii_lowercase()),
    };
    Some(Line {
        sectors,
        may_be_written,
        place,
    })
}

/// The description of a disk with one flat extent.
pub(super) fn of_flat(sectors: u64, extent: &str, id: u32) -> String {
    // As for an IDE disk, which has 16 heads and 63 sectors and at most 16,383 cylinders.
    let cylinders = (sectors / (16 * 63)).clamp(1, 16_383);
    format!(
        "# Disk DescriptorFile\n\
         version=1\n\
         CID={id:08x}\n\
         parentCID=ffffffff\n\
         createType=\"monolithicFlat\"\n\
         \n\
         # Extent description\n\
         RW {sectors} FLAT \"{extent}\" 0\n\
         \n\
         # The Disk Data Base\n\
         #DDB\n\
         \n\
         ddb.virtualHWVersion = \"4\"\n\
         ddb.geometry.cylinders = \"{cylinders}\"\n\
         ddb.geometry.heads = \"16\"\n\
         ddb.geometry.sectors = \"63\"\n\
         ddb.adapterType = \"ide\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_describe_no_extent_are_refused() {
        for line in [
            "RW",
            "RW x FLAT \"a\" 0",
            "RW 1",
            "RW 1 FLAT",
            "RW 1 FLAT \"a",
            "RW 1 FLAT \"a\"",
            "RW 1 FLAT \"a\" x",
            "RW 1 FLAT a 0",
            "RW 99999999999999999999 ZERO",
            "RW -1 ZERO",
        ] {
            let text = format!("# Disk DescriptorFile\n{line}\n");
            assert!(Descriptor::parse(text.as_bytes()).is_err(), "{line}");
        }
        let good = of_flat(8, "a b.vmdk", 1);
        let found = Descriptor::parse(good.as_bytes()).expect("a description");
        assert!(!found.has_parent);
        assert!(matches!(
            &found.extents[..],
            [Line { sectors: 8, may_be_written: true, place: Place::Flat { file, sector: 0 } }]
                if file.as_os_str() == "a b.vmdk"
        ));
    }
}
