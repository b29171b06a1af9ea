//! The sections of the manual pages of all commands.

use super::groups::{GROUPS, related, uses_the_time};
use super::page::Page;
use super::text::{Block, blocks};
use crate::failure::Outcome;
use crate::time::{date, source_date_epoch};
use clap::{Arg, Command};

/// Day of the release whose version stands in `Cargo.toml`: a page is the same whenever it is made.
const RELEASED: &str = "2026-11-25";

/// Exit codes of commands that have no list of their own.
const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "Everything asked for was done"),
    (
        "1",
        "Something was not done; standard error says what, and why",
    ),
    ("2", "The command line makes no sense"),
];

/// The manual pages, with the names of their files.
pub(crate) fn all() -> Outcome<Vec<(String, String)>> {
    let (command, date) = (built(), date_of_pages()?);
    let mut pages = vec![("extant.1".to_owned(), page(&command, &command, &date))];
    pages_below(&command, &command, &date, &mut pages);
    Ok(pages)
}

/// The manual page of the program itself.
pub(crate) fn main() -> Outcome<String> {
    let command = built();
    Ok(page(&command, &command, &date_of_pages()?))
}

fn built() -> Command {
    let mut command = super::without_meaningless_options();
    command.build();
    command
}

fn date_of_pages() -> Outcome<String> {
    let epoch = source_date_epoch()?.and_then(|seconds| i64::try_from(seconds).ok());
    Ok(epoch.map_or_else(|| RELEASED.to_owned(), date))
}

/// The commands below another that have a page.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

fn pages_below(above: &Command, root: &Command, date: &str, pages: &mut Vec<(String, String)>) {
    for command in below(above) {
        pages.push((format!("{}.1", title(command)), page(command, root, date)));
        pages_below(command, root, date, pages);
    }
}

/// The name of a page: `extant-xattr-set`.
fn title(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    name.replace(' ', "-")
}

/// What a command is called below the program: `xattr set`, and nothing for the program itself.
fn path(command: &Command) -> Vec<&str> {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    name.split(' ').skip(1).collect()
}

fn page(command: &Command, root: &Command, date: &str) -> String {
    let title = title(command);
    let version = root.get_version().unwrap_or_default();
    let mut page = Page::new(&title, date, version);
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    page.section("NAME");
    page.text(&format!("{title} - {about}"));
    page.section("SYNOPSIS");
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:");
    page.lines(usage.lines().map(str::trim));
    let text = command.get_after_help().map(ToString::to_string);
    let blocks = text.as_deref().map(blocks).unwrap_or_default();
    describe(&mut page, &about, &blocks);
    commands(&mut page, command);
    options(&mut page, command);
    examples(&mut page, &blocks);
    exit_status(&mut page, &blocks);
    environment(&mut page, command);
    see_also(&mut page, command, root);
    page.finish()
}

fn is_examples(block: &Block) -> bool {
    matches!(block, Block::Lines { heading, .. } if heading == "Examples")
}

fn is_exit_codes(block: &Block) -> bool {
    matches!(block, Block::List { heading, .. } if heading.starts_with("Exit codes"))
}

fn describe(page: &mut Page, about: &str, blocks: &[Block]) {
    page.section("DESCRIPTION");
    page.text(&format!("{about}."));
    for block in blocks {
        if !is_examples(block) && !is_exit_codes(block) {
            page.block(block);
        }
    }
}

/// Names the commands below a command: those of the program in groups.
fn commands(page: &mut Page, command: &Command) {
    if !command.has_subcommands() {
        return;
    }
    page.section("COMMANDS");
    let item = |page: &mut Page, below: &Command| {
        let about = below
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        page.item(&format!("{}(1)", title(below)), [about.as_str()]);
    };
    if !path(command).is_empty() {
        below(command).for_each(|below| item(page, below));
        return;
    }
    for (heading, names) in GROUPS {
        page.subsection(heading);
        let group = names.iter().filter(|name| **name != "help");
        let group = group.filter_map(|name| command.find_subcommand(name));
        group.for_each(|below| item(page, below));
    }
}

