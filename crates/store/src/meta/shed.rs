//! Which memory is given up.

/// Names the memory to free, of all whose content can be had from the device again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// What nobody used since it was last asked.
    Unused,
    /// What nobody uses now. File data that only memory has is written first.
    All,
}
