//! The allocator of the programs, and how long it keeps memory that nothing uses.
//!
//! New memory costs a fault for each page when it is touched first, and a fault is a large part of
//! what it takes to bring the eight inodes that fit there into memory. Caches under a budget give
//! memory back and want as much again, often within seconds, so free memory stays with the process
//! for some time, after which it goes when memory is asked for, or [`give_back`] is called;
//! `MIMALLOC_PURGE_DELAY` of the environment counts first.
//!
//! Of a command that takes milliseconds, faults are the larger part. So as little as possible is
//! touched to set the allocator up, and nothing is given back at the end, when all of it goes.

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long memory is free before the system gets it back, in milliseconds. The allocator's own
/// choice is a second.
const KEPT_MS: c_long = 5_000;
/// `mi_option_purge_delay` of `mimalloc.h`, to which the crate gives no name.
const PURGE_DELAY: c_int = 15;

/// How much address space the allocator takes at once, in KiB. It keeps maps of all of that, which
/// are touched at the first use. Its own choice is four times as much; it takes more and more as
/// that fills.
const RESERVED_KIB: c_long = 256 << 10;
/// `mi_option_arena_reserve` of `mimalloc.h`, to which the crate gives no name.
const ARENA_RESERVE: c_int = 23;

// SAFETY: as `mimalloc.h` declares them; they take numbers by value, and check that there is such
// an option.
unsafe extern "C" {
    safe fn mi_option_set(option: c_int, value: c_long);
    safe fn mi_option_set_default(option: c_int, value: c_long);
    safe fn mi_collect(force: bool);
    #[cfg(test)]
    safe fn mi_option_get(option: c_int) -> c_long;
    #[cfg(test)]
    safe fn mi_option_get_size(option: c_int) -> usize;
}

/// Runs before all other code of the program: by its number, before that of the allocator.
#[used]
#[unsafe(link_section = ".init_array.00099")]
static FIRST: extern "C" fn() = prepare;

/// The allocator asks for huge pages, of which file data and metadata use a part. In a virtual
/// machine that gives free memory back, each of them costs its host hundreds of faults: writing to
/// memory was four times as slow. The first ones were a large part of the time of a short command.
extern "C" fn prepare() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    mi_option_set_default(ARENA_RESERVE, RESERVED_KIB);
}

/// Sets up the allocator; to be called first.
pub(crate) fn set_up() {
    mi_option_set_default(PURGE_DELAY, KEPT_MS);
}

/// Has the allocator leave memory as it is when the program ends, which is to be next: the system
/// takes all of it back at once.
pub(crate) fn leave_all() {
    mi_option_set(PURGE_DELAY, -1);
}

/// Gives the system what has been free for as long as it is kept, or all that is free.
pub(crate) fn give_back(all: bool) {
    // It does nothing for a thread that has not asked for memory yet.
    drop(std::hint::black_box(Box::new(0_u8)));
    mi_collect(all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_that_are_meant() {
        if std::env::var_os("MIMALLOC_ARENA_RESERVE").is_none() {
            assert_eq!(mi_option_get(ARENA_RESERVE), RESERVED_KIB);
            assert_eq!(
                mi_option_get_size(ARENA_RESERVE),
                RESERVED_KIB as usize * 1024
            );
        }
    }

    #[test]
    fn free_memory_is_kept_for_seconds() {
        let delay = || mi_option_get(PURGE_DELAY);
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
            assert_eq!(delay(), 1000, "another option than was meant");
            set_up();
            assert_eq!(delay(), KEPT_MS);
        }
    }
}
