//! The parts of a URI, and what is wrong with them.
//!
//! # Sources
//! RFC 3986 (generic syntax, percent-encoding, addresses of IPv6 in brackets).

/// An address that names nothing: which, and what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {reason}")]
pub struct AddressError {
    address: String,
    reason: String,
}

impl AddressError {
    pub(crate) fn new(address: &[u8], reason: impl Into<String>) -> Self {
        Self {
            address: shown(address),
            reason: reason.into(),
        }
    }

    /// Returns what is wrong and what to write, without the address.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<AddressError> for extant_blockdev::DeviceError {
    fn from(error: AddressError) -> Self {
        Self::Refused {
            place: error.address,
            reason: error.reason,
        }
    }
}

/// An address as text that cannot command a terminal, without its secrets.
pub(crate) fn shown(address: &[u8]) -> String {
    let open = String::from_utf8_lossy(&without_secrets(address)).into_owned();
    let safe = |c: char| {
        if c.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
        {
            c.escape_unicode().to_string()
        } else {
            c.to_string()
        }
    };
    open.chars().map(safe).collect()
}

/// What stands for a secret.
const HIDDEN: &[u8] = b"***";

/// Takes user and password out of the authority of a URI, and the query of a URL, which signs it.
pub(crate) fn without_secrets(address: &[u8]) -> Vec<u8> {
    let Some(scheme) = scheme(address) else {
        return address.to_vec();
    };
    let start = scheme.len() + 3;
    let rest = address.get(start..).unwrap_or_default();
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
        .unwrap_or(rest.len());
    let (authority, mut behind) = rest.split_at(end);
    let mut open = address.get(..start).unwrap_or_default().to_vec();
    match authority.iter().rposition(|byte| *byte == b'@') {
        Some(at) => {
            // The name is a token with some servers.
            open.extend_from_slice(HIDDEN);
            open.extend_from_slice(authority.get(at..).unwrap_or_default());
        }
        None => open.extend_from_slice(authority),
    }
    if scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https") {
        let query = behind.iter().position(|byte| *byte == b'?');
        let fragment = behind.iter().position(|byte| *byte == b'#');
        if let Some(query) = query.filter(|at| fragment.is_none_or(|end| *at < end)) {
            open.extend_from_slice(behind.get(..=query).unwrap_or_default());
            open.extend_from_slice(HIDDEN);
            behind = fragment.and_then(|at| behind.get(at..)).unwrap_or_default();
        }
    }
    open.extend_from_slice(behind);
    open
}

/// The scheme of what is written `SCHEME://...`.
pub(crate) fn scheme(text: &[u8]) -> Option<&[u8]> {
    let end = text.windows(3).position(|three| three == b"://")?;
    let scheme = text.get(..end)?;
    let is_name = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_name.then_some(scheme)
}

/// Bytes with `%41` read as `A`. `Err` is what follows a `%` and is no such byte.
pub(crate) fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'%' {
            decoded.push(first);
            rest = behind;
            continue;
        }
        let digit = |at: usize| {
            let byte = behind.get(at).copied()?;
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            let wrong = behind.get(..2).unwrap_or(behind);
            return Err(shown(wrong));
        };
        decoded.push(high << 4 | low);
        rest = behind.get(2..).unwrap_or_default();
    }
    Ok(decoded)
}

/// Host and port of an authority: `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT`. The brackets are
/// taken off.
pub(crate) fn host_and_port(authority: &[u8]) -> Result<(String, Option<u16>), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix(b"[") {
        let end = rest
            .iter()
            .position(|byte| *byte == b']')
            .ok_or("the bracket behind the IPv6 address is missing: write [ADDRESS]")?;
        let (host, behind) = rest.split_at(end);
        let text = std::str::from_utf8(host).unwrap_or_default();
        // A zone, as in fe80::1%25eth0, is the system's to judge.
        let address = text.split('%').next().unwrap_or_default();
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!(
                "{} is no IPv6 address, which is what brackets are for",
                shown(host)
            ));
        }
        match behind.get(1..).unwrap_or_default() {
            [] => (host, None),
            [b':', port @ ..] => (host, Some(port)),
            other => {
                return Err(format!(
                    "{} stands behind the bracket: write a colon and a port there, or nothing",
                    shown(other)
                ));
            }
        }
    } else {
        let mut parts = authority.splitn(2, |byte| *byte == b':');
        let host = parts.next().unwrap_or_default();
        let port = parts.next();
        if port.is_some_and(|port| port.contains(&b':')) {
            return Err("write an IPv6 address in brackets, as in [::1]:10809".to_owned());
        }
        (host, port)
    };
    let host = decode(host).map_err(|wrong| bad_percent(&wrong))?;
    let host = String::from_utf8(host).map_err(|_| "the host's name is not UTF-8".to_owned())?;
    if host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("a host's name has no blanks".to_owned());
    }
    let port = match port {
        None => None,
        Some(digits) => Some(
            std::str::from_utf8(digits)
                .ok()
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .filter(|port| *port != 0)
                .ok_or_else(|| {
                    format!(
                        "{:?} is no port: write a number from 1 to 65535 behind the host's colon",
                        shown(digits)
                    )
                })?,
        ),
    };
    Ok((host, port))
}

/// What to say of a `%` with something else than two hexadecimal digits behind it.
pub(crate) fn bad_percent(wrong: &str) -> String {
    format!("%{wrong} stands for no byte: write %25 for a percent sign")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_stand_for_bytes() {
        assert_eq!(decode(b"a%2Fb%ff"), Ok(b"a/b\xff".to_vec()));
        assert_eq!(decode(b"%zz"), Err("zz".to_owned()));
        assert_eq!(decode(b"%4"), Err("4".to_owned()));
        assert_eq!(decode(b"%"), Err(String::new()));
    }

    #[test]
    fn hosts_have_ports_and_brackets() {
        let host = |text: &str| host_and_port(text.as_bytes());
        assert_eq!(host("box"), Ok(("box".to_owned(), None)));
        assert_eq!(host("box:7"), Ok(("box".to_owned(), Some(7))));
        assert_eq!(host("[::1]"), Ok(("::1".to_owned(), None)));
        assert_eq!(
            host("[fe80::1%25eth0]:9"),
            Ok(("fe80::1%eth0".to_owned(), Some(9)))
        );
        for wrong in [
            "box:",
            "box:0",
            "box:+7",
            "box:65536",
            "::1",
            "[::1",
            "[::1]x",
            "[box]",
        ] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secrets_and_no_control_characters() {
        let shown = |text: &str| shown(text.as_bytes());
        assert_eq!(shown("https://me:pw@host/a"), "https://***@host/a");
        assert_eq!(shown("https://me@host/a"), "https://***@host/a");
        assert_eq!(shown("https://h/a?sig=x#2"), "https://h/a?***#2");
        assert_eq!(shown("nbd+unix:///a?socket=/x"), "nbd+unix:///a?socket=/x");
        assert_eq!(shown("a\x1bb"), "a\\u{1b}b");
    }
}