fn options(page: &mut Page, command: &Command) {
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut headings: Vec<&str> = vec!["Arguments", "Options"];
    for heading in shown().filter_map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let args: Vec<&Arg> = shown().filter(|arg| heading_of(arg) == heading).collect();
        if args.is_empty() {
            continue;
        }
        page.section(heading);
        for arg in args {
            option(page, arg);
        }
    }
}

fn heading_of(arg: &Arg) -> &str {
    match arg.get_help_heading() {
        Some(heading) => heading,
        None if arg.is_positional() => "Arguments",
        None => "Options",
    }
}

fn option(page: &mut Page, arg: &Arg) {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let takes_values = arg.is_positional() || arg.get_action().takes_values();
    let values = arg
        .get_value_names()
        .filter(|_| takes_values)
        .unwrap_or_default();
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut meaning: Vec<String> = help.split("\n\n").map(str::to_owned).collect();
    let defaults = arg.get_default_values();
    if takes_values && !arg.is_hide_default_value_set() && !defaults.is_empty() {
        let defaults = defaults.iter().map(|value| value.to_string_lossy());
        let defaults: Vec<_> = defaults.collect();
        meaning.push(format!("Default: {}", defaults.join(", ")));
    }
    if takes_values {
        for value in arg.get_possible_values() {
            let name = value.get_name();
            meaning.push(match value.get_help() {
                Some(help) => format!("{name}: {help}"),
                None => name.to_owned(),
            });
        }
    }
    let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
    page.option(
        &names.join(", "),
        &values.join(" "),
        meaning.iter().map(String::as_str),
    );
}

fn examples(page: &mut Page, blocks: &[Block]) {
    for block in blocks.iter().filter(|block| is_examples(block)) {
        if let Block::Lines { lines, .. } = block {
            page.section("EXAMPLES");
            page.lines(lines.iter().map(String::as_str));
        }
    }
}

fn exit_status(page: &mut Page, blocks: &[Block]) {
    page.section("EXIT STATUS");
    match blocks.iter().find(|block| is_exit_codes(block)) {
        Some(Block::List { rows, .. }) => page.list(rows),
        _ => EXIT_CODES
            .iter()
            .for_each(|(code, meaning)| page.item(code, [*meaning])),
    }
}

fn environment(page: &mut Page, command: &Command) {
    page.section("ENVIRONMENT");
    let path = path(command);
    if uses_the_time(&path) {
        let meaning = match path.as_slice() {
            ["man"] => "The date of the pages, in seconds since 1970, in place of the release's.",
            _ => {
                "The time, in seconds since 1970, that commands which change images use in place of \
                 the clock. The same input and the same commands then give the same bytes."
            }
        };
        page.item("SOURCE_DATE_EPOCH", [meaning]);
    }
    if path
        .first()
        .is_some_and(|name| ["cp", "mkfs", "serve"].contains(name))
    {
        let meaning = "Set to 1, no owners are asked of pseudo(1), under which the command runs.";
        page.item("PSEUDO_DISABLED", [meaning]);
    }
    let meaning = "Columns that help fills where standard output is no terminal, at most 100.";
    page.item("COLUMNS", [meaning]);
}

fn see_also(page: &mut Page, command: &Command, root: &Command) {
    page.section("SEE ALSO");
    let path = path(command);
    let mut pages = Vec::new();
    match path.as_slice() {
        [] => pages.extend(below(root).map(|below| (title(below), "1"))),
        [name, leaf @ ..] => {
            pages.push(("extant".to_owned(), "1"));
            if !leaf.is_empty() {
                pages.push((format!("extant-{name}"), "1"));
            }
            let group = GROUPS.iter().find(|(_, names)| names.contains(name));
            let others = group.into_iter().flat_map(|(_, names)| names.iter());
            let others = others.filter(|other| *other != name && **other != "help");
            pages.extend(others.map(|other| (format!("extant-{other}"), "1")));
            let related = related(name).iter();
            pages.extend(related.map(|(name, section)| ((*name).to_owned(), *section)));
        }
    }
    page.references(&pages);
}
