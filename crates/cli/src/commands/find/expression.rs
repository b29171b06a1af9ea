//! Expressions of find(1): what they are made of, and how words become one.
//!
//! ```text
//! list  = or { "," or }
//! or    = and { ("-o" | "-or") and }
//! and   = not { ["-a" | "-and"] not }
//! not   = { "!" | "-not" } primary
//! primary = "(" list ")" | test | action
//! ```

use super::printf::Format;
use super::words::{follows, nearest};
use crate::mode::ModeChange;
use crate::time;
use extant::{Escaped, FileType, Timestamp};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// How deep parentheses and negations may lie in each other.
const NEST_MAX: usize = 200;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    /// All in order, up to the first that does not hold.
    And(Vec<Expr>),
    /// All in order, up to the first that holds.
    Or(Vec<Expr>),
    /// All in order; the last one says what holds.
    List(Vec<Expr>),
    Not(Box<Expr>),
    Test(Test),
    Do(Action),
}

/// What is asked of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    Always(bool),
    Name(Glob),
    Path(Glob),
    Type(Vec<FileType>),
    /// In units of so many bytes, rounded up.
    Size {
        unit: u64,
        count: Count,
    },
    Empty,
    Perm(Perm),
    Links(Count),
    Inum(Count),
    Uid(Count),
    Gid(Count),
    /// A name of the image's, or a number.
    User(Vec<u8>),
    Group(Vec<u8>),
    NoUser,
    NoGroup,
    /// Any extended attribute, or the one of this name.
    Xattr(Option<Vec<u8>>),
    Age {
        of: Moment,
        unit: Unit,
        age: Age,
    },
    Newer {
        of: Moment,
        than: Reference,
    },
}

/// What is done with a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    Print,
    Print0,
    Printf(Format),
    Ls,
    Delete,
    Prune,
    Quit,
    /// A command for each file.
    Exec(Vec<OsString>),
    /// A command for as many files as fit, which come last; the number tells such commands apart.
    ExecMany(usize, Vec<OsString>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    pub(super) pattern: Vec<u8>,
    pub(super) any_case: bool,
}

/// A number that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(u64),
    MoreThan(u64),
    LessThan(u64),
}

impl Count {
    pub(super) fn takes(self, number: u64) -> bool {
        match self {
            Self::Exactly(wanted) => number == wanted,
            Self::MoreThan(least) => number > least,
            Self::LessThan(most) => number < most,
        }
    }
}

/// Permissions that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Perm {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl Perm {
    pub(super) fn takes(self, mode: u16) -> bool {
        match self {
            Self::Exactly(bits) => mode == bits,
            Self::All(bits) => mode & bits == bits,
            Self::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

/// One of the times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Access,
    Birth,
    Change,
    Modification,
}

/// What ages are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Days,
    Minutes,
}

/// An age that is compared, in its unit; parts of one are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Age {
    Exactly(f64),
    MoreThan(f64),
    LessThan(f64),
}

/// What times are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    /// This time of this file, which is still to be looked at.
    Of(Moment, OsString),
    At(Timestamp),
}

/// A whole command line of find(1).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parsed {
    pub(super) expr: Expr,
    /// Directories after what is in them.
    pub(super) depth_first: bool,
    pub(super) max_depth: Option<usize>,
    pub(super) min_depth: Option<usize>,
    /// Whether nothing is shown by itself, so that what holds is printed.
    pub(super) prints: bool,
    pub(super) deletes: bool,
    pub(super) quits: bool,
    /// Whether output has a form of its own, of which there can be no JSON.
    pub(super) has_own_form: bool,
}

impl Expr {
    /// Calls `look` with each test.
    pub(super) fn for_each_test(&mut self, look: &mut impl FnMut(&mut Test)) {
        match self {
            Self::And(all) | Self::Or(all) | Self::List(all) => {
                all.iter_mut().for_each(|one| one.for_each_test(look));
            }
            Self::Not(one) => one.for_each_test(look),
            Self::Test(test) => look(test),
            Self::Do(_) => {}
        }
    }
}

