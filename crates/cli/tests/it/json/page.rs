//! The page about JSON: its tables say what the schema says.

use super::held::{definitions, document, form, is_command, referred, schema};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A row of a table, without what is around its cells.
type Row = Vec<String>;

/// The page, by its headings.
fn sections() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(document("json.md")).expect("the page");
    let mut sections = BTreeMap::new();
    for part in text.split("\n#").skip(1) {
        let (heading, content) = part.split_once('\n').expect("a heading");
        let name = heading.trim_start_matches('#').trim().trim_matches('`');
        let twice = sections.insert(name.to_owned(), content.to_owned());
        assert!(twice.is_none(), "{name} is there twice");
    }
    sections
}

/// The rows of the table in a section in the order of their first cells, without the heading.
fn rows(section: &str) -> Vec<Row> {
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut rows: Vec<Row> = rows
        .map(|line| {
            let cells = line
                .trim_start_matches('|')
                .strip_suffix('|')
                .expect("a row");
            cells
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect();
    rows.sort();
    rows
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Words as a cell lists them.
fn words(list: &Value) -> String {
    let words = list.as_array().expect("words").iter();
    let quoted = words.map(|word| format!("`{}`", text(word)));
    quoted.collect::<Vec<_>>().join(", ")
}

/// What a cell calls a type.
fn word_for(schema: &Value, all: &serde_json::Map<String, Value>) -> String {
    if let Some(name) = referred(schema) {
        return if all[name]["type"] == "object" {
            format!("[{name}](#{name})")
        } else {
            name.to_owned()
        };
    }
    if let Some(list) = schema.get("enum") {
        return words(list);
    }
    match schema.get("const") {
        Some(Value::String(word)) => return format!("`{word}`"),
        Some(value) => return format!("`{value}`"),
        None => {}
    }
    if let Some(either) = schema.get("oneOf") {
        assert_eq!(either[1]["type"], "null", "{schema}");
        return format!("{} or null", word_for(&either[0], all));
    }
    match text(&schema["type"]) {
        "array" if schema["items"]["type"] == "object" => "list".to_owned(),
        "array" => format!("list of {}", word_for(&schema["items"], all)),
        "object" if schema.get("properties").is_none() => {
            format!("map of {}", word_for(&schema["additionalProperties"], all))
        }
        simple => simple.to_owned(),
    }
}

/// The rows that the table of an object has to have.
fn expected(at: &str, object: &Value, all: &serde_json::Map<String, Value>, rows: &mut Vec<Row>) {
    let required: BTreeSet<&str> = object["required"]
        .as_array()
        .expect("a list")
        .iter()
        .map(text)
        .collect();
    for (field, schema) in object["properties"].as_object().expect("fields") {
        let at = format!("{at}{field}");
        let about = text(&schema["description"]);
        let (meaning, absent) = match about.rsplit_once(" Absent ") {
            Some((meaning, absent)) if !required.contains(field.as_str()) => {
                let absent = absent.strip_suffix('.').expect("a sentence");
                (meaning, absent)
            }
            found => {
                let is_always = required.contains(field.as_str()) && found.is_none();
                assert!(
                    is_always,
                    "{at}: a field is required, or its description says when it is absent"
                );
                (about, "")
            }
        };
        rows.push(vec![
            format!("`{at}`"),
            word_for(schema, all),
            meaning.to_owned(),
            absent.to_owned(),
        ]);
        if schema.get("properties").is_some() {
            expected(&format!("{at}."), schema, all, rows);
        } else if schema["items"].get("properties").is_some() {
            expected(&format!("{at}[]."), &schema["items"], all, rows);
        }
    }
}

fn shown(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    lines.collect::<String>().replace("|  |", "| |")
}

#[test]
fn the_table_of_each_kind_has_the_fields_of_the_schema() {
    let (schema, sections) = (schema(), sections());
    let all = definitions(&schema);
    let mut kinds = 0;
    for (name, definition) in all.iter().filter(|(_, kind)| kind["type"] == "object") {
        let section = sections
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no heading"));
        let mut wanted = Vec::new();
        expected("", definition, all, &mut wanted);
        wanted.sort();
        let found = rows(section);
        assert!(
            found == wanted,
            "the table of {name} differs from the schema, by which it is\n{}",
            shown(&wanted)
        );
        let about = text(&definition["description"]);
        let about = about
            .strip_prefix("One object per line. ")
            .or_else(|| about.strip_prefix("One object. "))
            .unwrap_or(about);
        let said = section
            .trim_start()
            .split("\n\n")
            .next()
            .unwrap_or_default();
        assert_eq!(said.replace('\n', " "), about, "{name}");
        kinds += 1;
    }
    assert!(kinds > 50, "{kinds}");
    // And no table is of something else.
    let tables = sections
        .iter()
        .filter(|(_, text)| text.contains("| absent |"));
    assert_eq!(tables.count(), kinds);
}

#[test]
fn the_table_of_commands_is_that_of_the_schema() {
    let (schema, sections) = (schema(), sections());
    let mut wanted: Vec<Row> = definitions(&schema)
        .iter()
        .filter(|(_, definition)| is_command(definition))
        .map(|(name, definition)| {
            let kinds: Vec<&str> = match definition.get("oneOf") {
                Some(kinds) => {
                    let kinds = kinds.as_array().expect("kinds").iter();
                    kinds.map(|kind| referred(kind).expect("a kind")).collect()
                }
                None => vec![name],
            };
            let links = kinds.iter().map(|kind| format!("[{kind}](#{kind})"));
            vec![
                format!("`{name}`"),
                form(definition).to_owned(),
                links.collect::<Vec<_>>().join(", "),
            ]
        })
        .collect();
    wanted.sort();
    let mut found = rows(&sections["Commands"]);
    for row in &mut found {
        assert_eq!(row.len(), 4, "{row:?}");
        row.truncate(3);
    }
    assert!(found == wanted, "it is\n{}", shown(&wanted));
}

#[test]
fn the_table_of_types_is_that_of_the_schema() {
    let (schema, sections) = (schema(), sections());
    let mut wanted: Vec<Row> = definitions(&schema)
        .iter()
        .filter(|(_, definition)| definition["type"] != "object" && !is_command(definition))
        .map(|(name, definition)| {
            let about = text(&definition["description"]);
            let meaning = match definition.get("enum") {
                Some(list) => format!("{about} {}", words(list)),
                None => about.to_owned(),
            };
            vec![name.clone(), meaning]
        })
        .collect();
    wanted.sort();
    assert!(
        rows(&sections["Types"]) == wanted,
        "it is\n{}",
        shown(&wanted)
    );
}
