//! Changes of several places that belong together: circles, exchanges, copies, shared blocks; and
//! structures without any sense in them.

use super::super::anatomy::{Kind, Tenant};
use super::super::bytes::{le16, le32};
use super::places::{representatives, tenants};
use super::{Change, Reseal, Subject};
use crate::rng::Rng;

/// Inodes that are exchanged and copied, each with each.
const MET: usize = 14;

/// A name in a block of names.
struct Entry {
    site: usize,
    /// Byte offset in the image.
    at: usize,
    ino: u32,
    name: Vec<u8>,
}

/// All changes of this kind.
pub(super) fn changes(subject: &Subject) -> Vec<Change> {
    let mut all = Vec::new();
    senseless(subject, &mut all);
    let tenants = tenants(subject);
    between_inodes(subject, &tenants, &mut all);
    orphans(subject, &tenants, &mut all);
    names(subject, &mut all);
    descriptors(subject, &mut all);
    all
}

/// Structures of zeros, ones or noise, well sealed and not; and sound ones with a wrong checksum.
fn senseless(subject: &Subject, all: &mut Vec<Change>) {
    for index in representatives(subject) {
        let site = subject.anatomy.sites[index];
        let mut noise = vec![0; site.len];
        Rng::new(site.at as u64).fill(&mut noise);
        let contents = [
            ("zeros", vec![0; site.len]),
            ("ones", vec![0xFF; site.len]),
            ("noise", noise),
        ];
        for (what, bytes) in contents {
            for (reseal, how) in [
                (Reseal::Changed, "well sealed"),
                (Reseal::Nothing, "not sealed"),
            ] {
                all.push(Change::Bytes {
                    class: format!("{} of {what}", super::title(site.kind)),
                    story: format!("{} is {what}, {how}", subject.name(&site)),
                    writes: vec![(site.at, bytes.clone())],
                    sites: vec![index],
                    reseal,
                });
            }
        }
        // Where its checksum is, is seen when another byte changes.
        let mut image = subject.bytes.clone();
        image[site.at + 8] ^= 1;
        subject.anatomy.repair(&mut image, &site);
        let sealed = (site.at..site.at + site.len)
            .find(|at| *at != site.at + 8 && image[*at] != subject.bytes[*at]);
        if let Some(at) = sealed {
            all.push(Change::Bytes {
                class: format!("{} checksum", super::title(site.kind)),
                story: format!("the checksum of {} is wrong", subject.name(&site)),
                writes: vec![(at, vec![subject.bytes[at] ^ 0x10])],
                sites: Vec::new(),
                reseal: Reseal::Nothing,
            });
        }
    }
}

/// Copies and exchanges of inodes and of their maps.
fn between_inodes(subject: &Subject, tenants: &[Tenant], all: &mut Vec<Change>) {
    let len = subject.anatomy.layout.inode_size;
    let bytes_of = |tenant: &Tenant| subject.bytes[tenant.at..tenant.at + len].to_vec();
    let site_of = |tenant: &Tenant| {
        let mut sites = subject.anatomy.sites.iter();
        sites.position(|site| site.kind == Kind::Inode && site.owner == tenant.ino)
    };
    // Those of files rather than reserved ones, where there are many.
    let first = tenants.len().saturating_sub(MET);
    for a in &tenants[first..] {
        for b in tenants.iter().filter(|b| b.ino != a.ino) {
            let (Some(site_a), Some(site_b)) = (site_of(a), site_of(b)) else {
                continue;
            };
            let (from, to) = (bytes_of(a), bytes_of(b));
            // The generation stays: what else belongs to the inode is sealed with it.
            let mut copy = from.clone();
            copy[0x64..0x68].copy_from_slice(&to[0x64..0x68]);
            let mut add = |class: &str, story, writes, sites| {
                all.push(Change::Bytes {
                    class: class.to_owned(),
                    story,
                    writes,
                    sites,
                    reseal: Reseal::Changed,
                });
            };
            add(
                "inode copied",
                format!("inode {} is a copy of inode {}", b.ino, a.ino),
                vec![(b.at, copy.clone())],
                vec![site_b],
            );
            let mut map = to.clone();
            for range in [0x04..0x08, 0x1C..0x24, 0x28..0x64, 0x6C..0x70] {
                map[range.clone()].copy_from_slice(&from[range]);
            }
            add(
                "map copied",
                format!("inode {} maps what inode {} maps", b.ino, a.ino),
                vec![(b.at, map)],
                vec![site_b],
            );
            if a.ino < b.ino {
                let mut back = to.clone();
                back[0x64..0x68].copy_from_slice(&from[0x64..0x68]);
                add(
                    "inodes exchanged",
                    format!("inodes {} and {} are exchanged", a.ino, b.ino),
                    vec![(b.at, copy), (a.at, back)],
                    vec![site_a, site_b],
                );
            }
        }
    }
}

/// Lists of orphans that are none: of files in use, and in circles.
fn orphans(subject: &Subject, tenants: &[Tenant], all: &mut Vec<Change>) {
    let place = |tenant: &Tenant| {
        let mut sites = subject.anatomy.sites.iter();
        sites.position(|site| site.kind == Kind::Inode && site.owner == tenant.ino)
    };
    for (n, first) in tenants.iter().enumerate() {
        let next = tenants[(n + 1) % tenants.len()];
        let lists = [
            ("in a circle of one", vec![(first, first.ino)]),
            ("alone", vec![(first, 0)]),
            ("before a bad number", vec![(first, u32::MAX)]),
            (
                "in a circle of two",
                vec![(first, next.ino), (&next, first.ino)],
            ),
        ];
        for (how, links) in lists {
            let mut writes = vec![(1024 + 0xE8, first.ino.to_le_bytes().to_vec())];
            let mut sites = vec![0];
            for (tenant, to) in links {
                writes.push((tenant.at + 0x14, to.to_le_bytes().to_vec()));
                sites.extend(place(tenant));
            }
            all.push(Change::Bytes {
                class: "list of orphans".into(),
                story: format!("inode {} is an orphan, {how}", first.ino),
                writes,
                sites,
                reseal: Reseal::Changed,
            });
        }
    }
}

