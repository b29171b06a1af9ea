#!/usr/bin/env bash
# Builds Extant and runs its main job: make an image from a directory, look into it, read it back.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release
extant=target/release/extant
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
    printf '\n$ extant %s\n' "$*"
    "$extant" "$@"
}

run mkfs "$work/docs.img" --from docs --size auto
run info "$work/docs.img"
run ls -l "$work/docs.img:/"
run cp -a "$work/docs.img:/" "$work/out"
diff -r --exclude lost+found docs "$work/out"
run cat "$work/docs.img:/architecture.md" | head -n 5
printf '\nThe files in the image are identical to the directory. The command is %s\n' "$extant"
