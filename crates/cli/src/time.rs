//! Moments as text, in UTC: the same image reads the same everywhere.

use crate::failure::{Failure, Outcome};
use extant::{Escaped, Timestamp};
use extant_core::clock;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Seconds since 1970 that inodes can hold: 32 bits with a sign, and two more.
pub(crate) const TIMES: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64 + (3 << 32);

/// The time of now, or the one that stands in its place.
pub(crate) fn now() -> Timestamp {
    clock::now()
}

/// Seconds since 1970 until now, or until the time that stands in its place; 0 before 1970.
pub(crate) fn seconds_now() -> u64 {
    u64::try_from(now().secs).unwrap_or(0)
}

/// Seconds since 1970 until now, as [`seconds_now`], at most what 32 bits hold.
pub(crate) fn seconds_now_32() -> u32 {
    u32::try_from(seconds_now()).unwrap_or(u32::MAX)
}

/// The moment that reproducible builds agree on, if there is one.
pub(crate) fn source_date_epoch() -> Outcome<Option<u64>> {
    moment_in("SOURCE_DATE_EPOCH")
}

/// The seconds since 1970 that a variable of the environment has, if it is there.
fn moment_in(variable: &str) -> Outcome<Option<u64>> {
    let Some(text) = std::env::var_os(variable).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let latest = TIMES.end().unsigned_abs();
    match text.to_str().and_then(|text| text.parse().ok()) {
        Some(secs) if secs <= latest => Ok(Some(secs)),
        _ => Err(Failure::usage(format!(
            "{variable} is {}, not a number of seconds since 1970 that is at most {latest}",
            Escaped(text.as_bytes())
        ))),
    }
}

/// Lets the clock of this process stand at the moment that reproducible builds agree on, if there
/// is one.
pub(crate) fn stand_still() -> Outcome {
    if let Some(seconds) = source_date_epoch()? {
        clock::stand_still(seconds);
    }
    Ok(())
}

/// Lets the clock stand as [`stand_still`] does, or else at the moment that e2fsprogs takes for
/// now. Returns where it stands, if it does.
pub(crate) fn stand_still_as_e2fsprogs() -> Outcome<Option<u64>> {
    let moment = match source_date_epoch()? {
        Some(epoch) => Some(epoch),
        None => moment_in("E2FSPROGS_FAKE_TIME")?,
    };
    if let Some(seconds) = moment {
        clock::stand_still(seconds);
    }
    Ok(moment)
}

/// Whether what is written shall depend on nothing but what goes in.
pub(crate) fn is_reproducible() -> bool {
    clock::stands_at().is_some()
}

/// `2026-11-21T20:23:00.123456789Z`; without a fraction when there is none.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    let (date, clock) = parts(time.secs);
    match time.nanos {
        0 => format!("{date}T{clock}Z"),
        nanos => format!("{date}T{clock}.{nanos:09}Z"),
    }
}

/// `2026-11-21`.
pub(crate) fn date(secs: i64) -> String {
    parts(secs).0
}

/// `2026-11-21 20:23`.
pub(crate) fn short(time: Timestamp) -> String {
    let mut text = Vec::with_capacity(16);
    push_short(time, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Adds what [`short`] says to a text.
pub(crate) fn push_short(time: Timestamp, text: &mut Vec<u8>) {
    let (days, second) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let two = |number: i64| {
        // Below 100, each of them.
        let number = number as u8;
        [b'0' + number / 10, b'0' + number % 10]
    };
    if (0..=9999).contains(&year) {
        text.extend_from_slice(&two(year / 100));
        text.extend_from_slice(&two(year % 100));
    } else {
        text.extend_from_slice(format!("{year:04}").as_bytes());
    }
    let parts = [
        (b'-', month),
        (b'-', day),
        (b' ', second / 3600),
        (b':', second / 60 % 60),
    ];
    for (before, number) in parts {
        text.push(before);
        text.extend_from_slice(&two(number));
    }
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

/// A moment in the parts of a calendar and a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: i64,
    /// 1 to 31.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    /// Days since Sunday.
    pub(crate) weekday: i64,
    /// 1 to 366.
    pub(crate) day_of_year: i64,
}

/// The parts of a moment.
pub(crate) fn broken(time: Timestamp) -> Broken {
    const WEEKDAY_OF_1970: i64 = 4;
    let (today, second) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    let (year, month, day) = civil(today);
    // The day before the first of January, whatever the year is.
    let start = days_to(year, 1, 1) - 1;
    Broken {
        year,
        month,
        day,
        hour: second / 3600,
        minute: second / 60 % 60,
        second: second % 60,
        weekday: (today + WEEKDAY_OF_1970).rem_euclid(7),
        day_of_year: today - start,
    }
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

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar, if there is such a date.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(0..=9999).contains(&year) {
        return None;
    }
    let days = days_to(year, month, day);
    // The 30th of February would come out as a day in March.
    (civil(days) == (year, month, day)).then_some(days)
}

/// Days from 1970-01-01 to a date, as [`days`], of dates that exist.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    // As in `civil`, years begin in March.
    let shifted = year - i64::from(month <= 2);
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Parses `2026-01-31`, with `12:00`, `12:00:30` or `12:00:30.5` behind a space or `T`, with `Z`,
/// `UTC` or a zone such as `+01:00` behind that; or `@SECONDS` since 1970, fractions allowed.
pub(crate) fn parse_date(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{text:?} is no time: write 2026-01-31, 2026-01-31 12:00:30, 2026-01-31T12:00:30+01:00 or \
             @SECONDS"
        )
    };
    let time = match text.strip_prefix('@') {
        Some(seconds) => since_1970(seconds),
        None => date_and_clock(text),
    };
    in_range(time.ok_or_else(wrong)?, text)
}

