/* extant.h - ext2, ext3 and ext4 images, without a mount.
 *
 * Functions return 0, or a count where that is said, or a negative Linux error number (-ENOENT,
 * ...); then extant_message() has a sentence for the thread that called, and extant_error_kind()
 * says what kind of failure it is. An argument that is NULL where it must not be, a flag that is
 * not known, and a structure whose size is wrong are -EINVAL.
 *
 * Paths and names are bytes that end with a zero byte; paths begin at the root of the file system,
 * with or without a leading '/', and symbolic links are followed inside the file system only. They
 * are followed at the end of a path, unless an l in front of the name of a function or a comment
 * says otherwise; functions that make, move or remove a name never do.
 *
 * Any number of threads may use a handle at once, with two exceptions: an extant_dir or an
 * extant_walk or extant_glob is used by one thread at a time, and nothing may use a handle that is being closed.
 * Files and directories may outlive the extant_fs they came from: after extant_close() they can
 * still be read, and nothing can be changed (-EROFS); the image stays locked for others until the
 * last of them is closed. Handles do not survive fork() in the child.
 *
 * Structures that a program fills begin with their size, and structures that the library fills in
 * memory of its own may have more members in later versions: a program that was compiled with one
 * version of this header runs with later ones. Functions that a program passes may be called from
 * any thread, and must return: neither longjmp() nor an exception may leave them.
 *
 * Link with -lextant, as pkg-config says (extant.pc); the manual page is extant(3).
 * Licence: MIT OR Apache-2.0.
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
typedef struct extant_walk extant_walk;
typedef struct extant_glob extant_glob;
typedef struct extant_device extant_device;
typedef struct extant_report extant_report;
typedef struct extant_token extant_token;

/* How to open a file system. Set size to sizeof(struct extant_options), and what is not used to 0: later versions may have
 * more members. */
struct extant_options {
    size_t size;
    uint32_t flags;       /* EXTANT_WRITABLE, EXTANT_TRANSACTION or EXTANT_MEND, or 0 to read only */
    uint32_t partition;   /* partition of a disk image, from 1; 0 for none */
    uint64_t offset;      /* byte at which the file system begins */
    uint64_t cache_bytes; /* memory for file data; 0 for a share of the machine's */
    const char *format;   /* what the image is, such as "raw", whatever it looks like; NULL to have that seen */
    const extant_device *journal; /* the device of a journal that is on one of its own; NULL for none. Only for reading:
                                     what waits in it is replayed into memory */
};

#define EXTANT_WRITABLE 1u
/* Changes are made as a whole or not at all: extant_commit() puts them into the image, extant_close() forgets them. They
 * wait in memory, and beyond 4 MiB in a temporary file (TMPDIR). File systems without a journal, or with the feature
 * mmp, are refused (-EOPNOTSUPP). */
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
/* What kind of failure that was: EXTANT_ERROR_..., 0 if none was. */
uint32_t extant_error_kind(void);

/* An argument means nothing (-EINVAL). */
#define EXTANT_ERROR_MISUSE 1u
/* About a file or its name: it is missing, exists, is refused, or there is no room. */
#define EXTANT_ERROR_FILE 2u
/* No ext2, ext3 or ext4 is there; the message says what is, if that is known (-EMEDIUMTYPE). */
#define EXTANT_ERROR_NOT_EXT4 3u
/* An ext2, ext3 or ext4 is there and is damaged: extant_check() says where (-EUCLEAN, -EBADMSG). */
#define EXTANT_ERROR_DAMAGED 4u
/* The device, or the system outside of the image, failed or refused. */
#define EXTANT_ERROR_DEVICE 5u
/* The library, or this build of it, cannot do that (-EOPNOTSUPP). */
#define EXTANT_ERROR_UNSUPPORTED 6u
/* It is not done, since something would be lost or not be sound; the image is as it was. */
#define EXTANT_ERROR_REFUSED 7u
/* It was ended by a token or by what progress returned (-ECANCELED). */
#define EXTANT_ERROR_CANCELLED 8u
/* A defect of the library (-EIO). */
#define EXTANT_ERROR_INTERNAL 9u

/* How far a long piece of work is, and ending it. */

/* A token with which any thread ends work that was given it. */
int extant_token_new(extant_token **token);
/* Ends all work that has this token, now and later, as soon as it next uses its device. */
void extant_token_cancel(const extant_token *token);
/* Work that has the token goes on. NULL is allowed. */
void extant_token_close(extant_token *token);

