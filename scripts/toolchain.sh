# Sourced by the other scripts. rust-toolchain.toml asks for stable; where rustup has other toolchains only, its default
# will do, and nothing is downloaded.
if command -v rustup >/dev/null && ! rustup toolchain list | grep -q '^stable'; then
    RUSTUP_TOOLCHAIN="${RUSTUP_TOOLCHAIN:-$(cd / && rustup default | cut -d ' ' -f 1)}"
    export RUSTUP_TOOLCHAIN
fi
