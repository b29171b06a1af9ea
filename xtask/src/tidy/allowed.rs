//! The exceptions, each with its reason.

/// Files that may contain `unsafe`.
pub(super) const UNSAFE_FILES: &[(&str, &str)] = &[
    (
        "crates/bench/src/shared_memory.rs",
        "an instruction copies to memory that others copy to meanwhile",
    ),
    (
        "crates/blockdev/src/file/linux/uring.rs",
        "the kernel is told where buffers lie, and uses them after the call",
    ),
    (
        "crates/blockdev/src/past_cache.rs",
        "stores past the cache take pointers",
    ),
    (
        "crates/capi/src/abi/arguments.rs",
        "results go where C has room for them",
    ),
    (
        "crates/capi/src/abi/devices.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/abi/files.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/abi/library.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/abi/names.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/abi/owners.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/abi/systems.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/abi/upkeep.rs",
        "C passes pointers, and finds functions by their names",
    ),
    (
        "crates/capi/src/bulk.rs",
        "C is told about all files by functions of its own; tests/it/bulk.rs",
    ),
    (
        "crates/capi/src/device.rs",
        "a device of C is functions and what they are called with",
    ),
    (
        "crates/capi/src/pointers.rs",
        "C's pointers become references, as the header asks of callers",
    ),
    (
        "crates/capi/src/types.rs",
        "structures of C have functions in them, which are unsafe to call",
    ),
    (
        "crates/capi/src/watch.rs",
        "C is told how far work is by calling a function of its own",
    ),
    (
        "crates/cli/src/allocator.rs",
        "the allocator takes its options by calls into C",
    ),
    (
        "crates/cli/src/closed.rs",
        "code that runs before `main` is named in a section of the program",
    ),
    (
        "crates/format/src/side_by_side.rs",
        "calls an instruction after it asked whether the processor has it",
    ),
    (
        "crates/formats/src/qcow2/below.rs",
        "imago's storage trait has unsafe methods",
    ),
    (
        "crates/fuse/src/attach.rs",
        "the helper that mounts passes a descriptor by its number",
    ),
    (
        "crates/fuse/src/inherited.rs",
        "descriptors that a process was started with are known by number only",
    ),
    (
        "crates/fuse/src/kernel/device.rs",
        "another channel of a mount is asked for by an ioctl that has no safe wrapper",
    ),
    (
        "crates/fuse/src/loopdev.rs",
        "loop devices have no safe wrapper",
    ),
    (
        "crates/fuse/src/ring/idle.rs",
        "no safe function sets the priority of a thread below all others",
    ),
    (
        "crates/fuse/src/ring/memory.rs",
        "the kernel writes requests to memory that it is told of, and reads answers there",
    ),
    (
        "crates/fuse/src/ring/commands.rs",
        "commands are pushed that tell the kernel of that memory",
    ),
    (
        "crates/fuse/tests/it/syscalls.rs",
        "a confined process tries system calls that no safe function makes",
    ),
    (
        "crates/host/src/calls.rs",
        "programs that pretend owners are heard in the C library only, whose functions take pointers",
    ),
    (
        "crates/image/src/os/descriptor.rs",
        "descriptors that a process was started with are known by number only",
    ),
    (
        "crates/python/src/buffer.rs",
        "memory of Python objects is told by pointers",
    ),
    (
        "crates/python/src/inodes.rs",
        "Python is told by pointers where memory lies",
    ),
    (
        "crates/python/src/path.rs",
        "text is made of bytes by a call into Python that has no safe wrapper",
    ),
    (
        "crates/virtiofs/src/chain.rs",
        "data goes from and to the memory of a guest, which changes it meanwhile",
    ),
    (
        "crates/sync/src/backend/pointers.rs",
        "in loom's models only: pointers become numbers that loom keeps, and pointers again",
    ),
    (
        "crates/sync/src/biased.rs",
        "the biased reader lock hands out references under its own proof",
    ),
    (
        "crates/sync/src/prefetch.rs",
        "the instruction takes a pointer, which it does not follow",
    ),
    (
        "crates/sync/src/rcu_cell.rs",
        "readers follow the pointer under an epoch guard",
    ),
    (
        "crates/sync/src/rcu_map.rs",
        "readers follow pointers under an epoch guard",
    ),
    (
        "crates/testkit/src/ioctl.rs",
        "loop devices and ext4's shutdown have no safe wrapper",
    ),
    (
        "crates/wasm/src/abi.rs",
        "JavaScript finds functions by their names, and fills memory that it is told of",
    ),
];