/// Reads the words of an expression.
pub(super) fn parse(words: &[OsString]) -> Result<Parsed, String> {
    let mut parser = Parser {
        words,
        at: 0,
        depth: 0,
        explicit_depth: false,
        prunes: false,
        commands: 0,
        found: Parsed {
            expr: Expr::And(Vec::new()),
            depth_first: false,
            max_depth: None,
            min_depth: None,
            prints: true,
            deletes: false,
            quits: false,
            has_own_form: false,
        },
    };
    if !words.is_empty() {
        parser.found.expr = parser.list()?;
    }
    if let Some(word) = parser.peek() {
        return Err(match word {
            b")" => "`)` has no `(` before it".to_owned(),
            word => format!("{} is not expected here", Escaped(word)),
        });
    }
    if parser.found.deletes && parser.prunes && !parser.explicit_depth {
        return Err(
            "-delete goes depth first, where -prune has no effect: say -depth as well if that is \
             meant"
                .to_owned(),
        );
    }
    Ok(parser.found)
}

struct Parser<'a> {
    words: &'a [OsString],
    at: usize,
    depth: usize,
    explicit_depth: bool,
    prunes: bool,
    commands: usize,
    found: Parsed,
}

type Read<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.words.get(self.at).map(|word| word.as_bytes())
    }

    fn next(&mut self) -> Option<&'a OsStr> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// The word behind another one.
    fn value(&mut self, word: &str) -> Read<&'a OsStr> {
        self.next()
            .ok_or_else(|| format!("{word} needs a word behind it"))
    }

    fn text(&mut self, word: &str) -> Read<&'a str> {
        let value = self.value(word)?;
        value
            .to_str()
            .ok_or_else(|| format!("{word}: {} is no text", Escaped(value.as_bytes())))
    }

    fn list(&mut self) -> Read<Expr> {
        let mut all = vec![self.or()?];
        while self.peek() == Some(b",") {
            self.at += 1;
            all.push(self.or()?);
        }
        Ok(one_or(all, Expr::List))
    }

    fn or(&mut self) -> Read<Expr> {
        let mut all = vec![self.and()?];
        while matches!(self.peek(), Some(b"-o" | b"-or")) {
            self.at += 1;
            all.push(self.and()?);
        }
        Ok(one_or(all, Expr::Or))
    }

    fn and(&mut self) -> Read<Expr> {
        let mut all = vec![self.not()?];
        loop {
            match self.peek() {
                Some(b"-a" | b"-and") => self.at += 1,
                None | Some(b")" | b"," | b"-o" | b"-or") => return Ok(one_or(all, Expr::And)),
                Some(_) => {}
            }
            all.push(self.not()?);
        }
    }

    fn not(&mut self) -> Read<Expr> {
        let mut is_negated = false;
        while matches!(self.peek(), Some(b"!" | b"-not")) {
            self.at += 1;
            is_negated = !is_negated;
        }
        let one = self.primary()?;
        Ok(if is_negated {
            Expr::Not(Box::new(one))
        } else {
            one
        })
    }

    fn primary(&mut self) -> Read<Expr> {
        let Some(word) = self.next() else {
            return Err("the expression ends where a test is expected".to_owned());
        };
        match word.as_bytes() {
            b"(" => {
                self.depth += 1;
                if self.depth > NEST_MAX {
                    return Err(format!(
                        "more than {NEST_MAX} parentheses lie in each other"
                    ));
                }
                if self.peek() == Some(b")") {
                    return Err("there is nothing between `(` and `)`".to_owned());
                }
                let inner = self.list()?;
                self.depth -= 1;
                if self.next().is_none_or(|word| word != ")") {
                    return Err("`(` has no `)` behind it".to_owned());
                }
                Ok(inner)
            }
            b")" | b"," | b"-a" | b"-and" | b"-o" | b"-or" => Err(format!(
                "a test is expected before {}",
                Escaped(word.as_bytes())
            )),
            bytes => match std::str::from_utf8(bytes) {
                Ok(name) if follows(bytes).is_some() => self.known(name),
                _ => Err(unknown(bytes)),
            },
        }
    }

    fn known(&mut self, name: &str) -> Read<Expr> {
        if let Some(action) = self.action(name)? {
            return Ok(Expr::Do(action));
        }
        Ok(Expr::Test(match name {
            "-name" | "-iname" => Test::Name(self.glob(name)?),
            "-path" | "-wholename" | "-ipath" => Test::Path(self.glob(name)?),
            "-type" => Test::Type(types(self.text(name)?)?),
            "-size" => size(self.text(name)?)?,
            "-empty" => Test::Empty,
            "-perm" => Test::Perm(perm(self.text(name)?)?),
            "-links" => Test::Links(self.count(name)?),
            "-inum" => Test::Inum(self.count(name)?),
            "-uid" => Test::Uid(self.count(name)?),
            "-gid" => Test::Gid(self.count(name)?),
            "-user" => Test::User(self.value(name)?.as_bytes().to_vec()),
            "-group" => Test::Group(self.value(name)?.as_bytes().to_vec()),
            "-nouser" => Test::NoUser,
            "-nogroup" => Test::NoGroup,
            "-xattr" => Test::Xattr(None),
            "-xattrname" => Test::Xattr(Some(self.value(name)?.as_bytes().to_vec())),
            "-true" => Test::Always(true),
            "-false" => Test::Always(false),
            "-depth" => {
                self.found.depth_first = true;
                self.explicit_depth = true;
                Test::Always(true)
            }
            "-maxdepth" => {
                self.found.max_depth = Some(self.level(name)?);
                Test::Always(true)
            }
            "-mindepth" => {
                self.found.min_depth = Some(self.level(name)?);
                Test::Always(true)
            }
            "-newer" => self.newer_than_file(Moment::Modification, Moment::Modification)?,
            "-anewer" => self.newer_than_file(Moment::Access, Moment::Modification)?,
            "-cnewer" => self.newer_than_file(Moment::Change, Moment::Modification)?,
            _ => return self.time(name).map(Expr::Test),
        }))
    }

    /// What a word does, if it does anything.
    fn action(&mut self, name: &str) -> Read<Option<Action>> {
        let action = match name {
            "-print" => Action::Print,
            "-print0" => Action::Print0,
            "-printf" => {
                let format = self.value(name)?;
                Action::Printf(Format::parse(format.as_bytes())?)
            }
            "-ls" => Action::Ls,
            "-delete" => {
                self.found.deletes = true;
                self.found.depth_first = true;
                Action::Delete
            }
            "-prune" => {
                self.prunes = true;
                return Ok(Some(Action::Prune));
            }
            "-quit" => {
                self.found.quits = true;
                return Ok(Some(Action::Quit));
            }
            "-exec" => self.command()?,
            _ => return Ok(None),
        };
        self.found.prints = false;
        self.found.has_own_form |=
            matches!(action, Action::Print0 | Action::Printf(_) | Action::Ls);
        Ok(Some(action))
    }

    fn command(&mut self) -> Read<Action> {
        let mut words: Vec<OsString> = Vec::new();
        loop {
            let Some(word) = self.next() else {
                return Err(
                    "-exec needs `;` behind its command, or `{} +`; a shell takes `\\;`".into(),
                );
            };
            let is_many = word == "+" && words.last().is_some_and(|last| last == "{}");
            if is_many {
                words.pop();
            }
            if word == ";" || is_many {
                if words.is_empty() {
                    return Err("-exec needs a command".to_owned());
                }
                if !is_many {
                    return Ok(Action::Exec(words));
                }
                let has_place =
                    |word: &OsString| word.as_bytes().windows(2).any(|two| two == b"{}");
                if words.iter().any(has_place) {
                    return Err("-exec with `+` takes one `{}`, right before the `+`".to_owned());
                }
                self.commands += 1;
                return Ok(Action::ExecMany(self.commands - 1, words));
            }
            words.push(word.to_owned());
        }
    }

    fn glob(&mut self, name: &str) -> Read<Glob> {
        let any_case = name.starts_with("-i");
        let mut pattern = self.value(name)?.as_bytes().to_vec();
        if any_case {
            pattern.make_ascii_lowercase();
        }
        Ok(Glob { pattern, any_case })
    }

    fn count(&mut self, name: &str) -> Read<Count> {
        let text = self.text(name)?;
        count(text).ok_or_else(|| format!("{name}: {text:?} is not a number, +number or -number"))
    }

    fn level(&mut self, name: &str) -> Read<usize> {
        let text = self.text(name)?;
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| plain);
        number.ok_or_else(|| format!("{name}: {text:?} is not a number of levels"))
    }

    fn newer_than_file(&mut self, of: Moment, than: Moment) -> Read<Test> {
        let file = self.value("-newer")?.to_owned();
        Ok(Test::Newer {
            of,
            than: Reference::Of(than, file),
        })
    }

    /// `-mtime`, `-amin` and their like, and `-newerXY`.
    fn time(&mut self, name: &str) -> Read<Test> {
        if let Some([x, y]) = name.strip_prefix("-newer").map(str::as_bytes) {
            let of = moment(*x).ok_or_else(|| unknown(name.as_bytes()))?;
            if let Some(than) = moment(*y) {
                return self.newer_than_file(of, than);
            }
            let text = self.text(name)?;
            let than = time::parse_date(text).map_err(|why| format!("{name}: {why}"))?;
            return Ok(Test::Newer {
                of,
                than: Reference::At(than),
            });
        }
        let letter = name.as_bytes().get(1).copied().and_then(moment);
        let of = letter.ok_or_else(|| unknown(name.as_bytes()))?;
        let unit = if name.ends_with("time") {
            Unit::Days
        } else {
            Unit::Minutes
        };
        let text = self.text(name)?;
        let age = age(text)
            .ok_or_else(|| format!("{name}: {text:?} is not a number, +number or -number"))?;
        Ok(Test::Age { of, unit, age })
    }
}

