#!/usr/bin/env bash
# Builds Extant and runs its main job: make an image from a directory, look into it, write to it, check it and
# read it back.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/toolchain.sh

cargo build --release
extant="${CARGO_TARGET_DIR:-target}/release/extant"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() {
    printf '\n$ extant %s\n' "$*"
    "$extant" "$@"
}

run mkfs "$work/docs.img" --from docs --size 16M
run info "$work/docs.img"
run mkdir "$work/docs.img:/project"
run cp README.md CHANGELOG.md "$work/docs.img:/project/"
run mv "$work/docs.img:/project/CHANGELOG.md" "$work/docs.img:/project/changes"
run chmod 600 "$work/docs.img:/project/changes"
printf '\n$ date | extant write %s\n' "$work/docs.img:/project/made"
date | "$extant" write "$work/docs.img:/project/made"
run ls -l "$work/docs.img:/" "$work/docs.img:/project"
run check "$work/docs.img"
if command -v e2fsck >/dev/null; then
    printf '\n$ e2fsck -fn %s\n' "$work/docs.img"
    e2fsck -fn "$work/docs.img"
fi
run cp -a "$work/docs.img:/" "$work/out"
diff -r --exclude lost+found --exclude project docs "$work/out"
cmp README.md "$work/out/project/README.md"
run cat "$work/docs.img:/design/architecture.md" | head -n 5
printf '\nThe files in the image are identical to those that went in. The command is %s\n' "$extant"
