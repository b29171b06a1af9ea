//! Moments as text, in UTC: the same image reads the same everywhere.

use extant::Timestamp;

/// `2026-11-21T20:23:00.123456789Z`; without a fraction when there is none.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    let (date, clock) = parts(time.secs);
    match time.nanos {
        0 => format!("{date}T{clock}Z"),
        nanos => format!("{date}T{clock}.{nanos:09}Z"),
    }
}

/// `2026-11-21 20:23`.
pub(crate) fn short(time: Timestamp) -> String {
    let (date, clock) = parts(time.secs);
    let minutes = clock.rsplit_once(':').map_or("", |(minutes, _)| minutes);
    format!("{date} {minutes}")
}

/// `2026-11-21 20:23:00.123456789`.
pub(crate) fn long(time: Timestamp) -> String {
    let (date, clock) = parts(time.secs);
    format!("{date} {clock}.{:09} UTC", time.nanos)
}

/// Date and time of day.
fn parts(secs: i64) -> (String, String) {
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!(
            "{:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        ),
    )
}

/// The date of a day counted from 1970-01-01, by the proleptic Gregorian calendar.
///
/// Years begin in March here, so that the leap day is the last of its year and months follow one
/// formula; eras of 400 years have the same number of days.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_OF_ERA: i64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days.div_euclid(DAYS_OF_ERA), days.rem_euclid(DAYS_OF_ERA));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> String {
        rfc3339(Timestamp { secs, nanos: 0 })
    }

    #[test]
    fn moments_are_those_that_date_prints() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59Z");
        assert_eq!(at(-2_147_483_648), "1901-12-13T20:45:52Z");
        assert_eq!(at(15_032_385_535), "2446-05-10T22:38:55Z");
    }
}
