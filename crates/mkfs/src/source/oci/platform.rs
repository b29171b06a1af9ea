//! Systems and processors, as images name them.

use std::fmt;
use std::str::FromStr;

use super::super::error::SourceResult;
use super::store::Store;

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// Takes the names that an index or a configuration has.
    pub(super) fn of(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let architecture = match architecture {
            "x86_64" | "x86-64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        // Every arm64 is a v8.
        let variant = variant
            .filter(|variant| !variant.is_empty())
            .filter(|variant| (architecture, *variant) != ("arm64", "v8"));
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        }
    }

    /// Whether `other` is what this asks for. One that asks for no variant takes any.
    pub(super) fn takes(&self, other: &Self) -> bool {
        let variant = self.variant.is_none() || self.variant == other.variant;
        (&self.os, &self.architecture) == (&other.os, &other.architecture) && variant
    }
}

/// Those images of a store that are for the platform that is asked for; `platform_of` gives what
/// one is for, if it says so.
///
/// # Errors
///
/// [`SourceError::Refused`](super::super::error::SourceError::Refused) with what there is instead,
/// if none is.
pub(super) fn only<T>(
    store: &Store<'_>,
    images: Vec<T>,
    asked: &Platform,
    platform_of: impl Fn(&T) -> SourceResult<Option<Platform>>,
) -> SourceResult<Vec<T>> {
    let mut others = Vec::new();
    let mut found = Vec::new();
    for image in images {
        match platform_of(&image)? {
            Some(platform) if asked.takes(&platform) => found.push(image),
            Some(platform) => others.push(platform.to_string()),
            None => others.push("one that does not say its platform".to_owned()),
        }
    }
    if found.is_empty() && !others.is_empty() {
        others.truncate(20);
        return Err(store.refused(format!(
            "no image is for {asked}; there is {}",
            others.join(", ")
        )));
    }
    Ok(found)
}

impl FromStr for Platform {
    type Err = String;

    /// Parses `OS/ARCH` or `OS/ARCH/VARIANT`, such as `linux/arm/v7`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [os, architecture] if !os.is_empty() && !architecture.is_empty() => {
                Ok(Self::of(os, architecture, None))
            }
            [os, architecture, variant]
                if !os.is_empty() && !architecture.is_empty() && !variant.is_empty() =>
            {
                Ok(Self::of(os, architecture, Some(variant)))
            }
            _ => Err(format!(
                "{text:?} is no platform: write OS/ARCH or OS/ARCH/VARIANT, such as linux/arm64"
            )),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_takes_what_it_asks_for() {
        let of = |text: &str| text.parse::<Platform>().unwrap();
        assert!(of("linux/arm").takes(&of("linux/arm/v7")));
        assert!(!of("linux/arm/v6").takes(&of("linux/arm/v7")));
        assert!(of("linux/arm64/v8").takes(&of("linux/arm64")));
        assert!(of("linux/x86_64").takes(&of("linux/amd64")));
        assert!(!of("linux/amd64").takes(&of("windows/amd64")));
        for wrong in ["", "linux", "linux/", "a/b/c/d", "a//c"] {
            assert!(wrong.parse::<Platform>().is_err(), "{wrong}");
        }
    }
}
