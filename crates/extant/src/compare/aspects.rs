//! What is compared.

/// What is compared besides names and kinds.
///
/// Made from [`Aspects::ALL`] or [`Aspects::NONE`], changed field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Aspects {
    /// The bytes of regular files, and the targets of symbolic links.
    pub content: bool,
    /// Permissions, with set-ID and sticky bits, of everything but symbolic links.
    pub modes: bool,
    /// Owner and group.
    pub owners: bool,
    /// The time of the last change of the content: to the nanosecond where both sides keep that,
    /// and to the second otherwise.
    pub times: bool,
    /// Extended attributes, access control lists and capabilities among them.
    pub xattrs: bool,
    /// Which names stand for one file.
    pub links: bool,
    /// Numbers of device nodes.
    pub devices: bool,
    /// Projects, between images.
    pub projects: bool,
    /// Flags of `chattr`, between images: not those that say how a file is stored.
    pub flags: bool,
    /// Where the content of regular files lies, between images.
    pub layout: bool,
}

impl Aspects {
    /// Everything but the layout, which two images of the same files need not share.
    pub const ALL: Self = Self {
        content: true,
        modes: true,
        owners: true,
        times: true,
        xattrs: true,
        links: true,
        devices: true,
        projects: true,
        flags: true,
        layout: false,
    };
    /// Nothing but names and kinds.
    pub const NONE: Self = Self {
        content: false,
        modes: false,
        owners: false,
        times: false,
        xattrs: false,
        links: false,
        devices: false,
        projects: false,
        flags: false,
        layout: false,
    };
}
