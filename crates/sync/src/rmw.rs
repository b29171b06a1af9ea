//! Shared atomics whose read-modify-writes are counted.
//!
//! A read-modify-write on a location that several CPUs use moves a cache line between them each
//! time; how many of them an operation makes bounds how it scales. With the `lockstat` feature
//! these types count them per class; without it they are the atomics of the standard library.

use crate::backend::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::backend::const_unless_loom;
#[cfg(feature = "lockstat")]
use crate::stat;
use std::fmt;

/// A kind of shared atomic, under whose name its read-modify-writes are counted.
#[derive(Debug)]
pub struct RmwClass {
    name: &'static str,
    #[cfg(feature = "lockstat")]
    pub(crate) stats: stat::RmwStats,
}

impl RmwClass {
    /// A class, to be kept in a `static`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            #[cfg(feature = "lockstat")]
            stats: stat::RmwStats::new(),
        }
    }

    /// The name, as it appears in statistics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    #[cfg(feature = "lockstat")]
    #[inline]
    fn count(&'static self, uses: &stat::Uses) {
        self.stats.record(self, uses.note());
    }
}

macro_rules! counted {
    ($(#[$doc:meta])* $name:ident, $atomic:ident, $value:ty, [$($op:ident: $what:literal),*]) => {
        $(#[$doc])*
        pub struct $name {
            inner: $atomic,
            #[cfg(feature = "lockstat")]
            class: &'static RmwClass,
            #[cfg(feature = "lockstat")]
            uses: stat::Uses,
        }

        impl $name {
            const_unless_loom! {
                /// An atomic of `class` that holds `value`.
                #[inline]
                #[must_use]
                pub const fn new(class: &'static RmwClass, value: $value) -> Self {
                    #[cfg(not(feature = "lockstat"))]
                    let _ = class;
                    Self {
                        inner: $atomic::new(value),
                        #[cfg(feature = "lockstat")]
                        class,
                        #[cfg(feature = "lockstat")]
                        uses: stat::Uses::new(),
                    }
                }
            }

            #[inline(always)]
            fn count(&self) {
                #[cfg(feature = "lockstat")]
                self.class.count(&self.uses);
            }

            /// The value. Not counted.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                self.inner.load(order)
            }

            /// Stores `value`. Not counted: it is not a read-modify-write.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                self.inner.store(value, order);
            }

            /// Stores `value` and returns the one before.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.count();
                self.inner.swap(value, order)
            }

            /// Stores `new` if the value is `current`.
            ///
            /// # Errors
            /// The value found, when it is another.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.count();
                self.inner.compare_exchange(current, new, success, failure)
            }

            /// As [`compare_exchange`](Self::compare_exchange), but may fail without cause.
            ///
            /// # Errors
            /// The value found.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.count();
                self.inner.compare_exchange_weak(current, new, success, failure)
            }

            $(
                #[doc = $what]
                #[inline]
                pub fn $op(&self, value: $value, order: Ordering) -> $value {
                    self.count();
                    self.inner.$op(value, order)
                }
            )*

            /// The value, when nobody else can use it.
            #[cfg(not(feature = "loom"))]
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.inner.get_mut()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.inner.fmt(f)
            }
        }
    };
}

macro_rules! counted_integer {
    ($(#[$doc:meta])* $name:ident, $atomic:ident, $value:ty) => {
        counted!($(#[$doc])* $name, $atomic, $value, [
            fetch_add: "Adds `value`, wrapping around, and returns the value before.",
            fetch_sub: "Subtracts `value`, wrapping around, and returns the value before.",
            fetch_and: "Keeps the bits that are also in `value`; returns the value before.",
            fetch_or: "Sets the bits of `value`; returns the value before.",
            fetch_max: "Raises to at least `value`; returns the value before.",
            fetch_min: "Lowers to at most `value`; returns the value before."
        ]);
    };
}

counted_integer!(
    /// An `AtomicU64` whose read-modify-writes are counted.
    CountedAtomicU64, AtomicU64, u64
);
counted_integer!(
    /// An `AtomicU32` whose read-modify-writes are counted.
    CountedAtomicU32, AtomicU32, u32
);
counted_integer!(
    /// An `AtomicI64` whose read-modify-writes are counted.
    CountedAtomicI64, AtomicI64, i64
);
counted_integer!(
    /// An `AtomicUsize` whose read-modify-writes are counted.
    CountedAtomicUsize, AtomicUsize, usize
);
counted!(
    /// An `AtomicBool` whose read-modify-writes are counted.
    CountedAtomicBool, AtomicBool, bool, [
        fetch_and: "Logical and with `value`; returns the value before.",
        fetch_or: "Logical or with `value`; returns the value before.",
        fetch_xor: "Logical exclusive or with `value`; returns the value before."
    ]
);