/// Crates whose own business is locking or measuring, or that run in tests only.
pub(super) const FREE_TO_LOCK: &[&str] = &[
    "crates/sync/",
    "crates/testkit/",
    "crates/bench/",
    "crates/cli/",
    "xtask/",
];

/// Files outside those that use a plain lock or a plain shared read-modify-write.
pub(super) const LOCKS: &[(&str, &str)] = &[
    (
        "crates/python/src/ahead.rs",
        "what lies ready for a walk: the engine is entered without it",
    ),
    (
        "crates/python/src/device.rs",
        "held while Python code runs, which takes locks of its own",
    ),
    (
        "crates/python/src/file.rs",
        "the position of a file, taken before everything in the engine",
    ),
    (
        "crates/python/src/names.rs",
        "the state of an iterator of Python, for a look only",
    ),
    (
        "crates/python/src/volume.rs",
        "what is open, for a look only: the engine is entered without it",
    ),
    (
        "crates/python/src/walk.rs",
        "the state of an iterator of Python, taken out for a step",
    ),
];

/// What may start another program: of what users run, a mount and a server, which start themselves
/// again, a mount without privileges, which needs the system's helper to mount and unmount, and
/// what a user names behind `find -exec`.
pub(super) const MAY_RUN_PROGRAMS: &[&str] = &[
    "crates/testkit/",
    "crates/bench/",
    "crates/cli/src/commands/again.rs",
    "crates/cli/src/commands/find/exec.rs",
    "crates/fuse/src/attach.rs",
    "crates/fuse/src/unmount.rs",
    "xtask/",
];

/// What uses the engine through its door only.
pub(super) const ADAPTERS: &[&str] = &[
    "crates/extant/src/",
    "crates/fuse/src/",
    "crates/capi/src/",
    "crates/cli/src/",
    "crates/python/src/",
];

/// Crates that no registry gets.
pub(super) const UNPUBLISHED: &[&str] = &[
    "extant-bench",
    "extant-fuzz-targets",
    "extant-instructions",
    "extant-python",
    "extant-testkit",
    "extant-wasm",
    "xtask",
];

/// For each crate of ours, the crates of ours that it may depend on. Not listed: must not exist.
/// The testkit comes on top for tests.
pub(super) const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("extant-confine", &[]),
    ("extant-format", &[]),
    ("extant-host", &[]),
    ("extant-sync", &[]),
    ("extant-verity", &[]),
    // The trait that crash and fault devices implement is no opinion about ext4.
    ("extant-testkit", &["extant-blockdev"]),
    ("extant-blockdev", &["extant-sync"]),
    ("extant-remote", &["extant-blockdev", "extant-sync"]),
    ("extant-serve", &["extant-blockdev", "extant-sync"]),
    (
        "extant-image",
        &["extant-blockdev", "extant-formats", "extant-remote"],
    ),
    ("extant-jbd2", &["extant-format", "extant-blockdev"]),
    (
        "extant-store",
        &[
            "extant-format",
            "extant-blockdev",
            "extant-jbd2",
            "extant-sync",
        ],
    ),
    (
        "extant-core",
        &[
            "extant-format",
            "extant-blockdev",
            "extant-jbd2",
            "extant-store",
            "extant-sync",
        ],
    ),
    // An oracle must not share the engine's bugs, and a builder needs no engine.
    (
        "extant-mkfs",
        &[
            "extant-format",
            "extant-blockdev",
            "extant-host",
            "extant-sync",
            "extant-verity",
        ],
    ),
    ("extant-formats", &["extant-blockdev", "extant-sync"]),
    (
        "extant-fsck",
        &[
            "extant-format",
            "extant-blockdev",
            "extant-host",
            "extant-jbd2",
            "extant-sync",
            "extant-verity",
        ],
    ),
    (
        "extant-rescue",
        &["extant-format", "extant-blockdev", "extant-jbd2"],
    ),
    (
        "extant",
        &[
            "extant-core",
            "extant-blockdev",
            "extant-format",
            "extant-formats",
            "extant-fsck",
            "extant-host",
            "extant-image",
            "extant-mkfs",
            "extant-sync",
            "extant-verity",
        ],
    ),
    (
        "extant-fuse",
        &[
            "extant-confine",
            "extant-core",
            "extant-blockdev",
            "extant-format",
            "extant-sync",
        ],
    ),
    (
        "extant-capi",
        &[
            "extant",
            "extant-core",
            "extant-blockdev",
            "extant-format",
            "extant-fsck",
            "extant-image",
            "extant-mkfs",
            "extant-sync",
        ],
    ),
    (
        "extant-cli",
        &[
            "extant",
            "extant-blockdev",
            "extant-confine",
            "extant-core",
            "extant-format",
            "extant-formats",
            "extant-fsck",
            "extant-fuse",
            "extant-host",
            "extant-image",
            "extant-mkfs",
            "extant-remote",
            "extant-rescue",
            "extant-serve",
            "extant-virtiofs",
        ],
    ),
    (
        "extant-virtiofs",
        &["extant-fuse", "extant-serve", "extant-sync"],
    ),
    (
        "extant-python",
        &["extant", "extant-blockdev", "extant-fsck", "extant-mkfs"],
    ),
    (
        "extant-wasm",
        &[
            "extant-blockdev",
            "extant-core",
            "extant-format",
            "extant-fsck",
            "extant-sync",
        ],
    ),
    (
        "extant-fuzz-targets",
        &[
            "extant",
            "extant-blockdev",
            "extant-format",
            "extant-formats",
            "extant-fsck",
            "extant-image",
            "extant-jbd2",
            "extant-mkfs",
            "extant-remote",
            "extant-rescue",
            "extant-serve",
            "extant-verity",
        ],
    ),
    (
        "extant-instructions",
        &[
            "extant-blockdev",
            "extant-core",
            "extant-format",
            "extant-mkfs",
        ],
    ),
    (
        "extant-bench",
        &[
            "extant",
            "extant-blockdev",
            "extant-core",
            "extant-format",
            "extant-fuse",
            "extant-mkfs",
            "extant-sync",
            "extant-testkit",
        ],
    ),
];

