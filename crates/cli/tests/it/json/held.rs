//! The schema, what is held against it, and which of its fields were seen.

use crate::support::{Run, extant};
use extant_testkit::tool::tool;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How the judge tells of an error; the context is what is wrong by each of several kinds.
const ERROR: &str = "{error.json_path}: {error.message}\n{error.context}\n";

/// Where definitions are.
const DEFS: &str = "#/$defs/";

/// The place of a file in the folder of documents for users.
pub(super) fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/user")
        .join(name)
}

/// The schema as it is written.
pub(super) fn schema() -> Value {
    let text = std::fs::read(document("json.schema.json")).expect("the schema");
    serde_json::from_slice(&text).expect("the schema is JSON")
}

/// The definitions of the schema.
pub(super) fn definitions(schema: &Value) -> &serde_json::Map<String, Value> {
    schema["$defs"].as_object().expect("definitions")
}

/// The definition that a schema refers to.
pub(super) fn referred(schema: &Value) -> Option<&str> {
    let target = schema.get("$ref")?.as_str()?;
    Some(
        target
            .strip_prefix(DEFS)
            .expect("a definition of the same file"),
    )
}

/// Whether a definition is that of a command: it says what the output is as a whole.
pub(super) fn is_command(definition: &Value) -> bool {
    let about = definition["description"].as_str().expect("a description");
    about.starts_with("One object")
}

/// What a command writes, as the page calls it.
pub(super) fn form(definition: &Value) -> &str {
    let about = definition["description"].as_str().expect("a description");
    match about.split('.').next() {
        Some("One object") => "one object",
        Some("One object per line") => "lines",
        Some("One object, or with `--block` one object per line") => {
            "one object; with `--block`, lines"
        }
        _ => panic!("{about}: no form"),
    }
}

/// Whether a value has the fields that a definition requires and no others, and the words that it
/// requires. Of several kinds this says which one a value is; whether it is one says the judge.
fn looks_like(definition: &Value, value: &Value) -> bool {
    let (Some(allowed), Some(fields)) = (definition["properties"].as_object(), value.as_object())
    else {
        return definition["type"] != "object" && !value.is_null();
    };
    let required = definition["required"].as_array().into_iter().flatten();
    let mut required = required.filter_map(Value::as_str);
    let is_right = |(field, value): (&String, &Value)| {
        allowed.get(field).is_some_and(|schema| {
            let words = schema["enum"].as_array();
            let is_word = schema.get("const").is_none_or(|word| word == value);
            is_word && words.is_none_or(|words| words.contains(value))
        })
    };
    required.all(|field| fields.contains_key(field)) && fields.iter().all(is_right)
}

/// What commands have written, by their names.
type Written = BTreeMap<String, Vec<Value>>;

/// Asks the validator of the Python project, which checks the schema as well, what is wrong.
fn judge(schema: &Value, written: &Written) -> Result<(), String> {
    let commands = written.keys().map(|command| {
        let items = json!({"$ref": format!("{DEFS}{command}")});
        (command.clone(), json!({"type": "array", "items": items}))
    });
    let mut all = schema.clone();
    all["properties"] = Value::Object(commands.collect());
    let dir = tempfile::tempdir().expect("a directory");
    let [schema, instance] = ["schema", "instance"].map(|name| dir.path().join(name));
    std::fs::write(&schema, all.to_string()).expect("a file");
    std::fs::write(&instance, json!(written).to_string()).expect("a file");
    let run = tool("jsonschema")
        .args(["--error-format", ERROR, "-i"])
        .args([&instance, &schema])
        .run();
    if run.code == 0 {
        return Ok(());
    }
    Err(run.to_string())
}

/// The schema, and what was held against it.
pub(super) struct Held {
    schema: Value,
    written: Written,
    /// Fields, as `kind.field`.
    seen: BTreeSet<String>,
}

impl Held {
    pub(super) fn new() -> Self {
        Self {
            schema: schema(),
            written: Written::new(),
            seen: BTreeSet::new(),
        }
    }

    /// The commands that have a definition.
    pub(super) fn commands(&self) -> impl Iterator<Item = &str> {
        let all = definitions(&self.schema).iter();
        all.filter(|(_, definition)| is_command(definition))
            .map(|(name, _)| name.as_str())
    }

    /// Runs a command with `--json`, expects this exit code, and keeps what it writes. Returns
    /// that.
    #[track_caller]
    pub(super) fn run(
        &mut self,
        code: i32,
        command: &str,
        args: &[&dyn AsRef<OsStr>],
    ) -> Vec<Value> {
        let all = [OsStr::new(command), OsStr::new("--json")];
        let args: Vec<&OsStr> = args.iter().map(|arg| arg.as_ref()).collect();
        let run = extant(all.iter().chain(&args));
        assert_eq!(run.code, code, "{command}: {}{}", run.text(), run.stderr);
        self.keep(command, &args, &run)
    }

    /// Keeps what a command has written, and notes which fields that has.
    #[track_caller]
    fn keep(&mut self, command: &str, args: &[&OsStr], run: &Run) -> Vec<Value> {
        let definition = &definitions(&self.schema)[command];
        let values = match form(definition) {
            "one object" => vec![run.json()],
            "lines" => run.lines(),
            _ if args.contains(&"--block".as_ref()) => run.lines(),
            _ => vec![run.json()],
        };
        let mut seen = Vec::new();
        for value in &values {
            self.note(command, definition, value, &mut seen);
        }
        self.seen.extend(seen);
        let kept = self.written.entry(command.to_owned()).or_default();
        kept.extend(values.iter().cloned());
        values
    }

