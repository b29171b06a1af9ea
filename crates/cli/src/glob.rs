//! Patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`, and `\` before a character that stands for
//! itself.

/// Whether a path has anything in it that a pattern has.
pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Whether `name` matches `pattern` from end to end. Works on bytes, in time of their product.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go back to: after the last star, and the first byte it has not swallowed.
    let mut back: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            back = Some((p, n));
            continue;
        }
        match name.get(n) {
            None => return p == pattern.len(),
            Some(&byte) => {
                if let Some(next) = step(pattern, p, byte) {
                    p = next;
                    n += 1;
                    continue;
                }
            }
        }
        match &mut back {
            Some((after_star, swallowed)) => {
                *swallowed += 1;
                p = *after_star;
                n = *swallowed;
            }
            None => return false,
        }
    }
}

/// The place in the pattern after what matches `byte` at `p`.
fn step(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => match class(pattern, p, byte) {
            Some((true, end)) => Some(end),
            Some((false, _)) => None,
            // Without its end a bracket stands for itself.
            None => (byte == b'[').then_some(p + 1),
        },
        b'\\' => match pattern.get(p + 1) {
            Some(&literal) => (literal == byte).then_some(p + 2),
            None => (byte == b'\\').then_some(p + 1),
        },
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Whether the class that begins at `p` holds `byte`, and where the class ends.
fn class(pattern: &[u8], p: usize, byte: u8) -> Option<(bool, usize)> {
    let mut at = p + 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut holds = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((holds != negated, at + 1));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                holds |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                holds |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.so", "libc.so", true),
            ("*.so", "libc.so.6", false),
            ("lib*.so*", "libc.so.6", true),
            ("?", "a", true),
            ("?", "", false),
            ("*", "", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = b"*a".repeat(100);
        let name = vec![b'a'; 100_000];
        assert!(!matches(&[&pattern[..], b"b"].concat(), &name));
    }
}
