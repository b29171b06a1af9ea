//! A text that is made in memory, by any thread, and written later.

use crate::record::Record;
use extant::Escaped;
use std::io::Write;

/// What is written of a directory, or of the operands that are none.
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    /// Whether it begins with the name of a directory.
    pub(super) has_heading: bool,
    /// Where the first colour is.
    pub(super) first_color: Option<usize>,
    is_terminal: bool,
}

impl Text {
    /// Begins one: for a terminal names are made safe.
    pub(super) const fn new(is_terminal: bool) -> Self {
        Self {
            bytes: Vec::new(),
            has_heading: false,
            first_color: None,
            is_terminal,
        }
    }

    pub(super) fn name(&mut self, name: &[u8]) {
        if self.is_terminal {
            self.format(format_args!("{}", Escaped(name)));
        } else {
            self.bytes.extend_from_slice(name);
        }
    }

    pub(super) fn colored(&mut self, name: &[u8], color: Option<&str>) {
        let Some(color) = color else {
            return self.name(name);
        };
        self.first_color.get_or_insert(self.bytes.len());
        self.format(format_args!("\x1b[{color}m"));
        self.name(name);
        self.bytes.extend_from_slice(b"\x1b[0m");
    }

    /// A number, at the right of a column.
    pub(super) fn number(&mut self, mut number: u64, width: usize) {
        let mut digits = [b' '; 20];
        let mut at = digits.len();
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            at -= 1;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.spaces(width.saturating_sub(digits.len() - at));
        self.bytes
            .extend_from_slice(digits.get(at..).unwrap_or(&[]));
    }

    pub(super) fn spaces(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, b' ');
    }

    pub(super) fn json_line(&mut self, record: &Record) {
        // Memory takes all of it, and text and numbers are no errors.
        let _ = serde_json::to_writer(&mut self.bytes, record);
        self.bytes.push(b'\n');
    }

    pub(super) fn format(&mut self, text: std::fmt::Arguments<'_>) {
        // Memory takes all of it.
        let _ = self.bytes.write_fmt(text);
    }
}

/// The digits of a number.
pub(super) fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_at_the_right() {
        for number in [0, 1, 9, 10, 12_345, 99_999, 100_000, u64::MAX] {
            for width in [0, 1, 5, 6, 25] {
                let mut text = Text::new(false);
                text.number(number, width);
                assert_eq!(text.bytes, format!("{number:>width$}").as_bytes());
            }
            assert_eq!(digits(number), number.to_string().len());
        }
    }
}
