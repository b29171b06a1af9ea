//! What a URL names, and what of it may be told.

use crate::error::RemoteError;
use crate::options::StoreSettings;
use reqwest::Url;

/// Where objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    S3,
    Gcs,
    Azure,
}

/// The URL of an object.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) scheme: Scheme,
    pub(crate) url: Url,
}

/// A way to sign a URL: the parameters that tell it, and all that it has. Without these the query
/// says what is meant.
struct Signing {
    marks: &'static [&'static str],
    own: &'static [&'static str],
}

const SIGNINGS: &[Signing] = &[
    // Version 4 of Amazon.
    Signing {
        marks: &["x-amz-credential", "x-amz-signature"],
        own: &[
            "x-amz-algorithm",
            "x-amz-credential",
            "x-amz-date",
            "x-amz-expires",
            "x-amz-security-token",
            "x-amz-signature",
            "x-amz-signedheaders",
        ],
    },
    // Version 4 of Google.
    Signing {
        marks: &["x-goog-credential", "x-goog-signature"],
        own: &[
            "x-goog-algorithm",
            "x-goog-credential",
            "x-goog-date",
            "x-goog-expires",
            "x-goog-signature",
            "x-goog-signedheaders",
        ],
    },
    // Shared access signatures of Azure.
    Signing {
        marks: &["sig", "sv"],
        own: &[
            "saoid", "scid", "sdd", "se", "si", "sig", "sip", "ske", "skoid", "sks", "skt",
            "sktid", "skv", "sp", "spr", "sr", "srt", "ss", "st", "suoid", "sv",
        ],
    },
    // Amazon CloudFront.
    Signing {
        marks: &["key-pair-id", "signature"],
        own: &["expires", "key-pair-id", "policy", "signature"],
    },
];

/// Variables that say where a store is.
const PLACES: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_BASE_URL",
];

impl Address {
    /// Reads a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, RemoteError> {
        let bad = |reason: &str| RemoteError::BadUrl {
            reason: reason.to_owned(),
        };
        // The parser's own words do not repeat the text, which may hold a password.
        let url = Url::parse(text).map_err(|e| bad(&format!("this is no URL ({e})")))?;
        let scheme = match url.scheme() {
            "http" | "https" => Scheme::Http,
            "s3" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "az" => Scheme::Azure,
            other => {
                return Err(bad(&format!(
                    "{other}:// is not known here: http://, https://, s3://, gs:// and az:// are"
                )));
            }
        };
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("the URL names no host or bucket"));
        }
        if scheme != Scheme::Http {
            if url.path().len() < 2 {
                return Err(bad("the URL names no object: write SCHEME://BUCKET/KEY"));
            }
            if !url.username().is_empty() || url.password().is_some() {
                return Err(bad(
                    "credentials of a store come from the environment, not from the URL",
                ));
            }
            let unknown = url.query_pairs().find(|(key, _)| key != "versionId");
            if let Some((key, _)) = unknown {
                return Err(bad(&format!(
                    "the parameter {key} is not known: versionId is"
                )));
            }
            check_object(text, &url).map_err(bad)?;
        }
        Ok(Self { scheme, url })
    }

    /// The bucket or container.
    pub(crate) fn bucket(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The key of the object in its bucket, percent signs decoded.
    ///
    /// # Errors
    /// `BadUrl` if that is no text.
    pub(crate) fn key(&self) -> Result<String, RemoteError> {
        let path = self.url.path().strip_prefix('/').unwrap_or_default();
        percent_decoded(path).ok_or_else(|| RemoteError::BadUrl {
            reason: "the key is not UTF-8".to_owned(),
        })
    }

    /// The version of the object that the URL asks for.
    pub(crate) fn version(&self) -> Option<String> {
        let named = |(key, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
            (key == "versionId").then(|| value.into_owned())
        };
        self.url.query_pairs().find_map(named)
    }

    /// How errors name the object: without user, password and query.
    pub(crate) fn shown(&self) -> String {
        shown(&self.url)
    }

    /// What the object is called in caches: the URL without what differs from signature to
    /// signature, and the place of the store.
    pub(crate) fn lasting(&self, settings: &StoreSettings) -> String {
        let place = PLACES.iter().filter(|_| self.scheme != Scheme::Http);
        let place: Vec<String> = place.filter_map(|name| settings.get(name)).collect();
        let url = self.without_signature();
        if place.is_empty() {
            return url;
        }
        format!("{url} at {}", place.join(" "))
    }

    fn without_signature(&self) -> String {
        let mut url = self.url.clone();
        // Neither can fail where there is a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        let kept = self.url.query().map(unsigned);
        url.set_query(kept.as_deref().filter(|query| !query.is_empty()));
        url.into()
    }
}

/// A URL without user, password, query and fragment; three points stand for a query.
pub(crate) fn shown(url: &Url) -> String {
    let mut plain = url.clone();
    // Neither can fail where there is a host.
    let _ = plain.set_username("");
    let _ = plain.set_password(None);
    plain.set_query(None);
    plain.set_fragment(None);
    let mark = if url.query().is_some() { "?..." } else { "" };
    format!("{plain}{mark}")
}

/// A text that may be a URL, without its secrets.
pub(crate) fn shown_text(text: &str) -> String {
    if let Ok(url) = Url::parse(text) {
        return shown(&url);
    }
    // What is no URL may still hold what was meant as one.
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => text.to_owned(),
    }
}

