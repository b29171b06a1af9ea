//! Where a server listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket, made at this path.
    Unix(PathBuf),
    /// A host, by name or address, and a port; 0 is one that the system chooses.
    Tcp(String, u16),
}

/// An address that cannot be listened on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address to listen on: write unix:PATH, or HOST:PORT as in 127.0.0.1:10809")]
pub struct BadAddress(String);

impl FromStr for Listen {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(bad())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().map_err(|_| bad())?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        // Without brackets, colons would be of an address without a port.
        match bare {
            Some(host) => Ok(Self::Tcp(host.to_owned(), port)),
            None if host.is_empty() || host.contains([':', '/']) => Err(bad()),
            None => Ok(Self::Tcp(host.to_owned(), port)),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["unix:/run/a b", "localhost:10809", "[::1]:0", "127.0.0.1:1"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "host",
            ":1",
            "::1:5",
            "host:70000",
            "/tmp/a:1",
            "host:x",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