fn one_or(mut all: Vec<Expr>, several: impl Fn(Vec<Expr>) -> Expr) -> Expr {
    match all.pop() {
        Some(one) if all.is_empty() => one,
        Some(last) => {
            all.push(last);
            several(all)
        }
        None => several(all),
    }
}

fn unknown(word: &[u8]) -> String {
    let shown = Escaped(word);
    match std::str::from_utf8(word).ok().and_then(nearest) {
        Some(near) => format!("{shown} is unknown; {near} is the nearest"),
        None if word.starts_with(b"-") => {
            format!("{shown} is unknown: `extant find --help` lists what there is")
        }
        None => format!("{shown} is not expected in an expression"),
    }
}

fn moment(letter: u8) -> Option<Moment> {
    Some(match letter {
        b'a' => Moment::Access,
        b'B' => Moment::Birth,
        b'c' => Moment::Change,
        b'm' => Moment::Modification,
        _ => return None,
    })
}

/// What stands before a number.
#[derive(Debug, Clone, Copy)]
enum Sign {
    None,
    Plus,
    Minus,
}

fn signed(text: &str) -> (Sign, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Sign::Plus, &text[1..]),
        Some(b'-') => (Sign::Minus, &text[1..]),
        _ => (Sign::None, text),
    }
}

