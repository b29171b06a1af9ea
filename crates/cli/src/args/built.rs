//! What the program was built of.

/// The version, and what the build script found out, as `--version` tells it.
pub(super) const TEXT: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit: ",
    env!("EXTANT_COMMIT"),
    "\ntarget: ",
    env!("EXTANT_TARGET"),
    "\nfeatures: ",
    env!("EXTANT_FEATURES"),
);
