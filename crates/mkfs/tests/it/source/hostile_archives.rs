//! Archives that lie.

use std::path::Path;

use extant_mkfs::source::{SourceError, SourceResult, TarOptions, Tree, read_tar_stream};

use super::archive::Tar;
use super::*;

fn read(bytes: Vec<u8>) -> SourceResult<Tree> {
    let stream = std::io::Cursor::new(bytes);
    read_tar_stream(stream, Path::new("bad.tar"), &TarOptions::default())
}

/// The error for an archive: it must name archive, byte, member and what is wrong.
fn assert_refused(tar: Tar, offset: u64, member: &str, says: &str) {
    let error = read(tar.end()).expect_err(says);
    let text = error.to_string();
    let SourceError::Archive {
        archive,
        offset: found,
        member: found_member,
        problem,
    } = error
    else {
        panic!("{text}");
    };
    assert_eq!(archive, Path::new("bad.tar"));
    assert_eq!(found, offset, "{text}");
    assert_eq!(found_member.unwrap_or_default(), member, "{text}");
    assert!(problem.contains(says), "{text:?} does not say {says:?}");
}

/// One good member of one block of data.
fn good() -> Tar {
    Tar::new().file("good", b"good")
}

fn with_field(range: std::ops::Range<usize>, bytes: &[u8]) -> Tar {
    let mut tar = good();
    let mut header = Tar::header(b"bad", b'0', b"", 0);
    header[range].copy_from_slice(bytes);
    Tar::seal(&mut header);
    tar.0.extend(header);
    tar
}

fn sparse_pax(map: &str, size: &str, data: &[u8]) -> Tar {
    good()
        .pax(b'x', &[("GNU.sparse.map", map), ("GNU.sparse.size", size)])
        .file("bad", data)
}

fn sparse_in_data(map: &str, size: &str, data: &[u8]) -> Tar {
    let mut body = map.as_bytes().to_vec();
    body.resize(body.len().next_multiple_of(512), 0);
    body.extend(data);
    good()
        .pax(
            b'x',
            &[
                ("GNU.sparse.major", "1"),
                ("GNU.sparse.minor", "0"),
                ("GNU.sparse.realsize", size),
            ],
        )
        .file("bad", &body)
}

