//! The kernel's FUSE protocol: what requests and answers look like.
//!
//! Names and layouts are those of `linux/fuse.h` (the kernel's interface, protocol 7.45), numbers
//! in the byte order of the machine. Nothing here acts on anything.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | how a request is taken apart |
//! | `opcode` | what a request can ask for, and what follows from that: one table |
//! | `request` | the fixed part of each request |
//! | `reply` | the records that replies are made of |
//!
//! Why not a library: none that is kept well passes on `FUSE_TMPFILE` and `FUSE_STATX`, or takes
//! requests from anywhere but a file descriptor, which io_uring is not. Mounting and the handshake
//! are left to `fuser`.

mod opcode;
mod reply;
mod request;

pub(crate) use opcode::{Form, Needs, Opcode, Open, Operation, Reply, Takes};
pub(crate) use reply::{
    Attr, AttrOut, Dirent, EntryOut, IoctlOut, LengthOut, LseekOut, OpenOut, StatfsOut, Statx,
    StatxOut, StatxTime, WriteOut, statx_mask,
};
pub(crate) use request::{
    AccessIn, BatchForgetIn, CopyRangeIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, FsyncIn,
    GetXattrIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, ReadIn, Rename2In, RenameIn,
    SetXattrExtension, SetXattrIn, SetattrIn, WriteIn, access, set, setxattr_flags, write_flags,
};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// What every request begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub(crate) struct InHeader {
    /// Bytes of the request, with this.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    /// The number that the answer bears as well.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// In units of 8 bytes: extensions at the end, which come only if asked for.
    pub(crate) extensions: u16,
    pub(crate) padding: u16,
}

/// What every answer begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub(crate) struct OutHeader {
    /// Bytes of the answer, with this.
    pub(crate) len: u32,
    /// 0, or an error number of Linux, negative.
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// Bytes of [`InHeader`].
pub(crate) const IN_HEADER: usize = size_of::<InHeader>();
/// Bytes of [`OutHeader`].
pub(crate) const OUT_HEADER: usize = size_of::<OutHeader>();

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    /// `None` for what nobody answers here.
    pub(crate) opcode: Option<Opcode>,
    fixed: &'a [u8],
    rest: &'a [u8],
}

/// A request that is not what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Request<'a> {
    /// Takes a request apart as it is read from the device: the header, the fixed part, the rest.
    ///
    /// # Errors
    /// When there is not even a whole header, or it tells another length.
    pub(crate) fn parse(bytes: &'a [u8], form: Form) -> Result<Self, Malformed> {
        let (header, body) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed)?;
        if header.len as usize != bytes.len() {
            return Err(Malformed);
        }
        let opcode = Opcode::new(header.opcode);
        let fixed = opcode.map_or(0, |opcode| opcode.fixed(form));
        // What is too short is found where it is read.
        let (fixed, rest) = body.split_at_checked(fixed).unwrap_or((body, &[]));
        Ok(Self {
            header,
            opcode,
            fixed,
            rest,
        })
    }

    /// Puts a request together whose fixed part lies apart, in a field that may be longer.
    pub(crate) fn from_parts(
        header: InHeader,
        field: &'a [u8],
        rest: &'a [u8],
        form: Form,
    ) -> Self {
        let opcode = Opcode::new(header.opcode);
        let fixed = opcode.map_or(0, |opcode| opcode.fixed(form));
        Self {
            header,
            opcode,
            fixed: field.get(..fixed).unwrap_or(field),
            rest,
        }
    }

    /// Reads the fixed part.
    ///
    /// # Errors
    /// When it is too short.
    pub(crate) fn fixed<T: FromBytes>(&self) -> Result<T, Malformed> {
        Ok(T::read_from_prefix(self.fixed).map_err(|_| Malformed)?.0)
    }

    /// Reads what follows [`SetXattrIn`] in the fixed part; zeros where nothing does.
    pub(crate) fn setxattr_extension(&self) -> SetXattrExtension {
        let behind = self.fixed.get(size_of::<SetXattrIn>()..);
        let read = behind.and_then(|bytes| SetXattrExtension::read_from_prefix(bytes).ok());
        read.map_or(SetXattrExtension::new_zeroed(), |(read, _)| read)
    }

    /// Returns what follows the fixed part.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Lists the nodes that the kernel forgets by this request, with how many lookups of each; none
    /// if it does not.
    pub(crate) fn forgotten(&self) -> impl Iterator<Item = ForgetOne> + use<'a> {
        let (one, count) = match self.opcode {
            Some(Opcode::Forget) => (self.fixed::<ForgetIn>().ok(), 0),
            Some(Opcode::BatchForget) => {
                let all = self.fixed::<BatchForgetIn>();
                (None, all.map_or(0, |all| all.count as usize))
            }
            _ => (None, 0),
        };
        let node = self.header.node;
        let one = one.map(|ForgetIn { lookups }| ForgetOne { node, lookups });
        let listed = self.rest.chunks_exact(size_of::<ForgetOne>()).take(count);
        let listed = listed.filter_map(|record| ForgetOne::read_from_bytes(record).ok());
        one.into_iter().chain(listed)
    }

    /// Finds the name that follows the fixed part.
    ///
    /// # Errors
    /// When nothing ends it.
    pub(crate) fn name(&self) -> Result<&'a [u8], Malformed> {
        Ok(self.names()?.0)
    }

    /// Finds the name that follows the fixed part, and what is behind it.
    ///
    /// # Errors
    /// When nothing ends it.
    pub(crate) fn names(&self) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        split_name(self.rest)
    }
}

