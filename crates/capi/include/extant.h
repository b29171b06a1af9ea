/* extant.h - ext2, ext3 and ext4 images, without a mount.
 *
 * Functions return 0, or a count where that is said, or a negative Linux error number (-ENOENT, ...); then
 * extant_message() has a sentence for the thread that called. Paths and names are bytes that end with a zero byte; paths
 * begin at the root of the file system, with or without a leading '/', and symbolic links are followed inside the
 * file system only. Any number of threads may use a handle at once, with two exceptions: an extant_dir is used by one
 * thread at a time, and nobody may use a handle that is being closed. Files and directories may outlive the extant_fs they
 * came from: after extant_close() they can still be read, and nothing can be changed (-EROFS); the image stays locked
 * for others until the last of them is closed. Handles do not survive fork() in the child.
 *
 * Functions follow a symbolic link at the end of a path, unless an l in front of their name or a comment says otherwise; those
 * that make, move or remove a name never do.
 *
 * Link with -lextant_capi, or with libextant_capi.a -pthread -ldl -lm. Licence: MIT OR Apache-2.0.
 */
#ifndef EXTANT_H
#define EXTANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct extant_fs extant_fs;
typedef struct extant_file extant_file;
typedef struct extant_dir extant_dir;

/* How to open a file system. Set size to sizeof(struct extant_options), and what is not used to 0: later versions may have
 * more members. */
struct extant_options {
    size_t size;
    uint32_t flags;       /* EXTANT_WRITABLE, EXTANT_TRANSACTION or EXTANT_MEND, or 0 to read only */
    uint32_t partition;   /* partition of a disk image, from 1; 0 for none */
    uint64_t offset;      /* byte at which the file system begins */
    uint64_t cache_bytes; /* memory for file data; 0 for a share of the machine's */
    const char *format;   /* what the image is, such as "raw", whatever it looks like; NULL to have that seen */
};

#define EXTANT_WRITABLE 1u
/* Changes are made as a whole or not at all: extant_commit() puts them into the image, extant_close() forgets them. They
 * wait in a temporary file (TMPDIR). File systems without a journal, or with the feature mmp, are refused (-EOPNOTSUPP). */
#define EXTANT_TRANSACTION 2u
/* For reading only: a damaged file system as "extant repair" would leave it. The image is not touched, and need not be
 * writable: what is mended is kept in memory, and beyond 64 MiB in a temporary file (TMPDIR). extant_mended() says how
 * much that was, extant_is_in_doubt() of which files the content may be another. Takes the time of a check, and needs a
 * library built with the feature mend, which is on by default (-EOPNOTSUPP). docs/user/rescue.md says more. */
#define EXTANT_MEND 4u

struct extant_time {
    int64_t seconds;      /* since 1970 */
    uint32_t nanoseconds; /* EXTANT_OMIT leaves a time as it is */
    uint32_t reserved;
};

#define EXTANT_OMIT 0xffffffffu

struct extant_stat {
    uint64_t ino;
    uint64_t size;       /* bytes */
    uint64_t blocks;     /* space in units of 512 bytes */
    uint32_t mode;       /* type and permissions, as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev_major; /* of device nodes */
    uint32_t rdev_minor;
    uint32_t block_size; /* bytes */
    uint32_t flags;      /* as FS_IOC_GETFLAGS */
    uint32_t generation; /* tells apart files that had one number after the other */
    uint32_t reserved;
    struct extant_time atime;
    struct extant_time mtime;
    struct extant_time ctime;
    struct extant_time btime; /* zeros when the image does not say */
};

/* Space, in blocks of block_size bytes. */
struct extant_space {
    uint64_t blocks;      /* that files could use */
    uint64_t free;
    uint64_t available;   /* to unprivileged users */
    uint64_t inodes;
    uint64_t free_inodes;
    uint32_t block_size;
    uint32_t name_max;    /* bytes */
    uint8_t uuid[16];
};

/* What EXTANT_MEND has mended. */
struct extant_mended {
    uint64_t fixes;           /* things that were put right */
    uint64_t missing;         /* bytes by which the image is shorter than its file system: reading them is an error */
    uint64_t unreadable;      /* pieces of the image that could not be read, and were taken for zeros */
    uint32_t partial;         /* 1 if something is left as it was, since mending it would lose files that can be read */
    uint32_t without_journal; /* 1 if what waits in the journal cannot be replayed, and is left out */
};

