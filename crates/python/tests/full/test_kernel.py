"""What Python sees of an image is what Linux sees, and the other way round."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from conftest import assert_sound, mounted, run

import extant

FIELDS = [
    "st_mode",
    "st_ino",
    "st_nlink",
    "st_uid",
    "st_gid",
    "st_size",
    "st_blocks",
    "st_blksize",
    "st_rdev",
    "st_atime_ns",
    "st_mtime_ns",
    "st_ctime_ns",
    "st_mtime",
]


def test_a_walk_sees_what_linux_sees(image: Path) -> None:
    with mounted(image, "ro", "noatime") as point, extant.open(image) as fs:
        root = os.fsencode(point)
        seen = 0
        for topdown in (True, False):
            ours = list(fs.walk(b"/", topdown=topdown))
            theirs = list(os.walk(root, topdown=topdown))
            assert {top for top, _, _ in ours} == {t[len(root) :] or b"/" for t, _, _ in theirs}
            by_top = {(t[len(root) :] or b"/"): (d, f) for t, d, f in theirs}
            for top, dirs, files in ours:
                assert (sorted(dirs), sorted(files)) == tuple(map(sorted, by_top[top]))
                for name in dirs + files:
                    path = top.rstrip(b"/") + b"/" + name
                    found, wanted = fs.lstat(path), os.lstat(root + path)
                    for field in FIELDS:
                        assert getattr(found, field) == getattr(wanted, field), (path, field)
                    # All but the number of the device.
                    assert list(found)[3:] == list(wanted)[3:]
                    if stat.S_ISREG(wanted.st_mode):
                        assert fs.read_bytes(path) == Path(os.fsdecode(root + path)).read_bytes()
                    if stat.S_ISLNK(wanted.st_mode):
                        assert fs.readlink(path) == os.readlink(root + path)
                    names = os.listxattr(root + path, follow_symlinks=False)
                    assert fs.listxattr(path, follow_symlinks=False) == names
                    for name in names:
                        ours_value = fs.getxattr(path, name, follow_symlinks=False)
                        assert ours_value == os.getxattr(root + path, name, follow_symlinks=False)
                    seen += 1
        assert seen > 3000


PATTERNS = ["*", "etc/*", "**/h*", "**", "many/*9?", "e*/d*/**", "etc/deep/.."]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_find_what_pathlib_finds(image: Path, tree: Path, pattern: str) -> None:
    with extant.open(image) as fs:
        ours = {str(found).lstrip("/") for found in fs.path("/").glob(pattern)}
    theirs = {str(found.relative_to(tree)) for found in tree.glob(pattern)} - {"."}
    ours -= {"", "lost+found"}
    assert ours == theirs


def test_linux_reads_what_python_wrote(image: Path) -> None:
    with extant.open(image, writable=True) as fs:
        fs.makedirs("/new/deep")
        with fs.open("/new/text", "w", encoding="utf-8") as file:
            file.writelines(f"line {n}\n" for n in range(100_000))
        with fs.open("/new/text", "r+b") as file:
            file.seek(5)
            file.write(b"ZERO!")
        with fs.open("/new/holes", "wb") as file:
            file.truncate(10 << 20)
            file.seek(5 << 20)
            file.write(b"middle")
        fs.symlink("../big", "/new/link")
        fs.mknod("/new/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        fs.chmod("/new/link", 0o604)
        fs.chown("/new/text", 5, 6)
        fs.utime("/new/text", ns=(1, 15_000_000_000 * 10**9 + 999_999_999))
        fs.setxattr("/new/text", "user.long", b"x" * 700)
        fs.write_bytes(b"/new/\x80", b"")
    assert_sound(image)
    with mounted(image, "ro") as point:
        wanted = "".join(f"line {n}\n" for n in range(100_000)).encode()
        text = point / "new" / "text"
        assert text.read_bytes() == wanted[:5] + b"ZERO!" + wanted[10:]
        assert (text.stat().st_uid, text.stat().st_gid) == (5, 6)
        assert text.stat().st_mtime_ns == 15_000_000_000 * 10**9 + 999_999_999
        assert os.getxattr(text, "user.long") == b"x" * 700
        holes = point / "new" / "holes"
        assert holes.stat().st_size == 10 << 20 and holes.stat().st_blocks < 100
        assert stat.S_IMODE((point / "big").stat().st_mode) == 0o604
        assert (point / "new" / "null").stat().st_rdev == os.makedev(1, 3)
        assert b"\x80" in os.listdir(os.fsencode(point / "new"))


def test_debugfs_agrees_where_nothing_is_mounted(image: Path) -> None:
    with extant.open(image) as fs:
        found = fs.stat("/big")
        with fs.open("/sparse", "rb", 0) as file:
            assert file.seek(0, os.SEEK_DATA) == 3 << 20
            assert file.seek(0, os.SEEK_HOLE) == 0
    told = run("debugfs", "-R", "stat /big", image)
    assert f"Inode: {found.st_ino} " in told and f"Size: {found.st_size}" in told
    assert "Links: 2" in told


def test_a_made_image_is_sound_and_the_same_each_time(tmp_path: Path, tree: Path) -> None:
    images = [tmp_path / "one.img", tmp_path / "two.img"]
    for path in images:
        made = extant.mkfs(path, source=tree, label="made", time=1_700_000_000)
        assert made.size == path.stat().st_size
        assert_sound(path)
    assert images[0].read_bytes() == images[1].read_bytes()
    with pytest.raises(FileExistsError):
        extant.mkfs(images[0], 8 << 20)
    with pytest.raises(OSError, match="the source needs"):
        extant.mkfs(images[0], 1 << 20, source=tree, overwrite=True)
    with pytest.raises(FileNotFoundError):
        extant.mkfs(tmp_path / "no.img", source=tmp_path / "missing")
    assert "made" in run("dumpe2fs", "-h", images[0])
