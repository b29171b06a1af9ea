//! Permissions as text, as chmod(1) takes them.

const SET_IDS: u16 = 0o6000;
const ALL: u16 = 0o7777;

/// A change of permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// These bits; with `set_ids`, those of directories as well.
    Octal { bits: u16, set_ids: bool },
    /// One change after the other.
    Symbolic(Vec<Step>),
}

/// One operator of a symbolic change, such as `u+x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The bits of those it is about.
    who: u16,
    operator: Operator,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// These bits; with `execute_if`, execution as well, of directories and of files that any class
    /// may execute.
    Bits { bits: u16, execute_if: bool },
    /// What those at this shift have: 6 for the user, 3 for the group, 0 for others.
    CopyOf(u16),
    /// These bits, said as a number, the set-id bits of directories among them.
    Number(u16),
}

impl ModeChange {
    /// Parses `755`, `u+x,go-w`, `a=rX`, `g=u`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no mode: write an octal number up to 7777, or changes such as u+x,go-w"
            )
        };
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return u16::from_str_radix(text, 8)
                .ok()
                .filter(|&bits| bits <= ALL)
                .map(|bits| Self::Octal {
                    bits,
                    set_ids: text.len() > 4,
                })
                .ok_or_else(wrong);
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            parse_clause(clause.as_bytes(), &mut steps).ok_or_else(wrong)?;
        }
        Ok(Self::Symbolic(steps))
    }

    /// The permissions after the change of those before.
    pub(crate) fn apply(&self, before: u16, is_dir: bool) -> u16 {
        let before = before & ALL;
        match self {
            Self::Octal { bits, set_ids } => {
                if is_dir && !set_ids {
                    bits | (before & SET_IDS)
                } else {
                    *bits
                }
            }
            Self::Symbolic(steps) => steps
                .iter()
                .fold(before, |bits, step| step.apply(bits, is_dir)),
        }
    }
}

impl Step {
    fn apply(self, before: u16, is_dir: bool) -> u16 {
        let bits = match self.what {
            What::Bits { bits, execute_if } => {
                let executable = is_dir || before & 0o111 != 0;
                bits | if execute_if && executable { 0o111 } else { 0 }
            }
            What::CopyOf(shift) => {
                let triple = (before >> shift) & 7;
                triple << 6 | triple << 3 | triple
            }
            What::Number(bits) => bits,
        };
        let bits = bits & self.who;
        match self.operator {
            Operator::Add => before | bits,
            Operator::Remove => before & !bits,
            Operator::Set => {
                // A directory's set-id bits go only when they are meant.
                let is_number = matches!(self.what, What::Number(_));
                let kept = if is_dir && !is_number { SET_IDS } else { 0 };
                before & (!self.who | kept) | bits
            }
        }
    }
}

/// One part between commas: the classes it is about, then one or more operators.
fn parse_clause(clause: &[u8], steps: &mut Vec<Step>) -> Option<()> {
    let is_operator = |byte: &u8| matches!(byte, b'+' | b'-' | b'=');
    let at = clause.iter().position(is_operator)?;
    let (who, mut rest) = clause.split_at(at);
    let mut mask = 0;
    for letter in who {
        mask |= match letter {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            b'a' => ALL,
            _ => return None,
        };
    }
    let is_for_all = who.is_empty();
    let who = if is_for_all { ALL } else { mask };
    while let Some((operator, after)) = rest.split_first() {
        let operator = match operator {
            b'+' => Operator::Add,
            b'-' => Operator::Remove,
            _ => Operator::Set,
        };
        let end = after.iter().position(is_operator).unwrap_or(after.len());
        let (letters, next) = after.split_at(end);
        let what = match letters.first() {
            Some(digit) if digit.is_ascii_digit() => {
                number(letters).filter(|_| is_for_all && next.is_empty())?
            }
            _ => parse_what(letters)?,
        };
        steps.push(Step {
            who,
            operator,
            what,
        });
        rest = next;
    }
    Some(())
}

/// An octal number.
fn number(digits: &[u8]) -> Option<What> {
    let text = std::str::from_utf8(digits).ok()?;
    let bits = u16::from_str_radix(text, 8).ok()?;
    (bits <= ALL).then_some(What::Number(bits))
}

