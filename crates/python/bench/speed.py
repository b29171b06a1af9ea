"""How fast the package is, beside Rust and beside other readers of ext4 for Python.

    pip install extant-fs numpy dissect-extfs pytsk3
    cargo build --release -p extant-python --example speed
    python crates/python/bench/speed.py --rust target/release/examples/speed

Prints a table: what, seconds, and how it compares. Figures are medians of several runs, and what is
compared takes turns. Peers that are not installed are left out, and it says so. Everything is read
from memory: images are read once before.
"""

from __future__ import annotations

import argparse
import os
import stat
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence

import extant

RUNS = 5
PIECE = 1 << 20


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def medians(works: Sequence[Callable[[], float]], runs: int = RUNS) -> list[float]:
    """The median seconds of each work, which tells its own. They take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(runs):
        for work, seconds in zip(works, times, strict=True):
            seconds.append(work())
    return [statistics.median(seconds) for seconds in times]


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


def rust(program: str, what: str, image: str) -> float:
    return float(subprocess.check_output([program, what, image, "/big"], text=True))


def reading(image: str, program: str | None, size: int) -> None:
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

    for beside, works in (
        ("read", {"readinto": readinto, "read(1 MiB), buffered": chunks}),
        ("whole", {"read_bytes": whole}),
    ):
        sides = [lambda work=work: timed(work) for work in works.values()]
        if program is not None:
            sides.append(lambda beside=beside: rust(program, beside, image))
        found = medians(sides)
        theirs = found[len(works)] if program is not None else None
        if theirs:
            line(f"read, Rust, {beside}", theirs, f"{size / theirs / 1e9:.2f} GB/s")
        for what, ours in zip(works, found, strict=False):
            compared = f"{theirs / ours:.2f} of Rust" if theirs else f"{size / ours / 1e9:.2f} GB/s"
            line(f"read, Python, {what}", ours, compared)


def walking(image: str, files: int) -> None:
    def ours() -> int:
        with extant.open(image) as fs:
            return sum(len(names) for _, _, names in fs.walk("/"))

    assert ours() == files + 1
    [seconds] = medians([lambda: timed(ours)])
    line("walk, extant", seconds, f"{files / seconds / 1e6:.2f} M files/s")
    for name, peer in (("dissect.extfs", dissect), ("pytsk3", pytsk)):
        try:
            count = peer(image)
        except ImportError:
            print(f"SKIPPED: {name} is not installed")
            continue
        assert count == files + 1, (name, count)
        # Once more beside ours: they take long.
        again, theirs = medians([lambda: timed(ours), lambda peer=peer: timed(lambda: peer(image))], 1)
        seconds = max(seconds, again)
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
    if program is not None:
        [theirs] = medians([lambda: rust(program, "bulkstat", image)])
        rate = f"{files / theirs / 1e6:.1f} M inodes/s"
        line("bulkstat, Rust, counting only, two threads", theirs, rate)
    with extant.open(image) as fs:
        found = len(fs.bulkstat(threads=2))
        [seconds] = medians([lambda: timed(lambda: fs.bulkstat(threads=2))], 11)
    line("bulkstat, Python, two threads", seconds, f"{found / seconds / 1e6:.1f} M inodes/s")
    try:
        import numpy
    except ImportError:
        print("SKIPPED: numpy is not installed")
        return
    with extant.open(image) as fs:
        [seconds] = medians(
            [lambda: timed(lambda: numpy.asarray(fs.bulkstat(threads=2))["size"].sum())], 11
        )
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