/// The longest a Rust file may be, in lines.
pub(super) const LONGEST_FILE: usize = 800;

/// The rooms of the engine, from the lowest to the highest. A room names and calls what is below
/// it.
pub(super) const ROOMS: &[&str] = &[
    "meta",
    "volume",
    "journal",
    "alloc",
    "fs",
    "inode",
    "map",
    "quota",
    "xattr",
    "dir",
    "names",
    "data",
    "lifecycle",
    "ops",
    "mount",
];

/// Files of the engine that step up to a room above theirs, each with its reason.
pub(super) const STEPS_UP: &[(&str, &str, &str)] = &[
    (
        "fs/mod.rs",
        "inode",
        "Fs is put together from the parts of all rooms",
    ),
    (
        "fs/mod.rs",
        "quota",
        "Fs is put together from the parts of all rooms",
    ),
    (
        "fs/mod.rs",
        "xattr",
        "Fs is put together from the parts of all rooms",
    ),
    (
        "fs/mod.rs",
        "names",
        "Fs is put together from the parts of all rooms",
    ),
    (
        "fs/mod.rs",
        "data",
        "Fs is put together from the parts of all rooms",
    ),
    (
        "fs/options.rs",
        "inode",
        "options hold what rooms may be asked for",
    ),
    (
        "fs/options.rs",
        "quota",
        "options hold what rooms may be asked for",
    ),
    (
        "fs/options.rs",
        "data",
        "options hold what rooms may be asked for",
    ),
    (
        "fs/log_items.rs",
        "inode",
        "the kinds that commits carry are listed in one place",
    ),
    (
        "fs/log_items.rs",
        "quota",
        "the kinds that commits carry are listed in one place",
    ),
    (
        "fs/handle.rs",
        "inode",
        "a handle registers inodes besides what the journal knows",
    ),
    (
        "inode/live.rs",
        "quota",
        "an inode in memory holds what rooms keep for it",
    ),
    (
        "inode/live.rs",
        "xattr",
        "an inode in memory holds what rooms keep for it",
    ),
    (
        "inode/live.rs",
        "dir",
        "an inode in memory holds what rooms keep for it",
    ),
    (
        "inode/live.rs",
        "data",
        "an inode in memory holds what rooms keep for it",
    ),
    (
        "inode/load.rs",
        "data",
        "the size and times of a file are as its data in memory says",
    ),
    (
        "inode/table.rs",
        "data",
        "the size and times of a file are as its data in memory says",
    ),
    (
        "inode/bulkstat.rs",
        "data",
        "the size and times of a file are as its data in memory says",
    ),
    (
        "inode/encode.rs",
        "quota",
        "what a commit changes of inodes is what owners use",
    ),
    (
        "map/tree/store.rs",
        "quota",
        "nodes of a map count as used by the owner",
    ),
    (
        "map/status.rs",
        "data",
        "what is known of a map is kept with the file's data",
    ),
    (
        "xattr/own_inode.rs",
        "lifecycle",
        "a large value is an inode of its own",
    ),
    (
        "dir/remove.rs",
        "names",
        "a name that goes leaves the cache with it",
    ),
];