/// A number, `+number` or `-number`.
fn count(text: &str) -> Option<Count> {
    let (sign, digits) = signed(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| plain)?;
    Some(match sign {
        Sign::None => Count::Exactly(number),
        Sign::Plus => Count::MoreThan(number),
        Sign::Minus => Count::LessThan(number),
    })
}

fn age(text: &str) -> Option<Age> {
    let (sign, digits) = signed(text);
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let plain = digits.bytes().all(is_plain);
    // So many days are more than any time that is kept.
    let number = digits
        .parse()
        .ok()
        .filter(|number| plain && *number < 1e9)?;
    Some(match sign {
        Sign::None => Age::Exactly(number),
        Sign::Plus => Age::MoreThan(number),
        Sign::Minus => Age::LessThan(number),
    })
}

fn types(text: &str) -> Read<Vec<FileType>> {
    let kind = |letter: &str| {
        Ok(match letter {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "c" => FileType::CharDevice,
            "b" => FileType::BlockDevice,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            _ => {
                return Err(format!(
                    "-type {text:?}: use f (file), d (directory), l (symbolic link), c and b (devices), \
                     p (pipe) or s (socket), with commas between several"
                ));
            }
        })
    };
    text.split(',').map(kind).collect()
}

fn size(text: &str) -> Read<Test> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'c') => (&text[..text.len() - 1], 1),
        Some(b'w') => (&text[..text.len() - 1], 2),
        Some(b'b') => (&text[..text.len() - 1], 512),
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 512),
    };
    let count = count(number).ok_or_else(|| {
        format!(
            "-size: {text:?} is not a number with one of c, w, b, k, M and G, +number or -number"
        )
    })?;
    Ok(Test::Size { unit, count })
}

