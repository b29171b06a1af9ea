//! Formats of `-printf`: what stands for itself, and what says something about the file.

use crate::record::{letter, mode_text};
use crate::time::{self, Broken};
use extant::{Escaped, FileType, Metadata, Timestamp};

/// Columns that a value is filled up to at most: a format is no reason to take all memory.
const WIDEST: usize = 4096;

/// A format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Value {
        shape: Shape,
        what: What,
    },
    /// Nothing of the format behind it is written.
    Stop,
}

/// How a value is filled up and cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    left: bool,
    zeros: bool,
    /// With `0` in front of octal numbers.
    alternate: bool,
    width: usize,
    most: Option<usize>,
}

/// What is said of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Path,
    /// Without the start.
    Below,
    Start,
    LastName,
    Directory,
    Size,
    Sectors,
    Kilobytes,
    Depth,
    Inode,
    Links,
    ModeOctal,
    ModeText,
    Type,
    TypeOfTarget,
    Target,
    User,
    Uid,
    Group,
    Gid,
    /// A whole moment: `a`, `c` or `t`.
    Moment(u8),
    /// A part of a moment: `A`, `B`, `C` or `T`, and which part.
    Part(u8, u8),
}

/// What a format asks of a file.
pub(super) trait Subject {
    fn path(&self) -> Vec<u8>;
    fn below(&self) -> Vec<u8>;
    fn start(&self) -> Vec<u8>;
    fn last_name(&self) -> Vec<u8>;
    fn depth(&self) -> usize;
    fn metadata(&self) -> Metadata;
    fn user(&self) -> Vec<u8>;
    fn group(&self) -> Vec<u8>;
    /// The target of a symbolic link; empty for all else.
    fn target(&self) -> Vec<u8>;
    /// The letter of the type, with symbolic links followed.
    fn type_of_target(&self) -> char;
}

impl Format {
    /// Reads a format; the error says which part of it is none.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut reader = Reader { text, at: 0 };
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        while let Some(byte) = reader.next() {
            let piece = match byte {
                b'%' => match reader.value()? {
                    Some(piece) => piece,
                    None => {
                        plain.push(b'%');
                        continue;
                    }
                },
                b'\\' => match reader.escape()? {
                    Some(byte) => {
                        plain.push(byte);
                        continue;
                    }
                    None => Piece::Stop,
                },
                byte => {
                    plain.push(byte);
                    continue;
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self { pieces })
    }

    /// What the format says of a file. Names are given to `name`, all else to `text`.
    pub(super) fn write(
        &self,
        of: &impl Subject,
        mut write: impl FnMut(Said<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => write(Said::Text(text))?,
                Piece::Stop => return Ok(()),
                Piece::Value { shape, what } => {
                    let value = what.of(of, *shape);
                    write(Said::Value(&shape.apply(value)))?;
                }
            }
        }
        Ok(())
    }
}

