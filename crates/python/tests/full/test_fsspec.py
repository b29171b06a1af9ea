"""What must not be lost by way of fsspec: compared with its files of the host where it can be."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

import extant
from extant._file import FileIO
from extant.fsspec import Ext4FileSystem

MIB = 1 << 20


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    image = tmp_path / "disk.img"
    extant.mkfs(image, 16 * MIB)
    return image


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    return tmp_path / "host"


def kind(call: Callable[[], object]) -> type[BaseException] | None:
    try:
        call()
    except Exception as e:
        return type(e)
    return None


class TestFsspec:
    @pytest.fixture
    def pair(self, empty: Path, host: Path) -> Iterator[tuple[Any, Any, Callable[[str], str]]]:
        with Ext4FileSystem(str(empty), mode="r+b") as ours:
            yield ours, LocalFileSystem(), lambda path: str(host) + path

    def test_copies_onto_itself_are_refused(self, pair: Any) -> None:
        ours, theirs, at = pair
        for fs, where in ((ours, str), (theirs, at)):
            fs.pipe(where("/a"), b"precious")
            fs.mkdir(where("/d"))
            if fs is ours:
                fs.image.symlink("a", "/link")
                fs.image.link("/a", "/hard")
                fs.image.symlink(".", "/d/self")
            else:
                os.symlink("a", at("/link"))
                os.link(at("/a"), at("/hard"))
                os.symlink(".", at("/d/self"))
            for one, other in (
                ("/a", "/a"),
                ("/a", "/link"),
                ("/link", "/a"),
                ("/hard", "/a"),
                ("/a", "/d/../a"),
            ):
                for copy in (fs.copy, fs.cp, fs.cp_file):
                    with pytest.raises((shutil.SameFileError, IsADirectoryError)):
                        copy(where(one), where(other))
                    assert fs.cat(where("/a")) == b"precious"
            fs.copy(where("/a"), where("/b"))
            assert fs.cat(where("/b")) == b"precious"

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("/a", "/a"),
            ("/a", "/hard"),
            ("/a", "/link"),
            ("/link", "/a"),
            ("/a", "/new"),
            ("/a", "/d"),
            ("/a", "/full"),
            ("/d", "/d"),
            ("/full", "/d"),
            ("/full", "/full/a"),
            ("/none", "/a"),
        ],
    )
    def test_moves_are_those_of_the_host(self, pair: Any, one: str, other: str) -> None:
        ours, theirs, at = pair
        seen = []
        for fs, where in ((ours, str), (theirs, at)):
            fs.pipe(where("/a"), b"precious")
            fs.mkdir(where("/d"))
            fs.mkdir(where("/full"))
            fs.pipe(where("/full/a"), b"other")
            if fs is ours:
                ours.image.symlink("a", "/link")
                ours.image.link("/a", "/hard")
                ours.image.rmdir("/lost+found")
            else:
                os.symlink("a", at("/link"))
                os.link(at("/a"), at("/hard"))
            raised = kind(lambda: fs.mv(where(one), where(other), recursive=True))
            found = fs.find(where("/") if fs is theirs else "/", withdirs=True)
            names = {name.removeprefix(at("")).strip("/") for name in found} - {""}
            content = {n: fs.cat(where("/" + n)) for n in names if fs.isfile(where("/" + n))}
            seen.append((raised is not None, names, content))
        assert seen[0] == seen[1]

    def test_arguments_are_looked_at_first(self, pair: Any) -> None:
        ours, _, _ = pair
        ours.pipe("/keep", b"precious")
        for call in (
            lambda: ours.pipe_file("/keep", "text"),
            lambda: ours.pipe("/keep", None),
            lambda: ours.pipe({"/keep": memoryview(b"abcd")[::2]}),
            lambda: ours.write_text("/keep", b"bytes"),
            lambda: ours.write_text("/keep", "x", encoding="nope"),
            lambda: ours.write_text("/keep", "\xe9", encoding="ascii"),
        ):
            assert kind(call) is not None
            assert ours.cat("/keep") == b"precious"
        assert ours.write_text("/keep", "text") == 4
        assert ours.read_text("/keep") == "text"

    @pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 4097, 3 << 20])
    def test_copies_are_whole_or_fail(self, tmp_path: Path, size: int) -> None:
        image = tmp_path / "small.img"
        extant.mkfs(image, 8 * MIB, journal=False)
        data = os.urandom(size)
        with Ext4FileSystem(str(image), mode="r+b") as fs:
            fs.pipe("/a", data)
            free = fs.image.statvfs()
            rest = free.f_bavail * free.f_bsize
            fs.pipe("/fill", bytes(max(rest - size // 2, 0)))
            with pytest.raises(OSError) as full:
                fs.copy("/a", "/b")
            assert full.value.errno == errno.ENOSPC
            fs.rm("/fill")
            fs.copy("/a", "/b")
            assert fs.cat("/b") == data

    def test_short_writes_are_gone_on_with(self, pair: Any, monkeypatch: Any) -> None:
        ours, _, _ = pair
        data = os.urandom(2 * MIB + 5)
        ours.pipe("/a", data)
        write = FileIO.write
        monkeypatch.setattr(FileIO, "write", lambda self, data: write(self, data[:70_001]))
        ours.copy("/a", "/b")
        assert ours.cat("/b") == data

    @pytest.mark.parametrize("mode", ["w", "wt", "x", "a", "w+"])
    def test_text_is_written_when_the_image_is_closed(self, empty: Path, mode: str) -> None:
        ours = Ext4FileSystem(str(empty), mode="r+b")
        file = ours.open("/text", mode, encoding="utf-16", newline="\r\n")
        file.write("one\n")
        ours.close()
        assert file.closed
        with Ext4FileSystem(str(empty)) as ours:
            assert ours.cat("/text") == "one\r\n".encode("utf-16")
            assert ours.open("/text", "r", encoding="utf-16").read() == "one\n"
            assert ours.open("/text", "rt", encoding="ascii", errors="ignore").read(4) == "o\0n\0"

    def test_the_end_of_the_interpreter_writes_text(self, empty: Path) -> None:
        script = """
        import sys
        from extant.fsspec import Ext4FileSystem
        fs = Ext4FileSystem(sys.argv[1], mode="r+b")
        file = fs.open("/text", "w")
        file.write("important")
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), empty],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        with extant.open(empty) as fs:
            assert fs.read_text("/text") == "important"

    def test_compressed_text(self, pair: Any) -> None:
        ours, _, _ = pair
        with ours.open("/text.gz", "w", compression="infer") as file:
            file.write("text")
        assert gzip.decompress(ours.cat("/text.gz")) == b"text"
        with ours.open("/text.gz", "r", compression="gzip") as file:
            assert file.read() == "text"

    @pytest.fixture
    def tables(self, pair: Any) -> Any:
        ours, _, _ = pair
        ours.makedirs("/d/deep.csv/er")
        ours.mkdir("/e")
        for name in ("/d/1.csv", "/d/2.csv", "/d/3.txt", "/d/deep.csv/f", "/ab"):
            ours.pipe(name, name.encode())
        ours.image.rmdir("/lost+found")
        return ours

    def test_patterns_are_moved(self, tables: Any) -> None:
        tables.image.symlink("deep.csv", "/d/link.csv")
        tables.mv("/d/*.csv", "/e")
        assert tables.find("/") == [
            "ab", "d/3.txt", "e/1.csv", "e/2.csv", "e/deep.csv/f", "e/link.csv",
        ]  # fmt: skip
        assert tables.cat("/e/1.csv") == b"/d/1.csv"
        assert tables.image.readlink("/e/link.csv") == "deep.csv"
        tables.mv("/e/*", "/d/", recursive=True)
        assert tables.find("/e") == [] and tables.isfile("/d/deep.csv/f")
        tables.mv("/d/[3].*", "/one")
        assert tables.cat("/one") == b"/d/3.txt"
        tables.mv(["/one", "/ab"], ["/two", "/one"])
        assert (tables.cat("/two"), tables.cat("/one")) == (b"/d/3.txt", b"/ab")
        tables.mv(["/one", "/d/1.*"], "/e")
        assert tables.find("/e") == ["e/1.csv", "e/one"]

    def test_patterns_that_cannot_be_moved(self, tables: Any) -> None:
        before = tables.find("/")
        for one, other, raised in (
            ("/d/*.csv", "/none", FileNotFoundError),
            ("/d/*.csv", "/ab", NotADirectoryError),
            ("/d/*.none", "/e", FileNotFoundError),
        ):
            with pytest.raises(raised):
                tables.mv(one, other)
            assert tables.find("/") == before

    def test_patterns_are_removed(self, tables: Any) -> None:
        tables.rm("/d/[12].csv")
        assert tables.find("/d") == ["d/3.txt", "d/deep.csv/f"]
        with pytest.raises(FileNotFoundError):
            tables.rm("/d/[12].csv")
        with pytest.raises(IsADirectoryError):
            tables.rm("/d/*.csv")
        tables.rm(["/d/*.csv", "/ab"], recursive=True)
        assert tables.find("/") == ["d/3.txt"]
        tables.rm("/d/*", recursive=True)
        assert tables.find("/", withdirs=True) == ["d", "e"]

    def test_names_that_look_like_patterns(self, tables: Any) -> None:
        tables.mkdir("/a[b]")
        with pytest.raises(IsADirectoryError):
            tables.rm("/a[b]")
        tables.rm("/a[b]", recursive=True)
        tables.pipe("/a[b]", b"")
        tables.rm("/a[b]")
        assert tables.cat("/ab") == b"/ab"

    def test_errors_of_the_carrier_are_no_entries(self, tables: Any, monkeypatch: Any) -> None:
        def fails(*_: object) -> object:
            raise OSError(errno.EIO, "the carrier is gone")

        monkeypatch.setattr(tables.image, "lstat", fails)
        for listing in (
            lambda: tables.ls("/d"),
            lambda: tables.find("/"),
            lambda: tables.glob("/d/*.csv"),
            lambda: tables.du("/d"),
            lambda: list(tables.walk("/")),
        ):
            with pytest.raises(OSError, match="gone"):
                listing()

    def test_transactions_are_refused(self, pair: Any) -> None:
        ours, _, _ = pair
        ours.pipe("/keep", b"precious")
        for write in (
            lambda: ours.pipe("/keep", b"other"),
            lambda: ours.write_text("/keep", "other"),
            lambda: ours.open("/keep", "wb"),
            lambda: ours.open("/keep", "r+b"),
            lambda: ours.open("/keep", "w"),
            lambda: ours.open("/keep", "w", compression="gzip"),
            lambda: ours.touch("/keep"),
            lambda: ours.cp_file("/keep", "/new"),
            lambda: ours.copy("/keep", "/new"),
            lambda: ours.mv("/keep", "/new"),
            lambda: ours.mv_file("/keep", "/new"),
            lambda: ours.rm("/keep"),
            lambda: ours.rm_file("/keep"),
            lambda: ours.mkdir("/new"),
            lambda: ours.makedirs("/new"),
            lambda: ours.rmdir("/lost+found"),
        ):
            with pytest.raises(NotImplementedError), ours.transaction:
                write()
            assert ours.cat("/keep") == b"precious"
            assert ours.ls("/", detail=False) == ["keep", "lost+found"]
        with ours.transaction:
            assert ours.open("/keep", "rb").read() == b"precious"
            assert ours.open("/keep").read() == ours.cat("/keep") == b"precious"
            assert ours.open("/keep", "r").read() == ours.read_text("/keep") == "precious"
            assert ours.open("/keep", "rb", compression=None).read(3) == b"pre"

    def test_a_damaged_inode_does_not_hide_the_others(self, empty: Path) -> None:
        with extant.open(empty, writable=True) as fs:
            fs.mkdir("/d")
            for name in ("a", "b", "c"):
                fs.write_text(f"/d/{name}", name)
            fs.utime("/d/b", (0x12345678, 0x12345678))
        data = empty.read_bytes()
        times = 0x12345678.to_bytes(4, "little")
        # The access time of the inode; its checksum does not fit any more.
        empty.write_bytes(data.replace(times, b"\1\2\3\4"))
        with Ext4FileSystem(str(empty)) as fs:
            with pytest.raises(extant.DamagedError):
                fs.info("/d/b")
            assert fs.find("/d") == ["d/a", "d/b", "d/c"]
            assert fs.cat("/d/a") == b"a"
            with pytest.raises(extant.DamagedError):
                fs.cat("/d/b")

    def test_blocks_of_files(self, pair: Any) -> None:
        ours, theirs, at = pair
        for fs, where in ((ours, str), (theirs, at)):
            fs.pipe(where("/lines"), b"one\ntwo\nthree\n")
        for start, length, delimiter in ((0, 6, b"\n"), (3, None, b"\n"), (2, 5, None), (5, 99, b"\n")):
            got = ours.read_block("/lines", start, length, delimiter)
            assert got == theirs.read_block(at("/lines"), start, length, delimiter)
        ours.image.sync()
        assert fsspec.open(f"ext4://lines::{ours.fo}").open().read() == b"one\ntwo\nthree\n"
