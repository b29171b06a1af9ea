//! What a request can ask for: the kernel's numbers, and one table of what follows from each.
//!
//! Everything that depends on the opcode alone has its column here. What depends on the arguments
//! as well is marked so, and decided where they are read.

use super::request::{
    AccessIn, BatchForgetIn, CopyRangeIn, CreateIn, FallocateIn, ForgetIn, FsyncIn, GetXattrIn,
    IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, ReadIn, Rename2In, RenameIn, SetXattrExtension,
    SetXattrIn, SetattrIn, WriteIn,
};

/// What was agreed upon about the form of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// [`SetXattrExtension`] is there.
    pub(crate) extends_setxattr: bool,
}

/// What the kernel gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing, not even that it failed.
    Never,
    /// A record, names, or an error alone.
    Short,
    /// Data of a file, which is transferred to a page.
    Data,
}

/// How long a request takes, which decides whether the thread that it comes to carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// Not long: the thread that it comes to carries it out.
    Short,
    /// Long: it waits for a commit, or changes much, and others should not wait for it.
    Long,
    /// As long as its transfer.
    ByLength,
    /// As long as a commit where changes are durable when they are answered.
    BySync,
    /// That, or longer: its arguments say.
    ByArguments,
}

/// What a request needs to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing of the file system, which may be closed meanwhile.
    Nothing,
    /// The file system. `FUSE_WRITE` finds out itself on whose account space is taken.
    Engine,
    /// The file system, and space on the account of the user in the header.
    Space,
}

/// Whose requests are carried out where the kernel checks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// Everybody's: it is about content, or about what was opened before.
    ToAll,
    /// The superuser's: it is about names or rights.
    ToRoot,
    /// Its arguments say.
    ByArguments,
}

macro_rules! operations {
    ($($name:ident $text:literal)*) => {
        /// Kinds of requests that are counted and timed apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation {
            $($name,)*
        }

        impl Operation {
            /// Names of all, in their order.
            pub(crate) const NAMES: &[&str] = &[$($text,)*];
        }
    };
}

operations! {
    Lookup "lookup"
    Forget "forget"
    Getattr "getattr"
    Setattr "setattr"
    Readlink "readlink"
    Mknod "mknod"
    Mkdir "mkdir"
    Unlink "unlink"
    Rmdir "rmdir"
    Symlink "symlink"
    Rename "rename"
    Link "link"
    Read "read"
    Write "write"
    Fsync "fsync"
    Readdir "readdir"
    Statfs "statfs"
    Xattr "xattr"
    Ioctl "ioctl"
    Fallocate "fallocate"
    Lseek "lseek"
    CopyRange "copy_range"
}

/// What follows from an opcode.
#[derive(Debug)]
pub(crate) struct Traits {
    /// The kernel's name.
    pub(crate) name: &'static str,
    /// Bytes of the fixed part that follows the header, without extensions.
    fixed: usize,
    pub(crate) reply: Reply,
    pub(crate) takes: Takes,
    pub(crate) needs: Needs,
    pub(crate) open: Open,
    /// It has done nothing when it finds no space, so that it may be carried out once more. Not so
    /// what tells of a failure once, nor what is done in steps.
    pub(crate) repeats: bool,
    /// What it is counted as, if it is.
    pub(crate) operation: Option<Operation>,
}

macro_rules! operation {
    (-) => {
        None
    };
    ($name:ident) => {
        Some(Operation::$name)
    };
}

