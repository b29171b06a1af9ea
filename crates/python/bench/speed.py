"""How fast the package is, beside Rust and beside other readers of ext4 for Python.

    pip install extant-fs numpy dissect-extfs pytsk3
    cargo build --release -p extant-python --example speed
    python crates/python/bench/speed.py --rust target/release/examples/speed

Prints a table: what, seconds, and how it compares. Peers that are not installed are left out, and
it says so. Everything is read from memory: images are read once before.
"""

from __future__ import annotations

import argparse
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable

import extant

RUNS = 5
PIECE = 1 << 20


def best(work: Callable[[], object], runs: int = RUNS) -> float:
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def line(what: str, seconds: float, compared: str = "") -> None:
    print(f"{what:44} {seconds:9.3f} s  {compared}", flush=True)


def make(place: str, files: int, size: int) -> str:
    path = os.path.join(place, f"speed-{files}-{size}.img")
    if os.path.exists(path):
        return path
    extant.mkfs(path, size * 2 + files * 512 + (256 << 20), inodes=files + files // 50 + 100)
    block = os.urandom(PIECE)
    with extant.open(path, writable=True) as fs:
        with fs.open("/big", "wb", 0) as file:
            for _ in range(size // PIECE):
                file.write(block)
        for n in range(files):
            if n % 100 == 0:
                where = f"/d{n // 10_000}/d{n // 100}"
                fs.makedirs(where)
            fs.mknod(f"{where}/file number {n}", stat.S_IFREG | 0o644)
    with open(path, "rb") as file:
        while file.read(PIECE):
            pass
    return path


def rust(program: str | None, what: str, image: str) -> float | None:
    if program is None:
        return None
    return float(subprocess.check_output([program, what, image, "/big"], text=True))


def reading(image: str, program: str | None, size: int) -> None:
    pieces, all_at_once = rust(program, "read", image), rust(program, "whole", image)
    for what, theirs in (("1 MiB at a time", pieces), ("all at once", all_at_once)):
        if theirs:
            line(f"read, Rust, {what}", theirs, f"{size / theirs / 1e9:.2f} GB/s")
    memory = bytearray(PIECE)

    def readinto() -> None:
        with extant.open(image) as fs, fs.open("/big", "rb", 0) as file:
            while file.readinto(memory):
                pass

    def chunks() -> None:
        with extant.open(image) as fs, fs.open("/big", "rb") as file:
            while file.read(PIECE):
                pass

    def whole() -> None:
        with extant.open(image) as fs:
            fs.read_bytes("/big")

    for what, work, theirs in (
        ("readinto", readinto, pieces),
        ("read(1 MiB), buffered", chunks, pieces),
        ("read_bytes", whole, all_at_once),
    ):
        ours = best(work)
        compared = f"{theirs / ours:.2f} of Rust" if theirs else f"{size / ours / 1e9:.2f} GB/s"
        line(f"read, Python, {what}", ours, compared)


def walking(image: str, files: int) -> None:
    def ours() -> int:
        with extant.open(image) as fs:
            return sum(len(names) for _, _, names in fs.walk("/"))

    assert ours() == files + 1
    seconds = best(ours)
    line("walk, extant", seconds, f"{files / seconds / 1e6:.2f} M files/s")
    for name, peer in (("dissect.extfs", dissect), ("pytsk3", pytsk)):
        try:
            count = peer(image)
        except ImportError:
            print(f"SKIPPED: {name} is not installed")
            continue
        assert count == files + 1, (name, count)
        theirs = best(lambda peer=peer: peer(image), 1)
        line(f"walk, {name}", theirs, f"extant is {theirs / seconds:.1f} times as fast")


def dissect(image: str) -> int:
    from dissect.extfs import ExtFS

    count = 0
    with open(image, "rb") as file:
        fs = ExtFS(file)
        steps = [fs.root]
        while steps:
            for name, node in steps.pop().listdir().items():
                if name in (".", ".."):
                    continue
                if node.filetype == stat.S_IFDIR:
                    steps.append(node)
                else:
                    count += 1
    return count


def pytsk(image: str) -> int:
    import pytsk3

    fs = pytsk3.FS_Info(pytsk3.Img_Info(image))
    count = 0
    steps = [fs.info.root_inum]
    while steps:
        for entry in fs.open_dir(inode=steps.pop()):
            name = entry.info.name
            if name.name in (b".", b"..") or name.name.startswith(b"$Orphan"):
                continue
            if name.type == pytsk3.TSK_FS_NAME_TYPE_DIR:
                steps.append(name.meta_addr)
            else:
                count += 1
    return count


def inodes(image: str, program: str | None, files: int) -> None:
    theirs = rust(program, "bulkstat", image)
    if theirs:
        rate = f"{files / theirs / 1e6:.1f} M inodes/s"
        line("bulkstat, Rust, counting only, two threads", theirs, rate)
    with extant.open(image) as fs:
        found = len(fs.bulkstat(threads=2))
        seconds = best(lambda: fs.bulkstat(threads=2), 10)
    line("bulkstat, Python, two threads", seconds, f"{found / seconds / 1e6:.1f} M inodes/s")
    try:
        import numpy
    except ImportError:
        print("SKIPPED: numpy is not installed")
        return
    with extant.open(image) as fs:
        seconds = best(lambda: numpy.asarray(fs.bulkstat(threads=2))["size"].sum(), 10)
    rate = f"{found / seconds / 1e6:.1f} M inodes/s"
    line("bulkstat into NumPy, and a sum of sizes", seconds, rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=1 << 30, help="bytes of the file that is read")
    parser.add_argument("--rust", help="the example `speed`, built for release")
    parser.add_argument("--place", help="where images are made, and kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.place) as place:
        place = args.place or place
        image = make(place, args.files, args.size)
        print(f"extant {extant.__version__}, {args.files} files, {args.size >> 20} MiB")
        reading(image, args.rust, args.size)
        walking(image, args.files)
        inodes(image, args.rust, args.files)


if __name__ == "__main__":
    main()
