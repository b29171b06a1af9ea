//! What images are said to be: `--image-format`.

use super::Whereabouts;
use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_image::{ImageFormat, ImageLocation};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A format that is said of every image of a command, or of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaidFormat {
    /// The image as it is written in its operand; every one if `None`.
    pub(crate) image: Option<OsString>,
    pub(crate) format: ImageFormat,
}

impl SaidFormat {
    /// Reads `FORMAT` or `IMAGE=FORMAT`.
    pub(super) fn read(text: OsString) -> Result<Self, String> {
        let format = |word: &[u8]| String::from_utf8_lossy(word).parse();
        let whole = match format(text.as_bytes()) {
            Ok(format) => {
                return Ok(Self {
                    image: None,
                    format,
                });
            }
            Err(e) => e,
        };
        let end = text.as_bytes().iter().rposition(|byte| *byte == b'=');
        let Some((image, word)) = end
            .filter(|end| *end > 0)
            .map(|at| text.as_bytes().split_at(at))
        else {
            return Err(whole.to_string());
        };
        Ok(Self {
            format: format(word.get(1..).unwrap_or_default()).map_err(|e| e.to_string())?,
            image: Some(OsStr::from_bytes(image).to_owned()),
        })
    }
}

impl Whereabouts {
    /// The format that is said of an image: of it alone, or else of all.
    pub(crate) fn format_of(&self, image: &ImageLocation) -> Option<ImageFormat> {
        let last = |of: Option<&OsStr>| {
            let mut said = self.image_format.iter().rev();
            said.find(|said| said.image.as_deref() == of)
        };
        let said = last(Some(image.address())).or_else(|| last(None));
        said.map(|said| said.format)
    }

    /// Refuses formats of images that are not there: with a slip in the name, what an image is
    /// would be seen from its content after all.
    pub(crate) fn refuse_formats_of_none(&self, args: &[OsString]) -> Outcome {
        let names = |arg: &OsStr, image: &OsStr| {
            ImageLocation::split(arg).is_ok_and(|(found, _)| found.address() == image)
        };
        for image in self
            .image_format
            .iter()
            .filter_map(|said| said.image.as_deref())
        {
            let is_named = args.iter().any(|arg| {
                let value = arg.as_bytes().splitn(2, |byte| *byte == b'=').nth(1);
                let is_option = arg.as_bytes().starts_with(b"--");
                let value = value.filter(|_| is_option).map(OsStr::from_bytes);
                names(arg, image) || value.is_some_and(|value| names(value, image))
            });
            if !is_named {
                return Err(Failure::usage(format!(
                    "--image-format {}=...: no image of this command is called so: write it as in \
                     its operand",
                    Escaped(image.as_bytes())
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Option<String>, &'static str), String> {
        SaidFormat::read(text.into()).map(|said| {
            let image = said.image.map(|image| image.display().to_string());
            (image, said.format.word())
        })
    }

    #[test]
    fn a_format_is_said_of_all_images_or_of_one() {
        assert_eq!(read("raw"), Ok((None, "raw")));
        let of = |image: &str| Some(image.to_owned());
        assert_eq!(read("disk=qcow2"), Ok((of("disk"), "qcow2")));
        assert_eq!(read("a=b=vhd-fixed"), Ok((of("a=b"), "vhd-fixed")));
        for wrong in ["", "vdi", "=raw", "disk=", "disk=vdi", "raw=disk"] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains("use one of raw, qcow2"), "{error}");
        }
    }

    #[test]
    fn what_is_said_of_one_image_goes_before_what_is_said_of_all() {
        let place = Whereabouts {
            image_format: ["raw", "b=qcow2", "fd:3=vhd"]
                .map(|text| SaidFormat::read(text.into()).expect("a format"))
                .to_vec(),
            ..Whereabouts::default()
        };
        let of = |text: &str| {
            let image = ImageLocation::parse(text).expect("an image");
            place.format_of(&image).map(ImageFormat::word)
        };
        assert_eq!(
            (of("a"), of("b"), of("fd:3#2")),
            (Some("raw"), Some("qcow2"), Some("vhd"))
        );
        let refused = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            place.refuse_formats_of_none(&args).is_err()
        };
        assert!(!refused(&["cp", "b:/x", "fd:3#2:/y"]));
        assert!(!refused(&["ls", "b", "--journal=fd:3"]));
        assert!(refused(&["cp", "b:/x", "fd:4:/y"]));
        assert!(refused(&["ls", "fd:3", "--image-format", "b=qcow2"]));
    }
}
