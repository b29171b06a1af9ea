//! `cargo xtask install`: the program, the C library and all that goes with them, where a system
//! keeps such things.
//!
//! Cargo makes one archive of everything the library stands on. What C uses of it is linked into
//! one object, in which only the functions of the header have names that others see: so two
//! libraries with Rust inside can be in one program, and nothing is in the archive that no function
//! needs. The shared library is made of the same object, by `cc`: rustc passes a version script of
//! its own to the linker, which does not take two.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What the chore does, and its options.
pub const HELP: &str = "\
Install the program, the C library (shared and static) with its header and its files for pkg-config, manual pages
and completions for shells.

Usage: cargo xtask install [--prefix DIR] [--destdir DIR] [--dev] [--only library | --archive FILE]

Options:
  --prefix DIR      Where things are to be used [default: /usr/local]
  --destdir DIR     Put in front of all paths, for packages
  --dev             As quickly built as tests are, and slow
  --only library    The C library alone
  --archive FILE    The C library alone, of this archive, which cargo has made (libextant_capi.a)

The static library is in one object, without what no function of the header needs. It needs cc, ld, objcopy and ar
(packages gcc and binutils).";

/// What came of something, or why nothing did.
type Done<T> = Result<T, String>;

/// What is to be installed, and where.
struct Plan {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
    dev: bool,
    only_library: bool,
    /// What cargo made of the library, if that is not made here.
    archive: Option<PathBuf>,
}

impl Plan {
    fn new(args: &[String]) -> Done<Self> {
        let mut plan = Self {
            prefix: "/usr/local".into(),
            destdir: None,
            dev: false,
            only_library: false,
            archive: None,
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--prefix" => plan.prefix = value()?.into(),
                "--destdir" => plan.destdir = Some(value()?.into()),
                "--dev" => plan.dev = true,
                "--only" => match value()?.as_str() {
                    "library" => plan.only_library = true,
                    other => return Err(format!("--only {other}: use library")),
                },
                "--archive" => {
                    plan.only_library = true;
                    plan.archive = Some(value()?.into());
                }
                other => return Err(format!("unknown option {other:?}")),
            }
        }
        if !plan.prefix.is_absolute() {
            return Err("--prefix has to begin with a slash".to_owned());
        }
        Ok(plan)
    }

    /// Where something goes that will be at this place below the prefix; its directory exists then.
    fn place(&self, below: &str) -> Done<PathBuf> {
        let used = self.prefix.join(below);
        let place = match &self.destdir {
            Some(destdir) => destdir.join(used.strip_prefix("/").unwrap_or(&used)),
            None => used,
        };
        let dir = place.parent().unwrap_or(&place);
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(place)
    }

    fn write(&self, below: &str, content: &[u8], mode: u32) -> Done<()> {
        let place = self.place(below)?;
        let named = |e: std::io::Error| format!("{}: {e}", place.display());
        // What runs is replaced, not written over.
        let _ = fs::remove_file(&place);
        fs::write(&place, content).map_err(named)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).map_err(named)
    }

    fn copy(&self, from: &Path, below: &str, mode: u32) -> Done<()> {
        let content = fs::read(from).map_err(|e| format!("{}: {e}", from.display()))?;
        self.write(below, &content, mode)
    }

    fn link(&self, target: &str, below: &str) -> Done<()> {
        let place = self.place(below)?;
        let _ = fs::remove_file(&place);
        symlink(target, &place).map_err(|e| format!("{}: {e}", place.display()))
    }
}

