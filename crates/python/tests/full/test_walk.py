"""Walks of many directories, ahead of which a thread reads."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import run

import extant


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with 400 directories of several depths, some of them empty, one large."""
    top = tmp_path_factory.mktemp("walk")
    random.seed(7)
    dirs = [top / "tree"]
    for n in range(400):
        dirs.append(random.choice(dirs[-9:]) / f"dir {n}")
        dirs[-1].mkdir(parents=True)
        for m in range(random.choice((0, 1, 5, 40))):
            (dirs[-1] / f"file {m}").touch()
    for m in range(3000):
        (dirs[200] / f"one of many files, the {m}th").touch()
    path = top / "many.img"
    with open(path, "wb") as file:
        file.truncate(64 << 20)
    run("mke2fs", "-q", "-t", "ext4", "-N", "16384", "-d", top / "tree", path)
    return path


def threads() -> list[str]:
    """The names of this process's threads that read ahead."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            name = Path(f"/proc/self/task/{task}/comm").read_text().strip()
        except OSError:
            continue
        if name == "extant-walk":
            found.append(name)
    return found


def become(count: int) -> bool:
    """Whether there will be so many: they begin and end in their own time."""
    deadline = time.monotonic() + 20
    while len(threads()) != count and time.monotonic() < deadline:
        time.sleep(0.001)
    return len(threads()) == count


def in_order(fs: extant.FileSystem, top: str, topdown: bool) -> Iterator[tuple[str, list[str], list[str]]]:
    """A walk by `scandir`, ahead of which nothing reads."""
    dirs, files = [], []
    with fs.scandir(top) as entries:
        for entry in entries:
            (dirs if entry.is_dir() else files).append(entry.name)
    if topdown:
        yield top, dirs, files
    for name in dirs:
        yield from in_order(fs, os.path.join(top, name), topdown)
    if not topdown:
        yield top, dirs, files


@pytest.mark.parametrize("topdown", [True, False])
def test_a_walk_gives_every_directory_once_and_in_order(many: Path, topdown: bool) -> None:
    with extant.open(many) as fs:
        expected = list(in_order(fs, "/", topdown))
        assert len(expected) == 402
        assert list(fs.walk("/", topdown=topdown)) == expected
        walk = fs.walk("/", topdown=topdown)
        seen = []
        for step in walk:
            seen.append(step)
            if len(seen) == 20:
                assert len(threads()) <= 1
            time.sleep(random.choice((0, 0, 0.0005)))
        assert seen == expected
    assert become(0)


def test_what_is_pruned_is_not_entered(many: Path) -> None:
    with extant.open(many) as fs:
        expected = [top for top, _, _ in in_order(fs, "/", True) if "5" not in top]
        seen = []
        for top, dirs, _ in fs.walk("/"):
            seen.append(top)
            # The last that is left comes first.
            dirs[:] = [name for name in reversed(dirs) if "5" not in name]
        assert sorted(seen) == sorted(expected) and seen != expected


def test_a_walk_that_is_left_leaves_no_thread(many: Path) -> None:
    with extant.open(many) as fs:
        walks = [fs.walk("/") for _ in range(3)]
        for walk in walks:
            for _ in range(50):
                next(walk)
        assert become(3)
        del walk
        walks.pop()
        assert become(2)
    # That which was dropped ends by itself, and to close waits for the others.
    assert threads() == []
    with pytest.raises(ValueError, match="closed"):
        next(walks[0])


def test_several_walks_go_side_by_side(many: Path) -> None:
    wrong = []
    with extant.open(many) as fs:
        expected = list(fs.walk("/"))

        def work() -> None:
            for _ in range(5):
                if list(fs.walk("/")) != expected:
                    wrong.append(1)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive()
    assert wrong == []


def test_a_directory_that_cannot_be_read_is_told(many: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.img"
    broken.write_bytes(many.read_bytes())
    with extant.open(many) as fs:
        tops = [top for top, _, _ in fs.walk("/")]
    victim = tops[250]
    run("debugfs", "-w", "-R", f'set_inode_field "{victim}" block[2] 0xffffff', broken)
    run("debugfs", "-w", "-R", f'set_inode_field "{victim}" flags 0', broken)
    failed: list[OSError] = []
    with extant.open(broken) as fs:
        seen = [top for top, _, _ in fs.walk("/", onerror=failed.append)]
    assert len(failed) == 1 and victim in str(failed[0])
    assert seen == [top for top in tops if top != victim and not top.startswith(victim + "/")]


def test_what_is_written_during_a_walk_is_seen(many: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.img"
    copy.write_bytes(many.read_bytes())
    with extant.open(copy, writable=True) as fs:
        for n, (top, dirs, files) in enumerate(fs.walk("/")):
            if "late" in files:
                n = -1
                break
            if n > 30 and dirs:
                fs.write_bytes(f"{top}/{dirs[0]}/late", b"")
        assert n == -1
        assert threads() == []