fn parse_what(letters: &[u8]) -> Option<What> {
    match letters {
        b"u" => return Some(What::CopyOf(6)),
        b"g" => return Some(What::CopyOf(3)),
        b"o" => return Some(What::CopyOf(0)),
        _ => {}
    }
    let mut bits = 0;
    let mut execute_if = false;
    for letter in letters {
        bits |= match letter {
            b'r' => 0o444,
            b'w' => 0o222,
            b'x' => 0o111,
            b's' => SET_IDS,
            b't' => 0o1000,
            b'X' => {
                execute_if = true;
                0
            }
            _ => return None,
        };
    }
    Some(What::Bits { bits, execute_if })
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::rng::{Rng, seed_from_env};
    use extant_testkit::tool::tool;

    fn after(text: &str, before: u16, is_dir: bool) -> u16 {
        ModeChange::parse(text).expect(text).apply(before, is_dir)
    }

    #[test]
    fn files_change_as_with_chmod() {
        for (text, before, expected) in [
            ("755", 0o600, 0o755),
            ("0", 0o7777, 0),
            ("4755", 0, 0o4755),
            ("755", 0o6755, 0o755),
            ("u+x", 0o644, 0o744),
            ("+x", 0o644, 0o755),
            ("-w", 0o666, 0o444),
            ("go-rwx", 0o777, 0o700),
            ("u=rw,go=r", 0o777, 0o644),
            ("a=", 0o777, 0),
            ("g=u", 0o740, 0o770),
            ("o=g-w", 0o770, 0o775),
            ("u+s", 0o755, 0o4755),
            ("g+s", 0o755, 0o2755),
            ("+t", 0o755, 0o1755),
            ("u=rwx", 0o4644, 0o744),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u-s,g-s", 0o6755, 0o755),
            ("-022", 0o666, 0o644),
            ("+0111", 0o644, 0o755),
            ("=600,g+r", 0o4777, 0o640),
        ] {
            assert_eq!(after(text, before, false), expected, "{text} of {before:o}");
        }
    }

    #[test]
    fn directories_keep_their_set_id_bits_unless_they_are_meant() {
        for (text, before, expected) in [
            ("755", 0o2700, 0o2755),
            ("00755", 0o2700, 0o755),
            ("g=rx", 0o2770, 0o2750),
            ("g-s", 0o2770, 0o770),
            ("a+X", 0o644, 0o755),
            ("2755", 0o700, 0o2755),
            ("=755", 0o2700, 0o755),
            ("-2000", 0o2700, 0o700),
        ] {
            assert_eq!(after(text, before, true), expected, "{text} of {before:o}");
        }
    }

    /// A change as `chmod` takes it.
    fn random_change(rng: &mut Rng) -> String {
        let letters = |rng: &mut Rng, from: &str, most: u64| {
            let from: Vec<char> = from.chars().collect();
            let count = rng.below(most + 1);
            (0..count).map(|_| *rng.pick(&from)).collect::<String>()
        };
        let clauses = (0..rng.between(1, 3)).map(|_| {
            if rng.one_in(8) {
                let operator = rng.pick(&["+", "-", "="]);
                return format!("{operator}{:o}", rng.below(0o10000));
            }
            let mut clause = letters(rng, "ugoa", 2);
            for _ in 0..rng.between(1, 2) {
                clause.push(*rng.pick(&['+', '-', '=']));
                if rng.one_in(4) {
                    clause.push(*rng.pick(&['u', 'g', 'o']));
                } else {
                    clause.push_str(&letters(rng, "rwxXst", 4));
                }
            }
            clause
        });
        clauses.collect::<Vec<_>>().join(",")
    }

    #[test]
    fn random_changes_are_those_of_chmod() {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = Rng::new(seed_from_env("modes"));
        let mut script = "umask 0\n".to_owned();
        let mut cases = Vec::new();
        for number in 0..150 {
            let (is_dir, before) = (rng.one_in(2), rng.below(0o10000) as u16);
            let text = random_change(&mut rng);
            let make = if is_dir { "mkdir" } else { "touch" };
            script += &format!(
                "{make} {number}; chmod {before:05o} {number}; chmod -- '{text}' {number}; \
                 stat -c %a {number}\n"
            );
            cases.push((text, before, is_dir));
        }
        let run = tool("sh")
            .args(["-c", "cd \"$1\" && . /dev/stdin", "sh"])
            .arg(dir.path())
            .input(script)
            .ok();
        let text = run.text();
        let expected: Vec<u16> = (text.lines())
            .map(|octal| u16::from_str_radix(octal, 8).unwrap())
            .collect();
        assert_eq!(expected.len(), cases.len());
        for ((text, before, is_dir), expected) in cases.iter().zip(expected) {
            let found = after(text, *before, *is_dir);
            assert_eq!(found, expected, "{text} of {before:o}, directory: {is_dir}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in [
            "", "8", "77777", "rwx", "u+7", "+7-x", "+8", "+77777", "u", "u+q", "z+x", "u+x,",
            "+ur", "-8",
        ] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
