//! Comparing names.

use extant_format::dir::fold_name;
use std::cell::OnceCell;

/// A name that is looked for.
pub(super) struct Wanted<'a> {
    name: &'a [u8],
    /// The folded name, where case does not matter and the name has a folded form.
    folded: Option<Vec<u8>>,
    /// How the name that was found is written, if it is another one.
    stored: OnceCell<Vec<u8>>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(name: &'a [u8], casefolded: bool) -> Self {
        Self {
            name,
            folded: if casefolded { fold_name(name) } else { None },
            stored: OnceCell::new(),
        }
    }

    pub(super) fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Returns the name, if no other name matches it.
    pub(super) fn exact(&self) -> Option<&'a [u8]> {
        self.folded.is_none().then_some(self.name)
    }

    /// Tells whether a stored name is the one.
    #[inline]
    pub(super) fn is(&self, stored: &[u8]) -> bool {
        if stored == self.name {
            return true;
        }
        match &self.folded {
            None => false,
            Some(folded) => {
                let is_same = fold_name(stored).is_some_and(|stored| stored == *folded);
                if is_same {
                    // A directory has one such name.
                    let _ = self.stored.set(stored.to_vec());
                }
                is_same
            }
        }
    }

    /// Returns how the name is written that was found.
    pub(super) fn into_stored(self) -> Vec<u8> {
        self.stored
            .into_inner()
            .unwrap_or_else(|| self.name.to_vec())
    }
}