/// Parses `[[CC]YY]MMDDhhmm[.ss]` as touch(1) does; without a year, that of `now`.
pub(crate) fn parse_stamp(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || format!("{text:?} is no time: write [[CC]YY]MMDDhhmm[.ss]");
    let time = stamp(text, now).ok_or_else(wrong)?;
    in_range(time, text)
}

/// Parses how long something lasts, in whole seconds: `3600`, `90m`, `12h`, `7d`, `1w`.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(|c: char| c.is_ascii_alphabetic()) {
        Some(number) => (number, text.chars().next_back()),
        None => (text, None),
    };
    let seconds = match unit {
        None | Some('s') => Some(1),
        Some('m') => Some(60),
        Some('h') => Some(3600),
        Some('d') => Some(86_400),
        Some('w') => Some(7 * 86_400),
        Some(_) => None,
    };
    let number: Option<u64> = number.parse().ok();
    let Some((number, seconds)) = number.zip(seconds) else {
        return Err(format!(
            "{text:?} is no length of time: write a number of seconds, or one with m, h, d or w, such as 7d"
        ));
    };
    let all = number
        .checked_mul(seconds)
        .filter(|&all| all <= u32::MAX.into());
    all.map(Duration::from_secs)
        .ok_or_else(|| format!("{text}: quotas keep times of up to 49710 days"))
}

fn in_range(time: Timestamp, text: &str) -> Result<Timestamp, String> {
    if TIMES.contains(&time.secs) {
        Ok(time)
    } else {
        Err(format!("{text}: ext4 keeps times from 1901 to 2446"))
    }
}

fn since_1970(text: &str) -> Option<Timestamp> {
    let (secs, fraction) = match text.split_once('.') {
        Some((secs, fraction)) => (secs, nanos(fraction)?),
        None => (text, 0),
    };
    let whole: i64 = secs.parse().ok()?;
    let time = match (secs.starts_with('-'), fraction) {
        (true, 1..) => Timestamp {
            secs: whole.checked_sub(1)?,
            nanos: 1_000_000_000 - fraction,
        },
        (_, nanos) => Timestamp { secs: whole, nanos },
    };
    Some(time)
}

/// Nanoseconds of the digits behind a decimal point.
fn nanos(digits: &str) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// A number of exactly so many digits.
fn number(text: Option<&str>, digits: usize) -> Option<i64> {
    let text = text?;
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

fn date_and_clock(text: &str) -> Option<Timestamp> {
    let (date, clock) = match text.find(['T', ' ']) {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?.trim()),
        None => (text, "00:00"),
    };
    let mut date = date.split('-');
    let days = days(
        number(date.next(), 4)?,
        number(date.next(), 2)?,
        number(date.next(), 2)?,
    )?;
    let (clock, zone) = match clock.find(['Z', 'U', '+', '-']) {
        Some(at) => (clock.get(..at)?.trim_end(), clock.get(at..)?),
        None => (clock, "Z"),
    };
    let mut clock = clock.split(':');
    let hour = number(clock.next(), 2)?;
    let minute = number(clock.next(), 2)?;
    let (second, nanos) = match clock.next() {
        None => (0, 0),
        Some(second) => match second.split_once('.') {
            None => (number(Some(second), 2)?, 0),
            Some((second, fraction)) => (number(Some(second), 2)?, nanos(fraction)?),
        },
    };
    if date.next().is_some() || clock.next().is_some() {
        return None;
    }
    Some(Timestamp {
        secs: moment(days, hour, minute, second)? - zone_secs(zone)?,
        nanos,
    })
}

