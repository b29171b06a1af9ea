//! The library as a whole, failures, and tokens that end work.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use crate::call::{done, kind, message};
use crate::pointers::{give, object, taken};
use crate::watch::Token;
use std::ffi::{c_char, c_int};

#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn extant_message() -> *const c_char {
    message()
}

#[unsafe(no_mangle)]
pub extern "C" fn extant_error_kind() -> u32 {
    kind()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_token_new(token: *mut *mut Token) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { give(token, || Ok(Token::default())) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_token_cancel(token: *const Token) {
    done(|| {
        // SAFETY: as the header asks of callers.
        unsafe { object(token)? }.cancel();
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_token_close(token: *mut Token) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(token) });
        Ok(())
    });
}