fn entries(subject: &Subject) -> Vec<Entry> {
    let mut entries = Vec::new();
    for site in representatives(subject) {
        let place = subject.anatomy.sites[site];
        let len = match place.kind {
            Kind::DirLeaf => place.len,
            Kind::DirRoot => 24,
            _ => continue,
        };
        let record = &subject.bytes[place.at..place.at + len];
        let mut at = 0;
        while at + 8 <= len && entries.len() < 400 {
            let (ino, name_len) = (le32(record, at), usize::from(record[at + 6]));
            if let Some(name) = record.get(at + 8..at + 8 + name_len)
                && ino != 0
            {
                entries.push(Entry {
                    site,
                    at: place.at + at,
                    ino,
                    name: name.to_vec(),
                });
            }
            at += usize::from(le16(record, at + 4)).max(8);
        }
    }
    entries
}

/// Names that lead elsewhere, are there twice, or lead in circles.
fn names(subject: &Subject, all: &mut Vec<Change>) {
    let entries = entries(subject);
    let is_dir = |ino: u32| {
        let tenants = &subject.anatomy.tenants;
        let slot = tenants.binary_search_by_key(&ino, |tenant| tenant.ino);
        slot.is_ok_and(|slot| tenants[slot].mode & 0xF000 == 0x4000)
    };
    let mut add = |class: &str, story: String, writes: Vec<(usize, Vec<u8>)>, sites: Vec<usize>| {
        all.push(Change::Bytes {
            class: class.to_owned(),
            story,
            writes,
            sites,
            reseal: Reseal::Changed,
        });
    };
    let inode = |entry: &Entry, ino: u32| (entry.at, ino.to_le_bytes().to_vec());
    let shown = |entry: &Entry| {
        format!(
            "{} of inode {}",
            entry.name.escape_ascii(),
            subject.anatomy.sites[entry.site].owner
        )
    };
    // A few of each directory: the names in large ones are much the same.
    let mut met: Vec<&Entry> = Vec::new();
    for entry in &entries {
        let of_it = met.iter().filter(|other| other.site == entry.site).count();
        if of_it < 16 {
            met.push(entry);
        }
    }
    for (n, a) in met.iter().enumerate() {
        for b in met.iter().skip(n + 1).filter(|b| b.ino != a.ino) {
            if is_dir(a.ino) && is_dir(b.ino) {
                add(
                    "names exchanged",
                    format!("{} and {} lead to each other's inode", shown(a), shown(b)),
                    vec![inode(a, b.ino), inode(b, a.ino)],
                    vec![a.site, b.site],
                );
                // The name of a directory goes, and one below leads there.
                add(
                    "directory moved below",
                    format!(
                        "{} leads to inode {}, {} nowhere",
                        shown(b),
                        a.ino,
                        shown(a)
                    ),
                    vec![inode(a, 0), inode(b, a.ino)],
                    vec![a.site, b.site],
                );
            }
        }
        let twins = met.iter().skip(n + 1);
        for b in twins.filter(|b| b.site == a.site && b.name.len() == a.name.len()) {
            add(
                "name twice",
                format!("{} has the name of {}", shown(b), shown(a)),
                vec![(b.at + 8, a.name.clone())],
                vec![b.site],
            );
        }
        for (what, name) in [
            ("the name of itself", &b"."[..]),
            ("the name of its parent", &b".."[..]),
        ] {
            if a.name.len() > 2 {
                add(
                    "name of a directory itself",
                    format!("{} has {what}", shown(a)),
                    vec![
                        (a.at + 6, vec![name.len() as u8]),
                        (a.at + 8, name.to_vec()),
                    ],
                    vec![a.site],
                );
            }
        }
    }
}

/// Exchanges within and between group descriptors.
fn descriptors(subject: &Subject, all: &mut Vec<Change>) {
    let layout = &subject.anatomy.layout;
    let of_group = |group: u32| {
        let mut sites = subject.anatomy.sites.iter();
        sites.position(|site| site.kind == Kind::Descriptor && site.owner == group)
    };
    let pairs = [(0, 4), (0, 8), (4, 8), (0, 0), (4, 4), (8, 8)];
    let groups = [0, 1, layout.groups - 1];
    for (x, a) in groups.into_iter().enumerate() {
        for b in groups.into_iter().skip(x) {
            let (Some(site_a), Some(site_b)) = (of_group(a), of_group(b)) else {
                continue;
            };
            for (field_a, field_b) in pairs {
                let at_a = layout.descriptor_at(a) + field_a;
                let at_b = layout.descriptor_at(b) + field_b;
                let (of_a, of_b) = (le32(&subject.bytes, at_a), le32(&subject.bytes, at_b));
                if of_a == of_b {
                    continue;
                }
                all.push(Change::Bytes {
                    class: "descriptors exchanged".into(),
                    story: format!(
                        "place {field_a} of group {a} and place {field_b} of group {b} are exchanged"
                    ),
                    writes: vec![
                        (at_a, of_b.to_le_bytes().to_vec()),
                        (at_b, of_a.to_le_bytes().to_vec()),
                    ],
                    sites: vec![site_a, site_b],
                    reseal: Reseal::Changed,
                });
            }
        }
    }
}
