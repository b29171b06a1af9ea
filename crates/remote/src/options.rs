//! Limits of a remote device.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a remote object is read: how much memory, how many requests, how long.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// Bytes of the object that are kept in memory. The default is 64 MiB.
    pub cache_bytes: u64,
    /// A directory that keeps pieces of objects from run to run. It is made if it is not there.
    /// One that belongs to another user, or that others may write to, is not used. The default is
    /// none.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the directory may grow to. The default is 4 GiB.
    pub cache_dir_bytes: u64,
    /// Requests that may wait for their answers at the same time. The default is 16.
    pub in_flight: usize,
    /// How long to wait, and for how long to try again.
    pub timeouts: Timeouts,
    /// What takes the place of variables of the environment.
    pub settings: StoreSettings,
}

/// Variables for the client of a store, such as `AWS_ENDPOINT_URL`, in place of those of the
/// environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreSettings(Vec<(String, String)>);

impl StoreSettings {
    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.push((name.to_ascii_uppercase(), value.to_owned()));
    }

    /// The variables, the last value of one counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a variable, from here or from the environment.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        let own = self.0.iter().rfind(|(n, _)| n == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| std::env::var(name).ok())
    }
}

/// Shows names only: values may be secret.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Times after which waiting ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For a connection to be made. The default is 10 seconds.
    pub connect: Duration,
    /// Without a byte of the answer. The default is 30 seconds.
    pub idle: Duration,
    /// For further attempts after the first failure of a request. The default is 60 seconds; zero
    /// means one attempt only.
    pub retry: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            cache_dir: None,
            cache_dir_bytes: 4 << 30,
            in_flight: 16,
            timeouts: Timeouts::default(),
            settings: StoreSettings::default(),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            retry: Duration::from_secs(60),
        }
    }
}

impl RemoteOptions {
    /// Returns the defaults, with the directory that the environment variable `EXTANT_CACHE_DIR`
    /// names, if it is set and not empty. A relative one is below the working directory of now.
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            cache_dir: std::env::var_os("EXTANT_CACHE_DIR")
                .filter(|dir| !dir.is_empty())
                // Without a working directory there is no such place.
                .and_then(|dir| std::path::absolute(dir).ok()),
            ..Self::default()
        }
    }
}