/* Given to functions that take long, which may also have NULL for it. Set size to sizeof(struct
 * extant_watch). */
struct extant_watch {
    size_t size;
    /* Says what is being done, how many units of that are, and how many it has. Called from the
     * threads that work, one at a time, and at most some twenty times a second. Anything but 0
     * ends the work. NULL for none. */
    int (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    void *user;
    const extant_token *token; /* NULL for none */
};

/* Devices: what images lie on. */

/* Functions that a device is made of. Set size to sizeof(struct extant_device_ops). Each returns 0
 * or a negative error number, and is called from several threads at once. Ranges that are asked
 * for lie on the device. */
struct extant_device_ops {
    size_t size;
    int (*read)(void *user, void *buffer, size_t length, uint64_t offset);        /* all of it */
    int (*write)(void *user, const void *buffer, size_t length, uint64_t offset); /* all of it; NULL: reading only */
    int (*flush)(void *user);                                       /* makes what was written durable; NULL: it is */
    int (*discard)(void *user, uint64_t offset, uint64_t length);   /* a hint; NULL: nothing is done */
    int (*zero)(void *user, uint64_t offset, uint64_t length);      /* NULL: zeros are written */
    int (*capacity)(void *user, uint64_t *bytes);                   /* asked once */
    void (*release)(void *user);                                    /* nothing uses it any more; NULL allowed */
    uint32_t sector;   /* bytes written as a unit: a power of two, 0 for 512 */
    uint32_t reserved; /* 0 */
};

/* Opens what extant_open() opens, as a device: of options, EXTANT_WRITABLE, partition, offset and
 * format count. */
int extant_device_open(const char *image, const struct extant_options *options, extant_device **device);
/* Takes an open file or block device by its descriptor, which stays the caller's and may be closed
 * afterwards. Options as for extant_device_open(). */
int extant_device_from_fd(int fd, const struct extant_options *options, extant_device **device);
/* Makes a device of functions. user is passed to each. After an error release is not called. */
int extant_device_from_ops(const struct extant_device_ops *ops, void *user, extant_device **device);
/* Makes a device of zeros in memory. */
int extant_device_in_memory(uint64_t bytes, extant_device **device);
/* Makes a device of a part of another one: a partition (from 1), or what lies from offset on (with
 * partition 0). */
int extant_device_part(const extant_device *whole, uint32_t partition, uint64_t offset, extant_device **part);
/* Returns the bytes that it has. */
int64_t extant_device_size(const extant_device *device);
int extant_device_read(const extant_device *device, void *buffer, size_t size, uint64_t offset);
int extant_device_write(const extant_device *device, const void *buffer, size_t size, uint64_t offset);
int extant_device_flush(const extant_device *device);
/* File systems on it can be used on; it ends with the last of them. NULL is allowed. */
void extant_device_close(extant_device *device);

/* File systems. */

/* Opens an image: a file, a block device, or an address such as "nbd://host/export" or "disk.img#2", as docs/user/remote.md
 * has them. options may be NULL: for reading only. A journal that was not closed cleanly is
 * replayed, into memory if the image is opened for reading only.
 * A guest writes what it likes to its disk, the mark of a format too: say "raw" of a raw disk that somebody else has
 * written to. The other words are those of docs/user/formats.md, in a library built with the feature formats. What is
 * behind HTTP, in object stores or behind TLS needs the feature remote or tls. */
int extant_open(const char *image, const struct extant_options *options, extant_fs **fs);
/* Opens the file system on a device, whose handle may be closed then. Of options, flags,
 * partition, offset and cache_bytes count. Nothing keeps others from using the device meanwhile. */
int extant_open_device(const extant_device *device, const struct extant_options *options, extant_fs **fs);
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
/* How extant_bulkstat() tells about files. Set size to sizeof(struct extant_bulkstat). The functions
 * are called from several threads at once, and anything but 0 from them ends the work. */
struct extant_bulkstat {
    size_t size;
    int (*files)(void *user, const struct extant_stat *files, size_t count); /* the memory is the library's */
    int (*failed)(void *user, const char *message); /* an inode cannot be read, and others follow; NULL: see below */
    void *user;
    uint32_t threads; /* 0 for as many as there are processors */
    uint32_t flags;   /* 0 or EXTANT_BULKSTAT_CACHE */
};

#define EXTANT_BULKSTAT_CACHE 1u /* what is found stays in memory, for a caller that goes on to use the files */

/* Tells about every file, whatever its names are, and about the file system's own, such as its journal, in no particular
 * order: much faster than a walk. Files without names are left out. Returns how many there were. Without a function failed,
 * the first thing that cannot be read is the error, once all files are told. */
int64_t extant_bulkstat(const extant_fs *fs, const struct extant_bulkstat *how);
/* What was mended when the file system was opened; zeros without EXTANT_MEND. */
int extant_mended(const extant_fs *fs, struct extant_mended *mended);
/* Returns 1 if where the content of a file lies was mended, so that it may not be what it was; 0 otherwise. */
int extant_is_in_doubt(const extant_fs *fs, const char *file);

/* Names. */

int extant_stat(const extant_fs *fs, const char *file, struct extant_stat *stat);
/* Looks at a symbolic link at the end itself, which extant_stat() follows. */
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
/* Gives a file to a project, which its quota counts for. */
int extant_set_project(const extant_fs *fs, const char *file, uint32_t project);
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

/* Access control lists. */

/* An entry, as acl(5) has it. In a list stand the owner, users, the group, groups, the mask and
 * others, in this order; where users or groups are named there has to be a mask. */
struct extant_acl_entry {
    uint32_t tag;         /* EXTANT_ACL_... */
    uint32_t id;          /* of EXTANT_ACL_USER and EXTANT_ACL_GROUP; otherwise 0 */
    uint32_t permissions; /* read 4, write 2, execute 1 */
};

#define EXTANT_ACL_USER_OBJ 1u
#define EXTANT_ACL_USER 2u
#define EXTANT_ACL_GROUP_OBJ 4u
#define EXTANT_ACL_GROUP 8u
#define EXTANT_ACL_MASK 16u
#define EXTANT_ACL_OTHER 32u

#define EXTANT_ACL_ACCESS 0u
#define EXTANT_ACL_DEFAULT 1u

/* Returns how many entries a list of a file has, 0 if it has none, and stores them. kind:
 * EXTANT_ACL_ACCESS or EXTANT_ACL_DEFAULT. With count 0 nothing is stored; too few is -ERANGE. */
int64_t extant_get_acl(const extant_fs *fs, const char *file, uint32_t kind, struct extant_acl_entry *entries, size_t count);
/* Sets a list; without entries it is removed. The permissions of the file follow the access list. */
int extant_set_acl(const extant_fs *fs, const char *file, uint32_t kind, const struct extant_acl_entry *entries, size_t count);

/* Quotas. */

/* What a user, group or project uses and may use: space in bytes. A limit of 0 is none. */
struct extant_quota {
    uint64_t space;
    uint64_t space_soft;
    uint64_t space_hard;
    uint64_t space_grace_ends; /* seconds since 1970; 0 while the soft limit is kept */
    uint64_t inodes;
    uint64_t inode_soft;
    uint64_t inode_hard;
    uint64_t inode_grace_ends;
    uint32_t id;
    uint32_t reserved;
};

#define EXTANT_QUOTA_USER 0u
#define EXTANT_QUOTA_GROUP 1u
#define EXTANT_QUOTA_PROJECT 2u

/* kind: EXTANT_QUOTA_...; -EOPNOTSUPP if the file system does not count it. */
int extant_get_quota(const extant_fs *fs, uint32_t kind, uint32_t id, struct extant_quota *quota);
/* Returns how many users, groups or projects there are, and stores as many as count says, by
 * ascending id. */
int64_t extant_get_quotas(const extant_fs *fs, uint32_t kind, struct extant_quota *quotas, size_t count);
/* Sets the limits of quota->id: of quota, those and the id count. */
int extant_set_quota(const extant_fs *fs, uint32_t kind, const struct extant_quota *quota);

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

/* A piece of a file, in bytes. */
struct extant_extent {
    uint64_t offset; /* in the file */
    uint64_t length;
    uint64_t device_offset; /* EXTANT_NOWHERE if the content lies in the inode */
    uint32_t flags;         /* EXTANT_EXTENT_UNWRITTEN: reserved, reads as zeros */
    uint32_t reserved;
};

#define EXTANT_EXTENT_UNWRITTEN 1u
#define EXTANT_NOWHERE UINT64_MAX

/* Returns how many pieces a file has, and stores as many as count says. */
int64_t extant_file_extents(const extant_file *file, struct extant_extent *extents, size_t count);

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

/* Everything below a directory: itself first, parents before children, names in order of their
 * bytes. Symbolic links are not followed. */

struct extant_walk_entry {
    const char *path; /* ends with a zero byte; on damaged images names may hold any bytes */
    size_t length;    /* bytes of the path */
    uint64_t depth;   /* directories between the start and this; 0 for the start itself */
    struct extant_stat stat;
};

int extant_walk_open(const extant_fs *fs, const char *path, extant_walk **walk);
/* Returns 1 with the next file, 0 at the end, or an error number for what cannot be read: the walk
 * goes on behind that. What entry points to is the walk's, until its next call. */
int extant_walk_next(extant_walk *walk, const struct extant_walk_entry **entry);
/* Leaves out what is below the directory that came last. */
int extant_walk_skip(extant_walk *walk);
/* NULL is allowed. */
void extant_walk_close(extant_walk *walk);

/* Paths that match a pattern as a shell has them: '*', '?', '[a-z]', '[!a-z]', a backslash, and
 * '**' as a part of its own for any number of directories. Names that begin with a dot match as
 * others do. Links are followed on the way, but for what '**' stands for. */

int extant_glob_open(const extant_fs *fs, const char *pattern, extant_glob **glob);
/* Returns as extant_walk_next(). What path points to, which ends with a zero byte, is the glob's, until its next call. */
int extant_glob_next(extant_glob *glob, const char **path);
/* NULL is allowed. */
void extant_glob_close(extant_glob *glob);

/* Making, checking and changing file systems that are not open. */

/* Makes a file system. settings are strings "name=value", NULL behind the last; names are the long
 * options of "extant mkfs" (docs/user/build.md), such as "size=1G" or "label=data", and extant(3)
 * lists them. At a path a file comes into being, or is replaced, when it is complete. What is in
 * the place and was not made here is kept (-EEXIST), unless "force=yes" is among the settings.
 * "format=vhd" and the other words of docs/user/formats.md that "extant mkfs" makes say what the file
 * is; without such a setting the extension of its name does (disk.vmdk), and otherwise it is raw.
 * qcow2 needs a library built with the feature formats (-EOPNOTSUPP). With "like=IMAGE" files keep
 * the numbers and blocks that they have in an older image, so that little of the new one differs; its
 * label, UUID and sizes are taken too, where no setting says otherwise: "label=" asks for none. */
int extant_mkfs(const char *image, const char *const *settings, const struct extant_watch *watch);
/* Makes a file system on a device, with the settings of extant_mkfs(): as large as the device,
 * unless they say otherwise. */
int extant_mkfs_device(const extant_device *device, const char *const *settings, const struct extant_watch *watch);

/* What was found, mended, or would be lost. */
struct extant_finding {
    const char *code;     /* stable, such as "inode-checksum" */
    const char *text;     /* a line for people */
    uint32_t severity;    /* EXTANT_WARNING, EXTANT_ERROR or EXTANT_FATAL */
    uint32_t group;       /* of blocks; 0xffffffff if it is none */
    uint64_t inode;       /* 0 if it is none */
    uint64_t inode_block; /* block of the inode; EXTANT_NOWHERE if it is none */
    uint64_t block;       /* of the file system; EXTANT_NOWHERE if it is none */
};

#define EXTANT_WARNING 0u /* worth knowing */
#define EXTANT_ERROR 1u   /* the file system is not consistent */
#define EXTANT_FATAL 2u   /* and for that reason parts of it were not checked */

/* What a check or a repair came to. */
struct extant_summary {
    uint64_t warnings; /* after a repair, these three are what is left */
    uint64_t errors;
    uint64_t fatal;
    uint64_t inodes;      /* in use */
    uint64_t directories; /* among them */
    uint64_t blocks;      /* in use */
    uint64_t fixes;
    uint64_t losses;
    uint64_t changed_blocks;
    uint32_t clean;   /* 1 if nothing is worse than a warning, or will be once the changes are written */
    uint32_t written; /* 1 if the changes were written */
};

/* Checks the file system on a device, which is only read. What is found is in the report, and no
 * error: 0 is returned if there is a report. flags: 0 or EXTANT_CHECK_.... */
int extant_check(const extant_device *device, uint32_t flags, const struct extant_watch *watch, extant_report **report);
/* Checks as extant_check() does, with the device that the journal is on, which is only read as well. */
int extant_check_with_journal(const extant_device *device, const extant_device *journal, uint32_t flags, const struct extant_watch *watch, extant_report **report);
/* Repairs the file system on a device. flags: 0 or EXTANT_REPAIR_.... What was there is kept in a
 * new file named undo, unless that is NULL; where nothing changes, no such file is made. Nothing is
 * written if files that can be read would be lost (-EPERM), unless flags allow it. The work can be
 * ended until it writes. */
int extant_repair(const extant_device *device, uint32_t flags, const char *undo, const struct extant_watch *watch, extant_report **report);
/* Takes a repair, extant_tune() or extant_resize_with_undo() back, by what it has kept. */
int extant_revert(const extant_device *device, const char *undo);

#define EXTANT_CHECK_AS_IS 1u  /* without what waits in the journal */
#define EXTANT_CHECK_VERITY 2u /* with the content of files that fs-verity protects */

#define EXTANT_REPAIR_DRY_RUN 1u         /* writes nothing */
#define EXTANT_REPAIR_ALLOW_LOSS 2u      /* also where files are lost */
#define EXTANT_REPAIR_DISCARD_JOURNAL 4u /* gives up a journal that cannot be replayed */

/* What is in a report; it belongs to that. */
const struct extant_summary *extant_report_summary(const extant_report *report);
/* An entry of a list, from 0 on; NULL behind the last. Of each code at most 1000 are kept. */
const struct extant_finding *extant_report_entry(const extant_report *report, uint32_t list, size_t index);
/* NULL is allowed. */
void extant_report_close(extant_report *report);

#define EXTANT_FINDINGS 0u /* what a check found, or a repair left */
#define EXTANT_FIXES 1u    /* what a repair mended */
#define EXTANT_LOSSES 2u   /* files that a repair loses */

/* Gives the file system on a device another size: bytes, or EXTANT_MINIMUM for as little as it
 * can be. The device has to have the bytes already; what it has behind a smaller file system
 * may be cut off afterwards. Stores the new size unless now is NULL. */
int extant_resize(const extant_device *device, uint64_t bytes, const struct extant_watch *watch, uint64_t *now);
/* Resizes as extant_resize() does, and keeps what was there in a new file named undo, for
 * extant_revert(); where nothing changes, no such file is made. With EXTANT_MINIMUM it goes one
 * round, as that file is of one: the file system may come out larger than extant_minimum() says. */
int extant_resize_with_undo(const extant_device *device, uint64_t bytes, const char *undo, const struct extant_watch *watch, uint64_t *now);
/* Stores the size that extant_resize() with EXTANT_MINIMUM leads to, and changes nothing. */
int extant_minimum(const extant_device *device, const struct extant_watch *watch, uint64_t *bytes);

#define EXTANT_MINIMUM 0u

/* Changes settings of the file system on a device: strings as for extant_mkfs(), of which the names
 * are the long options of "extant tune" (docs/user/tune.md), such as "label=data". All are made or
 * none. With "undo=FILE" what was there is kept in a new file, for extant_revert(); where nothing
 * changes, no such file is made. */
int extant_tune(const extant_device *device, const char *const *settings, const struct extant_watch *watch);
/* Has the file system on a device, which has no journal, use the one on another device, which
 * "mke2fs -O journal_dev" makes. Linux finds that by its number, major and minor as in st_rdev. */
int extant_add_journal(const extant_device *device, const extant_device *journal, uint32_t major, uint32_t minor, const struct extant_watch *watch);
/* Takes away a journal on a device of its own, of which the file system was closed cleanly. journal
 * may be NULL where that device is lost: otherwise it lists the file system no more. */
int extant_remove_journal(const extant_device *device, const extant_device *journal, const struct extant_watch *watch);
/* Stores what a setting is, as text without a zero byte; sizes as for extant_readlink(). extant(3)
 * lists the names, such as "label", "uuid" and "features". */
int64_t extant_setting(const extant_device *device, const char *setting, void *value, size_t size);

#ifdef __cplusplus
}
#endif

#endif
