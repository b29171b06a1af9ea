"""What must not be lost without a word: compared with files of the host where it can be."""

from __future__ import annotations

import errno
import gzip
import io
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import run
from fsspec.implementations.local import LocalFileSystem

import extant
from extant.fsspec import Ext4FileSystem

MIB = 1 << 20


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    image = tmp_path / "disk.img"
    extant.mkfs(image, 16 * MIB)
    return image


@pytest.fixture
def fs(empty: Path) -> Iterator[extant.Filesystem]:
    with extant.open(empty, writable=True) as fs:
        yield fs


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


class Behind:
    """A file behind another object, which neither says its mode nor has a descriptor."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        if name in ("fileno", "mode"):
            raise AttributeError(name)
        return getattr(self._file, name)


class TestAppendingDevices:
    @pytest.mark.parametrize("buffering", [-1, 0])
    @pytest.mark.parametrize("wrap", [lambda f: f, lambda f: extant_like(f)])
    def test_they_are_refused(self, empty: Path, buffering: int, wrap: Callable[[Any], Any]) -> None:
        before = empty.read_bytes()
        for call in (
            lambda f: extant.open(f, writable=True),
            lambda f: extant.transaction(f),
            lambda f: extant.mkfs(f, overwrite=True),
            lambda f: extant.repair(f),
        ):
            with open(empty, "ab+", buffering) as file, pytest.raises(OSError) as refused:
                call(wrap(file))
            assert refused.value.errno == errno.EINVAL and "r+b" in str(refused.value)
        assert empty.read_bytes() == before
        with open(empty, "ab+", buffering) as file, extant.open(file) as fs:
            assert fs.listdir("/") == ["lost+found"]

    def test_what_does_not_say_so_fails_at_its_first_write(self, empty: Path) -> None:
        with open(empty, "ab+") as file, pytest.raises(OSError, match="appending|write"):
            with extant.open(Behind(file), writable=True) as fs:
                fs.write_text("/file", "text")
        with open(empty, "r+b") as file, extant.open(Behind(file), writable=True) as fs:
            fs.write_text("/file", "text")
        assert extant.check(empty).is_clean

    def test_files_in_images_too(self, fs: extant.Filesystem, tmp_path: Path) -> None:
        inner = tmp_path / "inner.img"
        extant.mkfs(inner, 4 * MIB)
        fs.write_bytes("/inner.img", inner.read_bytes())
        for buffering in (0, -1):
            with fs.open("/inner.img", "ab+", buffering) as file, pytest.raises(OSError):
                extant.open(file, writable=True)

    def test_text_and_what_is_read_only(self, empty: Path, tmp_path: Path) -> None:
        with open(empty, "r+") as file, pytest.raises(TypeError, match="text"):
            extant.open(file)
        packed = tmp_path / "packed.gz"
        packed.write_bytes(gzip.compress(empty.read_bytes(), 1))
        with gzip.open(packed) as file, pytest.raises(OSError):
            extant.open(file, writable=True)
        with gzip.open(packed) as file, extant.open(file) as fs:
            assert fs.listdir("/") == ["lost+found"]

    @pytest.mark.parametrize("number", [0, -5])
    def test_numbers_of_errors_are_those_of_errors(self, empty: Path, number: int) -> None:
        class Broken(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise OSError(number, "broken")

        with pytest.raises(OSError) as failed:
            extant.open(Broken(empty.read_bytes()))
        assert failed.value.errno == errno.EIO

    @pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
    def test_reads_may_give_any_buffer(self, empty: Path, form: Callable[[bytes], Any]) -> None:
        class Forms(io.BytesIO):
            def read(self, size: int | None = -1, /) -> Any:
                return form(super().read(size))

        with extant.open(Forms(empty.read_bytes())) as fs:
            assert fs.listdir("/") == ["lost+found"]


def extant_like(file: Any) -> Any:
    """An object that has the descriptor of a file, and no mode."""

    class Plain(Behind):
        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name) if name == "fileno" else super().__getattr__(name)

    return Plain(file)


class TestArguments:
    """Nothing is emptied by a call whose arguments are wrong."""

    WRONG: tuple[Callable[[Any], object], ...] = (
        lambda p: p.write_bytes("text"),
        lambda p: p.write_bytes(5),
        lambda p: p.write_bytes([1, 2]),
        lambda p: p.write_bytes(memoryview(b"abcdef")[::2]),
        lambda p: p.write_text(b"bytes"),
        lambda p: p.write_text(None),
        lambda p: p.write_text("x", encoding="nope"),
        lambda p: p.write_text("x", encoding="base64"),
        lambda p: p.write_text("x", encoding=5),
        lambda p: p.write_text("\xe9", encoding="ascii"),
        lambda p: p.write_text("\udc80"),
        lambda p: p.write_text("x", newline="q"),
        lambda p: p.write_text("x", errors=5),
        lambda p: p.open("w", encoding="nope"),
        lambda p: p.open("w", newline="q"),
        lambda p: p.open("w", buffering=0),
        lambda p: p.open("w", buffering="x"),
        lambda p: p.open("wb", buffering=1 << 70),
        lambda p: p.open("wb", encoding="utf-8"),
        lambda p: p.open("w+", errors=7),
    )

    @pytest.mark.parametrize("call", WRONG, ids=range(len(WRONG)))
    def test_files_keep_their_content(
        self, fs: extant.Filesystem, host: Path, call: Callable[[Any], object]
    ) -> None:
        ours, theirs = fs.path("/keep"), host / "keep"
        for path in (ours, theirs):
            path.write_bytes(b"precious")
        wanted = kind(lambda: call(theirs))
        assert wanted is not None
        assert kind(lambda: call(ours)) is wanted
        assert ours.read_bytes() == b"precious"
        assert kind(lambda: call(fs.path("/new"))) is wanted
        assert not fs.exists("/new")

    def test_text_becomes_what_it_becomes_in_pathlib(
        self, fs: extant.Filesystem, host: Path
    ) -> None:
        for text in ("", "one\ntwo\n", "\xe9\r\n\n"):
            for kwargs in ({}, {"encoding": "utf-16"}, {"newline": "\r\n"}, {"errors": "replace"}):
                ours, theirs = fs.path("/text"), host / "text"
                assert ours.write_text(text, **kwargs) == theirs.write_text(text, **kwargs)
                assert ours.read_bytes() == theirs.read_bytes()

    def test_what_has_no_bytes_or_several_dimensions(self, fs: extant.Filesystem) -> None:
        numpy = pytest.importorskip("numpy")
        assert fs.write_bytes("/file", numpy.zeros((0, 3))) == 0
        assert fs.write_bytes("/file", numpy.ones((2, 3), "u2")) == 12
        assert fs.read_bytes("/file") == b"\1\0" * 6

    def test_errors_without_a_path_have_two_arguments(
        self, fs: extant.Filesystem, host: Path
    ) -> None:
        told = []
        for path in (fs.path("/file"), host / "file"):
            with path.open("w+b", buffering=0) as file, pytest.raises(OSError) as failed:
                file.seek(-1)
            told.append((failed.value.args[0], len(failed.value.args), failed.value.filename))
        assert told[0] == told[1] == (errno.EINVAL, 2, None)

    def test_directories_named_with_a_dot(self, fs: extant.Filesystem, host: Path) -> None:
        for at, makedirs in (("", fs.makedirs), (f"{host}/", os.makedirs)):
            for name in ("new/.", "other/deep/.", b"bytes/."):
                path = os.fsencode(at) + name if isinstance(name, bytes) else at + name
                assert kind(lambda: makedirs(path)) is None
                assert kind(lambda: makedirs(path)) is FileExistsError
                assert kind(lambda: makedirs(path, exist_ok=True)) is None
        assert fs.isdir("/new") and fs.isdir("/other/deep") and fs.isdir("/bytes")

    def test_labels_with_null_bytes_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="null"):
            extant.mkfs(tmp_path / "new.img", 8 * MIB, label="a\0b")
        assert not (tmp_path / "new.img").exists()


class TestSources:
    def test_a_source_is_not_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "file").write_bytes(b"precious" * 100_000)
        packed = tmp_path / "packed.tar"
        run("tar", "-C", tmp_path / "tree", "-cf", packed, "file")
        os.truncate(packed, 16 * MIB)
        link = tmp_path / "link"
        link.symlink_to(packed)
        before = packed.read_bytes()
        number = os.open(packed, os.O_RDWR)
        try:
            with open(packed, "r+b") as file:
                for call in (
                    lambda: extant.mkfs(file, source=packed),
                    lambda: extant.mkfs(file, source=link),
                    lambda: extant.mkfs(number, source=str(packed)),
                    lambda: extant.mkfs(packed, source=packed, offset=0),
                    lambda: extant.mkfs(link, source=bytes(packed), length=8 * MIB),
                ):
                    with pytest.raises(OSError, match="written over"):
                        call()
                    assert packed.read_bytes() == before
        finally:
            os.close(number)
        extant.mkfs(packed, source=packed, overwrite=True)
        with extant.open(packed) as fs:
            assert fs.read_bytes("/file") == b"precious" * 100_000

    def test_a_partition_by_name_is_in_place(self, tmp_path: Path) -> None:
        disk = tmp_path / "disk.img"
        disk.write_bytes(bytes(MIB))
        for image in (f"{disk}#1", f"{disk}#1".encode(), tmp_path / "disk.img#1"):
            with pytest.raises(OSError, match="written over"):
                extant.mkfs(image, source=disk)
        assert disk.read_bytes() == bytes(MIB)


class TestClosing:
    def test_one_file_that_fails_does_not_take_others_with_it(self, empty: Path) -> None:
        names = [f"/{n}" for n in range(12)]
        fs = extant.open(empty, writable=True)
        files = [fs.open(name, "wb") for name in names]
        files.append(bad := fs.open("/bad", "wb"))
        files += [fs.open("/text", "w"), fs.open("/both", "w+b")]
        for file in files:
            if file is bad:
                file.seek(1 << 50)
            file.write("words" if file.mode == "w" else b"words")
        with pytest.raises(OSError) as failed:
            fs.close()
        assert failed.value.errno == errno.EFBIG
        assert fs.closed and all(file.closed for file in files)
        with extant.open(empty) as fs:
            for name in [*names, "/text", "/both"]:
                assert fs.read_bytes(name) == b"words"
        assert extant.check(empty).is_clean

    def test_the_first_error_has_notes_of_the_others(self, empty: Path) -> None:
        with pytest.raises(OSError) as failed, extant.open(empty, writable=True) as fs:
            files = [fs.open(f"/{n}", "wb") for n in range(3)]
            for file in files:
                file.seek(1 << 50)
                file.write(b"x")
        assert len(failed.value.__notes__) == 2

    def test_a_transaction_whose_files_fail_changes_nothing(self, empty: Path) -> None:
        def fill(tx: extant.Filesystem) -> None:
            tx.write_text("/other", "text")
            bad = tx.open("/bad", "wb")
            bad.seek(1 << 50)
            bad.write(b"x")
            keep.append(bad)

        keep: list[object] = []
        with pytest.raises(OSError), extant.transaction(empty) as tx:
            fill(tx)
        assert tx.closed
        tx = extant.transaction(empty)
        fill(tx)
        with pytest.raises(OSError):
            tx.commit()
        with pytest.raises(ValueError):
            tx.commit()
        with extant.open(empty) as fs:
            assert fs.listdir("/") == ["lost+found"]

    @pytest.mark.parametrize("ends", ["fs", "tx"])
    def test_every_file_is_closed_with_it(self, empty: Path, ends: str) -> None:
        with extant.open(empty, writable=True) as fs:
            fs.write_text("/file", "text")
        fs = extant.transaction(empty) if ends == "tx" else extant.open(empty, writable=True)
        files = [
            fs.open("/file"),
            fs.open("/file", "rb"),
            fs.open("/file", "rb", 0),
            fs.open("/file", "r+"),
            fs.open("/file", "ab", 0),
        ]
        late = fs.open("/late", "w")
        late.write("late")
        entries = fs.scandir("/")
        fs.close()
        for file in [*files, late]:
            assert file.closed
            for use in (lambda: file.tell(), lambda: file.read(1), lambda: file.__enter__()):
                assert kind(use) in (ValueError, io.UnsupportedOperation)
            file.close()
        with pytest.raises(ValueError):
            next(entries)
        with extant.open(empty) as fs:
            assert fs.exists("/late") == (ends == "fs")

    def run(self, script: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_the_end_of_the_interpreter_writes_everything(self, tmp_path: Path) -> None:
        images = [tmp_path / f"{n}.img" for n in range(4)]
        for image in images:
            extant.mkfs(image, 8 * MIB)
        done = self.run(
            """
            import extant, sys
            kept = []
            for number, image in enumerate(sys.argv[1:]):
                fs = extant.open(image, writable=True)
                file = fs.open("/data", "w")
                file.write("important")
                kept += [fs, file]
                if number in (1, 2):
                    bad = fs.open("/bad", "wb")
                    bad.seek(1 << 50)
                    bad.write(b"x")
                    kept.append(bad)
            """,
            *images,
        )
        assert "too large" in done.stderr
        for image in images:
            assert extant.check(image).is_clean
            with extant.open(image) as fs:
                assert fs.read_text("/data") == "important"

    def test_the_end_of_the_interpreter_closes_inner_images_first(self, tmp_path: Path) -> None:
        for _ in range(4):
            outer, inner = tmp_path / "outer.img", tmp_path / "inner.img"
            extant.mkfs(outer, 32 * MIB, overwrite=True)
            extant.mkfs(inner, 4 * MIB, overwrite=True)
            done = self.run(
                """
                import extant, sys
                outer = extant.open(sys.argv[1], writable=True)
                outer.write_bytes("/inner", open(sys.argv[2], "rb").read())
                file = outer.open("/inner", "r+b")
                inner = extant.open(file, writable=True)
                text = inner.open("/text", "w")
                text.write("deep")
                """,
                outer,
                inner,
            )
            assert (done.returncode, done.stderr) == (0, "")
            with extant.open(outer) as fs, fs.open("/inner", "rb") as file:
                with extant.open(file) as deep:
                    assert deep.read_text("/text") == "deep"


class TestFork:
    SCRIPT = """
    import extant, os, sys
    how, image = sys.argv[1:]
    def child(fs, file):
        if how == "close":
            fs.close()
            assert fs.closed and file.closed
        elif how == "use":
            try:
                fs.write_text("/child", "child")
            except RuntimeError:
                pass
            else:
                sys.exit("not refused")
        elif how == "drop":
            del fs, file
        elif how == "_exit":
            os._exit(0)
        sys.exit(0)
    opens = extant.transaction if how == "transaction" else extant.open
    fs = opens(image, **({} if how == "transaction" else {"writable": True}))
    fs.write_text("/before", "before")
    unlinked = fs.open("/unlinked", "w+b", 0)
    unlinked.write(bytes(100000))
    fs.unlink("/unlinked")
    file = fs.open("/file", "w")
    file.write("buffered")
    walk = fs.walk("/")
    next(walk)
    pid = os.fork()
    if pid == 0:
        if how == "with":
            with fs:
                sys.exit(0)
        child(fs, file)
    status = os.waitpid(pid, 0)[1]
    file.write(" once")
    if how == "transaction":
        fs.commit()
    fs.close()
    sys.exit(status)
    """

    @pytest.mark.parametrize(
        "how", ["exit", "close", "use", "drop", "_exit", "with", "transaction"]
    )
    def test_a_child_leaves_the_image_alone(self, empty: Path, how: str) -> None:
        done = subprocess.run(
            [
                sys.executable,
                *("-X", "dev", "-W", "ignore:This process:DeprecationWarning"),
                *("-c", textwrap.dedent(self.SCRIPT), how, empty),
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert extant.check(empty).is_clean
        with extant.open(empty) as fs:
            assert fs.read_text("/file") == "buffered once"
            assert sorted(fs.listdir("/")) == ["before", "file", "lost+found"]

    THREADS = """
    import extant, os, sys, threading, time
    how, image = sys.argv[1:]
    fs = extant.open(image, writable=how == "write")
    def work(number):
        while True:
            if how == "read":
                for name in fs.listdir("/"):
                    if fs.isfile("/" + name):
                        with fs.open("/" + name, "rb") as file:
                            file.read()
            else:
                with fs.open(f"/{number}", "wb") as file:
                    for _ in range(20):
                        file.write(bytes(50_000))
    for number in range(3):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    for _ in range(40):
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        deadline = time.monotonic() + 20
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.kill(pid, 9)
                print("a child hangs")
                os._exit(1)
            time.sleep(0.001)
        if status:
            print("a child ended with", status)
            os._exit(1)
    os._exit(0)
    """

    @pytest.mark.parametrize("how", ["read", "write"])
    def test_children_end_whatever_threads_of_the_parent_do(self, empty: Path, how: str) -> None:
        with extant.open(empty, writable=True) as fs:
            for n in range(100):
                fs.write_bytes(f"/{n}", bytes(20_000))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(self.THREADS), how, empty],
            capture_output=True,
            text=True,
            timeout=900,  # More than 20 seconds for each child, of which the script itself tells.
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    READING = """
    import extant, os, sys
    with extant.open(sys.argv[1]) as fs:
        file = fs.open("/file", "rb")
        walk = fs.walk("/")
        next(walk)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                is_right = fs.read_text("/file") == "text"
                file.close()
                fs.close()
                status = 0 if is_right and fs.closed and file.closed else 2
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert file.read() == b"text" and fs.read_text("/file") == "text"
    """

    def test_a_child_reads_what_is_open_for_reading(self, empty: Path) -> None:
        with extant.open(empty, writable=True) as fs:
            fs.write_text("/file", "text")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(self.READING), empty],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")

    REMOTE = """
    import extant, functools, http.server, os, re, sys, threading
    class Ranges(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        def log_message(self, *_):
            pass
        def do_HEAD(self):
            self.do_GET()
        def do_GET(self):
            data = open(sys.argv[1], "rb").read()
            wanted = re.match(r"bytes=(\\d+)-(\\d*)", self.headers.get("Range", ""))
            size, head = len(data), ()
            if wanted:
                first, last = int(wanted[1]), int(wanted[2] or size - 1)
                last = min(last, size - 1)
                data = data[first : last + 1]
                head = (("Content-Range", f"bytes {first}-{last}/{size}"),)
            self.send_response(206 if wanted else 200)
            for name, value in (*head, ("Content-Length", len(data)), ("Accept-Ranges", "bytes"),
                                ("ETag", '"one"')):
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with extant.open(f"http://127.0.0.1:{server.server_port}/disk.img") as fs:
        assert fs.read_text("/file") == "text"
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                fs.read_text("/file")
            except RuntimeError as e:
                fs.close()
                status = 0 if fs.closed and "connection" in str(e) else 2
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert fs.read_text("/file") == "text"
    """

    def test_a_child_has_no_connection(self, empty: Path) -> None:
        with extant.open(empty, writable=True) as fs:
            fs.write_text("/file", "text")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(self.REMOTE), empty],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")


class TestLocks:
    def test_a_handler_inside_opens_files(self, empty: Path) -> None:
        script = """
        import extant, os, sys, threading
        fs = extant.open(sys.argv[1], writable=True)
        def inside():
            # As a finaliser or a handler of a signal that runs while its thread opens a file.
            with fs._files_lock:
                fs.write_text("/file", "text")
                opened.append(fs.open("/file"))
        opened = []
        thread = threading.Thread(target=inside, daemon=True)
        thread.start()
        thread.join(20)
        os._exit(0 if opened else 1)
        """
        done = TestClosing().run(script, empty)
        assert (done.returncode, done.stderr) == (0, "")


class TestLoops:
    """Links that lead nowhere, compared with the host."""

    PATHS = ("loop", "loop/x", "dangling", "file", "file/x", "d", "to-d", "none", "x" * 300, "a\0b")

    @pytest.fixture
    def both(self, fs: extant.Filesystem, host: Path) -> tuple[extant.Filesystem, Path]:
        for top in (fs.path("/"), host):
            (top / "d" / "deep").mkdir(parents=True)
            (top / "d" / "f.csv").write_text("n\n1\n")
            (top / "file").write_text("text")
        for at, target in (("loop", "loop"), ("dangling", "none"), ("to-d", "d"), ("d/l", "l")):
            fs.symlink(target, at)
            os.symlink(target, host / at)
        fs.rmdir("/lost+found")
        return fs, host

    @pytest.mark.parametrize("name", PATHS)
    def test_questions_have_answers(self, both: Any, name: str) -> None:
        fs, host = both
        there = f"{host}/{name}"
        for ours, theirs in (
            (fs.exists, os.path.exists),
            (fs.isdir, os.path.isdir),
            (fs.isfile, os.path.isfile),
            (fs.islink, os.path.islink),
        ):
            assert ours(name) == theirs(there), ours
            assert ours("/" + name) == theirs(there), ours
        if "\0" not in name:
            assert fs.access(name, os.F_OK) == os.access(there, os.F_OK)
        mine, other = fs.path("/") / name, pathlib.Path(there)
        if len(name) < 256:  # pathlib raises for longer ones.
            for question in ("exists", "is_dir", "is_file", "is_symlink", "is_fifo", "is_socket"):
                assert getattr(mine, question)() == getattr(other, question)(), question
        else:
            assert not mine.exists() and not mine.is_dir()

    def test_closed_file_systems_have_none(self, empty: Path) -> None:
        fs = extant.open(empty)
        fs.close()
        for question in (fs.exists, fs.isdir, fs.isfile, fs.islink):
            for name in ("/", "a\0b"):
                with pytest.raises(ValueError):
                    question(name)
        with pytest.raises(ValueError):
            fs.path("/").exists()

    @pytest.mark.parametrize("pattern", ["*", "*/*", "*/*/*", "**/*.csv", "loop/*", "*/f.csv", "**"])
    def test_patterns_pass_over_them(self, both: Any, pattern: str) -> None:
        fs, host = both
        for method in ("glob", "rglob"):
            ours = {str(p)[1:] for p in getattr(fs.path("/"), method)(pattern)}
            # Newer versions of Python take `**` for files as well.
            slash = "/" if pattern == "**" else ""
            theirs = {os.path.relpath(p, host) for p in getattr(host, method)(pattern + slash)}
            assert ours == {"" if p == "." else p for p in theirs}

    def test_walk(self, both: Any) -> None:
        fs, host = both
        for follows in (False, True):
            ours = {(t, *map(frozenset, r)) for t, *r in fs.walk("/", followlinks=follows)}
            theirs = {
                ("/" + os.path.relpath(t, host).removeprefix("."), *map(frozenset, r))
                for t, *r in os.walk(host, followlinks=follows)
            }
            assert ours == theirs

    def test_fsspec_lists_what_lies_beside_them(self, both: Any, empty: Path, host: Path) -> None:
        both[0].sync()
        ours, theirs = Ext4FileSystem(str(empty)), LocalFileSystem()

        def below(found: list[str]) -> list[str]:
            return sorted(name.removeprefix(str(host)).strip("/") for name in found)

        for at in ("", "d"):
            root = f"{host}/{at}"
            for method in ("find", "ls"):
                got = getattr(ours, method)("/" + at, detail=False)
                assert below(got) == below(getattr(theirs, method)(root, detail=False))
        assert below(ours.glob("/d/*.csv")) == below(theirs.glob(f"{host}/d/*.csv")) == ["d/f.csv"]
        assert ours.du("/d") == len("n\n1\n")  # The host's raises for the link.
        for name in ("here", "too"):
            both[0].symlink(".", f"/d/{name}")
            os.symlink(".", f"{host}/d/{name}")
        both[0].sync()
        ours = Ext4FileSystem(str(empty))
        assert below(ours.find("/")) == below(theirs.find(str(host)))
        for name in ("loop", "dangling", "file", "none", "d"):
            assert ours.lexists(name) == theirs.lexists(f"{host}/{name}")
            assert ours.exists(name) == theirs.exists(f"{host}/{name}")
