//! Case-insensitive names: folding as the `casefold` feature's encoding "utf8-12.1" defines it.
//!
//! A folded name is the canonical decomposition of the fully case-folded name with
//! default-ignorable code points dropped; code points that Unicode 12.1 had not assigned stand for
//! themselves. A name that is not UTF-8 has no folded form and is compared and hashed as bytes
//! (outside strict mode, in which such names cannot be created).
//!
//! # Invariant
//! Only code points assigned in Unicode 12.1 are folded, whatever version the tables of the
//! Unicode crates have: neither case folding nor decomposition of an assigned code point may change
//! between versions, so their newer tables give the same answer.

use alloc::vec::Vec;

/// Returns the folded form of `name`, or `None` if it has none (and stands for its own bytes).
///
/// Without the crate's `casefold` feature only ASCII names have one, so directories with other
/// names cannot be searched by hash.
#[must_use]
pub fn fold_name(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase());
    }
    fold_unicode(name)
}

/// Returns whether two names are the same in a casefolded directory.
#[must_use]
pub fn names_equal_folded(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    match (fold_name(a), fold_name(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

#[cfg(not(feature = "casefold"))]
fn fold_unicode(_: &[u8]) -> Option<Vec<u8>> {
    None
}

#[cfg(feature = "casefold")]
fn fold_unicode(name: &[u8]) -> Option<Vec<u8>> {
    use alloc::string::String;
    use unicode_normalization::char::canonical_combining_class;

    let text = core::str::from_utf8(name).ok()?;
    let mut folded = String::with_capacity(name.len());
    // Combining marks since the last starter, to be put in canonical order.
    let mut marks: Vec<(u8, char)> = Vec::new();
    let flush = |marks: &mut Vec<(u8, char)>, folded: &mut String| {
        marks.sort_by_key(|(class, _)| *class);
        folded.extend(marks.drain(..).map(|(_, c)| c));
    };
    for c in text.chars() {
        if is_ignorable(c) {
            // It leaves nothing behind, but marks are not reordered across it.
            flush(&mut marks, &mut folded);
            continue;
        }
        if !super::unicode_12_1::is_assigned(c) {
            flush(&mut marks, &mut folded);
            folded.push(c);
            continue;
        }
        fold_char(c, 0, &mut |c| {
            let class = canonical_combining_class(c);
            if class == 0 {
                flush(&mut marks, &mut folded);
                folded.push(c);
            } else {
                marks.push((class, c));
            }
        });
    }
    flush(&mut marks, &mut folded);
    Some(folded.into_bytes())
}

/// Emits what `c` folds and decomposes to, until neither changes anything.
#[cfg(feature = "casefold")]
fn fold_char(c: char, depth: u8, emit: &mut dyn FnMut(char)) {
    use caseless::Caseless;
    use unicode_normalization::char::decompose_canonical;

    // The tables reach their fixed point in three steps; the bound is against a defect in them.
    let unfolded = core::iter::once(c);
    let mut fold = unfolded.default_case_fold();
    let (first, second) = (fold.next(), fold.next());
    if depth < 8 && (second.is_some() || first != Some(c)) {
        for c in core::iter::once(c).default_case_fold() {
            fold_char(c, depth + 1, emit);
        }
        return;
    }
    let mut parts = Vec::new();
    decompose_canonical(c, |part| parts.push(part));
    if depth >= 8 || parts == [c] {
        emit(c);
        return;
    }
    for part in parts {
        fold_char(part, depth + 1, emit);
    }
}

/// Default-ignorable code points of Unicode 12.1.
#[cfg(feature = "casefold")]
fn is_ignorable(c: char) -> bool {
    matches!(c as u32,
        0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180e
        | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f
        | 0xfeff | 0xffa0 | 0xfff0..=0xfff8 | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a
        | 0xe0000..=0xe0fff)
}

#[cfg(all(test, feature = "casefold"))]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_case_or_composition_are_the_same() {
        for (a, b) in [
            ("README", "readme"),
            ("Straße", "STRASSE"),
            ("e\u{301}", "\u{c9}"),
            ("\u{212b}", "a\u{30a}"),
            ("x\u{200d}y", "xy"),
            ("a\u{301}\u{323}", "a\u{323}\u{301}"),
        ] {
            assert!(names_equal_folded(a.as_bytes(), b.as_bytes()), "{a} {b}");
        }
        assert!(!names_equal_folded(b"a", b"b"));
    }

    #[test]
    fn names_outside_unicode_are_compared_as_bytes() {
        assert_eq!(fold_name(b"A\xff"), None);
        assert!(names_equal_folded(b"A\xff", b"A\xff"));
        assert!(!names_equal_folded(b"A\xff", b"a\xff"));
    }

    #[test]
    fn letters_assigned_after_the_encoding_do_not_fold() {
        // U+A7C7 folds to U+A7C8 since Unicode 13.
        assert!(!names_equal_folded(
            "\u{a7c7}".as_bytes(),
            "\u{a7c8}".as_bytes()
        ));
    }
}
