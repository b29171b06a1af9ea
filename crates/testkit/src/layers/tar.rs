//! Archives by hand, member by member, also such that no program writes.

/// An archive in the making. Members have mode 0644, the owner 1:2 and the time 1000, unless
/// records before them say something else.
#[derive(Debug, Clone, Default)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    /// Begins an archive.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// Begins an archive with its root directory.
    pub fn layer() -> Self {
        Self::new().member("./", b'5', "", b"")
    }

    /// Makes the header of a member.
    ///
    /// # Panics
    ///
    /// When a name does not fit.
    pub fn header(name: &[u8], kind: u8, link: &[u8], size: u64) -> [u8; 512] {
        let mut h = [0u8; 512];
        h[..name.len()].copy_from_slice(name);
        h[100..108].copy_from_slice(b"0000644\0");
        h[108..116].copy_from_slice(b"0000001\0");
        h[116..124].copy_from_slice(b"0000002\0");
        h[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        h[136..148].copy_from_slice(b"00000001750\0");
        h[156] = kind;
        h[157..157 + link.len()].copy_from_slice(link);
        h[257..265].copy_from_slice(b"ustar\x0000");
        Self::seal(&mut h);
        h
    }

    /// Computes the checksum of a header.
    ///
    /// # Panics
    ///
    /// When it has fewer than 512 bytes.
    pub fn seal(h: &mut [u8]) {
        h[148..156].fill(b' ');
        let sum: u32 = h[..512].iter().map(|&b| u32::from(b)).sum();
        h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    /// Adds a member of a kind.
    #[must_use]
    pub fn member(mut self, name: &str, kind: u8, link: &str, data: &[u8]) -> Self {
        let header = Self::header(name.as_bytes(), kind, link.as_bytes(), data.len() as u64);
        self.0.extend(header);
        self.data(data)
    }

    /// Adds a member with another mode and owner than all have.
    ///
    /// # Panics
    ///
    /// When the name or a number does not fit.
    #[must_use]
    pub fn owned(mut self, name: &str, kind: u8, mode: u32, owner: u32, data: &[u8]) -> Self {
        let mut header = Self::header(name.as_bytes(), kind, b"", data.len() as u64);
        header[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
        header[108..116].copy_from_slice(format!("{owner:07o}\0").as_bytes());
        Self::seal(&mut header);
        self.0.extend(header);
        self.data(data)
    }

    /// Adds the content of a member, and fills its last block.
    #[must_use]
    pub fn data(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Adds a regular file.
    #[must_use]
    pub fn file(self, name: &str, data: &[u8]) -> Self {
        self.member(name, b'0', "", data)
    }

    /// Adds a directory.
    #[must_use]
    pub fn dir(self, name: &str) -> Self {
        self.member(name, b'5', "", b"")
    }

    /// Adds a hard link.
    #[must_use]
    pub fn link(self, name: &str, target: &str) -> Self {
        self.member(name, b'1', target, b"")
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.member(name, b'2', target, b"")
    }

    /// Adds a character device.
    ///
    /// # Panics
    ///
    /// When the name does not fit.
    #[must_use]
    pub fn device(mut self, name: &str, major: u32, minor: u32) -> Self {
        let mut header = Self::header(name.as_bytes(), b'3', b"", 0);
        header[329..337].copy_from_slice(format!("{major:07o}\0").as_bytes());
        header[337..345].copy_from_slice(format!("{minor:07o}\0").as_bytes());
        Self::seal(&mut header);
        self.0.extend(header);
        self
    }

    /// Adds records about the next member (`x`), or about all that follow (`g`).
    #[must_use]
    pub fn pax(self, kind: u8, records: &[(&str, &str)]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            let bare = key.len() + value.len() + 3;
            let mut len = bare + 1;
            while len != bare + len.to_string().len() {
                len = bare + len.to_string().len();
            }
            body.extend(format!("{len} {key}={value}\n").as_bytes());
        }
        self.member("pax", kind, "", &body)
    }

    /// Ends the archive.
    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}
