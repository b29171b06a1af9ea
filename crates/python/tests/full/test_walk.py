"""Walks of many directories, ahead of which a thread reads."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
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


def end(others: int) -> bool:
    """Whether no more threads than these will be left."""
    deadline = time.monotonic() + 20
    while len(threads()) > others and time.monotonic() < deadline:
        time.sleep(0.001)
    return len(threads()) <= others


Listed = tuple[str, list[str], list[str]]


def in_order(fs: extant.FileSystem, top: str, topdown: bool) -> Iterator[Listed]:
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
        # Of walks before, whose threads end in their own time.
        others = len(threads())
        walk = fs.walk("/", topdown=topdown)
        seen = []
        for step in walk:
            seen.append(step)
            if len(seen) == 20:
                assert len(threads()) <= others + 1
            time.sleep(random.choice((0, 0, 0.0005)))
        assert seen == expected
    assert end(others)


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


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with more directories than are planned at once: beside each other, and in depth."""
    path = tmp_path_factory.mktemp("wide") / "wide.img"
    extant.mkfs(path, 96 << 20, inodes=16384)
    chance = random.Random(11)
    with extant.open(path, writable=True) as fs:
        dirs = [b"/"]
        for n in range(3000):
            # Many in few, some of them deep, and names that are no UTF-8.
            within = chance.choice((dirs[0], dirs[-1], chance.choice(dirs), dirs[len(dirs) // 2]))
            if within.count(b"/") > 60:
                within = dirs[1]
            name = b"d\xff%d" % n if n % 7 == 0 else b"d%d" % n
            dirs.append(within.rstrip(b"/") + b"/" + name)
            fs.mkdir(dirs[-1])
            for m in range(chance.choice((0, 0, 1, 3))):
                fs.write_bytes(dirs[-1] + b"/f%d" % m, b"")
    return path


@pytest.mark.parametrize("topdown", [True, False])
def test_more_directories_than_are_planned_come_in_order(wide: Path, topdown: bool) -> None:
    with extant.open(wide) as fs:
        expected = list(in_order(fs, "/", topdown))
        # And `lost+found`.
        assert len(expected) == 3002
        assert list(fs.walk("/", topdown=topdown)) == expected
        raw = [
            (os.fsencode(top), [*map(os.fsencode, dirs)], [*map(os.fsencode, files)])
            for top, dirs, files in expected
        ]
        assert list(fs.walk(b"/", topdown=topdown)) == raw
    # There the order is another one, of what may change meanwhile.
    with extant.open(wide, writable=True) as fs:
        assert list(fs.walk("/", topdown=topdown)) == list(in_order(fs, "/", topdown))


def edited(
    fs: extant.FileSystem, top: str, edit: Callable[[str, list[str]], None]
) -> Iterator[str]:
    """The directories of a walk whose lists are changed, ahead of which nothing reads."""
    with fs.scandir(top) as entries:
        dirs = [entry.name for entry in entries if entry.is_dir()]
    yield top
    edit(top, dirs)
    for name in dirs:
        if fs.isdir(os.path.join(top, name)):
            yield from edited(fs, os.path.join(top, name), edit)


def test_lists_may_be_changed_in_every_way(wide: Path) -> None:
    def edit(top: str, dirs: list[str]) -> None:
        chance = random.Random(os.fsencode(top))
        match chance.randrange(5):
            case 0:
                dirs.sort()
            case 1:
                dirs.reverse()
            case 2:
                del dirs[len(dirs) // 2 :]
            case 3:
                dirs[:] = [name for name in dirs if chance.randrange(3)]
            case _:
                dirs.insert(chance.randrange(len(dirs) + 1), "not there")

    failed: list[OSError] = []
    with extant.open(wide) as fs:
        expected = list(edited(fs, "/", edit))
        seen = []
        for top, dirs, _ in fs.walk("/", onerror=failed.append):
            seen.append(top)
            edit(top, dirs)
    assert len(seen) > 100 and seen == expected
    assert failed and all(isinstance(e, FileNotFoundError) for e in failed)


def inode(image: Path, path: str) -> str:
    with extant.open(image) as fs:
        return f"<{fs.stat(path).st_ino}>"


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("topdown", [True, False])
@pytest.mark.parametrize("within", ["/", "/a", "/a/b"])
def test_a_directory_that_lies_in_itself_ends(
    tmp_path: Path, within: str, topdown: bool, writable: bool
) -> None:
    image = tmp_path / "loop.img"
    extant.mkfs(image, 8 << 20)
    with extant.open(image, writable=True) as fs:
        fs.makedirs("/a/b/c/d")
        fs.mkdir("/z")
    run("debugfs", "-w", "-R", f"link {inode(image, within)} /a/b/c/again", image)
    failed: list[OSError] = []
    with extant.open(image, writable=writable) as fs:
        seen = {top for top, _, _ in fs.walk("/", topdown, failed.append)}
        assert seen == {"/", "/lost+found", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/z"}
    assert [type(e) for e in failed] == [extant.DamagedError]
    assert failed[0].filename == "/a/b/c/again"


def test_directories_that_lie_in_several_are_entered_once(tmp_path: Path) -> None:
    image = tmp_path / "twice.img"
    extant.mkfs(image, 8 << 20)
    with extant.open(image, writable=True) as fs:
        fs.makedirs("/" + "/".join(f"d{n}" for n in range(40)))
    # Each leads to the next in two ways: so many paths that they have no end.
    at = ""
    for n in range(39):
        at += f"/d{n}"
        run("debugfs", "-w", "-R", f"link {inode(image, f'{at}/d{n + 1}')} {at}/e{n + 1}", image)
    failed: list[OSError] = []
    with extant.open(image) as fs:
        assert len(list(fs.walk("/", onerror=failed.append))) == 42
    assert len(failed) == 39
    assert all(isinstance(e, extant.DamagedError) for e in failed)


def test_links_are_followed_where_that_is_wished(tmp_path: Path) -> None:
    image = tmp_path / "links.img"
    extant.mkfs(image, 8 << 20)
    with extant.open(image, writable=True) as fs:
        fs.makedirs("/a/b")
        fs.symlink("a", "/link")
        fs.symlink("nowhere", "/dead")
    with extant.open(image) as fs:
        top, dirs, files = next(iter(fs.walk("/")))
        assert (sorted(dirs), files) == (["a", "link", "lost+found"], ["dead"])
        assert "/link" not in [top for top, _, _ in fs.walk("/")]
        followed = sorted(top for top, _, _ in fs.walk("/", followlinks=True))
        assert followed == ["/", "/a", "/a/b", "/link", "/link/b", "/lost+found"]
