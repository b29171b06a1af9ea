#!/usr/bin/env bash
# The whole test run, as described in docs/dev/testing.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"

# A first build has nothing to go on from, and keeps nothing for the next one, which takes time of its own.
if [ ! -d "${CARGO_TARGET_DIR:-target}/debug/incremental" ]; then
    export CARGO_INCREMENTAL="${CARGO_INCREMENTAL:-0}"
fi

# The seeds of random tests are made from the code of the engine and its model: other ones whenever that changes, the same
# when it is tested again.
code_sum() {
    find crates/store crates/core crates/testkit -name '*.rs' -print0 | LC_ALL=C sort -z | xargs -0 cat | sha1sum | cut -c 1-40
}
export EXTANT_SEED_FROM="${EXTANT_SEED_FROM:-$(code_sum)}"

step() {
    printf '\n== %s (%s)\n' "$1" "$(date -u +%H:%M:%S)"
}

echo "seeds are made from EXTANT_SEED_FROM=$EXTANT_SEED_FROM"
step "set-up"
scripts/setup.sh

if cargo fmt --version >/dev/null 2>&1; then
    step "formatting"
    cargo fmt --all -- --check
else
    echo "SKIPPED: formatting: rustfmt is not installed"
fi

if cargo clippy --version >/dev/null 2>&1; then
    step "clippy"
    # With the features that exchange code. What stands in its place without them is seen below.
    cargo clippy --locked --workspace --all-targets --features extant-bench/baseline,extant-bench/lockstat -- -D warnings
    look=(cargo clippy --locked)
    strict=(-- -D warnings)
else
    echo "SKIPPED: clippy is not installed"
    look=(cargo check --locked)
    strict=()
fi

# What programs build on: without the engine underneath, which the tests see.
step "the stable library"
"${look[@]}" -p extant -p extant-capi "${strict[@]}"
for feature in check mkfs tar; do
    cargo check --locked -p extant --features "$feature"
done
for package in extant-capi extant-cli; do
    cargo check --locked -p "$package" --no-default-features
done

# What a registry would get, and licences of what it depends on.
step "packages"
cargo xtask packages

step "build"
# With the tests, whose dependencies have other features than the programs alone: otherwise all is built twice. What tests have
# judged by e2fsck is judged by `extant check` too.
cargo test --locked --workspace --no-run
EXTANT_CHECKER="$(realpath "${CARGO_TARGET_DIR:-target}")/debug/extant"
export EXTANT_CHECKER

step "tests"
cargo test --locked --workspace --no-fail-fast

# Over the library that the tests have; skipped by name where there is no Go.
step "Go"
EXTANT_CAPI_ARCHIVE="$(realpath "${CARGO_TARGET_DIR:-target}")/debug/deps/libextant_capi.a" cargo xtask everywhere --no-record go

# What the engine is compared with does the same work.
step "replaced forms"
cargo test --locked -p extant-store -p extant-core --features extant-core/baseline --lib -- alloc:: store_tests:: data::baseline::

# Locks and atomics that workers share are counted.
step "what workers share"
cargo test --locked -p extant-bench --features baseline,lockstat --test it -- shares_nothing table_of_locks needs_more

step "deliberate mistakes"
cargo xtask mutants

step "models"
cargo xtask model

step "instructions"
cargo xtask instructions

step "tidy"
cargo xtask tidy

step "done"