/// Seconds that a zone is ahead of UTC.
fn zone_secs(zone: &str) -> Option<i64> {
    let sign = match zone {
        "Z" | "UTC" => return Some(0),
        _ if zone.starts_with('+') => 1,
        _ if zone.starts_with('-') => -1,
        _ => return None,
    };
    let digits = zone.get(1..)?.replacen(':', "", 1);
    let (hours, minutes) = (
        number(digits.get(..2), 2)?,
        match digits.len() {
            2 => 0,
            _ => number(digits.get(2..), 2)?,
        },
    );
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn moment(days: i64, hour: i64, minute: i64, second: i64) -> Option<i64> {
    (hour < 24 && minute < 60 && second < 60)
        .then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn stamp(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (text, second) = match text.split_once('.') {
        Some((text, second)) => (text, number(Some(second), 2)?),
        None => (text, 0),
    };
    let at = text.len().checked_sub(8)?;
    let (year, rest) = (text.get(..at)?, text.get(at..)?);
    let year = match year.len() {
        0 => civil(now.secs.div_euclid(86_400)).0,
        // As POSIX has it: 69 to 99 are of the last century.
        2 => match number(Some(year), 2)? {
            short @ 69.. => 1900 + short,
            short => 2000 + short,
        },
        4 => number(Some(year), 4)?,
        _ => return None,
    };
    let part = |from: usize| number(rest.get(from..from + 2), 2);
    let days = days(year, part(0)?, part(2)?)?;
    Some(Timestamp {
        secs: moment(days, part(4)?, part(6)?, second)?,
        nanos: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(i64, u32)> {
        parse_date(text).ok().map(|time| (time.secs, time.nanos))
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        for secs in [
            0,
            951_782_400,
            1_700_000_000,
            -1,
            -2_147_483_648,
            15_032_385_535,
        ] {
            assert_eq!(read(&at(secs)), Some((secs, 0)), "{}", at(secs));
        }
        assert_eq!(read("2000-02-29"), Some((951_782_400, 0)));
        assert_eq!(read("1970-01-01 00:01"), Some((60, 0)));
        assert_eq!(read("1970-01-01T00:00:01.5Z"), Some((1, 500_000_000)));
        assert_eq!(read("1970-01-01 01:00:00 +0100"), Some((0, 0)));
        assert_eq!(read("1970-01-01 01:00:00-02:30"), Some((12_600, 0)));
        assert_eq!(read("@12"), Some((12, 0)));
        assert_eq!(read("@-1.25"), Some((-2, 750_000_000)));
        for wrong in [
            "",
            "now",
            "1970-1-1",
            "1970-02-30",
            "1970-13-01",
            "1970-01-01 24:00",
            "1970-01-01 1:00",
            "1970-01-01 01:00:00.",
            "1970-01-01 01:00 CET",
            "3000-01-01",
            "@",
            "1970-01-01T00:00:01é",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn stamps_are_those_of_touch() {
        let now = Timestamp {
            secs: 1_700_000_000,
            nanos: 5,
        };
        let read = |text| parse_stamp(text, now).ok().map(|time| time.secs);
        assert_eq!(read("197001010000.01"), Some(1));
        assert_eq!(read("7001010001"), Some(60));
        assert_eq!(read("11142213.20"), Some(1_700_000_000));
        assert_eq!(read("6812312359"), Some(3_124_223_940));
        for wrong in ["", "1970", "19700101000", "197013010000", "19700101000é"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    fn at(secs: i64) -> String {
        rfc3339(Timestamp { secs, nanos: 0 })
    }

    #[test]
    fn short_moments_are_the_beginnings_of_long_ones() {
        for secs in [
            0,
            59,
            -1,
            951_782_399,
            15_032_385_535,
            -62_167_219_201,
            i64::MAX / 2,
        ] {
            let time = Timestamp { secs, nanos: 7 };
            let long = long(time);
            let minutes = long.rsplit_once(':').map_or("", |(minutes, _)| minutes);
            assert_eq!(short(time), minutes);
        }
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
