//! Packages for Fedora, openSUSE and others, in the format of rpm 4: a lead, a header of digests, a
//! header of what the package is, and a compressed cpio archive.
//!
//! After the descriptions of the [format] and its [tags].
//!
//! [format]: https://rpm-software-management.github.io/rpm/manual/format.html
//! [tags]: https://rpm-software-management.github.io/rpm/manual/tags.html

use super::About;
use super::content::{Content, Item};
use super::tools::{md5, sha1, sha256, xz};
use crate::programs::Done;

/// What an entry of a header is.
enum Value {
    Int16(Vec<u16>),
    Int32(Vec<u32>),
    String(String),
    Strings(Vec<String>),
    /// Text of which there could be other languages.
    Text(String),
    Bytes(Vec<u8>),
}

impl Value {
    fn of(text: impl Into<String>) -> Self {
        Self::String(text.into())
    }

    fn list<const N: usize>(texts: [&str; N]) -> Self {
        Self::Strings(texts.map(str::to_owned).to_vec())
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Int16(_) => 3,
            Self::Int32(_) => 4,
            Self::String(_) => 6,
            Self::Bytes(_) => 7,
            Self::Strings(_) => 8,
            Self::Text(_) => 9,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Int16(values) => values.len(),
            Self::Int32(values) => values.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Strings(texts) => texts.len(),
            Self::String(_) | Self::Text(_) => 1,
        }
    }

    fn align(&self) -> usize {
        match self {
            Self::Int16(_) => 2,
            Self::Int32(_) => 4,
            _ => 1,
        }
    }

    fn write(&self, data: &mut Vec<u8>) {
        let mut text = |text: &String| {
            data.extend_from_slice(text.as_bytes());
            data.push(0);
        };
        match self {
            Self::String(one) | Self::Text(one) => text(one),
            Self::Strings(texts) => texts.iter().for_each(text),
            Self::Int16(values) => values
                .iter()
                .for_each(|value| data.extend_from_slice(&value.to_be_bytes())),
            Self::Int32(values) => values
                .iter()
                .for_each(|value| data.extend_from_slice(&value.to_be_bytes())),
            Self::Bytes(bytes) => data.extend_from_slice(bytes),
        }
    }
}