    /// Gathers which fields of a schema a value has.
    fn note(&self, at: &str, schema: &Value, value: &Value, seen: &mut Vec<String>) {
        if let Some(name) = referred(schema) {
            self.note(name, &definitions(&self.schema)[name], value, seen);
        }
        for kind in schema["oneOf"].as_array().into_iter().flatten() {
            let name = referred(kind);
            if name.is_some_and(|name| looks_like(&definitions(&self.schema)[name], value)) {
                self.note(at, kind, value, seen);
            }
        }
        for item in value.as_array().into_iter().flatten() {
            self.note(&format!("{at}[]"), &schema["items"], item, seen);
        }
        for (field, value) in value.as_object().into_iter().flatten() {
            let Some(schema) = schema["properties"].get(field) else {
                continue;
            };
            let at = format!("{at}.{field}");
            self.note(&at, schema, value, seen);
            seen.push(at);
        }
    }

    /// Expects that every command wrote something, and that all of it is as the schema says.
    #[track_caller]
    pub(super) fn assert_all_right(&self) {
        let wrote = |name: &str| self.written.get(name).is_some_and(|all| !all.is_empty());
        let missing: Vec<&str> = self.commands().filter(|name| !wrote(name)).collect();
        assert!(missing.is_empty(), "not run here: {missing:?}");
        if let Err(why) = judge(&self.schema, &self.written) {
            panic!("{why}");
        }
    }

    /// Expects that all fields were seen but these, and none of these.
    #[track_caller]
    pub(super) fn assert_all_seen(&self, but: &[(&str, &str)]) {
        let mut all = BTreeSet::new();
        for (name, definition) in definitions(&self.schema) {
            fields(name, definition, &mut all);
        }
        assert!(all.len() > 400, "{}", all.len());
        let is_left_out = |field: &str| {
            but.iter().any(|(left_out, _)| {
                let rest = field.strip_prefix(left_out);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
        };
        let unseen: Vec<&String> = all
            .difference(&self.seen)
            .filter(|field| !is_left_out(field))
            .collect();
        assert!(
            unseen.is_empty(),
            "no run writes these: add one, or say why there is none: {unseen:#?}"
        );
        let seen: Vec<&String> = self
            .seen
            .iter()
            .filter(|field| is_left_out(field))
            .collect();
        assert!(seen.is_empty(), "these are left out, and seen: {seen:#?}");
        for (left_out, why) in but {
            let is_one = |field: &String| field.starts_with(left_out);
            assert!(all.iter().any(is_one), "{left_out} ({why}) is no field");
        }
    }
}

/// Gathers the fields of a definition.
fn fields(at: &str, schema: &Value, all: &mut BTreeSet<String>) {
    if let Some(items) = schema.get("items") {
        fields(&format!("{at}[]"), items, all);
    }
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{field}");
        fields(&at, schema, all);
        all.insert(at);
    }
}

/// Every object in a schema, with its place.
fn objects<'a>(at: String, schema: &'a Value, all: &mut Vec<(String, &'a Value)>) {
    if schema["type"] == "object" {
        all.push((at.clone(), schema));
    }
    if let Some(items) = schema.get("items") {
        objects(format!("{at}[]"), items, all);
    }
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        objects(format!("{at}.{field}"), schema, all);
    }
}

#[test]
fn nothing_is_allowed_that_the_schema_does_not_name() {
    let schema = schema();
    let mut all = Vec::new();
    for (name, definition) in definitions(&schema) {
        objects(name.clone(), definition, &mut all);
    }
    assert!(all.len() > 60, "{}", all.len());
    for (at, object) in all {
        let others = &object["additionalProperties"];
        // A map has names of any kind, and values of one.
        let is_map = object.get("properties").is_none() && referred(others).is_some();
        assert!(is_map || *others == false, "{at}: {others}");
        for required in object["required"].as_array().into_iter().flatten() {
            let name = required.as_str().expect("a name");
            assert!(object["properties"].get(name).is_some(), "{at}.{name}");
        }
    }
}

#[test]
fn each_definition_is_that_of_a_command_or_used_by_one() {
    fn used<'a>(schema: &'a Value, all: &mut BTreeSet<&'a str>) {
        match schema {
            Value::Object(fields) => {
                all.extend(referred(schema));
                fields.values().for_each(|value| used(value, all));
            }
            Value::Array(values) => values.iter().for_each(|value| used(value, all)),
            _ => {}
        }
    }
    let schema = schema();
    let mut all = BTreeSet::new();
    used(&schema, &mut all);
    for (name, definition) in definitions(&schema) {
        assert!(
            is_command(definition) || all.contains(name.as_str()),
            "{name}"
        );
    }
}

#[test]
fn what_is_not_in_the_schema_is_noticed() {
    let schema = schema();
    let told = |command: &str, value: &Value| {
        let written = Written::from([(command.to_owned(), vec![value.clone()])]);
        judge(&schema, &written)
    };
    let right = json!({"restored_blocks": 7});
    assert_eq!(told("revert", &right), Ok(()));
    assert_eq!(told("repair", &right), Ok(()));
    for wrong in [
        json!({"restored_blocks": 7, "more": 1}),
        json!({"restored_blocks": -7}),
        json!({"restored_blocks": "7"}),
        json!({}),
        json!(7),
    ] {
        for command in ["revert", "repair"] {
            let why = told(command, &wrong).expect_err("it is wrong");
            assert!(why.contains(&format!("$.{command}[0]")), "{why}");
        }
    }
}
