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
        };
        let bits = bits & self.who;
        match self.operator {
            Operator::Add => before | bits,
            Operator::Remove => before & !bits,
            Operator::Set => {
                // A directory's set-id bits go only when they are meant.
                let kept = if is_dir { SET_IDS } else { 0 };
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
    let who = if who.is_empty() { ALL } else { mask };
    while let Some((operator, after)) = rest.split_first() {
        let operator = match operator {
            b'+' => Operator::Add,
            b'-' => Operator::Remove,
            _ => Operator::Set,
        };
        let end = after.iter().position(is_operator).unwrap_or(after.len());
        let (letters, next) = after.split_at(end);
        let what = parse_what(letters)?;
        steps.push(Step {
            who,
            operator,
            what,
        });
        rest = next;
    }
    Some(())
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
        ] {
            assert_eq!(after(text, before, true), expected, "{text} of {before:o}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in [
            "", "8", "77777", "rwx", "u", "u+q", "z+x", "u+x,", "+ur", "-1",
        ] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
