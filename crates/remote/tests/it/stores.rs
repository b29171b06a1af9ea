//! Reading from and writing to servers of object stores.

use crate::server::{Answer, Server, answer};
use crate::support::{hasty, object, read_all, text};
use extant_blockdev::{DeviceResult, SharedDevice};
use extant_remote::{RemoteOptions, StoreSettings, UploadOptions, create, open};
use extant_testkit::require;
use extant_testkit::stores::StoreServer;
use std::fs;
use std::path::Path;

const PIECE: usize = 64 << 10;

/// A running server with a bucket `images`.
pub(crate) struct Store {
    pub(crate) name: &'static str,
    server: StoreServer,
}

impl Store {
    pub(crate) fn all() -> Vec<Store> {
        StoreServer::all().into_iter().map(Self::of).collect()
    }

    fn of(server: StoreServer) -> Store {
        Store {
            name: server.name(),
            server,
        }
    }

    fn settings(&self) -> StoreSettings {
        let mut settings = StoreSettings::default();
        for (name, value) in self.server.variables() {
            settings.set(name, &value);
        }
        settings
    }

    pub(crate) fn options(&self) -> RemoteOptions {
        let mut options = hasty();
        options.timeouts = extant_remote::Timeouts::default();
        options.settings = self.settings();
        options
    }

    pub(crate) fn upload(&self) -> UploadOptions {
        let mut options = UploadOptions::default();
        options.settings = self.settings();
        options
    }

    pub(crate) fn url(&self, key: &str) -> String {
        self.server.url(key)
    }

    fn open(&self, key: &str) -> DeviceResult<SharedDevice> {
        open(&self.url(key), self.options())
    }

    /// Writes an object in steps of this many bytes.
    pub(crate) fn put(&self, key: &str, bytes: &[u8], step: usize) {
        let writer = create(&self.url(key), bytes.len() as u64, self.upload()).unwrap();
        let device = writer.device();
        for (n, chunk) in bytes.chunks(step).enumerate() {
            device.write_at((n * step) as u64, chunk).unwrap();
        }
        writer.finish().unwrap();
    }

    /// Bytes below the folder of the server, if it keeps objects in files.
    fn bytes_on_disk(&self) -> u64 {
        fn below(dir: &Path) -> u64 {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let sizes = entries.map(|entry| match entry.metadata() {
                Ok(meta) if meta.is_dir() => below(&entry.path()),
                Ok(meta) => meta.len(),
                Err(_) => 0,
            });
            sizes.sum()
        }
        self.server.bucket().map_or(0, |folder| below(&folder))
    }
}

#[test]
fn what_is_written_is_read() {
    for store in Store::all() {
        for (len, step) in [
            (0, 1),
            (1, 1),
            (PIECE, 999),
            (20 << 20, 1 << 20),
            (17 << 20, 9 << 20),
        ] {
            let bytes = object(len);
            let key = format!("dir/an image+{len}.img");
            store.put(&key, &bytes, step);
            let device = store
                .open(&key)
                .unwrap_or_else(|e| panic!("{} {e}", store.name));
            assert!(read_all(&device).unwrap() == bytes, "{} {key}", store.name);
        }
    }
}

#[test]
fn what_google_holds_is_read_and_told_when_it_changes() {
    require!(GoogleServer);
    let store = Store::of(StoreServer::fake_gcs());
    let file = tempfile::NamedTempFile::new().unwrap();
    let give = |key: &str, bytes: &[u8]| {
        fs::write(file.path(), bytes).unwrap();
        store.server.give_google(key, file.path());
    };
    for len in [1, PIECE, 20 << 20] {
        let (key, bytes) = (format!("dir/{len}.img"), object(len));
        give(&key, &bytes);
        let device = store.open(&key).unwrap();
        assert!(read_all(&device).unwrap() == bytes, "{key}");
    }
    let device = store.open(&format!("dir/{}.img", 20 << 20)).unwrap();
    let mut buf = [0; 512];
    device.read_at(0, &mut buf).unwrap();
    give(&format!("dir/{}.img", 20 << 20), &vec![7; 20 << 20]);
    let error = device.read_at(15 << 20, &mut buf).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    assert_eq!(store.open("none.img").unwrap_err().errno(), 2);
    let nowhere = open("gs://nothing/a.img", store.options()).unwrap_err();
    assert_eq!(nowhere.errno(), 2, "{nowhere}");
}

#[test]
fn any_order_with_gaps_gives_the_same_object() {
    for store in Store::all() {
        let len = 40 << 20;
        let mut bytes = object(len);
        let mut options = store.upload();
        // Two parts in memory, so that the others go through the temporary file.
        options.memory_bytes = 16 << 20;
        let writer = create(&store.url("a.img"), len as u64, options).unwrap();
        let device = writer.device();
        let step = 1 << 20;
        for n in 0..40 {
            let at = n * 7 % 40 * step;
            if n % 5 == 4 {
                bytes[at..at + step].fill(0);
                device.zero(at as u64, step as u64).unwrap();
            } else {
                device.write_at(at as u64, &bytes[at..at + step]).unwrap();
            }
        }
        device.flush().unwrap();
        writer.finish().unwrap();
        assert!(
            read_all(&store.open("a.img").unwrap()).unwrap() == bytes,
            "{}",
            store.name
        );
    }
}