/// A header, whose entries are one region that nothing may be added to.
fn header(region: u32, mut entries: Vec<(u32, Value)>) -> Vec<u8> {
    entries.sort_by_key(|(tag, _)| *tag);
    let count = (entries.len() + 1) as u32;
    let (mut index, mut data) = (Vec::new(), Vec::new());
    let mut entry = |tag: u32, kind: u32, at: usize, count: usize| {
        for word in [tag, kind, at as u32, count as u32] {
            index.extend_from_slice(&word.to_be_bytes());
        }
    };
    let mut places = Vec::new();
    for (_, value) in &entries {
        data.resize(data.len().next_multiple_of(value.align()), 0);
        places.push(data.len());
        value.write(&mut data);
    }
    // The region ends with a copy of its entry, which says how long the index is, backwards.
    entry(region, 7, data.len(), 16);
    for ((tag, value), at) in entries.iter().zip(places) {
        entry(*tag, value.kind(), at, value.count());
    }
    for word in [region, 7, (count * 16).wrapping_neg(), 16] {
        data.extend_from_slice(&word.to_be_bytes());
    }
    let mut header = vec![0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
    header.extend_from_slice(&count.to_be_bytes());
    header.extend_from_slice(&(data.len() as u32).to_be_bytes());
    header.append(&mut index);
    header.append(&mut data);
    header
}

/// What is at a path, as `stat` has it.
fn mode(item: &Item) -> u32 {
    let kind = match item {
        Item::Dir | Item::Shared => 0o040_000,
        Item::File { .. } => 0o100_000,
        Item::Link(_) => 0o120_000,
    };
    kind | item.mode()
}

/// The content of a file, or where a link leads.
fn bytes(item: &Item) -> &[u8] {
    match item {
        Item::Dir | Item::Shared => &[],
        Item::File { bytes, .. } => bytes,
        Item::Link(target) => target.as_bytes(),
    }
}

/// Directories that this package owns: others are the system's.
fn is_packaged(path: &str, item: &Item) -> bool {
    !item.is_dir() || path.starts_with("usr/share/doc/")
}

/// An archive in the newc form of cpio.
fn cpio(files: &[(&str, &Item)], moment: u32) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut member = |name: &str, number: usize, mode: u32, links: u32, bytes: &[u8]| {
        let time = if mode == 0 { 0 } else { moment };
        let fields = [number as u32, mode, 0, 0, links, time, bytes.len() as u32];
        archive.extend_from_slice(b"070701");
        for field in fields {
            archive.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        // Where the file system is and which device the file is, twice a major and a minor number.
        archive.extend_from_slice("0".repeat(32).as_bytes());
        archive.extend_from_slice(format!("{:08x}{:08x}", name.len() + 1, 0).as_bytes());
        archive.extend_from_slice(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend_from_slice(bytes);
        archive.resize(archive.len().next_multiple_of(4), 0);
    };
    for (number, (path, item)) in files.iter().enumerate() {
        let links = if item.is_dir() { 2 } else { 1 };
        member(
            &format!("./{path}"),
            number + 1,
            mode(item),
            links,
            bytes(item),
        );
    }
    member("TRAILER!!!", 0, 0, 1, &[]);
    archive
}

/// What the package says of its files.
fn entries_of_files(files: &[(&str, &Item)], moment: u32) -> Done<Vec<(u32, Value)>> {
    let each = |of: &dyn Fn(&str, &Item) -> u32| -> Vec<u32> {
        files.iter().map(|(path, item)| of(path, item)).collect()
    };
    let same = |text: &str| Value::Strings(vec![text.to_owned(); files.len()]);
    let (mut folders, mut folder_of, mut names) = (Vec::<String>::new(), Vec::new(), Vec::new());
    let (mut digests, mut links) = (Vec::new(), Vec::new());
    for (path, item) in files {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = format!("/{folder}/");
        let known = folders.iter().position(|known| *known == folder);
        folder_of.push(known.unwrap_or(folders.len()) as u32);
        if known.is_none() {
            folders.push(folder);
        }
        names.push(name.to_owned());
        let (digest, link) = match item {
            Item::Dir | Item::Shared => (String::new(), String::new()),
            Item::File { bytes, .. } => (sha256(bytes)?, String::new()),
            Item::Link(target) => (String::new(), target.clone()),
        };
        digests.push(digest);
        links.push(link);
    }
    // 2: documentation, which may be left out. 128: licences, which may not.
    let flags = |path: &str, _: &Item| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_licence = name.starts_with("LICENSE") || name.starts_with("third-party");
        let is_document = path.starts_with("usr/share/doc/") || path.starts_with("usr/share/man/");
        match (is_document, is_licence) {
            (true, true) => 128,
            (is_document, _) => u32::from(is_document) * 2,
        }
    };
    let modes = files.iter().map(|(_, item)| mode(item) as u16);
    Ok(vec![
        (
            1028,
            Value::Int32(each(&|_, item| bytes(item).len() as u32)),
        ),
        (1030, Value::Int16(modes.collect())),
        (1033, Value::Int16(vec![0; files.len()])),
        (1034, Value::Int32(vec![moment; files.len()])),
        (1035, Value::Strings(digests)),
        (1036, Value::Strings(links)),
        (1037, Value::Int32(each(&flags))),
        (1039, same("root")),
        (1040, same("root")),
        (1045, Value::Int32(vec![u32::MAX; files.len()])),
        (1095, Value::Int32(vec![1; files.len()])),
        (1096, Value::Int32((1..=files.len() as u32).collect())),
        (1097, same("")),
        (1116, Value::Int32(folder_of)),
        (1117, Value::Strings(names)),
        (1118, Value::Strings(folders)),
        // Digests of files are SHA-256.
        (5011, Value::Int32(vec![8])),
    ])
}

/// What the package says of itself.
fn entries(about: &About<'_>) -> Vec<(u32, Value)> {
    let mut entries = entries_of_all(about);
    if about.name != "extant" {
        // Not beside the other form of the program.
        entries.push((1053, Value::Int32(vec![0])));
        entries.push((1054, Value::list(["extant"])));
        entries.push((1055, Value::list([""])));
    }
    entries
}

/// What packages of all forms of the program say.
fn entries_of_all(about: &About<'_>) -> Vec<(u32, Value)> {
    let evr = format!("{}-{}", about.version, about.release);
    let arch = format!("{}({})", about.name, about.processor.rpm_isa);
    // "Not newer than", and "of rpm itself".
    const OF_RPM: u32 = 2 | 8 | 1 << 24;
    const EQUAL: u32 = 8;
    vec![
        (100, Value::list(["C"])),
        (1000, Value::of(about.name)),
        (1001, Value::of(about.version)),
        (1002, Value::of(about.release)),
        (1004, Value::Text(About::SUMMARY.to_owned())),
        (1005, Value::Text(About::DESCRIPTION.to_owned())),
        (1006, Value::Int32(vec![about.moment as u32])),
        (1007, Value::of("localhost")),
        (1014, Value::of("MIT OR Apache-2.0")),
        (1015, Value::of(About::MAINTAINER)),
        (1016, Value::Text("Unspecified".to_owned())),
        (1020, Value::of(About::HOMEPAGE)),
        (1021, Value::of("linux")),
        (1022, Value::of(about.processor.rpm)),
        // Without the name of a source package rpm takes it for one.
        (1044, Value::of(format!("{}-{evr}.src.rpm", about.name))),
        (1047, Value::list([about.name, &arch])),
        (1048, Value::Int32(vec![OF_RPM; 4])),
        (
            1049,
            Value::list([
                "rpmlib(CompressedFileNames)",
                "rpmlib(FileDigests)",
                "rpmlib(PayloadFilesHavePrefix)",
                "rpmlib(PayloadIsXz)",
            ]),
        ),
        (1050, Value::list(["3.0.4-1", "4.6.0-1", "4.0-1", "5.2-1"])),
        (1064, Value::of("4.18.0")),
        (1112, Value::Int32(vec![EQUAL; 2])),
        (1113, Value::list([&evr, &evr])),
        (1124, Value::of("cpio")),
        (1125, Value::of("xz")),
        (1126, Value::of("6")),
        (1132, Value::of(format!("{}-linux", about.processor.rpm))),
        // What it can use: the helper that mounts for users, certificates of servers.
        (5046, Value::list(["ca-certificates", "fuse3"])),
        (5047, Value::list(["", ""])),
        (5048, Value::Int32(vec![0; 2])),
        (5062, Value::of("utf-8")),
    ]
}

/// The package of what is to be installed, by full paths without the slash in front.
pub(super) fn package(about: &About<'_>, content: &Content) -> Done<Vec<u8>> {
    let moment = about.moment as u32;
    let files: Vec<(&str, &Item)> = content
        .iter()
        .filter(|(path, item)| is_packaged(path, item))
        .collect();
    let plain = cpio(&files, moment);
    let payload = xz(&plain)?;
    let size: usize = files.iter().map(|(_, item)| bytes(item).len()).sum();
    let mut entries = entries(about);
    entries.append(&mut entries_of_files(&files, moment)?);
    entries.push((1009, Value::Int32(vec![size as u32])));
    entries.push((5092, Value::Strings(vec![sha256(&payload)?])));
    entries.push((5093, Value::Int32(vec![8])));
    entries.push((5097, Value::Strings(vec![sha256(&plain)?])));
    let header_of_all = header(63, entries);
    let mut signed = header_of_all.clone();
    signed.extend_from_slice(&payload);
    let sum = md5(&signed)?;
    let pairs = (0..sum.len()).step_by(2);
    let sum = pairs.map(|at| u8::from_str_radix(&sum[at..at + 2], 16).unwrap_or(0));
    let mut digests = header(
        62,
        vec![
            (269, Value::of(sha1(&header_of_all)?)),
            (273, Value::of(sha256(&header_of_all)?)),
            (1000, Value::Int32(vec![signed.len() as u32])),
            (1004, Value::Bytes(sum.collect())),
            (1007, Value::Int32(vec![plain.len() as u32])),
        ],
    );
    digests.resize(digests.len().next_multiple_of(8), 0);
    let mut package = lead(about);
    package.append(&mut digests);
    package.append(&mut signed);
    Ok(package)
}

/// The first bytes, which only file(1) reads.
fn lead(about: &About<'_>) -> Vec<u8> {
    let mut lead = vec![0xed, 0xab, 0xee, 0xdb, 3, 0, 0, 0];
    lead.extend_from_slice(&about.processor.rpm_number.to_be_bytes());
    let name = format!("{}-{}-{}", about.name, about.version, about.release);
    lead.extend_from_slice(&name.as_bytes()[..name.len().min(65)]);
    lead.resize(76, 0);
    // Linux, and digests in a header.
    lead.extend_from_slice(&[0, 1, 0, 5]);
    lead.resize(96, 0);
    lead
}

#[cfg(test)]
mod tests {
    use super::super::tests::{about, small};
    use super::super::tools::{filter, sha256};
    use super::package;

    fn word(bytes: &[u8], at: usize) -> usize {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    }

    /// The entries of the header at a place (tag, where its data is), and where it ends.
    fn read(package: &[u8], at: usize) -> (Vec<(usize, usize)>, usize) {
        assert_eq!(package[at..at + 4], [0x8e, 0xad, 0xe8, 1]);
        let (count, len) = (word(package, at + 8), word(package, at + 12));
        let data = at + 16 + count * 16;
        let entry = |n: usize| {
            let at = at + 16 + n * 16;
            (word(package, at), data + word(package, at + 8))
        };
        ((0..count).map(entry).collect(), data + len)
    }

    fn text(package: &[u8], entries: &[(usize, usize)], tag: usize) -> String {
        let (_, at) = entries.iter().find(|(known, _)| *known == tag).unwrap();
        let bytes = package[*at..].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn headers_say_what_the_package_is_and_digest_the_rest() {
        let made = package(&about(), &small()).unwrap();
        assert_eq!(made, package(&about(), &small()).unwrap());
        let (digests, end) = read(&made, 96);
        assert_eq!(digests[0].0, 62);
        let begin = end.next_multiple_of(8);
        let (entries, payload) = read(&made, begin);
        assert_eq!(entries[0].0, 63);
        assert!(entries[1..].is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(text(&made, &entries, 1001), "1.2.3");
        assert_eq!(text(&made, &entries, 1022), "x86_64");
        // Every digest is of what it says.
        let whole = sha256(&made[begin..payload]).unwrap();
        assert_eq!(text(&made, &digests, 273), whole);
        let packed = sha256(&made[payload..]).unwrap();
        assert_eq!(text(&made, &entries, 5092), packed);
        let plain = filter("xz", &["-dc"], &made[payload..]).unwrap();
        assert!(plain.starts_with(b"070701"));
        assert_eq!(plain.len() % 4, 0);
        let has = |needle: &[u8]| plain.windows(needle.len()).any(|part| part == needle);
        assert!(has(b"./usr/bin/extant\0") && has(b"hello") && has(b"TRAILER!!!"));
        // The system's own directories are not the package's.
        assert!(!has(b"./usr/bin\0"));
    }
}
