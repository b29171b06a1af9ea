//! The header says what the code is.

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../../include/extant.h");
const FUNCTIONS: &[&str] = &[
    include_str!("../../src/abi/devices.rs"),
    include_str!("../../src/abi/files.rs"),
    include_str!("../../src/abi/library.rs"),
    include_str!("../../src/abi/names.rs"),
    include_str!("../../src/abi/owners.rs"),
    include_str!("../../src/abi/systems.rs"),
    include_str!("../../src/abi/upkeep.rs"),
];
const VERSIONS: &str = include_str!("../../extant.map");
const PAGE: &str = include_str!("../../man/extant.3");
const CONSTANTS: &str = include_str!("../../src/constants.rs");
const TYPES: &str = include_str!("../../src/types.rs");

/// The types of Rust and what they are in C.
const TYPES_IN_C: &[(&str, &str)] = &[
    ("c_int", "int"),
    ("c_char", "char"),
    ("c_void", "void"),
    ("u8", "uint8_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("i64", "int64_t"),
    ("usize", "size_t"),
    ("Fs", "extant_fs"),
    ("File", "extant_file"),
    ("Dir", "extant_dir"),
    ("Options", "struct extant_options"),
    ("Stat", "struct extant_stat"),
    ("Space", "struct extant_space"),
    ("Mended", "struct extant_mended"),
    ("Entry", "struct extant_entry"),
    ("Time", "struct extant_time"),
    ("Walk", "extant_walk"),
    ("Glob", "extant_glob"),
    ("Device", "extant_device"),
    ("Report", "extant_report"),
    ("Token", "extant_token"),
    ("WalkEntry", "struct extant_walk_entry"),
    ("Extent", "struct extant_extent"),
    ("AclEntry", "struct extant_acl_entry"),
    ("Quota", "struct extant_quota"),
    ("Finding", "struct extant_finding"),
    ("Summary", "struct extant_summary"),
    ("Bulkstat", "struct extant_bulkstat"),
    ("DeviceOps", "struct extant_device_ops"),
    ("Watch", "struct extant_watch"),
];

/// A type as C writes it, without blanks around `*`.
fn in_c(rust: &str) -> String {
    if let Some(to) = rust.strip_prefix("*const ") {
        if to.starts_with('*') {
            return format!("{} const*", in_c(to));
        }
        return format!("const {}*", in_c(to));
    }
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{}*", in_c(to));
    }
    let known = TYPES_IN_C.iter().find(|(name, _)| *name == rust);
    known
        .unwrap_or_else(|| panic!("no C type is known for {rust}"))
        .1
        .to_owned()
}

/// What stands between `open` and the next `close` after it.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close)
}

/// Names and signatures of the functions of the code.
fn functions_of_code() -> BTreeMap<String, String> {
    let text = FUNCTIONS.concat();
    let mut all = BTreeMap::new();
    let mut rest = text.as_str();
    while let Some((declaration, after)) = between(rest, "extern \"C\" fn ", " {\n") {
        rest = after;
        let (name, arguments) = declaration.split_once('(').unwrap();
        let (arguments, result) = arguments.rsplit_once(')').unwrap();
        let arguments = arguments
            .split(',')
            .map(str::trim)
            .filter(|a| !a.is_empty());
        let arguments: Vec<String> = arguments
            .map(|argument| {
                let (name, kind) = argument.split_once(": ").unwrap();
                format!("{} {name}", in_c(kind))
            })
            .collect();
        let result = match result.trim().strip_prefix("-> ") {
            Some(kind) => in_c(kind),
            None => "void".to_owned(),
        };
        let signature = format!("{result}({})", arguments.join(", "));
        assert!(all.insert(name.to_owned(), signature).is_none(), "{name}");
    }
    all
}

/// The header without comments and preprocessor lines, blanks folded, `*` behind the type.
fn plain_header() -> String {
    let mut text = String::new();
    let mut rest = HEADER;
    while let Some((before, after)) = rest.split_once("/*") {
        text.push_str(before);
        rest = after.split_once("*/").expect("a comment ends").1;
    }
    text.push_str(rest);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let text = lines.flat_map(str::split_whitespace).collect::<Vec<_>>();
    text.join(" ")
        .replace(" *", "* ")
        .replace("* *", "** ")
        .replace("*  ", "* ")
}

/// Names and signatures of the functions of the header.
fn functions_of_header() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for statement in plain_header().split(';') {
        let statement = statement.trim();
        let Some((head, arguments)) = statement.split_once('(') else {
            continue;
        };
        // Members of structures.
        if arguments.starts_with('*') || head.contains('{') {
            continue;
        }
        let (result, name) = head.rsplit_once(' ').unwrap();
        let arguments = match arguments.trim_end_matches(')') {
            "void" => "",
            arguments => arguments,
        };
        all.insert(name.to_owned(), format!("{}({arguments})", result.trim()));
    }
    all
}

