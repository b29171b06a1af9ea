"""Images that the tests share, made by others than Extant."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def run(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory of the host with something of everything."""
    top = tmp_path / "tree"
    (top / "etc" / "deep" / "er").mkdir(parents=True)
    (top / "etc" / "hostname").write_text("box\n")
    (top / "etc" / "name").symlink_to("hostname")
    (top / "etc" / "link").symlink_to("deep")
    (top / "etc" / "nowhere").symlink_to("/missing")
    (top / "many").mkdir()
    for n in range(1500):
        (top / "many" / f"file number {n}").write_bytes(str(n).encode())
    with open(os.fsencode(top / "etc") + b"/\xff odd", "wb") as odd:
        odd.write(b"odd")
    with open(top / "sparse", "wb") as sparse:
        sparse.seek(3 << 20)
        sparse.write(b"end")
    (top / "big").write_bytes(bytes(range(256)) * (20 << 10))
    os.utime(top / "big", ns=(3_111_111_111_222_333_444, -5_000_000_001))
    os.chmod(top / "etc" / "hostname", 0o4640)
    os.link(top / "big", top / "twice")
    if os.geteuid() == 0:
        os.chown(top / "big", 70_000, 80_000)
        os.setxattr(top / "big", "user.origin", b"here")
    return top


@pytest.fixture
def image(tmp_path: Path, tree: Path) -> Path:
    """An image of the tree that mke2fs made."""
    path = tmp_path / "disk.img"
    with open(path, "wb") as file:
        file.truncate(96 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-d", tree, path)
    return path


@contextlib.contextmanager
def mounted(image: Path, *options: str) -> Iterator[Path]:
    """The kernel's view of an image."""
    point = image.parent / "mnt"
    point.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-o", ",".join(("loop", *options)), image, point], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"SKIPPED: this machine does not mount images: {done.stderr.strip()}")
    try:
        yield point
    finally:
        run("umount", point)


def assert_sound(image: Path) -> None:
    """What e2fsck says."""
    done = subprocess.run(["e2fsck", "-fn", image], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
