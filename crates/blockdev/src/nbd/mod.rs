//! Exports of NBD servers as devices.
//!
//! | file | owns |
//! |---|---|
//! | `address.rs` | [`NbdAddress`], [`NbdOptions`] |
//! | `client` | the client, on Linux |
//! | `elsewhere.rs` | other systems, where every export is refused |

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "options are given, and nothing asks for them")
)]
mod address;
#[cfg(target_os = "linux")]
mod client;
#[cfg(not(target_os = "linux"))]
mod elsewhere;

pub use address::{NBD_PORT, NbdAddress, NbdOptions, NbdTransport};
#[cfg(target_os = "linux")]
pub use client::NbdDevice;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::NbdDevice;
