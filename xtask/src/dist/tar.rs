//! Archives in the format of POSIX.1-1988 (ustar), the same bytes for the same content.

use super::content::{Content, Item};
use crate::programs::Done;

const BLOCK: usize = 512;

/// An archive of everything, with names that begin with `prefix`. All of it belongs to root and is
/// of this moment, in seconds since 1970.
///
/// # Errors
/// A name or a link that does not fit into a header.
pub(super) fn archive(content: &Content, prefix: &str, moment: u64) -> Done<Vec<u8>> {
    let mut archive = Vec::new();
    if prefix.starts_with('.') {
        member(&mut archive, "./", &Item::Dir, moment)?;
    }
    for (path, item) in content.iter() {
        let slash = if item.is_dir() { "/" } else { "" };
        member(
            &mut archive,
            &format!("{prefix}{path}{slash}"),
            item,
            moment,
        )?;
    }
    // Two empty blocks end it, and programs read it in records of twenty.
    let end = (archive.len() + 2 * BLOCK).next_multiple_of(20 * BLOCK);
    archive.resize(end, 0);
    Ok(archive)
}

fn member(archive: &mut Vec<u8>, name: &str, item: &Item, moment: u64) -> Done<()> {
    let mut header = [0; BLOCK];
    let (prefix, name) = split(name).ok_or(format!("{name} is too long a name for a tar"))?;
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[345..345 + prefix.len()].copy_from_slice(prefix.as_bytes());
    let (kind, link) = match item {
        Item::Dir | Item::Shared => (b'5', ""),
        Item::File { .. } => (b'0', ""),
        Item::Link(target) => (b'2', target.as_str()),
    };
    if link.len() > 100 {
        return Err(format!("{link} is too long a target for a tar"));
    }
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    octal(&mut header[100..108], u64::from(item.mode()));
    octal(&mut header[108..116], 0);
    octal(&mut header[116..124], 0);
    octal(&mut header[124..136], item.len() as u64);
    octal(&mut header[136..148], moment);
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[265..269].copy_from_slice(b"root");
    header[297..301].copy_from_slice(b"root");
    // The sum is made with spaces in its own place.
    header[148..156].fill(b' ');
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    octal(&mut header[148..155], sum);
    archive.extend_from_slice(&header);
    if let Item::File { bytes, .. } = item {
        archive.extend_from_slice(bytes);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    Ok(())
}

/// Where a name is cut, so that its ends fit into 155 and 100 bytes.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= 100 {
        return Some(("", name));
    }
    let mut places = name.match_indices('/');
    let (at, _) = places.find(|(at, _)| name.len() - at - 1 <= 100)?;
    (at <= 155 && at + 1 < name.len()).then(|| (&name[..at], &name[at + 1..]))
}

/// Fills a field with a number and a byte of zero behind it.
fn octal(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let text = format!("{value:0digits$o}");
    field[..digits].copy_from_slice(&text.as_bytes()[..digits]);
    field[digits] = 0;
}

#[cfg(test)]
mod tests {
    use super::super::content::{Content, Item};
    use super::super::tools::filter;
    use super::{archive, split};

    #[test]
    fn tar_lists_what_is_in_it() {
        let mut content = Content::new();
        content.add("bin/extant", Item::program([7; 600]));
        content.add("sbin/link", Item::Link("../bin/extant".into()));
        let long = format!("{0}/{0}/file", "directory".repeat(6));
        content.add(&long, Item::text(""));
        let made = archive(&content, "x/", 86400).unwrap();
        assert_eq!(made.len() % 10240, 0);
        let list = filter("tar", &["--utc", "-tvf", "-"], &made).unwrap();
        let list = String::from_utf8(list).unwrap();
        let lines: Vec<Vec<&str>> = list.lines().map(|l| l.split(' ').collect()).collect();
        let names: Vec<&str> = lines.iter().map(|line| line[line.len() - 1]).collect();
        let dir = format!("x/{}/", "directory".repeat(6));
        let below = format!("{dir}{}", &dir[2..]);
        let file = format!("x/{long}");
        let expected = [
            "x/bin/",
            "x/bin/extant",
            &dir,
            &below,
            &file,
            "x/sbin/",
            "../bin/extant",
        ];
        assert_eq!(names, expected, "{list}");
        assert!(list.contains("-rwxr-xr-x root/root       600 1970-01-02 00:00 x/bin/extant\n"));
        assert!(list.contains("lrwxrwxrwx root/root         0 1970-01-02 00:00 x/sbin/link -> "));
        assert_eq!(made, archive(&content, "x/", 86400).unwrap());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut content = Content::new();
        content.add(&"x".repeat(101), Item::Dir);
        assert!(archive(&content, "", 0).is_err());
        assert_eq!(split(&format!("{}/b", "a".repeat(156))), None);
    }
}