/// Splits bytes into a name and what is behind the zero byte that ends it.
///
/// # Errors
/// When there is none.
pub(crate) fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
    let (name, rest) = bytes.split_at_checked(end).ok_or(Malformed)?;
    Ok((name, rest.get(1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    const EXTENDED: Form = Form {
        extends_setxattr: true,
    };

    fn header(opcode: u32, len: usize) -> InHeader {
        InHeader {
            len: u32::try_from(len).unwrap(),
            opcode,
            unique: 7,
            node: 1,
            uid: 0,
            gid: 0,
            pid: 1,
            extensions: 0,
            padding: 0,
        }
    }

    #[test]
    fn fixed_parts_are_as_long_as_the_kernel_has_them() {
        let lengths = [
            (Opcode::Setattr, 88),
            (Opcode::Mknod, 16),
            (Opcode::Mkdir, 8),
            (Opcode::Rename, 8),
            (Opcode::Rename2, 16),
            (Opcode::Link, 8),
            (Opcode::Read, 40),
            (Opcode::Write, 40),
            (Opcode::Fsync, 16),
            (Opcode::Setxattr, 8),
            (Opcode::Getxattr, 8),
            (Opcode::Ioctl, 32),
            (Opcode::BatchForget, 8),
            (Opcode::Fallocate, 32),
            (Opcode::Lseek, 24),
            (Opcode::CopyFileRange, 56),
            (Opcode::Tmpfile, 16),
            (Opcode::Forget, 8),
            (Opcode::Getattr, 16),
            (Opcode::Statx, 24),
            (Opcode::Open, 8),
        ];
        let plain = Form::default();
        for (opcode, len) in lengths {
            assert_eq!(opcode.fixed(plain), len, "{opcode:?}");
        }
        assert_eq!(Opcode::Setxattr.fixed(EXTENDED), 16);
        let answers = [
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<StatxOut>(), 288),
            (size_of::<StatfsOut>(), 80),
            (size_of::<OpenOut>(), 16),
            (size_of::<IoctlOut>(), 16),
            (size_of::<Dirent>(), 24),
            (size_of::<ForgetOne>(), 16),
            (size_of::<WriteOut>(), 8),
            (size_of::<LengthOut>(), 8),
            (size_of::<LseekOut>(), 8),
            (offset_of!(SetattrIn, size), 16),
            (offset_of!(SetattrIn, ctime), 48),
            (offset_of!(SetattrIn, mode), 68),
            (offset_of!(SetattrIn, uid), 76),
            (offset_of!(WriteIn, write_flags), 20),
            (offset_of!(IoctlIn, command), 12),
            (offset_of!(IoctlIn, in_size), 24),
            (offset_of!(CopyRangeIn, to), 16),
            (offset_of!(CopyRangeIn, len), 40),
            (offset_of!(Attr, mode), 60),
            (offset_of!(Attr, device), 76),
            (offset_of!(EntryOut, attr), 40),
            (offset_of!(StatxOut, stat), 32),
            (offset_of!(Statx, ino), 32),
            (offset_of!(Statx, btime), 80),
            (offset_of!(Statx, mtime), 112),
            (offset_of!(Statx, device_major), 128),
        ];
        for (found, len) in answers {
            assert_eq!(found, len);
        }
        assert_eq!((IN_HEADER, OUT_HEADER), (40, 16));
    }

    #[test]
    fn a_request_is_the_same_in_one_piece_and_in_parts() {
        let fixed = MkdirIn {
            mode: 0o755,
            umask: 0o22,
        };
        let mut bytes = header(9, IN_HEADER + 8 + 4).as_bytes().to_vec();
        bytes.extend(fixed.as_bytes());
        bytes.extend(b"dir\0");
        let mut field = [0xff; 128];
        field[..8].copy_from_slice(fixed.as_bytes());
        let whole = Request::parse(&bytes, EXTENDED).unwrap();
        let parts = Request::from_parts(whole.header, &field, b"dir\0", EXTENDED);
        for request in [whole, parts] {
            assert_eq!(request.opcode, Some(Opcode::Mkdir));
            assert_eq!(request.fixed::<MkdirIn>().unwrap().mode, 0o755);
            assert_eq!(request.name(), Ok(&b"dir"[..]));
        }
    }

    #[test]
    fn the_extension_of_setxattr_is_read_where_it_was_agreed_upon() {
        let fixed = [1_u32, 0, setxattr_flags::KILL_SET_GID, 0];
        let mut field = [0xff; 128];
        field[..16].copy_from_slice(fixed.as_bytes());
        let rest = b"user.a\0v";
        let mut bytes = header(21, IN_HEADER + 16 + rest.len()).as_bytes().to_vec();
        bytes.extend(fixed.as_bytes());
        bytes.extend(rest);
        let whole = Request::parse(&bytes, EXTENDED).unwrap();
        let parts = Request::from_parts(whole.header, &field, rest, EXTENDED);
        for request in [whole, parts] {
            assert_eq!(request.setxattr_extension().flags, 1);
            assert_eq!(request.names(), Ok((&b"user.a"[..], &b"v"[..])));
        }
        let mut bytes = header(21, IN_HEADER + 8 + rest.len()).as_bytes().to_vec();
        bytes.extend(fixed[..2].as_bytes());
        bytes.extend(rest);
        let plain = Request::parse(&bytes, Form::default()).unwrap();
        assert_eq!(plain.setxattr_extension().flags, 0);
        assert_eq!(plain.names(), Ok((&b"user.a"[..], &b"v"[..])));
    }

    #[test]
    fn forgotten_nodes_are_listed_as_far_as_they_are_there() {
        let one = ForgetIn { lookups: 3 };
        let mut bytes = header(2, IN_HEADER + 8).as_bytes().to_vec();
        bytes.extend(one.as_bytes());
        let listed = |bytes: &[u8]| -> Vec<_> {
            let request = Request::parse(bytes, EXTENDED).unwrap();
            let forgotten = request.forgotten();
            forgotten.map(|one| (one.node, one.lookups)).collect()
        };
        assert_eq!(listed(&bytes), [(1, 3)]);
        // The count is of three, or of one, and there are two and a half.
        for (count, expected) in [(3, &[(12, 1), (13, 2)][..]), (1, &[(12, 1)])] {
            let all = BatchForgetIn { count, unused: 0 };
            let mut bytes = header(42, IN_HEADER + 8 + 40).as_bytes().to_vec();
            bytes.extend(all.as_bytes());
            bytes.extend([12_u64, 1, 13, 2, 14].as_bytes());
            assert_eq!(listed(&bytes), expected);
        }
        assert_eq!(listed(header(1, IN_HEADER).as_bytes()), []);
    }

    #[test]
    fn requests_that_are_cut_off_are_told() {
        let bytes = header(9, IN_HEADER + 4).as_bytes().to_vec();
        assert!(Request::parse(&bytes, EXTENDED).is_err());
        let mut cut = bytes.clone();
        cut.extend([0; 4]);
        let request = Request::parse(&cut, EXTENDED).unwrap();
        assert!(request.fixed::<MkdirIn>().is_err());
        assert!(request.name().is_err());
        assert!(Request::parse(&bytes[..20], EXTENDED).is_err());
        let unknown = header(4711, IN_HEADER).as_bytes().to_vec();
        assert_eq!(Request::parse(&unknown, EXTENDED).unwrap().opcode, None);
        assert_eq!(split_name(b"no end"), Err(Malformed));
        assert_eq!(split_name(b"a\0b"), Ok((&b"a"[..], &b"b"[..])));
    }
}
