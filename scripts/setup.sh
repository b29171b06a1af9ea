#!/usr/bin/env bash
# Installs the programs the tests compare with. Does nothing, without network, when all are there.
set -euo pipefail

# program:package, on Debian and Ubuntu; a path stands for a file
needed=(
    /etc/selinux/default/contexts/files/file_contexts:selinux-policy-default
    bmaptool:bmap-tools
    bsdtar:libarchive-tools
    bzip2:bzip2
    casync:casync
    cc:gcc
    cp:coreutils
    curl:curl
    debugfs:e2fsprogs
    dumpe2fs:e2fsprogs
    e2cp:e2tools
    e2fsck:e2fsprogs
    fakeroot-pseudo:pseudo
    fakeroot:fakeroot
    file:file
    fish:fish
    fsverity:fsverity
    fuse2fs:fuse2fs
    fusermount3:fuse3
    genext2fs:genext2fs
    genimage:genimage
    getfattr:attr
    git:git
    groff:groff-base
    gzip:gzip
    img2simg:android-sdk-libsparse-utils
    jq:jq
    jsonschema:python3-jsonschema
    logsave:logsave
    losetup:mount
    lz4:lz4
    mke2fs:e2fsprogs
    mksquashfs:squashfs-tools
    mkswap:util-linux
    modprobe:kmod
    mtree:mtree-netbsd
    nbd-server:nbd-server
    nbdcopy:libnbd-bin
    nbdfuse:libnbd-bin
    nbdinfo:libnbd-bin
    nbdkit:nbdkit
    nginx:nginx-light
    openssl:openssl
    python3:python3
    qemu-img:qemu-utils
    qemu-io:qemu-utils
    qemu-nbd:qemu-utils
    rsync:rsync
    selabel_lookup:selinux-utils
    setcap:libcap2-bin
    setfacl:acl
    setfiles:policycoreutils
    setpriv:util-linux
    sfdisk:fdisk
    sgdisk:gdisk
    simg2img:android-sdk-libsparse-utils
    skopeo:skopeo
    strings:binutils
    systemd-analyze:systemd
    systemd-repart:systemd
    tar:tar
    umoci:umoci
    valgrind:valgrind
    veritysetup:cryptsetup-bin
    xz:xz-utils
    zsh:zsh
    zstd:zstd
)

PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
missing=()
for entry in "${needed[@]}"; do
    program=${entry%%:*} package=${entry#*:}
    command -v "$program" >/dev/null || [[ $program == /* && -e $program ]] || missing+=("$package")
done

if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing: install Rust first (https://rustup.rs)" >&2
    exit 1
fi

if [ ${#missing[@]} -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "setup: missing programs; install what brings them here (Debian names: ${missing[*]})" >&2
        exit 1
    elif [ "$(id -u)" -eq 0 ]; then
        as_root=()
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        echo "setup: missing packages; run as root:" >&2
        echo "    apt-get update && $install" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install
fi

# Modules that mounting needs; where there are none to load, the tests say what they miss. Ordinary users mount through
# /dev/fuse, which rules of udev open to them: where no udev runs, nobody has.
if [ "$(id -u)" -eq 0 ]; then
    for module in fuse loop ext4; do
        modprobe -q "$module" 2>/dev/null || true
    done
    if [ -c /dev/fuse ] && [ "$(stat -c %a /dev/fuse)" != 666 ]; then
        echo "setup: opening /dev/fuse to all users (mode 666)"
        chmod 666 /dev/fuse || echo "setup: ordinary users cannot mount here, and tests of that fail" >&2
    fi
fi
