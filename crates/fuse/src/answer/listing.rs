//! Directories: `FUSE_READDIR` and `FUSE_READDIRPLUS`.

use super::convert::{entry, kind};
use super::{Answerer, node};
use crate::protocol::{Attr, Dirent, EntryOut, ReadIn, Request};
use crate::service::{Answer, Errno, Listed};
use std::ops::ControlFlow;
use zerocopy::IntoBytes;

/// Entries begin at multiples of this.
const ALIGNMENT: usize = 8;

/// Entries in an answer, as many as there is room for.
struct Listing<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Listing<'_> {
    /// Adds an entry behind `before`, which describes what it stands for; `false` if there is no
    /// room.
    fn add(&mut self, before: &[u8], listed: &Listed<'_>) -> bool {
        let name_len = listed.name.len();
        let record = Dirent {
            ino: listed.ino,
            next: listed.next,
            name_len: u32::try_from(name_len).unwrap_or(u32::MAX),
            kind: kind(listed.file_type),
        };
        let plain = before.len() + size_of::<Dirent>() + name_len;
        let padded = plain.next_multiple_of(ALIGNMENT);
        let rest = self.out.get_mut(self.len..).unwrap_or_default();
        let Some(mut into) = rest.get_mut(..padded) else {
            return false;
        };
        let nothing = [0; ALIGNMENT];
        let padding = nothing.get(..padded - plain).unwrap_or_default();
        for part in [before, record.as_bytes(), listed.name, padding] {
            let Some((here, behind)) = into.split_at_mut_checked(part.len()) else {
                return false;
            };
            here.copy_from_slice(part);
            into = behind;
        }
        self.len += padded;
        true
    }
}

impl Answerer {
    pub(super) fn readdir(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        self.list(request, out, |listing, listed| listing.add(&[], listed))
    }

    pub(super) fn readdirplus(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        self.list(request, out, |listing, listed| {
            let is_dots = matches!(listed.name, b"." | b"..");
            let found = self.service.listed(listed.ino).filter(|_| !is_dots);
            let found = found.filter(|found| self.service.remember_listed(found));
            let reply = match &found {
                Some(found) => entry(found),
                // Without a node the kernel shows it, and asks again before it uses it.
                None => EntryOut {
                    attr: Attr {
                        mode: kind(listed.file_type) << 12,
                        ..Attr::default()
                    },
                    ..EntryOut::default()
                },
            };
            let fits = listing.add(reply.as_bytes(), listed);
            if let Some(found) = found.filter(|_| !fits) {
                self.service.forget(found.node, 1);
            }
            fits
        })
    }

    fn list(
        &self,
        request: &Request<'_>,
        out: &mut [u8],
        mut add: impl FnMut(&mut Listing<'_>, &Listed<'_>) -> bool,
    ) -> Answer<usize> {
        let args: ReadIn = request.fixed()?;
        let room = out.get_mut(..args.size as usize).ok_or(Errno::INVALID)?;
        let mut listing = Listing { out: room, len: 0 };
        let listed = self.service.readdir(node(request), args.offset, |listed| {
            if add(&mut listing, &listed) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        match listed {
            // What was found before a failure counts; the next call meets it first.
            Err(e) if listing.len == 0 => Err(e),
            _ => Ok(listing.len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_core::inode::FileType;

    #[test]
    fn entries_are_padded_and_end_where_there_is_no_room() {
        let listed = |name| Listed {
            ino: 12,
            file_type: FileType::Directory,
            name,
            next: 77,
        };
        let mut out = [0xff; 71];
        let mut listing = Listing {
            out: &mut out,
            len: 0,
        };
        assert!(listing.add(&[], &listed(b"abc")));
        assert_eq!(listing.len, 32);
        assert!(listing.add(&[], &listed(b"12345678")));
        assert_eq!(listing.len, 64);
        assert!(!listing.add(&[], &listed(b"")));
        let mut expected = Vec::new();
        expected.extend(12_u64.to_ne_bytes());
        expected.extend(77_u64.to_ne_bytes());
        expected.extend(3_u32.to_ne_bytes());
        expected.extend(4_u32.to_ne_bytes());
        expected.extend(b"abc\0\0\0\0\0");
        assert_eq!(out[..32], expected);
    }
}
