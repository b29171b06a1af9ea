#!/usr/bin/env bash
# Installs servers of object stores that tests of remote images talk to. Two of S3 and one of Google
# Cloud Storage come by Go, to where Go installs programs (that directory must be in PATH). One of
# Azure comes by npm, to where it installs programs. A test that misses one says that it skips it.
set -euo pipefail

if ! command -v go >/dev/null; then
    echo "store-servers: go is missing: install Go 1.25 or later first (https://go.dev/dl)" >&2
    exit 1
fi
export GOFLAGS=-trimpath
command -v versitygw >/dev/null || go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
command -v gofakes3 >/dev/null || go install github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0
command -v fake-gcs-server >/dev/null || go install github.com/fsouza/fake-gcs-server@v1.56.1
if command -v azurite-blob >/dev/null; then exit; fi
if ! command -v npm >/dev/null; then
    echo "store-servers: npm is missing: install Node.js 20 or later first (https://nodejs.org)" >&2
    exit 1
fi
npm install --global --no-audit --no-fund azurite@3
