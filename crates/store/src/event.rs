//! What the engine tells of while it runs, for programs that listen through `tracing`.
//!
//! With the feature `tracing` an event is one of that crate. Without the feature nothing is
//! compiled for it: no text is made, and no value is looked at.

#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;

/// Tells of something: a level (`error`, `warn`, `info` or `debug`), then fields and text as the
/// macros of `tracing` take them.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        $crate::event::tracing::$level!($($what)+)
    };
}

/// Tells of something: a level (`error`, `warn`, `info` or `debug`), then fields and text as the
/// macros of `tracing` take them.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        // Never run, but compiled: what is named here counts as used, and has to be right.
        if false {
            $crate::untold!($($what)+);
        }
    };
}

/// Takes what an event has, field by field, and does nothing with it.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! untold {
    (%$field:ident, $($rest:tt)+) => {
        $crate::untold!($field = $field, $($rest)+)
    };
    ($field:ident = %$value:expr, $($rest:tt)+) => {
        $crate::untold!($field = $value, $($rest)+)
    };
    ($field:ident = $value:expr, $($rest:tt)+) => {
        let _ = &$value;
        $crate::untold!($($rest)+)
    };
    ($field:ident, $($rest:tt)+) => {
        $crate::untold!($field = $field, $($rest)+)
    };
    ($($text:tt)+) => {
        let _ = ::core::format_args!($($text)+);
    };
}