#[test]
fn nothing_appears_before_the_end_and_nothing_of_what_is_given_up() {
    for store in Store::all() {
        let old = object(3 * PIECE);
        store.put("a.img", &old, PIECE);
        let writer = create(&store.url("a.img"), 20 << 20, store.upload()).unwrap();
        let device = writer.device();
        device.write_at(0, &object(9 << 20)).unwrap();
        assert!(
            read_all(&store.open("a.img").unwrap()).unwrap() == old,
            "{}",
            store.name
        );
        let other = create(&store.url("b.img"), 20 << 20, store.upload()).unwrap();
        other.device().write_at(0, &object(9 << 20)).unwrap();
        drop(other);
        assert_eq!(
            store.open("b.img").unwrap_err().errno(),
            2,
            "{}",
            store.name
        );
        drop(writer);
        if store.name == "versitygw" {
            assert_eq!(store.bytes_on_disk(), old.len() as u64, "parts are left");
        }
        assert!(device.write_at(10 << 20, &[1]).is_err(), "it was given up");
        assert!(
            read_all(&store.open("a.img").unwrap()).unwrap() == old,
            "{}",
            store.name
        );
    }
}

#[test]
fn a_small_object_is_sent_at_the_end_and_not_before() {
    let server = Server::start(|_| {
        let headers = [
            ("Content-Length", "0".to_owned()),
            ("ETag", "\"one\"".to_owned()),
        ];
        Answer::Bytes(answer("200 OK", &headers, b""))
    });
    let begin = || {
        let mut options = UploadOptions::default();
        options.settings = server.settings();
        let writer = create("s3://images/a.img", 1 << 20, options).unwrap();
        writer.device().write_at(0, &object(1 << 20)).unwrap();
        writer
    };
    drop(begin());
    assert_eq!(server.requests(), 0);
    begin().finish().unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].method, "PUT");
    assert_eq!(asked[0].header("content-length"), Some("1048576"));
}

#[test]
fn requests_to_a_store_follow_no_redirect() {
    let other = Server::of(object(PIECE));
    let place = other.url("images/a.img");
    let server = Server::start(move |_| {
        let headers = [
            ("Content-Length", "0".to_owned()),
            ("Location", place.clone()),
        ];
        Answer::Bytes(answer("307 Temporary Redirect", &headers, b""))
    });
    let mut options = hasty();
    options.settings = server.settings();
    let error = open("s3://images/a.img", options).unwrap_err();
    assert!(text(&error).contains("307"), "{error}");
    assert_eq!((server.requests(), other.requests()), (1, 0));
}

#[test]
fn a_changed_object_is_told() {
    for store in Store::all() {
        store.put("a.img", &object(40 * PIECE), PIECE);
        let device = store.open("a.img").unwrap();
        let mut buf = [0; 512];
        device.read_at(10 * PIECE as u64, &mut buf).unwrap();
        let mut other = object(40 * PIECE);
        other.reverse();
        store.put("a.img", &other, PIECE);
        let error = device.read_at(30 * PIECE as u64, &mut buf).unwrap_err();
        assert!(
            error.to_string().contains("changed"),
            "{}: {error}",
            store.name
        );
        assert_eq!(error.errno(), 116);
    }
}

#[test]
fn refusals_are_told_without_secrets() {
    require!(S3Servers);
    let store = Store::of(StoreServer::versitygw());
    assert_eq!(store.open("none.img").unwrap_err().errno(), 2);
    let no_bucket = open("s3://nothing/a.img", store.options()).unwrap_err();
    assert_eq!(no_bucket.errno(), 2, "{no_bucket}");
    let mut options = store.options();
    options.settings.set("AWS_SECRET_ACCESS_KEY", "hidden-word");
    let error = open("s3://images/a.img", options).unwrap_err();
    assert_eq!(error.errno(), 13, "{error}");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("AWS_ACCESS_KEY_ID") && text.contains("SignatureDoesNotMatch"),
        "{text}"
    );
    assert!(
        !text.contains("hidden-word") && !text.contains("password"),
        "{text}"
    );
    let mut options = store.upload();
    options.settings.set("AWS_SECRET_ACCESS_KEY", "hidden-word");
    let error = create("s3://images/a.img", 100 << 20, options).unwrap_err();
    assert_eq!(error.errno(), 13, "{error}");
}

#[test]
fn what_cannot_be_written_is_refused_at_once() {
    for url in [
        "http://127.0.0.1:1/a",
        "https://host/a",
        "s3://bucket/a?versionId=1",
    ] {
        let error = create(url, 1, UploadOptions::default()).unwrap_err();
        assert_eq!(error.errno(), 22, "{error}");
    }
}

#[test]
fn a_server_that_goes_away_ends_an_upload_in_time() {
    require!(S3Servers);
    let store = Store::of(StoreServer::gofakes3());
    let mut options = store.upload();
    options.timeouts = hasty().timeouts;
    let writer = create("s3://images/a.img", 40 << 20, options).unwrap();
    let device = writer.device();
    device.write_at(0, &object(9 << 20)).unwrap();
    drop(store);
    let rest = object(31 << 20);
    let result = device
        .write_at(9 << 20, &rest)
        .and_then(|()| writer.finish());
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("s3://images/a.img")
    );
}
