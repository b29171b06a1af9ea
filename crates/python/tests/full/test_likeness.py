"""Arguments, patterns and exceptions, compared with `os` and `pathlib` on a directory."""

from __future__ import annotations

import copy
import errno
import io
import os
import pathlib
import pickle
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import extant

MIB = 1 << 20


@pytest.fixture
def image(tmp_path: Path) -> Path:
    image = tmp_path / "disk.img"
    extant.mkfs(image, 16 * MIB)
    return image


@pytest.fixture
def pair(image: Path, tmp_path: Path) -> Iterator[tuple[extant.Filesystem, Path]]:
    """The same files in an image and on the host."""
    host = tmp_path / "host"
    host.mkdir()
    with extant.open(image, writable=True) as fs:
        fs.rmdir("/lost+found")
        for top in (fs.path("/"), host):
            (top / "d" / "deep").mkdir(parents=True)
            (top / "d" / "f.txt").write_text("text")
            (top / "f.txt").write_text("text")
            (top / "full").mkdir()
            (top / "full" / "file").write_text("")
            (top / "link").symlink_to("f.txt")
            (top / "to-d").symlink_to("d", True)
            (top / "loop").symlink_to("loop")
        yield fs, host


def failure(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except Exception as e:
        return e
    return None


def told(e: BaseException | None, host: Path) -> tuple[Any, ...]:
    """What an exception says besides its text, of paths from the root on."""
    if not isinstance(e, OSError):
        return (type(e),)
    names = [n.replace(str(host), "") if isinstance(n, str) else n for n in (e.filename, e.filename2)]
    return (type(e), e.errno, *names)


@pytest.mark.parametrize(
    "pattern",
    ["*/", "*/*/", "f.txt/", "d/", "link/", "to-d/", "**/", "**/f.txt/", "none/", "loop/", "*/deep/"],
)
def test_a_slash_at_the_end_means_directories(pair: Any, pattern: str) -> None:
    fs, host = pair
    for method in ("glob", "rglob"):
        ours = {str(p) for p in getattr(fs.path("/"), method)(pattern)}
        theirs = {str(p).removeprefix(str(host)) or "/" for p in getattr(host, method)(pattern)}
        assert ours == theirs
    assert set(fs.glob(pattern)) == {str(p) for p in fs.path("/").glob(pattern)}


def test_no_pattern_means_all_directories(pair: Any) -> None:
    fs, host = pair
    ours = {str(p) for p in fs.path("/").rglob("")}
    # Newer versions of `rglob("")` give files as well.
    assert ours == {str(p).removeprefix(str(host)) or "/" for p in host.glob("**/")}
    with pytest.raises(ValueError):
        list(fs.path("/").glob(""))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/none", "/new"),
        ("/f.txt", "/none/new"),
        ("/f.txt", "/f.txt/new"),
        ("/d", "/full"),
        ("/f.txt", "/d"),
        ("/d", "/f.txt"),
        ("/d", "/d/below"),
        ("/loop/x", "/new"),
    ],
)
def test_two_paths_are_in_exceptions(pair: Any, one: str, other: str) -> None:
    fs, host = pair
    for name in ("rename", "replace", "link", "symlink"):
        ours = failure(lambda: getattr(fs, name)(one, other))
        at = one if name == "symlink" else f"{host}{one}"
        theirs = failure(lambda: getattr(os, name)(at, f"{host}{other}"))
        assert told(ours, host) == told(theirs, host), name
    for name in ("rename", "replace"):
        ours = failure(lambda: getattr(fs.path(one), name)(other))
        theirs = failure(lambda: getattr(Path(f"{host}{one}"), name)(f"{host}{other}"))
        assert told(ours, host) == told(theirs, host)
    assert failure(lambda: fs.exchange("/none", "/d")).filename2 == "/d"