/// The chore.
pub fn install(root: &Path, args: &[String]) -> ExitCode {
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(e) => {
            eprintln!("{e}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(root, &plan) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, plan: &Plan) -> Done<()> {
    if let Some(archive) = &plan.archive {
        let work = archive.parent().unwrap_or(root).join("capi-link");
        return library(root, plan, archive, &work);
    }
    let profile = if plan.dev { "dev" } else { "dist" };
    let built = root
        .join("target")
        .join(if plan.dev { "debug" } else { profile });
    // Alone it is made as a whole, across crates.
    let only = [
        "rustc",
        "-p",
        "extant-capi",
        "--lib",
        "--crate-type",
        "staticlib",
    ];
    cargo(root, &only, profile)?;
    library(
        root,
        plan,
        &built.join("libextant_capi.a"),
        &built.join("capi-link"),
    )?;
    if plan.only_library {
        return Ok(());
    }
    cargo(root, &["build", "-p", "extant-cli"], profile)?;
    program(root, plan, &built.join("extant"))
}

/// Builds something.
fn cargo(root: &Path, arguments: &[&str], profile: &str) -> Done<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(root).env_remove("CARGO_BUILD_TARGET");
    build
        .args(arguments)
        .args(["--locked", "--target-dir", "target"]);
    build.args(["--profile", profile]);
    let ended = build
        .status()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    if ended.success() {
        return Ok(());
    }
    Err(format!("cargo {}: {ended}", arguments.join(" ")))
}

/// Runs a program that must succeed, and returns what it printed; what it said is in the error.
fn succeed(command: &mut Command) -> Done<String> {
    let output = command
        .output()
        .map_err(|e| format!("cannot start {command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{text}{errors}", output.status))
}

/// Sections of one kind become one: thousands of headers would be larger than their content.
const SECTIONS: &str = "\
SECTIONS
{
  .text 0 : { *(.text .text.*) }
  .rodata 0 : { *(.rodata .rodata.*) }
  .data.rel.ro 0 : { *(.data.rel.ro .data.rel.ro.*) }
  .data 0 : { *(.data .data.*) }
  .tdata 0 : { *(.tdata .tdata.*) }
  .tbss 0 : { *(.tbss .tbss.*) }
  .bss 0 : { *(.bss .bss.*) }
  .gcc_except_table 0 : { *(.gcc_except_table .gcc_except_table.*) }
  .init_array 0 : { KEEP(*(.init_array .init_array.*)) }
  .eh_frame 0 : { *(.eh_frame) }
}
";

/// What the library needs of the system.
const SYSTEM: &[&str] = &["-pthread", "-ldl", "-lm"];

/// Installs the C library.
fn library(root: &Path, plan: &Plan, made: &Path, work: &Path) -> Done<()> {
    let capi = root.join("crates/capi");
    let read =
        |path: PathBuf| fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()));
    let map = read(capi.join("extant.map"))?;
    let functions = functions(&map);
    let version = version(&read(root.join("Cargo.toml"))?)?;
    let (major, _) = version.split_once('.').ok_or("the version has no dot")?;
    fs::create_dir_all(work).map_err(|e| format!("{}: {e}", work.display()))?;
    let at = |name: &str| work.join(name);
    let keep = |name: &str, content: &str| {
        fs::write(at(name), content).map_err(|e| format!("{}: {e}", at(name).display()))
    };
    keep("sections.ld", SECTIONS)?;
    keep("functions", &functions.join("\n"))?;

    // All sections of what is needed: ld drops those of unwinding with the others.
    let mut link = Command::new("ld");
    link.args(["-r", "-T"]).arg(at("sections.ld"));
    for function in &functions {
        link.arg("-u").arg(function);
    }
    link.arg("-o").arg(at("all.o"));
    succeed(link.arg(made))?;
    let mut hide = Command::new("objcopy");
    // The compiler's own form of the standard library is for compilers only.
    hide.args([
        "--strip-debug",
        "--strip-unneeded",
        "-R",
        ".llvmbc",
        "-R",
        ".llvmcmd",
    ]);
    hide.arg(format!(
        "--keep-global-symbols={}",
        at("functions").display()
    ));
    succeed(hide.arg(at("all.o")).arg(at("extant.o")))?;

    let archive = at("libextant.a");
    let _ = fs::remove_file(&archive);
    succeed(
        Command::new("ar")
            .arg("crsD")
            .args([&archive, &at("extant.o")]),
    )?;
    plan.copy(&archive, "lib/libextant.a", 0o644)?;

    let (soname, file) = (
        format!("libextant.so.{major}"),
        format!("libextant.so.{version}"),
    );
    let mut shared = Command::new("cc");
    shared.args(["-shared", "-o"]).arg(at(&file));
    shared.arg(at("extant.o"));
    shared.arg(format!("-Wl,-soname,{soname}"));
    shared.arg(format!(
        "-Wl,--version-script={}",
        capi.join("extant.map").display()
    ));
    shared.args([
        "-Wl,-z,relro,-z,now",
        "-Wl,-z,defs",
        "-Wl,--build-id=sha1",
        "-s",
    ]);
    succeed(shared.args(SYSTEM))?;
    plan.copy(&at(&file), &format!("lib/{file}"), 0o755)?;
    plan.link(&file, &format!("lib/{soname}"))?;
    plan.link(&soname, "lib/libextant.so")?;

    plan.copy(&capi.join("include/extant.h"), "include/extant.h", 0o644)?;
    plan.copy(&capi.join("man/extant.3"), "share/man/man3/extant.3", 0o644)?;
    let pc = |name: &str, libs: &str, private: &str| {
        let text = description(plan, &version, libs, private);
        plan.write(&format!("lib/pkgconfig/{name}.pc"), text.as_bytes(), 0o644)
    };
    let system = SYSTEM.join(" ");
    pc("extant", "-L${libdir} -lextant", &system)?;
    pc(
        "extant-static",
        &format!("${{libdir}}/libextant.a {system}"),
        "",
    )
}

