#!/usr/bin/env bash
# Installs two S3 servers that tests of remote images talk to, by Go, to where Go installs programs
# (that directory must be in PATH). Without them these tests say that they are skipped.
set -euo pipefail

if ! command -v go >/dev/null; then
    echo "s3-servers: go is missing: install Go 1.25 or later first (https://go.dev/dl)" >&2
    exit 1
fi
export GOFLAGS=-trimpath
command -v versitygw >/dev/null || go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
command -v gofakes3 >/dev/null || go install github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0