fn perm(text: &str) -> Read<Perm> {
    let (kind, mode): (fn(u16) -> Perm, _) = match text.as_bytes().first() {
        Some(b'-') => (Perm::All, &text[1..]),
        Some(b'/') => (Perm::Any, &text[1..]),
        _ => (Perm::Exactly, text),
    };
    let change = ModeChange::parse(mode).map_err(|why| format!("-perm: {why}"))?;
    Ok(kind(change.apply(0, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Read<Parsed> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&words)
    }

    fn name(pattern: &str) -> Expr {
        Expr::Test(Test::Name(Glob {
            pattern: pattern.into(),
            any_case: false,
        }))
    }

    #[test]
    fn operators_bind_as_in_find() {
        let expr = read("-name a -name b -o ! -name c , -not ! -name d")
            .unwrap()
            .expr;
        let or = Expr::Or(vec![
            Expr::And(vec![name("a"), name("b")]),
            Expr::Not(Box::new(name("c"))),
        ]);
        assert_eq!(expr, Expr::List(vec![or, name("d")]));
        let expr = read("-name a -a ( -name b -or -name c )").unwrap().expr;
        let or = Expr::Or(vec![name("b"), name("c")]);
        assert_eq!(expr, Expr::And(vec![name("a"), or]));
    }

    #[test]
    fn numbers_have_signs_and_units() {
        assert_eq!(count("+5"), Some(Count::MoreThan(5)));
        assert_eq!(count("-5"), Some(Count::LessThan(5)));
        assert_eq!(count("5"), Some(Count::Exactly(5)));
        for wrong in ["", "+", "--5", "+-5", "5x", "99999999999999999999"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        let unit = |text| match size(text) {
            Ok(Test::Size { unit, .. }) => unit,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(["1", "1c", "-1w", "+1k"].map(unit), [512, 1, 2, 1024]);
        assert_eq!(perm("u+w,g=r"), Ok(Perm::Exactly(0o240)));
        assert_eq!(perm("-4000"), Ok(Perm::All(0o4000)));
        assert_eq!(perm("/a+x"), Ok(Perm::Any(0o111)));
        assert_eq!(age("+1.5"), Some(Age::MoreThan(1.5)));
        assert_eq!(age("1e5"), None);
    }

    #[test]
    fn only_what_shows_nothing_itself_is_printed() {
        for (line, prints) in [
            ("", true),
            ("-name a", true),
            ("-name a -prune", true),
            ("-name a -quit", true),
            ("-name a -print", false),
            ("-exec x ;", false),
            ("-delete", false),
        ] {
            assert_eq!(read(line).unwrap().prints, prints, "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (line, said) in [
            ("-nmae x", "-name is the nearest"),
            ("-frobnicate-it", "is unknown"),
            ("-name", "-name needs a word behind it"),
            ("( -name x", "`(` has no `)`"),
            ("-name x )", "`)` has no `(`"),
            ("( )", "nothing between"),
            ("-name x -o", "ends where a test is expected"),
            ("-o -name x", "a test is expected before -o"),
            ("! ", "ends where a test is expected"),
            ("-type x", "-type \"x\": use f (file)"),
            ("-size 1X", "-size: \"1X\""),
            ("-perm 9", "-perm: \"9\" is no mode"),
            ("-exec a", "-exec needs `;`"),
            ("-exec ;", "-exec needs a command"),
            ("-exec a {} {} +", "takes one `{}`"),
            ("-newermt tomorrow", "is no time"),
            ("-delete -name x -prune", "say -depth"),
            ("-printf %q", "%q"),
        ] {
            let e = read(line).expect_err(line);
            assert!(e.contains(said), "{line}: {e}");
        }
        let deep = "( ".repeat(1000);
        assert!(read(&deep).unwrap_err().contains("in each other"));
        let long = format!("{} -name x", "! ".repeat(100_001));
        assert_eq!(read(&long).unwrap().expr, Expr::Not(Box::new(name("x"))));
    }
}