/// A part of what a format says.
pub(super) enum Said<'a> {
    /// What stands in the format itself.
    Text(&'a [u8]),
    /// What the image says, which may be any bytes.
    Value(&'a [u8]),
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// A number of decimal digits, 0 where there is none.
    fn number(&mut self) -> Result<usize, String> {
        let mut number = 0;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            self.at += 1;
            number = number * 10 + usize::from(digit - b'0');
            if number > WIDEST {
                return Err(format!("-printf: a width is at most {WIDEST}"));
            }
        }
        Ok(number)
    }

    /// What stands behind a `%`; `None` for `%%`.
    fn value(&mut self) -> Result<Option<Piece>, String> {
        let from = self.at;
        if self.peek() == Some(b'%') {
            self.at += 1;
            return Ok(None);
        }
        let mut shape = Shape::default();
        while let Some(flag) = self.peek() {
            match flag {
                b'-' => shape.left = true,
                b'0' => shape.zeros = true,
                b'#' => shape.alternate = true,
                b'+' | b' ' => {}
                _ => break,
            }
            self.at += 1;
        }
        shape.width = self.number()?;
        if self.peek() == Some(b'.') {
            self.at += 1;
            shape.most = Some(self.number()?);
        }
        let letter = self.next();
        let part = match letter {
            Some(b'A' | b'B' | b'C' | b'T') => self.next(),
            _ => None,
        };
        let what = letter.and_then(|letter| What::named(letter, part));
        let Some(what) = what else {
            let directive = self.text.get(from..self.at).unwrap_or_default();
            return Err(format!("-printf: %{} is unknown", Escaped(directive)));
        };
        Ok(Some(Piece::Value { shape, what }))
    }

    /// What stands behind a backslash; `None` for the end of what is written.
    fn escape(&mut self) -> Result<Option<u8>, String> {
        let letter = self.next();
        Ok(Some(match letter {
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b'c') => return Ok(None),
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'v') => 11,
            Some(b'\\') => b'\\',
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'7') = self.peek() else {
                        break;
                    };
                    self.at += 1;
                    value = value * 8 + u32::from(digit - b'0');
                }
                // As in C, the bits above a byte are lost.
                (value & 0xff) as u8
            }
            Some(other) => {
                let other = [other];
                return Err(format!("-printf: \\{} is unknown", Escaped(&other)));
            }
            None => return Err("-printf: the format ends in a backslash".to_owned()),
        }))
    }
}

impl Shape {
    fn apply(self, mut value: Vec<u8>) -> Vec<u8> {
        if let Some(most) = self.most {
            value.truncate(most);
        }
        let missing = self.width.saturating_sub(value.len());
        if missing == 0 {
            return value;
        }
        if self.left {
            value.resize(value.len() + missing, b' ');
            return value;
        }
        let mut filled = vec![b' '; missing];
        filled.append(&mut value);
        filled
    }
}

impl What {
    fn named(letter: u8, part: Option<u8>) -> Option<Self> {
        Some(match letter {
            b'p' => Self::Path,
            b'P' => Self::Below,
            b'H' => Self::Start,
            b'f' => Self::LastName,
            b'h' => Self::Directory,
            b's' => Self::Size,
            b'b' => Self::Sectors,
            b'k' => Self::Kilobytes,
            b'd' => Self::Depth,
            b'i' => Self::Inode,
            b'n' => Self::Links,
            b'm' => Self::ModeOctal,
            b'M' => Self::ModeText,
            b'y' => Self::Type,
            b'Y' => Self::TypeOfTarget,
            b'l' => Self::Target,
            b'u' => Self::User,
            b'U' => Self::Uid,
            b'g' => Self::Group,
            b'G' => Self::Gid,
            b'a' | b'c' | b't' => Self::Moment(letter),
            b'A' | b'B' | b'C' | b'T' => {
                let part = part.filter(|part| b"@+aAbBcdDFhHIjklmMprRSTwxXyYZ".contains(part))?;
                Self::Part(letter, part)
            }
            _ => return None,
        })
    }

