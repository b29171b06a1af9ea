//! What operands are read as, also whatever bytes they have.

use super::*;
use extant_blockdev::{NbdAddress, NbdTransport};
use proptest::prelude::*;
use std::path::PathBuf;

/// Location as it is shown, and path, or the sentence.
fn split(text: &str, existing: &[&str]) -> (String, Option<String>) {
    let exists = |path: &Path| existing.iter().any(|known| Path::new(known) == path);
    match ImageLocation::split_with(text.as_bytes(), &exists) {
        Ok((location, path)) => (
            location.to_string(),
            path.map(|path| String::from_utf8_lossy(path).into_owned()),
        ),
        Err(e) => panic!("{text}: {e}"),
    }
}

fn parse(text: &str) -> Result<ImageLocation, AddressError> {
    ImageLocation::parse_with(text.as_bytes(), &|_| false)
}

fn whole(image: &str) -> (String, Option<String>) {
    (image.to_owned(), None)
}

fn inside(image: &str, path: &str) -> (String, Option<String>) {
    (image.to_owned(), Some(path.to_owned()))
}

fn nbd_of(text: &str) -> NbdAddress {
    match parse(text).expect("an address").carrier() {
        Carrier::Nbd(nbd) => nbd.clone(),
        other => panic!("{text} is {other:?}"),
    }
}

fn reason(text: &str) -> String {
    match parse(text) {
        Ok(location) => panic!("{text} is {location:?}"),
        Err(e) => e.reason().to_owned(),
    }
}

#[test]
fn an_image_and_a_path_are_told_apart() {
    assert_eq!(split("a.img", &["a.img"]), whole("a.img"));
    assert_eq!(split("a.img:", &["a.img"]), inside("a.img", ""));
    assert_eq!(split("a.img:/etc", &["a.img"]), inside("a.img", "/etc"));
    assert_eq!(split("a.img:etc", &["a.img"]), inside("a.img", "etc"));
    assert_eq!(split("a.img:/e:f", &["a.img"]), inside("a.img", "/e:f"));
    assert_eq!(split("gone:/e:f", &[]), inside("gone", "/e:f"));
    assert_eq!(split(":/e", &[]), whole(":/e"));
}

#[test]
fn a_partition_is_named_with_its_image_unless_a_file_is_called_so() {
    assert_eq!(split("d#2:/f", &["d"]), inside("d#2", "/f"));
    assert_eq!(split("d#2", &["d"]), whole("d#2"));
    assert_eq!(split("d#2:/f", &["d", "d#2"]), inside("d#2", "/f"));
    assert_eq!(split("d:/f#2", &["d"]), inside("d", "/f#2"));
    assert_eq!(split("d#root:/f", &["d"]), inside("d#root", "/f"));
    assert_eq!(split("d#a:b:/f", &["d"]), inside("d#a", "b:/f"));
    assert_eq!(split("d#:/f", &["d"]), inside("d#", "/f"));
    assert_eq!(split("gone#2:/f", &["d"]), inside("gone#2", "/f"));
    let exists =
        |known: &'static [&str]| move |path: &Path| known.iter().any(|one| Path::new(one) == path);
    let of = |text: &str, known| {
        let (location, _) =
            ImageLocation::split_with(text.as_bytes(), &exists(known)).expect("a path");
        (
            location.path().map(Path::to_owned),
            location.partition().cloned(),
        )
    };
    let label = |label: &str| Some(PartitionName::Label(label.to_owned()));
    let d = || Some(PathBuf::from("d"));
    assert_eq!(of("d#2:/f", &["d"]), (d(), Some(PartitionName::Number(2))));
    assert_eq!(of("d#EFI system:/f", &["d"]), (d(), label("EFI system")));
    assert_eq!(of("d#2:/f", &["d", "d#2"]), (Some("d#2".into()), None));
    assert_eq!(of("d#a/b", &["d"]), (Some("d#a/b".into()), None));
    // Of a whole image a label may have a colon.
    let parsed = ImageLocation::parse_with(b"d#a:b", &exists(&["d"])).expect("a path");
    assert_eq!(parsed.partition().cloned(), label("a:b"));
}

