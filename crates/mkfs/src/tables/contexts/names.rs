//! Files with several names: the first name decides, whatever is said of it.

use super::Label;

/// What is found out about the names of files while they are labelled.
#[derive(Debug, Default)]
pub struct Names {
    unlabelled: Option<(String, u64)>,
    different: Option<(String, u64)>,
}

impl Names {
    /// Notes what the contexts say of one name of a file, and returns whether the file is to get
    /// it: only its first name decides. `first` is what they say of that one; it is `None` before,
    /// and set then. `path` is what sentences call the file.
    pub fn note(
        &mut self,
        first: &mut Option<Label>,
        found: Label,
        path: impl FnOnce() -> String,
    ) -> bool {
        match first {
            None => {
                if found == Label::Unnamed {
                    count(&mut self.unlabelled, path);
                }
                *first = Some(found);
                return true;
            }
            Some(first) if *first != found => count(&mut self.different, path),
            Some(_) => {}
        }
        false
    }

    /// Returns sentences about files that no line names, and about names that differ.
    #[must_use]
    pub fn sentences(self) -> Vec<String> {
        let unlabelled = self.unlabelled.map(|(path, count)| {
            format!(
                "{} no context: no line of the contexts names it",
                so_many(&path, count)
            )
        });
        let different = self.different.map(|(path, count)| {
            format!(
                "{} names with different contexts: the first name decides",
                so_many(&path, count)
            )
        });
        unlabelled.into_iter().chain(different).collect()
    }
}

fn count(about: &mut Option<(String, u64)>, path: impl FnOnce() -> String) {
    about.get_or_insert_with(|| (path(), 0)).1 += 1;
}

fn so_many(path: &str, count: u64) -> String {
    match count {
        1 => format!("{path} has"),
        _ => format!("{count} files have (one is {path})"),
    }
}
