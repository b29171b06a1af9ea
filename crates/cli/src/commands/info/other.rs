//! What is no ext4 file system, and is known by its marks.

use crate::failure::Outcome;
use crate::output::Output;
use crate::size::human;
use extant_blockdev::Content;
use extant_image::Container;
use serde::Serialize;
use std::io::Write;

/// A format of images that a disk lies in.
#[derive(Debug, Serialize)]
pub(super) struct Carried {
    format: &'static str,
    size: u64,
}

impl From<Container> for Carried {
    fn from(container: Container) -> Self {
        Self {
            format: container.word,
            size: container.size,
        }
    }
}

impl Carried {
    pub(super) fn print(&self, output: &mut Output) -> std::io::Result<()> {
        writeln!(
            output,
            "{:<14}{}, {}",
            "Container:",
            self.format,
            human(self.size)
        )
    }
}

/// Content that is recognised, and nothing that is opened here.
#[derive(Debug, Serialize)]
pub(super) struct Other {
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Carried>,
    content: String,
    description: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    size: u64,
}

impl Other {
    /// `None` where the content does not say what it is, or should have opened.
    pub(super) fn of(content: Content, size: u64, container: Option<Carried>) -> Option<Self> {
        let says_nothing = matches!(
            content,
            Content::Empty | Content::Zeros | Content::Text | Content::Unknown
        );
        (!says_nothing && !content.is_ext()).then(|| Self {
            container,
            content: word(content),
            description: content.name(),
            advice: content.advice(),
            size,
        })
    }

    pub(super) fn print(&self, output: &mut Output) -> Outcome {
        if let Some(container) = &self.container {
            container.print(output)?;
        }
        writeln!(output, "{:<14}{}", "Content:", self.description)?;
        writeln!(output, "{:<14}{}", "Size:", human(self.size))?;
        if let Some(advice) = self.advice {
            writeln!(output, "{:<14}{advice}", "To use it:")?;
        }
        Ok(())
    }
}

/// The word of a kind of content for programs: `luks`, `android-sparse`.
pub(super) fn word(content: Content) -> String {
    let mut word = String::new();
    let mut was_small = false;
    for c in format!("{content:?}").chars() {
        if c.is_ascii_uppercase() && was_small {
            word.push('-');
        }
        was_small = c.is_ascii_lowercase();
        word.push(c.to_ascii_lowercase());
    }
    word
}
