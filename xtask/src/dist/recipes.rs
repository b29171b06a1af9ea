//! What other package managers install the archives by: a formula for Homebrew, an expression for
//! Nix. Both name the archives of all targets of a run by address and digest.

use super::About;

/// An archive that can be fetched.
pub(super) struct Archive {
    /// The target's name.
    pub(super) target: String,
    /// The file's name.
    pub(super) name: String,
    /// SHA-256 in hexadecimal digits.
    pub(super) sha256: String,
}

/// The formula.
pub(super) fn homebrew(version: &str, from: &str, archives: &[Archive]) -> String {
    let mut places = String::new();
    for archive in archives {
        // What the formula calls processors; it knows no others.
        let processor = match archive.target.split('-').next() {
            Some("x86_64") => "intel",
            Some("aarch64") => "arm",
            _ => continue,
        };
        places.push_str(&format!(
            "    on_{processor} do\n      url \"{from}/{}\"\n      sha256 \"{}\"\n    end\n",
            archive.name, archive.sha256
        ));
    }
    format!(
        r##"# Made by `cargo xtask dist`.
class Extant < Formula
  desc "{summary}"
  homepage "{home}"
  version "{version}"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_linux do
{places}  end

  def install
    bin.install "bin/extant"
    sbin.install_symlink bin/"extant" => "mount.fuse.extant"
    man1.install Dir["share/man/man1/*.1"]
    bash_completion.install "share/bash-completion/completions/extant"
    zsh_completion.install "share/zsh/site-functions/_extant"
    fish_completion.install "share/fish/vendor_completions.d/extant.fish"
    doc.install Dir["share/doc/extant/*"]
  end

  test do
    (testpath/"tree").mkpath
    (testpath/"tree/name").write "value"
    system bin/"extant", "mkfs", "root.img", "--from", "tree", "--size", "4M"
    assert_equal "value", shell_output("#{{bin}}/extant cat root.img:/name")
    system bin/"extant", "check", "root.img"
  end
end
"##,
        summary = About::SUMMARY,
        home = About::HOMEPAGE,
    )
}

/// The expression, a function of `callPackage`.
pub(super) fn nix(version: &str, from: &str, archives: &[Archive]) -> String {
    let mut sources = String::new();
    for archive in archives {
        let processor = archive.target.split('-').next().unwrap_or_default();
        let system = match processor {
            "i686" | "x86_64" | "aarch64" => processor,
            "armv7" => "armv7l",
            _ => continue,
        };
        sources.push_str(&format!(
            "    {system}-linux = {{\n      url = \"{from}/{}\";\n      sha256 = \"{}\";\n    }};\n",
            archive.name, archive.sha256
        ));
    }
    format!(
        r##"# Made by `cargo xtask dist`: nix-build -E 'with import <nixpkgs> {{ }}; callPackage ./extant.nix {{ }}'
{{ lib, stdenvNoCC, fetchurl }}:

let
  sources = {{
{sources}  }};
  system = stdenvNoCC.hostPlatform.system;
in
stdenvNoCC.mkDerivation {{
  pname = "extant";
  version = "{version}";

  src = fetchurl (sources.${{system}} or (throw "extant has no program for ${{system}}"));

  # The program is static: nothing of it is to be changed.
  dontStrip = true;
  dontPatchELF = true;

  installPhase = ''
    runHook preInstall
    mkdir -p $out
    cp -r bin sbin share $out/
    runHook postInstall
  '';

  doInstallCheck = true;
  installCheckPhase = ''
    $out/bin/extant --version
  '';

  meta = {{
    description = "{summary}";
    homepage = "{home}";
    license = with lib.licenses; [ mit asl20 ];
    mainProgram = "extant";
    platforms = lib.attrNames sources;
    sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
  }};
}}
"##,
        summary = About::SUMMARY,
        home = About::HOMEPAGE,
    )
}

#[cfg(test)]
mod tests {
    use super::{Archive, homebrew, nix};

    #[test]
    fn recipes_name_each_archive_by_address_and_digest() {
        let archive = |target: &str, digit: &str| Archive {
            target: target.to_owned(),
            name: format!("extant-1.2.3-{target}.tar.gz"),
            sha256: digit.repeat(64),
        };
        let archives = [
            archive("x86_64-unknown-linux-musl", "a"),
            archive("aarch64-unknown-linux-musl", "b"),
            archive("s390x-unknown-linux-gnu", "c"),
        ];
        let from = "https://example.org/v1.2.3";
        for recipe in [
            homebrew("1.2.3", from, &archives),
            nix("1.2.3", from, &archives),
        ] {
            for archive in &archives[..2] {
                let address = format!("{from}/{}\"", archive.name);
                let at = recipe.find(&address).expect(&recipe);
                // Its own digest is the next thing that is said.
                let behind = &recipe[at..];
                let first = behind.find("sha256").unwrap();
                assert!(
                    behind[first..].split('"').nth(1) == Some(&archive.sha256),
                    "{recipe}"
                );
            }
            assert!(recipe.contains("\"1.2.3\""));
            for (open, close) in [('{', '}'), ('[', ']'), ('(', ')')] {
                let count = |c: char| recipe.matches(c).count();
                assert_eq!(count(open), count(close), "{recipe}");
            }
        }
        assert!(nix("1", from, &archives).contains("${system}"));
    }
}
