//! One manual page, in roff.

use super::text::{Block, Row};
use roff::{Inline, Roff, bold, italic, roman};

/// A manual page as it grows.
pub(super) struct Page {
    roff: Roff,
}

impl Page {
    /// Begins the page of a command in section 1.
    pub(super) fn new(title: &str, date: &str, version: &str) -> Self {
        let mut roff = Roff::new();
        let source = format!("extant {version}");
        let title = title.to_uppercase();
        roff.control("TH", [title.as_str(), "1", date, &source, "Extant Manual"]);
        // Commands are typed: no word of them is divided, and no line is stretched.
        roff.control("nh", []);
        roff.control("ad", ["l"]);
        Self { roff }
    }

    /// Begins a section.
    pub(super) fn section(&mut self, name: &str) {
        self.roff.control("SH", [name.to_uppercase().as_str()]);
    }

    /// Begins a part of a section.
    pub(super) fn subsection(&mut self, name: &str) {
        self.roff.control("SS", [name]);
    }

    /// Adds one line of text to the paragraph.
    pub(super) fn text(&mut self, text: &str) {
        self.roff.text([roman(text)]);
    }

    /// Begins a paragraph with a text.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.roff.control("PP", []);
        self.text(text);
    }

    /// Adds lines that are not filled.
    pub(super) fn lines<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        self.roff.control("PP", []);
        self.roff.control("RS", ["4"]);
        self.roff.control("nf", []);
        for line in lines {
            self.text(line);
        }
        self.roff.control("fi", []);
        self.roff.control("RE", []);
    }

    /// Adds a term and the paragraphs that explain it.
    pub(super) fn item<'a>(&mut self, term: &str, meaning: impl IntoIterator<Item = &'a str>) {
        self.styled_item(vec![bold(term)], meaning);
    }

    /// Adds an option, with what it takes, and the paragraphs that explain it.
    pub(super) fn option<'a>(
        &mut self,
        names: &str,
        value: &str,
        meaning: impl IntoIterator<Item = &'a str>,
    ) {
        let mut term = Vec::new();
        if !names.is_empty() {
            term.push(bold(names));
        }
        if !names.is_empty() && !value.is_empty() {
            term.push(roman(" "));
        }
        if !value.is_empty() {
            term.push(italic(value));
        }
        self.styled_item(term, meaning);
    }

    fn styled_item<'a>(&mut self, term: Vec<Inline>, meaning: impl IntoIterator<Item = &'a str>) {
        self.roff.control("TP", []);
        self.roff.text(term);
        for (number, paragraph) in meaning.into_iter().enumerate() {
            if number > 0 {
                self.roff.control("IP", []);
            }
            self.text(paragraph);
        }
    }

    pub(super) fn list(&mut self, rows: &[Row]) {
        for (term, meaning) in rows {
            self.item(term, [meaning.as_str()]);
        }
    }

    /// Adds a block of the text of a command.
    pub(super) fn block(&mut self, block: &Block) {
        match block {
            Block::Paragraph(text) => self.paragraph(text),
            Block::List { heading, rows } => {
                self.subsection(heading);
                self.list(rows);
            }
            Block::Lines { heading, lines } => {
                self.paragraph(&format!("{heading}:"));
                self.lines(lines.iter().map(String::as_str));
            }
        }
    }

    /// Names other pages, with their sections.
    pub(super) fn references(&mut self, pages: &[(String, &str)]) {
        let mut line = Vec::new();
        for (number, (name, section)) in pages.iter().enumerate() {
            if number > 0 {
                line.push(roman(", "));
            }
            line.push(bold(name.as_str()));
            line.push(roman(format!("({section})")));
        }
        self.roff.text(line);
    }

    pub(super) fn finish(self) -> String {
        self.roff.render()
    }
}
