//! Numbers of bytes as text.

pub(crate) use extant_mkfs::words::parse_size as parse;

const UNITS: [(char, u32); 6] = [
    ('K', 10),
    ('M', 20),
    ('G', 30),
    ('T', 40),
    ('P', 50),
    ('E', 60),
];

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
    fn sizes_for_people_are_short() {
        assert_eq!(human(0), "0 bytes");
        assert_eq!(human(1023), "1023 bytes");
        assert_eq!(human(4096), "4 KiB");
        assert_eq!(human(3 << 29), "1.5 GiB");
        assert_eq!(human((16 << 20) + 1), "16 MiB");
    }
}
