//! The toolchain that builds for other targets.
//!
//! A target counts as there when its standard library is; with rustup that is `rustup target add
//! TARGET`. `EXTANT_CROSS_CARGO` names another `cargo`, such as one that builds the standard
//! library itself, with the arguments that this needs in `EXTANT_CROSS_ARGS` (`-Zbuild-std`). Every
//! target then counts as there.

use crate::programs::{Done, missing, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cargo, and the arguments with which it builds for others.
pub(crate) struct Toolchain {
    /// Another cargo than the one that runs the chore.
    cargo: Option<String>,
    arguments: Vec<String>,
}

impl Toolchain {
    /// What the environment says.
    pub(crate) fn find() -> Self {
        let arguments = std::env::var("EXTANT_CROSS_ARGS").unwrap_or_default();
        Self {
            cargo: std::env::var("EXTANT_CROSS_CARGO").ok(),
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        }
    }

    /// `cargo` in the workspace.
    pub(crate) fn cargo(&self, root: &Path) -> Command {
        let own = || std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let other = self.cargo.as_ref().map(Into::into);
        let mut cargo = Command::new(other.unwrap_or_else(own));
        cargo.current_dir(root);
        if self.cargo.is_some() {
            // Those of the compiler that runs the chore.
            for variable in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC"] {
                cargo.env_remove(variable);
            }
        }
        cargo
    }

    /// What stands behind the command.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Where LLVM's linker is, under the name by which C compilers look for it, or `None` where it
    /// is in the search path.
    ///
    /// # Errors
    /// A sentence where it is neither there nor beside the compiler.
    pub(crate) fn linker(&self) -> Done<Option<PathBuf>> {
        if self.cargo.is_none() {
            let said = succeed(Command::new("rustc").args(["--print", "target-libdir"]))?;
            let folder = Path::new(said.trim())
                .parent()
                .map(|it| it.join("bin/gcc-ld"));
            if let Some(folder) = folder.filter(|folder| folder.join("ld.lld").exists()) {
                return Ok(Some(folder));
            }
        }
        let without = missing(&[("ld.lld", "lld")]);
        if without.is_empty() {
            return Ok(None);
        }
        Err(format!("not installed: {}", without.join(", ")))
    }

    /// Whether it can build for a target.
    pub(crate) fn has(&self, target: &str) -> bool {
        if self.cargo.is_some() {
            return true;
        }
        let mut rustc = Command::new("rustc");
        let found = succeed(rustc.args(["--print", "target-libdir", "--target", target]));
        found.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
    }
}