def test_one_path_is_in_exceptions(pair: Any) -> None:
    fs, host = pair
    for name, arguments in (
        ("stat", ()),
        ("lstat", ()),
        ("listdir", ()),
        ("mkdir", ()),
        ("rmdir", ()),
        ("unlink", ()),
        ("readlink", ()),
        ("truncate", (5,)),
        ("truncate", (-1,)),
        ("chmod", (0o600,)),
    ):
        for path in ("/none", "/none/x", "/loop/x", "/f.txt/x", ""):
            at = f"{host}{path}" if path else ""
            ours = failure(lambda: getattr(fs, name)(path, *arguments))
            theirs = failure(lambda: getattr(os, name)(at, *arguments))
            assert told(ours, host) == told(theirs, host), (name, path)


@pytest.fixture
def theirs(pair: Any) -> Iterator[Any]:
    with open(pair[1] / "f.txt", "r+b", 0) as file:
        yield file


def test_numbers_that_are_negative_or_large(pair: Any, theirs: Any) -> None:
    fs, host = pair
    ours = fs.open("/f.txt", "r+b", 0)
    number = theirs.fileno()
    for one, other in (
        (lambda: fs.truncate("/f.txt", -1), lambda: os.truncate(host / "f.txt", -1)),
        (lambda: fs.truncate("/f.txt", 1 << 70), lambda: os.truncate(host / "f.txt", 1 << 70)),
        (lambda: ours.truncate(-1), lambda: theirs.truncate(-1)),
        (lambda: ours.pread(1, -1), lambda: os.pread(number, 1, -1)),
        (lambda: ours.pread(-1, 0), lambda: os.pread(number, -1, 0)),
        (lambda: ours.preadinto(bytearray(1), -1), lambda: os.preadv(number, [bytearray(1)], -2)),
        (lambda: ours.pwrite(b"x", -1), lambda: os.pwrite(number, b"x", -1)),
        (lambda: ours.allocate(-1, 5), lambda: os.posix_fallocate(number, -1, 5)),
        (lambda: ours.allocate(0, -5), lambda: os.posix_fallocate(number, 0, -5)),
        (lambda: ours.seek(-1), lambda: theirs.seek(-1)),
    ):
        mine, wanted = failure(one), failure(other)
        assert wanted is not None
        assert type(mine) is type(wanted)
        assert getattr(mine, "errno", None) == getattr(wanted, "errno", None)
    assert failure(lambda: ours.punch_hole(-1, 5)).errno == errno.EINVAL
    for mode in (-1, 0o100644, 0o7777, 1 << 20):
        fs.chmod("/f.txt", mode)
        os.chmod(host / "f.txt", mode)
        mine, wanted = fs.stat("/f.txt").st_mode, os.stat(host / "f.txt").st_mode
        assert stat.S_IMODE(mine) == stat.S_IMODE(wanted)
    assert type(failure(lambda: fs.chmod("/f.txt", 1 << 40))) is OverflowError
    assert fs.read_bytes("/f.txt") == theirs.read() == b"text"


def test_what_is_no_part_of_a_path(pair: Any) -> None:
    fs, host = pair
    for part in (5, b"a", None, 1.5, ["a"]):
        for path in (fs.path("/d"), host):
            for join in (lambda p: p / part, lambda p: part / p, lambda p: p.joinpath(part)):
                assert type(failure(lambda: join(path))) is TypeError
    assert str(fs.path("/d") / pathlib.Path("f.txt")) == "/d/f.txt"


def test_arguments_are_those_of_os(pair: Any) -> None:
    fs, host = pair
    fs.makedirs(name="/new/er", mode=0o700, exist_ok=True)
    fs.removedirs(name="/new/er")
    assert not fs.exists("/new")
    fs.symlink("d", "/l1", target_is_directory=True)
    fs.symlink("d", "/l2", True)
    fs.link("/link", "/hard", follow_symlinks=False)
    assert fs.readlink("/hard") == "f.txt"
    fs.link("/link", "/followed", follow_symlinks=True)
    assert fs.stat("/f.txt").st_nlink == 2 and not fs.islink("/followed")
    os.symlink("none", host / "dangling")
    fs.symlink("none", "/dangling")
    for name in ("f.txt", "link", "dangling", "none", "loop"):
        for follows in (True, False):
            for mode in (os.F_OK, os.R_OK, os.W_OK):
                wanted = os.access(host / name, mode, follow_symlinks=follows)
                assert fs.access(name, mode, follow_symlinks=follows) == wanted
    fs.chmod("/f.txt", 0o640, follow_symlinks=False)
    fs.chmod("/link", 0o600, follow_symlinks=True)
    assert stat.S_IMODE(fs.stat("/f.txt").st_mode) == 0o600
    for call in (
        lambda: fs.chmod("/link", 0o644, follow_symlinks=False),
        lambda: fs.path("/link").chmod(0o644, follow_symlinks=False),
        lambda: fs.path("/link").lchmod(0o644),
    ):
        assert failure(call).errno == errno.EOPNOTSUPP
    assert stat.S_IMODE(fs.stat("/f.txt").st_mode) == 0o600
    assert fs.path("/d").drive == host.drive == ""