/// Refuses what names another object after it was read as a URL than it does as text. The error
/// says what to write.
fn check_object(text: &str, url: &Url) -> Result<(), &'static str> {
    let (_, rest) = text.split_once("://").unwrap_or_default();
    if rest.contains('#') {
        return Err("an object has no fragment: write %23 for a # in a key");
    }
    let rest = rest.split('?').next().unwrap_or_default();
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains(':') {
        return Err("a bucket has no port: the endpoint is set in the environment");
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '$');
    if bucket.starts_with('.') || !bucket.chars().all(is_plain) {
        return Err("a bucket's name has letters, digits, points and hyphens only");
    }
    let key = percent_decoded(key).ok_or("the key is not UTF-8")?;
    if key.chars().any(char::is_control) {
        return Err("keys with control characters are not supported");
    }
    if key.ends_with('/') {
        return Err("a key that ends with a slash names a folder: write the key of an object");
    }
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("keys with empty parts, . or .. between slashes are not supported");
    }
    let found = percent_decoded(url.path().strip_prefix('/').unwrap_or_default());
    if url.host_str() != Some(bucket) || found.as_ref() != Some(&key) {
        return Err("bucket and key are not clear: write other characters as %41 and the like");
    }
    Ok(())
}

/// A query without the parameters that sign it. Any other parameter may say which object is meant.
fn unsigned(query: &str) -> String {
    fn name(parameter: &str) -> String {
        let name = parameter.split('=').next().unwrap_or_default();
        name.to_ascii_lowercase()
    }
    let names: Vec<String> = query.split('&').map(name).collect();
    let has = |mark: &&str| names.iter().any(|name| name == mark);
    let Some(signing) = SIGNINGS.iter().find(|s| s.marks.iter().all(has)) else {
        return query.to_owned();
    };
    let kept: Vec<&str> = query
        .split('&')
        .filter(|parameter| !signing.own.contains(&name(parameter).as_str()))
        .collect();
    kept.join("&")
}

/// Text with `%41` read as `A`; `None` if that is no UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let value = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        match value {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{Address, shown_text};

    #[test]
    fn what_is_told_of_a_url_holds_no_secrets() {
        let text = "https://bob:secret@host:8080/a%20b.img?X-Amz-Signature=secret&id=7#secret";
        let address = Address::parse(text).unwrap();
        assert_eq!(address.shown(), "https://host:8080/a%20b.img?...");
        assert_eq!(
            address.without_signature(),
            "https://host:8080/a%20b.img?X-Amz-Signature=secret&id=7"
        );
        for text in [
            text,
            "https://bob:secret@[bad/x?token=secret",
            "ftp://bob:secret@h/x",
            "s3://bob:secret@bucket/key?secret=secret",
        ] {
            assert!(!shown_text(text).contains("secret"), "{}", shown_text(text));
            if let Err(e) = Address::parse(text) {
                assert!(!e.to_string().contains("bob"), "{e}");
            }
        }
    }

    #[test]
    fn only_what_signs_a_url_is_left_out_of_its_name() {
        let name = |query: &str| {
            let url = format!("https://h/a?{query}");
            Address::parse(&url).unwrap().without_signature()
        };
        for (signed, rest) in [
            (
                "id=7&X-Amz-Algorithm=A&X-Amz-Credential=c%2Fd&X-Amz-Date=1&X-Amz-Expires=60&\
                 X-Amz-SignedHeaders=host&X-Amz-Signature=1",
                "?id=7",
            ),
            ("X-Goog-Credential=c&X-Goog-Signature=1", ""),
            ("sv=2024&sp=r&se=1&sr=b&snapshot=2&sig=a%3D", "?snapshot=2"),
            ("Expires=1&Signature=a&Key-Pair-Id=b", ""),
        ] {
            assert_eq!(name(signed), format!("https://h/a{rest}"));
        }
        for query in [
            "key=a",
            "token=1",
            "st=1&sp=2",
            "sig=1",
            "signature=1&expires=2",
            "X-Amz-Date=1",
            "a=1&&b",
        ] {
            assert_eq!(name(query), format!("https://h/a?{query}"));
        }
    }

    #[test]
    fn buckets_and_keys_are_taken_apart() {
        let address = Address::parse("s3://my.bucket/dir/a%2Bb c.img?versionId=q1").unwrap();
        assert_eq!(address.bucket(), "my.bucket");
        assert_eq!(address.key().unwrap(), "dir/a+b c.img");
        assert_eq!(address.version().as_deref(), Some("q1"));
        for (url, key) in [
            ("gs://b/...", "..."),
            ("gs://b/a:80/.b", "a:80/.b"),
            ("az://$web/a%23b%3Fc%20", "a#b?c "),
            ("s3://B_1/ä%25", "ä%"),
        ] {
            assert_eq!(Address::parse(url).unwrap().key().unwrap(), key);
        }
        for bad in [
            "s3://bucket",
            "s3://bucket/",
            "s3:///key",
            "s3://bucket/a/../b",
            "s3://bucket/a/%2E%2e/b",
            "s3://bucket/./a",
            "s3://bucket/a//b",
            "s3://bucket//a",
            "s3://bucket/a/",
            "s3://bucket/a%2F",
            "s3://bucket:9000/a",
            "s3://bucket/a#2",
            "s3://buc%6Bet/a",
            "s3://../a",
            "gs://bucket/a\tb",
            "az://container/a\n",
            "az://container/a ",
            "nfs://h/x",
            "plain",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }
}
