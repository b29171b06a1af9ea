//! Error numbers of Linux, the same on every architecture that Extant runs on.

macro_rules! numbers {
    ($($name:ident = $number:literal, $what:literal;)*) => {
        $(
            #[doc = $what]
            pub const $name: i32 = $number;
        )*
    };
}

numbers! {
    EPERM = 1, "Operation not permitted.";
    ENOENT = 2, "No such file or directory.";
    EIO = 5, "Input or output failed.";
    ENXIO = 6, "No such device or address; no data after an offset.";
    E2BIG = 7, "An argument is too large.";
    EBADF = 9, "The file is not open for this.";
    EACCES = 13, "Permission denied.";
    EFAULT = 14, "A bad address.";
    EBUSY = 16, "In use.";
    EEXIST = 17, "The file exists.";
    EXDEV = 18, "The files are on different file systems.";
    ENOTDIR = 20, "Not a directory.";
    EISDIR = 21, "Is a directory.";
    EINVAL = 22, "An argument is invalid.";
    EFBIG = 27, "The file would be too large.";
    ENOSPC = 28, "No space is left.";
    EROFS = 30, "The file system is open for reading only.";
    EMLINK = 31, "Too many links.";
    ERANGE = 34, "A result does not fit.";
    ENAMETOOLONG = 36, "The name is too long.";
    ENOTEMPTY = 39, "The directory is not empty.";
    ELOOP = 40, "Too many symbolic links.";
    ENODATA = 61, "No such extended attribute.";
    EBADMSG = 74, "A checksum is wrong.";
    EOPNOTSUPP = 95, "Not supported.";
    ESTALE = 116, "The inode is no longer in use.";
    EUCLEAN = 117, "A structure is corrupt.";
    EDQUOT = 122, "The quota is exceeded.";
    ENOKEY = 126, "The key of encrypted content is not available.";
}