struct extant_entry {
    uint64_t ino;
    uint32_t type;   /* the type bits of st_mode (S_IFREG, ...); 0 when it is not known */
    uint32_t length; /* bytes of the name */
    char name[256];  /* with a zero byte behind it. On damaged images, and in encrypted directories, names may hold any bytes */
};

/* The library. */

/* "MAJOR.MINOR.PATCH". */
const char *extant_version(void);
/* Why the last call of this thread failed that did; "" if none has. Valid until the thread's next call. */
const char *extant_message(void);

/* File systems. */

/* Opens an image: a file, a block device, or an address such as "nbd://host/export" or "disk.img#2", as docs/user/remote.md
 * has them. options may be NULL: for reading only. A journal that was not closed cleanly is
 * replayed, into memory if the image is opened for reading only.
 * A guest writes what it likes to its disk, the mark of a format too: say "raw" of a raw disk that somebody else has
 * written to. The other words are those of docs/user/formats.md, in a library built with the feature formats. What is
 * behind HTTP, in object stores or behind TLS needs the feature remote or tls. */
int extant_open(const char *image, const struct extant_options *options, extant_fs **fs);
/* Makes everything durable and closes the file system. The handle is gone, also after an error, which says that what was
 * done since the last success of extant_sync() may be lost. NULL is allowed. */
int extant_close(extant_fs *fs);
/* Puts all changes of a file system that was opened with EXTANT_TRANSACTION into the image, as one transaction of its
 * journal, or by way of free blocks, and closes the file system. A crash on the way leaves all of them or none. The handle
 * is gone, also after an error: nothing is changed then (-ENOSPC: there is no room for it in either), unless extant_message() says that the device
 * failed in the moment of the commit (all or nothing is there), or after it (the next opening puts it in place). Others are closed as by extant_close(). NULL is allowed. */
int extant_commit(extant_fs *fs);
/* Makes everything durable that was done before. With EXTANT_TRANSACTION nothing is durable before extant_commit(). */
int extant_sync(const extant_fs *fs);
int extant_statfs(const extant_fs *fs, struct extant_space *space);
/* What was mended when the file system was opened; zeros without EXTANT_MEND. */
int extant_mended(const extant_fs *fs, struct extant_mended *mended);
/* Returns 1 if where the content of a file lies was mended, so that it may not be what it was; 0 otherwise. */
int extant_is_in_doubt(const extant_fs *fs, const char *file);

/* Names. */

int extant_stat(const extant_fs *fs, const char *file, struct extant_stat *stat);
/* The same; a symbolic link at the end is not followed. */
int extant_lstat(const extant_fs *fs, const char *file, struct extant_stat *stat);
int extant_mkdir(const extant_fs *fs, const char *dir, uint32_t mode);
int extant_rmdir(const extant_fs *fs, const char *dir);
int extant_unlink(const extant_fs *fs, const char *file);
/* flags: 0, EXTANT_RENAME_EXCHANGE, or any of the others. */
int extant_rename(const extant_fs *fs, const char *from, const char *to, uint32_t flags);
int extant_link(const extant_fs *fs, const char *file, const char *link);
int extant_symlink(const extant_fs *fs, const char *target, const char *link);
/* Returns the length of the target, which has no zero byte behind it. With size 0 nothing is stored. */
int64_t extant_readlink(const extant_fs *fs, const char *link, void *target, size_t size);
/* mode: type (S_IFIFO, S_IFCHR, S_IFBLK, S_IFSOCK, S_IFREG or 0) and permissions. */
int extant_mknod(const extant_fs *fs, const char *file, uint32_t mode, uint32_t major, uint32_t minor);
int extant_chmod(const extant_fs *fs, const char *file, uint32_t mode);
/* 0xffffffff leaves an owner or group as it is. */
int extant_lchown(const extant_fs *fs, const char *file, uint32_t uid, uint32_t gid);
/* times: last access, then last change of the content. */
int extant_lutimens(const extant_fs *fs, const char *file, const struct extant_time *times);
int extant_truncate(const extant_fs *fs, const char *file, uint64_t size);
/* File flags to set and to clear, as FS_IOC_SETFLAGS knows them. */
int extant_set_flags(const extant_fs *fs, const char *file, uint32_t set, uint32_t clear);

