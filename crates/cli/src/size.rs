//! Numbers of bytes as text.

const UNITS: [(char, u32); 6] = [
    ('K', 10),
    ('M', 20),
    ('G', 30),
    ('T', 40),
    ('P', 50),
    ('E', 60),
];

/// Parses `4096`, `64K`, `1.5G`, `16TiB`: units are powers of 1024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a size: write a number of bytes, or one with K, M, G or T (powers of \
             1024), such as 64M"
        )
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit
        .strip_suffix("iB")
        .or_else(|| unit.strip_suffix('B'))
        .unwrap_or(unit);
    let shift = match unit.chars().collect::<Vec<_>>()[..] {
        [] => 0,
        [letter] => UNITS
            .iter()
            .find(|(name, _)| *name == letter.to_ascii_uppercase())
            .map(|(_, shift)| *shift)
            .ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(1 << shift)
            .ok_or_else(|| format!("{text} is more bytes than any file can have"));
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
    if value.is_finite() && (0.0..9e18).contains(&value) && shift > 0 {
        Ok(value as u64)
    } else {
        Err(wrong())
    }
}

/// Bytes for people in a column, rounded up as `ls -h` does: `1.5G`.
pub(crate) fn short(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    let Some((name, shift)) = unit else {
        return bytes.to_string();
    };
    let of = |tenths: u64| (u128::from(bytes) * u128::from(tenths)).div_ceil(1 << shift);
    match (of(10), of(1)) {
        (tenths, _) if tenths < 100 => format!("{}.{}{name}", tenths / 10, tenths % 10),
        (_, whole) if whole < 1024 => format!("{whole}{name}"),
        // Rounded up to the next unit.
        (_, _) => match UNITS.iter().find(|(_, next)| next > shift) {
            Some((next, _)) => format!("1.0{next}"),
            None => format!("1024{name}"),
        },
    }
}

/// Bytes for people: `1.5 GiB`.
pub(crate) fn human(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, shift)| bytes >> shift > 0);
    match unit {
        None => format!("{bytes} bytes"),
        Some((name, shift)) => {
            let value = bytes as f64 / (1u64 << shift) as f64;
            let digits = usize::from(value < 10.0 && bytes.trailing_zeros() < *shift);
            format!("{value:.digits$} {name}iB")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64K"), Ok(64 << 10));
        assert_eq!(parse("64k"), Ok(64 << 10));
        assert_eq!(parse("1.5G"), Ok(3 << 29));
        assert_eq!(parse("16TiB"), Ok(16 << 40));
        assert_eq!(parse("1MB"), Ok(1 << 20));
        for wrong in [
            "",
            "K",
            "-1",
            "1X",
            "1.5",
            "1KK",
            "99999999999E",
            "1e3",
            "é",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_for_people_are_short() {
        assert_eq!(human(0), "0 bytes");
        assert_eq!(human(1023), "1023 bytes");
        assert_eq!(human(4096), "4 KiB");
        assert_eq!(human(3 << 29), "1.5 GiB");
        assert_eq!(human((16 << 20) + 1), "16 MiB");
    }
}