    fn of(self, subject: &impl Subject, shape: Shape) -> Vec<u8> {
        let found = subject.metadata();
        let number = |number: u64| number.to_string().into_bytes();
        // What find(1) takes for numbers is filled up with zeros; sizes and owners are text to it.
        let zeros = if shape.zeros && !shape.left {
            shape.width
        } else {
            0
        };
        match self {
            Self::Path => subject.path(),
            Self::Below => subject.below(),
            Self::Start => subject.start(),
            Self::LastName => subject.last_name(),
            Self::Directory => directory(subject.path()),
            Self::Size => number(found.len()),
            Self::Sectors => number(found.blocks()),
            Self::Kilobytes => number(found.blocks().div_ceil(2)),
            Self::Depth => format!("{:0zeros$}", subject.depth()).into_bytes(),
            Self::Inode => number(found.ino().into()),
            Self::Links => number(found.nlink().into()),
            Self::ModeOctal => {
                let bits = found.mode().permissions();
                let mark = if shape.alternate && bits != 0 {
                    "0"
                } else {
                    ""
                };
                format!("{:0>zeros$}", format!("{mark}{bits:o}")).into_bytes()
            }
            Self::ModeText => mode_text(&found).into_bytes(),
            Self::Type => type_letter(found.file_type()).to_string().into_bytes(),
            Self::TypeOfTarget => subject.type_of_target().to_string().into_bytes(),
            Self::Target => subject.target(),
            Self::User => subject.user(),
            Self::Uid => number(found.uid().into()),
            Self::Group => subject.group(),
            Self::Gid => number(found.gid().into()),
            Self::Moment(letter) => {
                let time = moment(&found, letter.to_ascii_uppercase());
                time.map(whole).unwrap_or_default().into_bytes()
            }
            Self::Part(letter, part) => {
                let time = moment(&found, letter);
                time.map(|time| part_of(time, part))
                    .unwrap_or_default()
                    .into_bytes()
            }
        }
    }
}

/// The letter of a type, as `-type` takes it.
pub(super) fn type_letter(file_type: FileType) -> char {
    match letter(file_type) {
        '-' => 'f',
        letter => letter,
    }
}

/// A path without its last name.
fn directory(mut path: Vec<u8>) -> Vec<u8> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => {
            path.truncate(slash);
            path
        }
        None => b".".to_vec(),
    }
}

/// One of the times, by its letter. `T` and the `t` of whole moments are the modification.
fn moment(found: &Metadata, letter: u8) -> Option<Timestamp> {
    match letter {
        b'A' => Some(found.atime()),
        b'B' => found.crtime(),
        b'C' => Some(found.ctime()),
        _ => Some(found.mtime()),
    }
}

/// The fraction of a second, with one more digit than there are: as find(1) writes it.
fn fraction(time: Timestamp) -> String {
    format!(".{:09}0", time.nanos)
}

/// `Tue Nov 14 22:13:20.5000000000 2023`.
fn whole(time: Timestamp) -> String {
    let Broken {
        year,
        hour,
        minute,
        second,
        ..
    } = time::broken(time);
    let day = part_of(time, b'a') + " " + &part_of(time, b'b');
    let date = time::broken(time).day;
    let fraction = fraction(time);
    format!("{day} {date:>2} {hour:02}:{minute:02}:{second:02}{fraction} {year}")
}

fn part_of(time: Timestamp, part: u8) -> String {
    let Broken {
        year,
        month,
        day,
        hour,
        minute,
        second,
        weekday,
        day_of_year,
    } = time::broken(time);
    let name = |names: &[&'static str], at: i64| {
        let found = usize::try_from(at).ok().and_then(|at| names.get(at));
        (*found.unwrap_or(&"")).to_owned()
    };
    let short = |name: String| name.get(..3).unwrap_or(&name).to_owned();
    let weekday_name = || name(&WEEKDAYS, weekday);
    let month_name = || name(&MONTHS, month - 1);
    let half_hour = match hour % 12 {
        0 => 12,
        hour => hour,
    };
    let half = if hour < 12 { "AM" } else { "PM" };
    let date = || format!("{year:04}-{month:02}-{day:02}");
    let clock = || format!("{hour:02}:{minute:02}:{second:02}");
    match part {
        b'@' => format!("{}{}", time.secs, fraction(time)),
        b'+' => format!("{}+{}{}", date(), clock(), fraction(time)),
        b'a' => short(weekday_name()),
        b'A' => weekday_name(),
        b'b' | b'h' => short(month_name()),
        b'B' => month_name(),
        b'c' => format!(
            "{} {} {day:>2} {} {year}",
            short(weekday_name()),
            short(month_name()),
            clock()
        ),
        b'd' => format!("{day:02}"),
        b'D' | b'x' => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
        b'F' => date(),
        b'H' => format!("{hour:02}"),
        b'I' => format!("{half_hour:02}"),
        b'j' => format!("{day_of_year:03}"),
        b'k' => format!("{hour:>2}"),
        b'l' => format!("{half_hour:>2}"),
        b'm' => format!("{month:02}"),
        b'M' => format!("{minute:02}"),
        b'p' => half.to_owned(),
        b'r' => format!("{half_hour:02}:{minute:02}:{second:02} {half}"),
        b'R' => format!("{hour:02}:{minute:02}"),
        b'S' => format!("{second:02}{}", fraction(time)),
        b'T' | b'X' => format!("{}{}", clock(), fraction(time)),
        b'w' => weekday.to_string(),
        b'y' => format!("{:02}", year.rem_euclid(100)),
        b'Y' => year.to_string(),
        _ => "UTC".to_owned(),
    }
}