#[test]
fn an_existing_file_wins() {
    let existing = ["a", "a:b"];
    assert_eq!(split("a:b", &existing), whole("a:b"));
    assert_eq!(split("a:b:/etc", &existing), inside("a:b", "/etc"));
    assert_eq!(split("a:c", &existing), inside("a", "c"));
    // Also over an address, if it has all of its name.
    assert_eq!(
        split("http://h/f:/x", &["http://h/f"]),
        inside("http://h/f", "/x")
    );
    let is_address = |text: &str, known: &'static str| {
        let exists = move |path: &Path| Path::new(known) == path;
        let (location, _) = ImageLocation::split_with(text.as_bytes(), &exists).expect("sound");
        location.is_address()
    };
    assert!(is_address("http://h/f", "http"));
    assert!(!is_address("http://h/f", "http://h/f"));
    assert!(is_address("fd:3", "fd"));
    assert!(!is_address("fd:3:/x", "fd:3"));
    assert!(!is_address("odd://h/f", "odd"));
}

#[test]
fn nbd_addresses_have_a_host_and_an_export_or_a_socket() {
    let tcp = |host: &str, port| NbdTransport::Tcp(host.to_owned(), port);
    let nbd = nbd_of("nbd://box/disk%20one");
    assert_eq!(
        (nbd.transport, nbd.tls, nbd.export.as_str()),
        (tcp("box", 10809), false, "disk one")
    );
    let nbd = nbd_of("NBDS://[::1]:7/a/b");
    assert_eq!(
        (nbd.transport, nbd.tls, nbd.export.as_str()),
        (tcp("::1", 7), true, "a/b")
    );
    assert_eq!(nbd_of("nbd://box").export, "");
    let nbd = nbd_of("nbd+unix:///?socket=/run/a%3Db.sock");
    assert_eq!(nbd.transport, NbdTransport::Unix("/run/a=b.sock".into()));
    assert_eq!(nbd.export, "");
    assert!(nbd_of("nbds+unix:///x?socket=rel").tls);
    for (text, says) in [
        ("nbd:///x", "the host is missing: write nbd://HOST/EXPORT"),
        ("nbd://::1/x", "in brackets"),
        ("nbd://box:x/x", "no port"),
        ("nbd://me@box/x", "users are not known"),
        (
            "nbd://box/x?socket=/run/s",
            "nbd+unix:///EXPORT?socket=PATH",
        ),
        ("nbd+unix:///x", "the socket is missing"),
        ("nbd+unix://h/x?socket=/s", "three slashes"),
        ("nbd+unix:///x?sock=/s", "\"sock\" is not known"),
        ("nbd://box/%zz", "write %25"),
        ("nbd://box/%ff", "not UTF-8"),
        ("nbd://box/x#", "partition behind # is missing"),
        (
            "nbd://box/x:/etc",
            "a whole image is meant here: write nbd://box/x",
        ),
    ] {
        let found = reason(text);
        assert!(found.contains(says), "{text}: {found}");
    }
}

#[test]
fn urls_name_files_and_objects() {
    let carrier = |text: &str| parse(text).expect("an address").carrier().clone();
    let http = "https://me:pw@h:8443/a%20b.img?sig=1";
    assert_eq!(carrier(http), Carrier::Http(http.to_owned()));
    assert_eq!(
        parse(http).expect("one").to_string(),
        "https://***@h:8443/a%20b.img?***"
    );
    assert_eq!(
        carrier("s3://b/k#2"),
        Carrier::Object("s3://b/k".to_owned())
    );
    assert_eq!(
        parse("s3://b/k#2").expect("one").partition(),
        Some(&PartitionName::Number(2))
    );
    let label = parse("gs://b/k#a%2Fb").expect("one");
    assert_eq!(
        label.partition(),
        Some(&PartitionName::Label("a/b".to_owned()))
    );
    for (text, says) in [
        ("https://", "the host is missing"),
        ("https://h/", "names no file"),
        ("https://h/a b", "write %20"),
        ("https://h/\u{e9}", "write %C3"),
        ("s3://b", "names no object: write s3://BUCKET/KEY"),
        ("az:///k", "names no object: write az://CONTAINER/BLOB"),
        ("s3://key@b/k", "from the environment"),
        ("file:///x", "write the path of the file itself"),
        ("rbd://pool/image", "qemu-nbd"),
        ("ssh://h/x", "nbdkit"),
        ("odd://h/x", "addresses begin with nbd://"),
    ] {
        let found = reason(text);
        assert!(found.contains(says), "{text}: {found}");
    }
}