/// A file for pkg-config.
fn description(plan: &Plan, version: &str, libs: &str, private: &str) -> String {
    let mut text = format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: extant\nDescription: ext2, ext3 and ext4 images, without a mount\n\
         URL: https://github.com/extant-fs/extant\nVersion: {version}\n\
         Cflags: -I${{includedir}}\nLibs: {libs}\n",
        plan.prefix.display()
    );
    if !private.is_empty() {
        let _ = writeln!(text, "Libs.private: {private}");
    }
    text
}

/// The functions that the library has, by its version script.
fn functions(map: &str) -> Vec<String> {
    let words = map.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let functions = words.filter(|word| word.starts_with("extant_"));
    functions.map(str::to_owned).collect()
}

/// The version of the workspace, by its manifest.
///
/// # Errors
/// A manifest without one.
pub fn version(manifest: &str) -> Done<String> {
    let (_, rest) = manifest
        .split_once("[workspace.package]")
        .ok_or("Cargo.toml has no workspace")?;
    let mut lines = rest
        .lines()
        .filter_map(|line| line.strip_prefix("version = "));
    let version = lines.next().ok_or("Cargo.toml has no version")?;
    Ok(version.trim_matches('"').to_owned())
}

/// Shells that complete the command, and where below a prefix they look for that.
pub const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/extant"),
    ("zsh", "share/zsh/site-functions/_extant"),
    ("fish", "share/fish/vendor_completions.d/extant.fish"),
];

/// Installs the program, its manual pages and what shells complete.
fn program(root: &Path, plan: &Plan, program: &Path) -> Done<()> {
    plan.copy(program, "bin/extant", 0o755)?;
    plan.link("../bin/extant", "sbin/mount.fuse.extant")?;
    let pages = plan.place("share/man/man1/extant.1")?;
    let dir = pages.parent().unwrap_or(&pages);
    succeed(Command::new(program).args(["man", "--dir"]).arg(dir))?;
    for (shell, place) in COMPLETIONS {
        let script = succeed(Command::new(program).args(["completions", shell]))?;
        plan.write(place, script.as_bytes(), 0o644)?;
    }
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        plan.copy(
            &root.join(licence),
            &format!("share/doc/extant/{licence}"),
            0o644,
        )?;
    }
    Ok(())
}
