//! Mode bits, file types and device numbers.

use core::fmt;

/// The type of a file, as the top four mode bits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// Returns the type bits in a mode word.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Returns the type a mode word names, or `None` for a number no file type has.
    #[must_use]
    pub const fn from_mode_bits(mode: u16) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns whether this is a character or block device node.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// The mode word of an inode: file type, set-id and sticky bits, permissions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mode(u16);

impl Mode {
    /// Returns the mode word as stored.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Makes a mode of a type and permission bits (`0o7777` at most; others are dropped).
    #[must_use]
    pub const fn new(file_type: FileType, permissions: u16) -> Self {
        Self(file_type.mode_bits() | (permissions & 0o7777))
    }

    /// Returns the word as stored.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the set-id, sticky and permission bits: the lower twelve.
    #[must_use]
    pub const fn permissions(self) -> u16 {
        self.0 & 0o7777
    }

    /// Returns the file type, or `None` when the bits name none.
    #[must_use]
    pub const fn file_type(self) -> Option<FileType> {
        FileType::from_mode_bits(self.0)
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mode({:#o})", self.0)
    }
}

/// The number of a device node.
///
/// Small numbers are stored in the old 16-bit form in the first map word, others in the wide form
/// in the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// The driver: 12 bits on disk.
    pub major: u32,
    /// The unit: 20 bits on disk.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes the first two words of an inode's map.
    #[must_use]
    pub const fn decode(old: u32, wide: u32) -> Self {
        if old != 0 {
            Self {
                major: (old >> 8) & 0xff,
                minor: old & 0xff,
            }
        } else {
            Self {
                major: (wide >> 8) & 0xfff,
                minor: (wide & 0xff) | ((wide >> 12) & 0xf_ff00),
            }
        }
    }

    /// Returns the first two words of an inode's map, or `None` for numbers the format cannot hold.
    #[must_use]
    pub const fn encode(self) -> Option<(u32, u32)> {
        if self.major < 256 && self.minor < 256 {
            Some(((self.major << 8) | self.minor, 0))
        } else if self.major < 1 << 12 && self.minor < 1 << 20 {
            Some((
                0,
                (self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12),
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_device_numbers_use_the_old_form() {
        let null = DeviceNumber { major: 1, minor: 3 };
        assert_eq!(null.encode(), Some((0x0103, 0)));
        let wide = DeviceNumber {
            major: 259,
            minor: 0x1_2345,
        };
        assert_eq!(wide.encode(), Some((0, 0x1231_0345)));
        assert_eq!(
            DeviceNumber {
                major: 4096,
                minor: 0
            }
            .encode(),
            None
        );
    }

    #[test]
    fn a_mode_without_a_known_type_has_none() {
        assert_eq!(Mode::from_bits(0o644).file_type(), None);
        assert_eq!(
            Mode::new(FileType::Symlink, 0o777).file_type(),
            Some(FileType::Symlink)
        );
    }

    proptest! {
        #[test]
        fn device_numbers_survive(major in 0u32..4096, minor in 0u32..1 << 20) {
            let number = DeviceNumber { major, minor };
            let (old, wide) = number.encode().unwrap();
            prop_assert_eq!(DeviceNumber::decode(old, wide), number);
        }
    }
}