def test_links_of_what_is_read_only(image: Path) -> None:
    with extant.open(image, writable=True) as fs:
        fs.symlink("none", "/link")
    with extant.open(image) as fs:
        assert fs.access("/link", os.R_OK, follow_symlinks=False)
        assert not fs.access("/link", os.W_OK, follow_symlinks=False)


def test_identifiers_are_of_the_right_type(tmp_path: Path) -> None:
    for wrong in (5, b"0" * 16, 1.5):
        with pytest.raises(TypeError, match="uuid"):
            extant.mkfs(tmp_path / "new.img", 8 * MIB, uuid=wrong)
    with pytest.raises(ValueError):
        extant.mkfs(tmp_path / "new.img", 8 * MIB, uuid="nonsense")


@pytest.mark.parametrize("headroom", [-5.0, float("nan"), float("inf"), 10_001.0])
def test_headroom_is_a_share(tmp_path: Path, headroom: float) -> None:
    with pytest.raises(ValueError, match="headroom"):
        extant.mkfs(tmp_path / "new.img", "auto", source=tmp_path, headroom=headroom)
    assert not (tmp_path / "new.img").exists()
    (tmp_path / "source").mkdir()
    for share in (0.0, 250.0, 10_000.0):
        extant.mkfs(
            tmp_path / "new.img",
            "auto",
            source=tmp_path / "source",
            headroom=share,
            overwrite=True,
        )


def test_what_is_no_file_system_has_one_number(tmp_path: Path) -> None:
    zeros = tmp_path / "zeros"
    zeros.write_bytes(bytes(MIB))
    for source in (zeros, io.BytesIO(bytes(MIB))):
        for call in (extant.open, extant.check, extant.repair, extant.transaction):
            with pytest.raises(extant.NotExt4Error) as none:
                call(source)
            assert none.value.errno == errno.EMEDIUMTYPE, call
    for call in (extant.open, extant.check, extant.repair):
        with pytest.raises(IsADirectoryError) as wrong:
            call(tmp_path)
        assert wrong.value.filename == str(tmp_path)


def test_what_is_known_is_a_value(pair: Any) -> None:
    fs, _ = pair
    fs.utime("/d", ns=(-5, 3_111_111_111_222_333_444))
    fs.mknod("/node", stat.S_IFBLK | 0o600, os.makedev(8, 300))
    for path in ("/d", "/f.txt", "/node", "/"):
        found = fs.stat(path)
        for other in (
            copy.copy(found),
            copy.deepcopy(found),
            *(pickle.loads(pickle.dumps(found, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)),
        ):
            assert other == found and hash(other) == hash(found)
            fields = [name for name in dir(found) if name.startswith("st_")]
            assert [getattr(other, f) for f in fields] == [getattr(found, f) for f in fields]
    assert len({fs.stat("/d"), fs.lstat("/d"), fs.stat("/f.txt")}) == 2


def test_many_threads_are_no_more_than_help(image: Path) -> None:
    most, is_over = 0, threading.Event()

    def count() -> None:
        nonlocal most
        while not is_over.is_set():
            most = max(most, len(os.listdir("/proc/self/task")))
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        memory = io.BytesIO(bytes(8 * MIB))
        extant.mkfs(memory, threads=1_000_000)
        assert extant.check(memory).is_clean
        with extant.open(image) as fs:
            assert len(fs.bulkstat(threads=1_000_000)) > 0
    finally:
        is_over.set()
        counter.join()
    assert 1 < most < 1000  # 256 at each call, and what was there before.