/// `Nov 14 22:13` of the last half year, `Nov 14  2023` of other times, as `ls -l` has it.
pub(super) fn ls_date(time: Timestamp, now: Timestamp) -> String {
    const HALF_A_YEAR: i64 = 31_556_952 / 2;
    let Broken {
        year,
        day,
        hour,
        minute,
        ..
    } = time::broken(time);
    let month = part_of(time, b'b');
    let age = now.secs.saturating_sub(time.secs);
    // What lies ahead, beyond what clocks may differ by, has its year, too.
    if (-3600..=HALF_A_YEAR).contains(&age) {
        format!("{month} {day:>2} {hour:02}:{minute:02}")
    } else {
        format!("{month} {day:>2} {year:>5}")
    }
}

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_taken_apart() {
        let pieces = Format::parse(b"a%%\\101\\n%-5s%.3f\\cx").unwrap().pieces;
        assert_eq!(pieces.len(), 5, "{pieces:?}");
        assert_eq!(pieces[0], Piece::Text(b"a%A\n".to_vec()));
        let Piece::Value { shape, what } = &pieces[1] else {
            panic!("{pieces:?}");
        };
        assert!(shape.left && shape.width == 5 && *what == What::Size);
        assert_eq!(pieces[3], Piece::Stop);
        for (wrong, said) in [
            (&b"%q"[..], "%q is unknown"),
            (b"%", "% is unknown"),
            (b"%Tq", "%Tq is unknown"),
            (b"%T", "%T is unknown"),
            (b"\\q", "\\q is unknown"),
            (b"\\", "ends in a backslash"),
            (b"%99999p", "at most 4096"),
        ] {
            let e = Format::parse(wrong).unwrap_err();
            assert!(e.contains(said), "{e}");
        }
    }

    #[test]
    fn moments_are_those_that_find_prints() {
        let time = Timestamp {
            secs: 1_700_000_000,
            nanos: 500_000_000,
        };
        assert_eq!(whole(time), "Tue Nov 14 22:13:20.5000000000 2023");
        for (part, expected) in [
            (b'@', "1700000000.5000000000"),
            (b'+', "2023-11-14+22:13:20.5000000000"),
            (b'T', "22:13:20.5000000000"),
            (b'S', "20.5000000000"),
            (b'c', "Tue Nov 14 22:13:20 2023"),
            (b'r', "10:13:20 PM"),
            (b'j', "318"),
            (b'D', "11/14/23"),
            (b'A', "Tuesday"),
        ] {
            assert_eq!(part_of(time, part), expected, "{}", char::from(part));
        }
        let later = |secs: i64| Timestamp {
            secs: time.secs + secs,
            nanos: 0,
        };
        assert_eq!(ls_date(time, later(3600)), "Nov 14 22:13");
        assert_eq!(ls_date(time, later(200 * 86_400)), "Nov 14  2023");
        assert_eq!(ls_date(time, later(-7200)), "Nov 14  2023");
    }
}