macro_rules! opcodes {
    ($($name:ident $number:literal $text:literal $fixed:expr,
       $reply:ident $takes:ident $needs:ident $open:ident $repeats:literal $operation:tt;)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Opcode {
            $($name,)*
        }

        /// The rows, in the order of the opcodes.
        static TRAITS: &[Traits] = &[$(
            Traits {
                name: concat!("FUSE_", $text),
                fixed: $fixed,
                reply: Reply::$reply,
                takes: Takes::$takes,
                needs: Needs::$needs,
                open: Open::$open,
                repeats: $repeats,
                operation: operation!($operation),
            },
        )*];

        impl Opcode {
            /// Finds the opcode of this number; `None` for what is not answered here.
            pub(super) fn new(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            #[cfg(test)]
            const ALL: &[(Self, u32)] = &[$((Self::$name, $number),)*];
        }
    };
}

opcodes! {
    // opcode number and name of the kernel fixed part reply takes needs open repeats counted as
    Lookup          1  "LOOKUP"             0,                               Short Short       Engine  ToRoot      false Lookup;
    Forget          2  "FORGET"             size_of::<ForgetIn>(),           Never Short       Engine  ToAll       false Forget;
    Getattr         3  "GETATTR"            16,                              Short Short       Engine  ToAll       false Getattr;
    Setattr         4  "SETATTR"            size_of::<SetattrIn>(),          Short ByArguments Space   ByArguments false Setattr;
    Readlink        5  "READLINK"           0,                               Short Short       Engine  ToAll       false Readlink;
    Symlink         6  "SYMLINK"            0,                               Short BySync      Space   ToRoot      true  Symlink;
    Mknod           8  "MKNOD"              size_of::<MknodIn>(),            Short BySync      Space   ToRoot      true  Mknod;
    Mkdir           9  "MKDIR"              size_of::<MkdirIn>(),            Short BySync      Space   ToRoot      true  Mkdir;
    Unlink          10 "UNLINK"             0,                               Short BySync      Engine  ToRoot      false Unlink;
    Rmdir           11 "RMDIR"              0,                               Short BySync      Engine  ToRoot      false Rmdir;
    Rename          12 "RENAME"             size_of::<RenameIn>(),           Short BySync      Space   ToRoot      false Rename;
    Link            13 "LINK"               size_of::<LinkIn>(),             Short BySync      Space   ToRoot      true  Link;
    Open            14 "OPEN"               8,                               Short Short       Nothing ToRoot      false -;
    Read            15 "READ"               size_of::<ReadIn>(),             Data  ByLength    Engine  ToAll       false Read;
    Write           16 "WRITE"              size_of::<WriteIn>(),            Short ByLength    Engine  ToAll       true  Write;
    Statfs          17 "STATFS"             0,                               Short Short       Engine  ToAll       false Statfs;
    Release         18 "RELEASE"            24,                              Short Short       Nothing ToAll       false -;
    Fsync           20 "FSYNC"              size_of::<FsyncIn>(),            Short Long        Engine  ToAll       false Fsync;
    Setxattr        21 "SETXATTR"           size_of::<SetXattrIn>(),         Short BySync      Space   ToRoot      true  Xattr;
    Getxattr        22 "GETXATTR"           size_of::<GetXattrIn>(),         Short Short       Engine  ToRoot      false Xattr;
    Listxattr       23 "LISTXATTR"          size_of::<GetXattrIn>(),         Short Short       Engine  ToRoot      false Xattr;
    Removexattr     24 "REMOVEXATTR"        0,                               Short BySync      Space   ToRoot      false Xattr;
    Opendir         27 "OPENDIR"            8,                               Short Short       Nothing ToRoot      false -;
    Readdir         28 "READDIR"            size_of::<ReadIn>(),             Short Short       Engine  ToRoot      false Readdir;
    Releasedir      29 "RELEASEDIR"         24,                              Short Short       Nothing ToAll       false -;
    Fsyncdir        30 "FSYNCDIR"           size_of::<FsyncIn>(),            Short Long        Engine  ToAll       false Fsync;
    Access          34 "ACCESS"             size_of::<AccessIn>(),           Short Short       Engine  ToRoot      false -;
    Destroy         38 "DESTROY"            0,                               Short Long        Nothing ToAll       false -;
    Ioctl           39 "IOCTL"              size_of::<IoctlIn>(),            Short ByArguments Space   ToRoot      false Ioctl;
    BatchForget     42 "BATCH_FORGET"       size_of::<BatchForgetIn>(),      Never Short       Engine  ToAll       false Forget;
    Fallocate       43 "FALLOCATE"          size_of::<FallocateIn>(),        Short Long        Space   ToAll       false Fallocate;
    Readdirplus     44 "READDIRPLUS"        size_of::<ReadIn>(),             Short Short       Engine  ToRoot      false Readdir;
    Rename2         45 "RENAME2"            size_of::<Rename2In>(),          Short BySync      Space   ToRoot      false Rename;
    Lseek           46 "LSEEK"              size_of::<LseekIn>(),            Short Short       Engine  ToAll       false Lseek;
    CopyFileRange   47 "COPY_FILE_RANGE"    size_of::<CopyRangeIn>(),        Short Long        Space   ToAll       false CopyRange;
    Syncfs          50 "SYNCFS"             8,                               Short Long        Engine  ToAll       false Fsync;
    Tmpfile         51 "TMPFILE"            size_of::<CreateIn>(),           Short Short       Space   ToRoot      false Mknod;
    Statx           52 "STATX"              24,                              Short Short       Engine  ToAll       false Getattr;
    CopyFileRange64 53 "COPY_FILE_RANGE_64" size_of::<CopyRangeIn>(),        Short Long        Space   ToAll       false CopyRange;
}

impl Opcode {
    /// Returns what follows from this opcode.
    pub(crate) fn traits(self) -> &'static Traits {
        // The macro makes a row for each.
        &TRAITS[self as usize]
    }

    /// Returns the length in bytes of the fixed part that follows the header; names and data come
    /// behind it.
    pub(super) fn fixed(self, form: Form) -> usize {
        let extension = match self {
            Self::Setxattr if form.extends_setxattr => size_of::<SetXattrExtension>(),
            _ => 0,
        };
        self.traits().fixed + extension
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and names of `linux/fuse.h`, as far as they are answered here.
    const KERNEL: [(u32, &str); 39] = [
        (1, "FUSE_LOOKUP"),
        (2, "FUSE_FORGET"),
        (3, "FUSE_GETATTR"),
        (4, "FUSE_SETATTR"),
        (5, "FUSE_READLINK"),
        (6, "FUSE_SYMLINK"),
        (8, "FUSE_MKNOD"),
        (9, "FUSE_MKDIR"),
        (10, "FUSE_UNLINK"),
        (11, "FUSE_RMDIR"),
        (12, "FUSE_RENAME"),
        (13, "FUSE_LINK"),
        (14, "FUSE_OPEN"),
        (15, "FUSE_READ"),
        (16, "FUSE_WRITE"),
        (17, "FUSE_STATFS"),
        (18, "FUSE_RELEASE"),
        (20, "FUSE_FSYNC"),
        (21, "FUSE_SETXATTR"),
        (22, "FUSE_GETXATTR"),
        (23, "FUSE_LISTXATTR"),
        (24, "FUSE_REMOVEXATTR"),
        (27, "FUSE_OPENDIR"),
        (28, "FUSE_READDIR"),
        (29, "FUSE_RELEASEDIR"),
        (30, "FUSE_FSYNCDIR"),
        (34, "FUSE_ACCESS"),
        (38, "FUSE_DESTROY"),
        (39, "FUSE_IOCTL"),
        (42, "FUSE_BATCH_FORGET"),
        (43, "FUSE_FALLOCATE"),
        (44, "FUSE_READDIRPLUS"),
        (45, "FUSE_RENAME2"),
        (46, "FUSE_LSEEK"),
        (47, "FUSE_COPY_FILE_RANGE"),
        (50, "FUSE_SYNCFS"),
        (51, "FUSE_TMPFILE"),
        (52, "FUSE_STATX"),
        (53, "FUSE_COPY_FILE_RANGE_64"),
    ];

    fn having(is_so: impl Fn(&Traits) -> bool) -> Vec<Opcode> {
        let all = Opcode::ALL.iter().map(|(opcode, _)| *opcode);
        all.filter(|opcode| is_so(opcode.traits())).collect()
    }

    #[test]
    fn each_opcode_has_its_row() {
        assert_eq!(Opcode::ALL.len(), TRAITS.len());
        let found: Vec<_> = Opcode::ALL
            .iter()
            .map(|&(opcode, number)| {
                assert_eq!(Opcode::new(number), Some(opcode));
                (number, opcode.traits().name)
            })
            .collect();
        assert_eq!(found, KERNEL);
        let answered = (0..=0x1000).filter(|&number| Opcode::new(number).is_some());
        assert_eq!(answered.count(), KERNEL.len());
    }

    #[test]
    fn rows_say_what_their_requests_are() {
        let forgets = having(|row| row.reply == Reply::Never);
        assert_eq!(forgets, [Opcode::Forget, Opcode::BatchForget]);
        assert_eq!(having(|row| row.reply == Reply::Data), [Opcode::Read]);
        // The end waits for the file system to be closed, so it must not keep it open.
        let outside = having(|row| row.needs == Needs::Nothing);
        assert!(outside.contains(&Opcode::Destroy));
        // What is not in the file system finds no lack of space there, and is not timed.
        for opcode in outside {
            let row = opcode.traits();
            assert!(!row.repeats && row.operation.is_none(), "{opcode:?}");
        }
        // Whatever syncs waits for a commit.
        for opcode in [Opcode::Fsync, Opcode::Fsyncdir, Opcode::Syncfs] {
            assert_eq!(opcode.traits().takes, Takes::Long, "{opcode:?}");
        }
        for opcode in having(|row| row.repeats) {
            let row = opcode.traits();
            assert!(row.needs == Needs::Space || opcode == Opcode::Write);
        }
    }
}