#[test]
fn paths_inside_begin_at_a_colon_and_a_slash_in_addresses() {
    let at = |text| split(text, &[]);
    assert_eq!(at("nbd://h:7/x#2:/e:/f"), inside("nbd://h:7/x#2", "/e:/f"));
    assert_eq!(at("nbd://[::1]/x:/e"), inside("nbd://[::1]/x", "/e"));
    assert_eq!(
        at("nbd+unix:///?socket=/s:/e"),
        inside("nbd+unix:///?socket=/s", "/e")
    );
    assert_eq!(at("https://h/a:b:/e"), inside("https://h/a:b", "/e"));
    assert_eq!(at("https://h/a%3A/b:/e"), inside("https://h/a%3A/b", "/e"));
    assert_eq!(at("https://h/a:"), inside("https://h/a", ""));
    assert_eq!(at("https://h/a"), whole("https://h/a"));
    assert_eq!(at("fd:3:etc"), inside("fd:3", "etc"));
    assert_eq!(at("fd:3#root:/etc"), inside("fd:3#root", "/etc"));
    assert_eq!(at("fd:3"), whole("fd:3"));
    assert_eq!(at("fd:x:/etc"), inside("fd", "x:/etc"));
    assert_eq!(at("fd:99999999999"), inside("fd", "99999999999"));
}

/// Bytes with everything encoded that may have a meaning.
fn encode(bytes: &[u8]) -> String {
    let one = |byte: &u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            char::from(*byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    bytes.iter().map(one).collect()
}

fn partitions() -> impl Strategy<Value = Option<PartitionName>> {
    prop_oneof![
        Just(None),
        any::<u32>().prop_map(|number| Some(PartitionName::Number(number))),
        "[^0-9\u{0}].{0,20}".prop_map(|label| Some(PartitionName::Label(label))),
    ]
}

proptest! {
    #[test]
    fn what_is_written_as_an_address_is_read_as_it(
        export in ".{0,40}",
        host in "[a-z][a-z0-9.-]{0,20}",
        port in 1u16..,
        socket in proptest::collection::vec(1u8.., 1..40),
        partition in partitions(),
        path in proptest::option::of("(/[^\u{0}]{0,20})?"),
        tls in any::<bool>(),
    ) {
        let fragment = match &partition {
            None => String::new(),
            Some(PartitionName::Number(number)) => format!("#{number}"),
            Some(PartitionName::Label(label)) => format!("#{}", encode(label.as_bytes())),
        };
        let (s, name) = (if tls { "s" } else { "" }, encode(export.as_bytes()));
        let behind = path.as_ref().map_or(String::new(), |path| format!(":{path}"));
        let of_host = format!("nbd{s}://{host}:{port}/{name}{fragment}{behind}");
        let of_socket = format!("nbd{s}+unix:///{name}?socket={}{fragment}{behind}", encode(&socket));
        let servers = [
            (of_host, NbdTransport::Tcp(host, port)),
            (of_socket, NbdTransport::Unix(PathBuf::from(os(&socket)))),
        ];
        for (text, server) in servers {
            let (location, inside) = ImageLocation::split_with(text.as_bytes(), &|_| false)?;
            let Carrier::Nbd(nbd) = location.carrier() else {
                return Err(TestCaseError::fail(format!("{text} is {location:?}")));
            };
            prop_assert_eq!(&nbd.transport, &server);
            prop_assert_eq!((&nbd.export, nbd.tls), (&export, tls));
            prop_assert_eq!(location.partition(), partition.as_ref());
            prop_assert_eq!(inside, path.as_ref().map(|path| path.as_bytes()));
        }
    }

    #[test]
    fn anything_is_read_or_refused_and_what_is_shown_commands_no_terminal(
        text in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "(nbds?|nbd[+]unix|https?|s3|gs|az|fd|odd)(://|:)[a-z0-9:/#%?=@\\[\\]\u{1b}.]{0,60}"
                .prop_map(String::into_bytes),
        ],
        known in any::<u8>(),
    ) {
        let exists = |path: &Path| path.as_os_str().len() % 8 == usize::from(known % 32);
        match ImageLocation::split_with(&text, &exists) {
            Ok((location, path)) => {
                prop_assert!(path.is_none_or(|path| text.ends_with(path)));
                if location.is_address() {
                    let shown = location.to_string();
                    prop_assert!(!shown.contains(char::is_control), "{shown:?}");
                }
            }
            Err(e) => prop_assert!(!e.to_string().contains(char::is_control)),
        }
        let _ = ImageLocation::parse_with(&text, &exists);
    }
}
