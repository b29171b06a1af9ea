//! The rules about crates: dependency direction, documented licences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Finding, allowed};

pub(super) fn check(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |path: &str, what: String| {
        findings.push(Finding {
            path: path.to_owned(),
            line: 0,
            what,
        });
    };
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        if !root.join(licence).is_file() {
            note(licence, "missing".to_owned());
        }
    }
    let mut folders: Vec<String> = fs::read_dir(root.join("crates"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| format!("crates/{}", entry.file_name().to_string_lossy()))
        .collect();
    folders.push("xtask".to_owned());
    folders.sort();
    for folder in folders {
        let path = format!("{folder}/Cargo.toml");
        match fs::read_to_string(root.join(&path)) {
            Ok(text) => {
                check_manifest(&text, &mut |what| note(&path, what));
                let files = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
                let is_published = !text.contains("\npublish = false");
                for file in files.iter().filter(|_| is_published) {
                    if !root.join(&folder).join(file).is_file() {
                        note(&path, format!("is published, and has no {file} beside it"));
                    }
                }
            }
            Err(e) => note(&path, e.to_string()),
        }
    }
    findings
}

/// Checks one crate's manifest.
pub(super) fn check_manifest(text: &str, note: &mut dyn FnMut(String)) {
    let manifest = Manifest::read(text);
    let name = manifest.name.as_str();
    if !text.contains("license.workspace = true") {
        note("takes no licence from the workspace (license.workspace = true)".to_owned());
    }
    if !text.contains("[lints]\nworkspace = true") {
        note("takes no lints from the workspace".to_owned());
    }
    if manifest.description.is_empty() {
        note("has no description".to_owned());
    }
    published(text, &manifest, note);
    let Some((_, may)) = allowed::DEPENDENCIES.iter().find(|(n, _)| *n == name) else {
        if name != "xtask" {
            note(format!(
                "{name} has no place in the order of crates (allowed.rs)"
            ));
        }
        return;
    };
    for (section, dependencies) in &manifest.dependencies {
        let for_tests = section == "dev-dependencies";
        for dependency in dependencies.iter().filter(|d| d.starts_with("extant")) {
            let testkit = for_tests && dependency == "extant-testkit";
            // Tests may check a layer against one that stands beside or above it.
            let ours = for_tests && name != "extant-format" && name != "extant-testkit";
            if !testkit && !ours && !may.contains(&dependency.as_str()) {
                note(format!(
                    "{name} must not depend on {dependency} ([{section}])"
                ));
            }
        }
    }
}

/// Checks what a registry wants of a crate, unless that is never published.
fn published(text: &str, manifest: &Manifest, note: &mut dyn FnMut(String)) {
    let has = |line: &str| text.lines().any(|own| own == line);
    let name = manifest.name.as_str();
    let is_unpublished = has("publish = false");
    if is_unpublished != allowed::UNPUBLISHED.contains(&name) {
        note("says `publish = false`, or does not, unlike allowed.rs".to_owned());
    }
    if is_unpublished {
        return;
    }
    for needed in [
        "readme = \"README.md\"",
        "repository.workspace = true",
        "rust-version.workspace = true",
    ] {
        if !has(needed) {
            note(format!("is published, and has no line {needed}"));
        }
    }
    for key in ["keywords = [", "categories = [", "include = [\"/src\", "] {
        if !text.lines().any(|line| line.starts_with(key)) {
            note(format!("is published, and has no line {key}...]"));
        }
    }
    let keywords = text.lines().find(|line| line.starts_with("keywords = "));
    if keywords.is_some_and(|line| line.matches('"').count() > 10) {
        note("has more than five keywords, which a registry refuses".to_owned());
    }
    // With a version it would have to be published first, and some of these stand above.
    let dev = text.split("[dev-dependencies]").nth(1).unwrap_or_default();
    let dev = dev.split("\n[").next().unwrap_or_default();
    for line in dev.lines().filter(|line| line.starts_with("extant")) {
        if line.contains("workspace = true") || line.contains("version") {
            note(format!(
                "{line}: name it by path alone, so that packages leave it out"
            ));
        }
    }
}

/// The few things in a manifest that rules look at.
struct Manifest {
    name: String,
    description: String,
    dependencies: BTreeMap<String, Vec<String>>,
}

impl Manifest {
    /// Reads the plain TOML this workspace writes: one key a line, tables by header.
    fn read(text: &str) -> Manifest {
        let mut manifest = Manifest {
            name: String::new(),
            description: String::new(),
            dependencies: BTreeMap::new(),
        };
        let mut section = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']').to_owned();
                // `[dependencies.name]` is a table of its own.
                if let Some((kind, name)) = section.split_once("dependencies.") {
                    let kind = format!("{kind}dependencies");
                    manifest
                        .dependencies
                        .entry(kind)
                        .or_default()
                        .push(name.to_owned());
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            if section == "package" && key == "name" {
                value.clone_into(&mut manifest.name);
            } else if section == "package" && key == "description" {
                value.clone_into(&mut manifest.description);
            } else if section.ends_with("dependencies") {
                let name = key.split('.').next().unwrap_or(key).to_owned();
                manifest
                    .dependencies
                    .entry(section.clone())
                    .or_default()
                    .push(name);
            }
        }
        manifest
    }
}

#[cfg(test)]
mod tests {
    use super::check_manifest;

    fn findings(name: &str, dependencies: &str) -> Vec<String> {
        let text = format!(
            "[package]\nname = \"{name}\"\ndescription = \"x\"\nlicense.workspace = true\n\
             rust-version.workspace = true\nrepository.workspace = true\nreadme = \"README.md\"\n\
             keywords = [\"a\"]\ncategories = [\"b\"]\ninclude = [\"/src\", \"/README.md\"]\n\n\
             [lints]\nworkspace = true\n\n{dependencies}"
        );
        let mut found = Vec::new();
        check_manifest(&text, &mut |what| found.push(what));
        found
    }

    #[test]
    fn a_dependency_upward_is_found_in_every_form() {
        for form in [
            "[dependencies]\nextant-core.workspace = true",
            "[dependencies]\nextant-core = { path = \"../core\" }",
            "[dependencies.extant-core]\npath = \"../core\"",
            "[target.'cfg(unix)'.dependencies]\nextant-core.workspace = true",
        ] {
            let found = findings("extant-mkfs", form);
            assert_eq!(found.len(), 1, "{form}: {found:?}");
            assert!(
                found[0].contains("extant-mkfs must not depend on extant-core"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn what_a_registry_would_refuse_is_found() {
        for (form, what) in [
            (
                "[dev-dependencies]\nextant-testkit.workspace = true",
                "by path alone",
            ),
            ("publish = false", "publish = false"),
        ] {
            let found = findings("extant-mkfs", form);
            assert_eq!(found.len(), 1, "{form}: {found:?}");
            assert!(found[0].contains(what), "{found:?}");
        }
        assert!(findings("extant-bench", "")[0].contains("publish = false"));
    }

    #[test]
    fn what_the_order_allows_passes() {
        assert!(
            findings(
                "extant-mkfs",
                "[dependencies]\nextant-format.workspace = true"
            )
            .is_empty()
        );
        let tests = "[dev-dependencies]\nextant-testkit = { path = \"../testkit\" }";
        assert!(findings("extant-format", tests).is_empty());
        assert_eq!(findings("extant-novelty", "").len(), 1);
    }
}