#[test]
fn every_function_is_in_the_header_as_it_is() {
    let (code, header) = (functions_of_code(), functions_of_header());
    assert!(code.len() > 40, "{} functions were found", code.len());
    for (name, signature) in &code {
        assert_eq!(header.get(name), Some(signature), "{name}");
    }
    let extra: Vec<_> = header
        .keys()
        .filter(|name| !code.contains_key(*name))
        .collect();
    assert!(extra.is_empty(), "in the header only: {extra:?}");
}

#[test]
fn every_function_has_a_version_and_is_on_the_page() {
    let (_, global) = VERSIONS.split_once("global:").unwrap();
    let (global, _) = global.split_once("local:").unwrap();
    let named = global.split(';').map(str::trim);
    let named: Vec<&str> = named.filter(|name| !name.is_empty()).collect();
    let functions = functions_of_code();
    let functions: Vec<&str> = functions.keys().map(String::as_str).collect();
    assert_eq!(named, functions, "crates/capi/extant.map");
    // On the page as in the header, whatever blanks are there.
    let plain = |text: &str| {
        text.replace("\\-", "-")
            .split_whitespace()
            .collect::<String>()
    };
    let page = plain(PAGE);
    for line in HEADER.lines() {
        let is_function = line.ends_with(");") && !line.starts_with([' ', '#']);
        assert!(!is_function || page.contains(&plain(line)), "{line}");
    }
}

#[test]
fn each_comment_of_the_header_stands_alone() {
    let comments = HEADER.lines().filter_map(|line| line.split_once("/*"));
    let mut count = 0;
    for (_, comment) in comments {
        count += 1;
        assert!(!comment.trim_start().starts_with("The same"), "{comment}");
    }
    assert!(count > 100, "{count} comments were found");
}

#[test]
fn every_structure_is_in_the_header_as_it_is() {
    let header = plain_header();
    let mut rest = TYPES;
    let mut found = 0;
    while let Some((declaration, after)) = between(rest, "#[repr(C)]", "\n}\n") {
        rest = after;
        found += 1;
        let (_, declaration) = declaration.split_once("pub struct ").unwrap();
        let (name, fields) = declaration.split_once(" {").unwrap();
        // Without comments, on one line: some are wrapped.
        let lines = fields.lines().map(str::trim);
        let lines = lines.filter(|line| !line.starts_with("///"));
        let fields = lines.collect::<Vec<_>>().join(" ");
        let fields = fields.split("pub ").map(str::trim);
        let fields = fields.filter(|field| !field.is_empty());
        let fields: Vec<String> = fields.map(field_in_c).collect();
        let expected = format!("{} {{ {} }};", in_c(name), fields.join(" "));
        assert!(header.contains(&expected), "not in the header: {expected}");
    }
    assert_eq!(found, 15);
}

/// A member of a structure.
fn field_in_c(field: &str) -> String {
    let (name, kind) = field.trim_end_matches(',').split_once(": ").unwrap();
    let name = name.trim_start_matches("r#");
    if let Some((_, function)) = kind.split_once("extern \"C\" fn(") {
        let (arguments, result) = function.rsplit_once(')').unwrap();
        let result = match result
            .trim()
            .trim_end_matches([',', '>', ' '])
            .strip_prefix("-> ")
        {
            Some(kind) => in_c(kind),
            None => "void".to_owned(),
        };
        let arguments = arguments.split(',').map(str::trim);
        let arguments = arguments.filter(|argument| !argument.is_empty());
        let arguments: Vec<String> = arguments
            .map(|argument| {
                let (name, kind) = argument.split_once(": ").unwrap();
                format!("{} {name}", in_c(kind))
            })
            .collect();
        return format!("{result} (*{name})({});", arguments.join(", "));
    }
    let array = kind
        .strip_prefix('[')
        .and_then(|kind| kind.strip_suffix(']'));
    match array {
        Some(array) => {
            let (kind, len) = array.split_once("; ").unwrap();
            format!("{} {name}[{len}];", in_c(kind))
        }
        None => format!("{} {name};", in_c(kind)),
    }
}

#[test]
fn every_constant_is_in_the_header_with_its_value() {
    let mut found = 0;
    for line in CONSTANTS.lines() {
        let Some(constant) = line.strip_prefix("pub(crate) const ") else {
            continue;
        };
        let (name, rest) = constant.split_once(": ").unwrap();
        let value = match rest.split_once(" = ").unwrap() {
            ("u32", value) => format!("{}u", value.trim_end_matches(';').replace('_', "")),
            (_, "u64::MAX;") => "UINT64_MAX".to_owned(),
            other => panic!("{other:?} has no form in C"),
        };
        found += 1;
        let expected = format!("#define EXTANT_{name} {value}");
        let is_it = |line: &str| line.split(" /*").next().unwrap().trim_end() == expected;
        assert!(HEADER.lines().any(is_it), "{expected}");
    }
    let defined = HEADER
        .lines()
        .filter(|line| line.starts_with("#define EXTANT_"));
    // All but the guard.
    assert_eq!(defined.count() - 1, found);
}