#define EXTANT_RENAME_NO_REPLACE 1u
#define EXTANT_RENAME_EXCHANGE 2u
#define EXTANT_RENAME_WHITEOUT 4u

/* Extended attributes, by full name ("user.origin"). Sizes as for extant_readlink(). */

int64_t extant_lgetxattr(const extant_fs *fs, const char *file, const char *attribute, void *value, size_t size);
int extant_lsetxattr(const extant_fs *fs, const char *file, const char *attribute, const void *value, size_t size, uint32_t flags);
int extant_lremovexattr(const extant_fs *fs, const char *file, const char *attribute);
/* Names one after the other, each with a zero byte behind it. */
int64_t extant_llistxattr(const extant_fs *fs, const char *file, void *names, size_t size);

#define EXTANT_XATTR_CREATE 1u
#define EXTANT_XATTR_REPLACE 2u

/* Open files. A file stays while it is open, also without names. */

/* flags: EXTANT_O_..., of which EXTANT_O_CREATE and EXTANT_O_TRUNCATE need EXTANT_O_WRITE or EXTANT_O_APPEND, and
 * EXTANT_O_TRUNCATE does not go with EXTANT_O_APPEND. mode counts with EXTANT_O_CREATE only. */
int extant_file_open(const extant_fs *fs, const char *path, uint32_t flags, uint32_t mode, extant_file **file);
/* NULL is allowed. What was written is durable after extant_file_sync(), extant_sync() or extant_close(). */
void extant_file_close(extant_file *file);
/* Returns how much was read: less than size only at the end of the file. After an error the buffer may hold anything. */
int64_t extant_file_read(const extant_file *file, void *buffer, size_t size, uint64_t offset);
/* Returns how much was written: less than size only when space ran out on the way. */
int64_t extant_file_write(const extant_file *file, const void *buffer, size_t size, uint64_t offset);
/* Writes at the end, and stores where that was unless offset is NULL. Returns as extant_file_write(). */
int64_t extant_file_append(const extant_file *file, const void *buffer, size_t size, uint64_t *offset);
int extant_file_truncate(const extant_file *file, uint64_t size);
/* mode as for fallocate(2): 0 or EXTANT_ALLOCATE_...; PUNCH_HOLE needs KEEP_SIZE beside it. */
int extant_file_allocate(const extant_file *file, uint32_t mode, uint64_t offset, uint64_t length);
/* Returns how much was copied: less than length only at the end of from. */
int64_t extant_file_copy_range(const extant_file *from, uint64_t from_offset, const extant_file *to, uint64_t to_offset, uint64_t length);
/* Return the offset of the next data or hole from offset on; -ENXIO when there is none. */
int64_t extant_file_seek_data(const extant_file *file, uint64_t offset);
int64_t extant_file_seek_hole(const extant_file *file, uint64_t offset);
int extant_file_sync(const extant_file *file);
int extant_file_sync_data(const extant_file *file);
int extant_file_stat(const extant_file *file, struct extant_stat *stat);

#define EXTANT_O_READ 1u
#define EXTANT_O_WRITE 2u
#define EXTANT_O_APPEND 4u
#define EXTANT_O_CREATE 8u
#define EXTANT_O_EXCLUSIVE 16u
#define EXTANT_O_TRUNCATE 32u
#define EXTANT_O_DIRECT 64u

#define EXTANT_ALLOCATE_KEEP_SIZE 1u
#define EXTANT_ALLOCATE_PUNCH_HOLE 2u
#define EXTANT_ALLOCATE_COLLAPSE 8u
#define EXTANT_ALLOCATE_ZERO 16u
#define EXTANT_ALLOCATE_INSERT 32u

/* Directories, without "." and "..". */

int extant_dir_open(const extant_fs *fs, const char *path, extant_dir **dir);
/* Returns 1 with the next entry, 0 at the end. */
int extant_dir_next(extant_dir *dir, struct extant_entry *entry);
/* NULL is allowed. */
void extant_dir_close(extant_dir *dir);

#ifdef __cplusplus
}
#endif

#endif