#[test]
fn headers_that_lie_are_refused() {
    let mut damaged = good().file("bad", b"");
    damaged.0[1024 + 5] ^= 1;
    assert_refused(damaged, 1024, "", "checksum");
    assert_refused(with_field(124..136, b"0000000008\0\0"), 1024, "", "size");
    assert_refused(
        with_field(
            124..136,
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        1024,
        "",
        "size is -1",
    );
    assert_refused(
        with_field(124..136, b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        1024,
        "",
        "63 bits",
    );
    assert_refused(
        with_field(108..116, b"\x80\0\0\xff\xff\xff\xff\xff"),
        1024,
        "bad",
        "uid",
    );
    assert_refused(with_field(156..157, b"M"), 1024, "", "several volumes");
    assert_refused(with_field(0..3, b"\0\0\0"), 1024, "", "name is empty");
}

#[test]
fn names_that_lead_astray_are_refused() {
    assert_refused(good().file("a/../../b", b""), 1024, "a/../../b", "..");
    assert_refused(
        good().member("l", b'1', "../../etc/passwd", b""),
        1024,
        "l",
        "..",
    );
    assert_refused(
        good().member("l", b'1', "missing", b""),
        1024,
        "l",
        "hard link to \"missing\"",
    );
    assert_refused(
        good()
            .member("d", b'5', "", b"")
            .member("l", b'1', "d", b""),
        1536,
        "l",
        "directory",
    );
    assert_refused(
        good()
            .member("s", b'2', "t", b"")
            .member("t", b'2', "s", b"")
            .file("s/passwd", b""),
        2048,
        "s/passwd",
        "circle",
    );
    assert_refused(
        good().file("good/x", b""),
        1024,
        "good/x",
        "not a directory",
    );
    assert_refused(
        good().file("d/x", b"").file("d", b""),
        1536,
        "d",
        "not empty",
    );
    assert_refused(good().member("./", b'2', "x", b""), 1024, "./", "the root");
    assert_refused(good().member("s", b'2', "", b""), 1024, "s", "target");
    let long = "n".repeat(256);
    assert_refused(
        good().pax(b'x', &[("path", &long)]).file("x", b""),
        1024,
        &long,
        "longer than 255",
    );
}

#[test]
fn extended_headers_that_lie_are_refused() {
    assert_refused(
        good().member("pax", b'x', "", b"12 size=1x34\n"),
        1024,
        "pax",
        "record",
    );
    for (key, value) in [
        ("size", "18446744073709551615"),
        ("mtime", "soon"),
        ("uid", "-1"),
        ("LIBARCHIVE.xattr.user.x", "!!!"),
        ("SCHILY.acl.access", "user::rwx"),
        ("GNU.sparse.numbytes", "1"),
    ] {
        let tar = good().pax(b'x', &[(key, value)]).file("bad", b"");
        assert_refused(tar, 1024, "pax", "");
    }
    assert_refused(good().pax(b'x', &[("path", "p")]), 2048, "", "ends after");
    let huge = Tar::header(b"././@LongLink", b'L', b"", 1 << 32);
    let mut tar = good();
    tar.0.extend(huge);
    assert_refused(tar, 1024, "././@LongLink", "extended headers");
}

#[test]
fn sparse_maps_that_lie_are_refused() {
    assert_refused(sparse_pax("5,2,3,1", "9", b"abc"), 1024, "bad", "offset 3");
    assert_refused(sparse_pax("0,2,8,2", "9", b"abcd"), 1024, "bad", "beyond");
    assert_refused(sparse_pax("0,2", "9", b"abc"), 1024, "bad", "are stored");
    assert_refused(sparse_pax("0,2,3", "9", b"abc"), 1024, "bad", "no length");
    assert_refused(
        sparse_pax("9223372036854775807,9223372036854775807", "9", b""),
        1024,
        "bad",
        "beyond",
    );
    assert_refused(
        sparse_in_data("2\n0\n1\n", "9", b"a"),
        1024,
        "bad",
        "number",
    );
    assert_refused(
        sparse_in_data("1\n0\n1\n", "0", b"a"),
        1024,
        "bad",
        "beyond",
    );
    assert_refused(
        sparse_in_data("99999999999\n", "5", b""),
        1024,
        "bad",
        "number",
    );
    let digits = "1".repeat(512);
    assert_refused(sparse_in_data(&digits, "5", b""), 1024, "bad", "number");
    let zeros = format!("99999\n{}", "0\n".repeat(509));
    assert_refused(
        sparse_in_data(&zeros[..1024], "5", b""),
        1024,
        "bad",
        "longer",
    );
    let good = sparse_in_data("2\n1\n2\n6\n1\n", "9", b"abc");
    let tree = read(good.end()).unwrap();
    let mut bytes = [0; 9];
    tree.read_at(tree.lookup("bad").unwrap(), 0, &mut bytes)
        .unwrap();
    assert_eq!(&bytes, b"\0ab\0\0\0c\0\0");
}

/// A generator that prints its seed when a test fails.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }
}

#[test]
fn no_mutation_of_an_archive_panics() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
        | 1;
    println!("seed {seed}");
    let mut random = Random(seed);
    let archive = sparse_in_data("2\n1\n2\n6\n1\n", "9", b"abc")
        .pax(b'g', &[("uid", "5"), ("SCHILY.xattr.user.global", "value")])
        .pax(
            b'x',
            &[
                ("path", "a/long/name"),
                ("SCHILY.acl.access", "user::rwx,group::r--,other::---"),
                ("mtime", "12.5"),
            ],
        )
        .file("x", &pattern(1, 700))
        .member("l", b'1', "a/long/name", b"")
        .member("s", b'2', "target", b"")
        .member("././@LongLink", b'L', "", &[b'n'; 200])
        .member("d", b'5', "", b"")
        .member("c", b'3', "", b"");
    let mut old = Tar::header(b"old", b'S', b"", 3);
    old[257..265].copy_from_slice(b"ustar  \0");
    old[386..398].copy_from_slice(b"00000000002\0");
    old[398..410].copy_from_slice(b"00000000003\0");
    old[483..495].copy_from_slice(b"00000000011\0");
    let mut tar = archive;
    Tar::seal(&mut old);
    tar.0.extend(old);
    let bytes = tar.data(b"abc").end();
    read(bytes.clone()).unwrap();
    for _ in 0..4000 {
        let mut mutated = bytes.clone();
        for _ in 0..=random.next(4) {
            let at = random.next(mutated.len() - 511);
            match random.next(5) {
                0 => mutated[at] ^= 1 << random.next(8),
                1 => mutated[at] = b'0' + random.next(10) as u8,
                2 => mutated[at] = [0, 0xff, 0x80, b'9', b'\n'][random.next(5)],
                3 => {
                    let from = random.next(mutated.len() / 512) * 512;
                    let to = at / 512 * 512;
                    mutated.copy_within(from..from + 512, to);
                }
                _ => mutated.truncate(at.max(512)),
            }
            // Repair the checksums of what looks like a header, so that deeper code is reached.
            for header in mutated.chunks_exact_mut(512) {
                if &header[257..262] == b"ustar" {
                    Tar::seal(header);
                }
            }
        }
        if let Ok(tree) = read(mutated) {
            for id in tree.ids() {
                let mut bytes = [0; 2048];
                let _ = tree.path(id);
                tree.read_at(id, 0, &mut bytes)
                    .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
        }
    }
}
