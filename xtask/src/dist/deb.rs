//! Packages for Debian and what is made of it, as deb(5) has them: an ar(5) archive of a version, a
//! tar of what the package manager is told, and a tar of what is installed.

use super::About;
use super::content::{Content, Item};
use super::tar;
use super::tools::{gzip, md5, xz};
use crate::programs::Done;
use std::fmt::Write as _;

/// The package of what is to be installed, by full paths without the slash in front.
pub(super) fn package(about: &About<'_>, content: &Content) -> Done<Vec<u8>> {
    let control = control(about, content)?;
    let control = gzip(&tar::archive(&control, "./", about.moment)?)?;
    let data = xz(&tar::archive(content, "./", about.moment)?)?;
    let mut package = b"!<arch>\n".to_vec();
    member(&mut package, "debian-binary", b"2.0\n", about.moment);
    member(&mut package, "control.tar.gz", &control, about.moment);
    member(&mut package, "data.tar.xz", &data, about.moment);
    Ok(package)
}

fn member(package: &mut Vec<u8>, name: &str, bytes: &[u8], moment: u64) {
    let header = format!(
        "{name:<16}{moment:<12}{:<6}{:<6}{:<8}{:<10}`\n",
        0,
        0,
        "100644",
        bytes.len()
    );
    package.extend_from_slice(header.as_bytes());
    package.extend_from_slice(bytes);
    if package.len() % 2 == 1 {
        package.push(b'\n');
    }
}

/// What dpkg is told.
fn control(about: &About<'_>, content: &Content) -> Done<Content> {
    let (mut sums, mut kib) = (String::new(), 0);
    for (path, item) in content.iter() {
        // As dpkg-gencontrol counts: files by whole KiB, all others one.
        kib += item.len().div_ceil(1024).max(usize::from(item.len() == 0));
        if let Item::File { bytes, .. } = item {
            let _ = writeln!(sums, "{}  {path}", md5(bytes)?);
        }
    }
    let mut control = format!(
        "Package: {}\nVersion: {}-{}\nArchitecture: {}\nMaintainer: {}\n\
         Installed-Size: {kib}\nRecommends: ca-certificates, fuse3\nSection: admin\n\
         Priority: optional\nHomepage: {}\nDescription: {}\n",
        about.name,
        about.version,
        about.release,
        about.processor.deb,
        About::MAINTAINER,
        About::HOMEPAGE,
        About::SUMMARY
    );
    if about.name != "extant" {
        let at = control.find("Section: ").unwrap_or(control.len());
        control.insert_str(
            at,
            "Provides: extant\nConflicts: extant\nReplaces: extant\n",
        );
    }
    for line in About::DESCRIPTION.lines() {
        let _ = writeln!(control, " {}", if line.is_empty() { "." } else { line });
    }
    let mut told = Content::new();
    told.add("control", Item::text(control));
    told.add("md5sums", Item::text(sums));
    Ok(told)
}

/// What Debian wants in a package beside what all have: who may do what with it, what is new, and
/// why a rule of the policy does not hold for it.
pub(super) fn documents(about: &About<'_>, mit: &str, date: &str) -> Done<Content> {
    let name = about.name;
    let folder = format!("usr/share/doc/{name}");
    let mut own = Content::new();
    let changes = format!(
        "{name} ({}-{}) unstable; urgency=medium\n\n  * {} See changelog.gz.\n\n -- {}  {date}\n",
        about.version,
        about.release,
        "Release of upstream.",
        About::MAINTAINER
    );
    own.add(
        &format!("{folder}/changelog.Debian.gz"),
        Item::text(gzip(changes.as_bytes())?),
    );
    let mut copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: extant\nSource: {}\n\
         Comment: third-party.gz has the notices of the libraries in the program.\n\n\
         Files: *\nCopyright: the Extant authors\nLicense: MIT or Apache-2.0\n\n\
         License: Apache-2.0\n On Debian systems the text is in\n \
         /usr/share/common-licenses/Apache-2.0.\n\nLicense: MIT\n",
        About::HOMEPAGE
    );
    for line in mit.lines() {
        let line = line.trim();
        let _ = writeln!(copyright, " {}", if line.is_empty() { "." } else { line });
    }
    own.add(&format!("{folder}/copyright"), Item::text(copyright));
    let reasons = format!(
        "# It runs wherever it is put, and needs no library of the system.\n\
         {name}: statically-linked-binary\n\
         {name}: shared-library-lacks-prerequisites *\n\
         # It comes from upstream, and closes no bug of Debian.\n\
         {name}: initial-upload-closes-no-bugs *\n"
    );
    own.add(
        &format!("usr/share/lintian/overrides/{name}"),
        Item::text(reasons),
    );
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{about, small};
    use super::super::tools::filter;
    use super::package;

    /// The members of an ar archive.
    fn members(package: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut rest = package.strip_prefix(b"!<arch>\n").unwrap();
        let mut members = Vec::new();
        while !rest.is_empty() {
            let field = |range: std::ops::Range<usize>| {
                std::str::from_utf8(&rest[range]).unwrap().trim().to_owned()
            };
            let len: usize = field(48..58).parse().unwrap();
            assert_eq!(&rest[58..60], b"`\n");
            members.push((field(0..16), rest[60..60 + len].to_vec()));
            rest = &rest[(60 + len.next_multiple_of(2)).min(rest.len())..];
        }
        members
    }

    #[test]
    fn a_package_has_what_dpkg_reads() {
        let made = package(&about(), &small()).unwrap();
        assert_eq!(made, package(&about(), &small()).unwrap());
        let members = members(&made);
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.xz"]);
        assert_eq!(members[0].1, b"2.0\n");
        let read = |member: usize, args: &[&str]| {
            let text = filter("tar", args, &members[member].1).unwrap();
            String::from_utf8(text).unwrap()
        };
        let control = read(1, &["-xzOf", "-", "./control"]);
        for line in [
            "Package: extant\n",
            "\nVersion: 1.2.3-1\n",
            "\nArchitecture: amd64\n",
            "\nInstalled-Size: 5\n",
            "\nDescription: ",
        ] {
            assert!(control.contains(line), "{line:?} in {control}");
        }
        assert!(
            control.ends_with('\n') && !control.contains("\n\n"),
            "{control}"
        );
        let sums = read(1, &["-xzOf", "-", "./md5sums"]);
        assert_eq!(sums, "5d41402abc4b2a76b9719d911017c592  usr/bin/extant\n");
        let list = read(2, &["-tJf", "-"]);
        assert!(
            list.starts_with("./\n./usr/\n./usr/bin/\n./usr/bin/extant\n"),
            "{list}"
        );
        assert_eq!(read(2, &["-xJOf", "-", "./usr/bin/extant"]), "hello");
    }
}
