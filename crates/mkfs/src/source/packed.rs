//! How an archive is compressed, and reading what is in it.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Log2 of the largest zstd window, which bounds the decoder's memory (128 MiB; what
/// `zstd --long` makes).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Most bytes an xz decoder may take: what `xz -9` needs, and twice that again.
#[cfg(feature = "xz")]
const XZ_MEMORY: u64 = 192 << 20;

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    Lz4,
    /// Something that is known by name only.
    Other(&'static str),
}

impl Packing {
    /// What the first bytes say.
    pub(super) fn of(magic: &[u8]) -> Self {
        match magic {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a frame to skip before one.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            [0x1f, 0x9d, ..] => Self::Other("compress"),
            [b'L', b'Z', b'I', b'P', ..] => Self::Other("lzip"),
            _ => Self::Plain,
        }
    }

    /// The name of the program that makes it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "nothing",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
            Self::Other(name) => name,
        }
    }

    /// Reads what is compressed in `stream`, to its end: whatever follows the last piece of
    /// compressed data is an error.
    pub(super) fn reader(
        self,
        stream: impl BufRead + Send + 'static,
    ) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Plain => Box::new(stream),
            Self::Gzip => Box::new(Gunzip(Some(GzDecoder::new(stream)))),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            #[cfg(feature = "xz")]
            Self::Xz => {
                use liblzma::stream::{CONCATENATED, Stream};
                let decoder = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(stream, decoder))
            }
            #[cfg(feature = "bzip2")]
            Self::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(stream)),
            #[cfg(feature = "lz4")]
            Self::Lz4 => Box::new(Lz4Frames(lz4_flex::frame::FrameDecoder::new(stream))),
            #[cfg(not(feature = "xz"))]
            Self::Xz => return Err(self.not_understood()),
            #[cfg(not(feature = "bzip2"))]
            Self::Bzip2 => return Err(self.not_understood()),
            #[cfg(not(feature = "lz4"))]
            Self::Lz4 => return Err(self.not_understood()),
            Self::Other(_) => return Err(self.not_understood()),
        })
    }

    fn not_understood(self) -> io::Error {
        let what = self.name();
        io::Error::other(format!(
            "compressed with {what}, which this build does not read (decompress it into a pipe)"
        ))
    }
}

/// Decompresses all members of a gzip file, one after the other. Zeros may follow the last, and
/// nothing else.
struct Gunzip<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.0 {
            match decoder.read(buf)? {
                0 if !buf.is_empty() => {}
                n => return Ok(n),
            }
            let Some(mut rest) = self.0.take().map(GzDecoder::into_inner) else {
                break;
            };
            if rest.fill_buf()?.first() == Some(&0x1f) {
                self.0 = Some(GzDecoder::new(rest));
                continue;
            }
            loop {
                let bytes = rest.fill_buf()?;
                if bytes.iter().any(|&byte| byte != 0) {
                    let problem = "other data follows what gzip has written";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
                match bytes.len() {
                    0 => return Ok(0),
                    len => rest.consume(len),
                }
            }
        }
        Ok(0)
    }
}

/// Decompresses all frames of an lz4 file, one after the other.
#[cfg(feature = "lz4")]
struct Lz4Frames<R: Read>(lz4_flex::frame::FrameDecoder<R>);

#[cfg(feature = "lz4")]
impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buf)? {
                0 if !buf.is_empty() => {}
                n => return Ok(n),
            }
            // The end of a frame, or a block with nothing in it: of the two only the first may be
            // the last thing there is, which the decoder tells when it is asked again.
            if self.0.get_mut().fill_buf()?.is_empty() {
                return self.0.read(buf);
            }
        }
    }
}
