//! Fields of two superblocks.

use crate::commands::e2fsprogs::header;
use crate::failure::Outcome;
use extant::Filesystem;
use std::collections::HashMap;

/// A field with the two values; none where a superblock does not have it.
pub(super) struct Field {
    pub(super) name: String,
    pub(super) values: [Option<String>; 2],
}

/// The fields that differ, as `dumpe2fs` names them.
pub(super) fn differences(first: &Filesystem, second: &Filesystem) -> Outcome<Vec<Field>> {
    let (first, second) = (fields(first)?, fields(second)?);
    let mut of_second: HashMap<&str, &str> = HashMap::new();
    for (name, value) in &second {
        of_second.insert(name, value);
    }
    let mut told = Vec::new();
    for (name, value) in &first {
        let other = of_second.remove(&**name);
        if other != Some(value) {
            told.push(Field {
                name: name.clone(),
                values: [Some(value.clone()), other.map(str::to_owned)],
            });
        }
    }
    for (name, value) in &second {
        if of_second.contains_key(&**name) {
            told.push(Field {
                name: name.clone(),
                values: [None, Some(value.clone())],
            });
        }
    }
    Ok(told)
}

/// Names and values, in their order.
fn fields(fs: &Filesystem) -> Outcome<Vec<(String, String)>> {
    let mut text = Vec::new();
    header::write(&mut text, fs.engine().superblock())?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect())
}
