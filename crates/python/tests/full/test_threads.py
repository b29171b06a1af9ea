"""Threads, interrupts, and devices that are Python code."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import assert_sound

import extant


def in_four(work) -> None:
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, n) for n in range(4)]:
            done.result(120)


def churn(fs: extant.Filesystem, n: int) -> None:
    chance = random.Random(n)
    fs.makedirs(f"/t{n}")
    kept: dict[str, bytes] = {}
    for i in range(150):
        name = f"/t{n}/{chance.randrange(40)}"
        match chance.randrange(6):
            case 0 | 1:
                kept[name] = chance.randbytes(chance.randrange(60_000))
                fs.write_bytes(name, kept[name])
            case 2 if name in kept:
                fs.remove(name)
                del kept[name]
            case 3 if name in kept:
                fs.rename(name, name + "r")
                fs.rename(name + "r", name)
            case 4 if name in kept:
                assert fs.read_bytes(name) == kept[name]
            case 5:
                assert len(list(fs.walk("/"))) >= 1
                if not i % 30:
                    fs.sync()
    assert sorted(fs.listdir(f"/t{n}")) == sorted(name.rpartition("/")[2] for name in kept)


def test_four_threads_change_an_image(image: Path) -> None:
    with extant.open(image, writable=True) as fs:
        in_four(lambda n: churn(fs, n))
    assert_sound(image)


def test_four_threads_change_an_image_on_a_python_file(image: Path, tmp_path: Path) -> None:
    memory = io.BytesIO(image.read_bytes())
    with extant.open(memory, writable=True) as fs:
        in_four(lambda n: churn(fs, n))
    after = tmp_path / "after.img"
    after.write_bytes(memory.getvalue())
    assert_sound(after)


def test_four_threads_share_one_file(image: Path) -> None:
    with extant.open(image) as fs, fs.open("/big", "rb", 0) as file:
        wanted = fs.read_bytes("/big")

        def work(n: int) -> None:
            for i in range(300):
                at = (i * 7919 + n) % len(wanted)
                assert file.pread(1000, at) == wanted[at : at + 1000]

        in_four(work)
        # With the position in common, each byte is read once.
        pieces: list[bytes] = []
        file.seek(0)

        def take(_: int) -> None:
            while piece := file.read(10_000):
                pieces.append(piece)

        in_four(take)
        assert sorted(b"".join(pieces)) == sorted(wanted)


def test_closing_while_others_work_is_a_value_error_for_them(image: Path) -> None:
    for _ in range(10):
        fs = extant.open(image, writable=True)
        begun = threading.Barrier(4)
        wrong: list[BaseException] = []

        def work(n: int) -> None:
            begun.wait()
            try:
                while True:
                    fs.write_bytes(f"/w{n}", bytes(5000))
                    fs.read_bytes(f"/w{n}")
            except ValueError:
                pass
            except OSError as e:
                # What was under way when it closed may be refused by the engine.
                if "closed" not in str(e) and e.errno not in (5, 30):
                    wrong.append(e)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        time.sleep(0.02)
        fs.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert wrong == []
    assert_sound(image)


def test_other_threads_run_while_the_engine_works(image: Path) -> None:
    reads = 0

    class Slow(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes | None:
            nonlocal reads
            reads += 1
            time.sleep(0.05)
            return super().read(size)

    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    with Slow(image, "rb") as file, extant.open(file) as fs:
        fs.read_bytes("/big")
    stop.set()
    thread.join()
    assert ticks > 20
    # Of 5 MiB: not a block at a time.
    assert reads < 80


INTERRUPTED = """
import os, signal, sys, threading, time
import extant

class Slow:
    def __init__(self, file):
        self.file = file
    def __getattr__(self, name):
        return getattr(self.file, name)
    def read(self, size):
        time.sleep(0.01)
        return self.file.read(size)

def later():
    time.sleep(0.5)
    print("sent", time.monotonic(), flush=True)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=later).start()
try:
    with open(sys.argv[1], "rb") as file:
        {work}
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", time.monotonic())
"""


@pytest.mark.parametrize(
    "work",
    [
        "fs = extant.open(Slow(file))\n"
        "        while True: fs.read_bytes('/big'); fs.listdir('/many')",
        "while True: extant.check(Slow(file))",
        "fs = extant.open(file.name)\n        while True: fs.bulkstat()",
    ],
)
def test_ctrl_c_ends_a_call(image: Path, tmp_path: Path, work: str) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED.format(work=work))
    done = subprocess.run(
        [sys.executable, script, image],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert "interrupted" in told, done.stdout + done.stderr
    assert float(told["interrupted"]) - float(told["sent"]) < 30


def test_ctrl_c_in_a_change_breaks_nothing(image: Path) -> None:
    """A device that is interrupted in the middle of a write."""

    class Impatient(io.BytesIO):
        countdown = -1

        def write(self, data: object, /) -> int:
            self.countdown -= 1
            if self.countdown == 0:
                raise KeyboardInterrupt
            return super().write(data)  # type: ignore[arg-type]

    memory = Impatient(image.read_bytes())
    interrupted = 0
    with extant.open(memory, writable=True) as fs:
        for n in range(30):
            memory.countdown = n % 7 + 1
            try:
                fs.write_bytes(f"/n{n}", bytes(10_000))
                fs.sync()
            except KeyboardInterrupt:
                interrupted += 1
        memory.countdown = -1
        assert fs.exists("/n29") and interrupted > 5
    assert extant.check(memory).is_clean


def test_the_end_of_the_program_closes_what_is_open(image: Path, tmp_path: Path) -> None:
    script = tmp_path / "left_open.py"
    script.write_text(
        "import sys, extant\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fs = extant.open(file, writable=True)\n"
        "text = fs.open('/late', 'w')\n"
        "text.write('late')\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script, image], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert_sound(image)
    with extant.open(image) as fs:
        assert fs.read_text("/late") == "late"


def test_misuse_is_refused() -> None:
    for wrong, call in [
        (TypeError, lambda: extant.open(None)),  # type: ignore[arg-type]
        (TypeError, lambda: extant.open(True)),
        (ValueError, lambda: extant.open(-1)),
        (OSError, lambda: extant.open(9999)),
        (OSError, lambda: extant.open("/")),
        (ValueError, lambda: extant.open("gopher://host/image")),
        (ValueError, lambda: extant.open("x.img", image_format="nothing")),
        (ValueError, lambda: extant.open("x.img", writable=True, mend=True)),
        (TypeError, lambda: extant.mkfs("x.img")),
        (ValueError, lambda: extant.mkfs("x.img", 1 << 20, block_size=3000)),
        (ValueError, lambda: extant.mkfs("x.img", 1 << 20, features="no_such_feature")),
        (OSError, lambda: extant.mkfs(io.BytesIO(), 0)),
    ]:
        with pytest.raises(wrong):
            call()


def test_one_image_has_one_writer(image: Path) -> None:
    with extant.open(image, writable=True), pytest.raises(OSError) as busy:
        extant.open(image, writable=True)
    assert busy.value.errno == 16
