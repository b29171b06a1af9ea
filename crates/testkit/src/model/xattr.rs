//! Values of extended attributes.

/// Returns the value that [`Op::SetXattr`](super::Op::SetXattr) gives: it says the name and the
/// length, so that no other is taken for it.
pub fn xattr_value(name: &str, len: usize) -> Vec<u8> {
    let text = format!("{name}:{len};");
    text.bytes().cycle().take(len).collect()
}
