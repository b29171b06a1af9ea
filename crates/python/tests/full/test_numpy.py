"""All inodes as an array, and tables by pandas and Dask."""

from __future__ import annotations

import io
import os
from pathlib import Path

import dask.dataframe
import fsspec
import numpy
import pandas
import pytest

import extant
from extant.fsspec import Ext4FileSystem


def test_bulkstat_is_what_stat_says(image: Path) -> None:
    with extant.open(image) as fs:
        for threads in (0, 1, 2, 4):
            table = numpy.asarray(fs.bulkstat(threads=threads))
            assert table.dtype == numpy.dtype(extant.Inodes.dtype)
            assert len(numpy.unique(table["ino"])) == len(table)
            by_ino = {int(row["ino"]): row for row in table}
            for top, dirs, files in fs.walk("/"):
                for name in dirs + files:
                    found = fs.lstat(os.path.join(top, name))
                    row = by_ino[found.st_ino]
                    for field in ("mode", "nlink", "uid", "gid", "size", "blocks", "rdev", "flags"):
                        assert row[field] == getattr(found, f"st_{field}")
                    for field in ("atime", "mtime", "ctime"):
                        ns = int(row[field]) * 10**9 + int(row[f"{field}_nsec"])
                        assert ns == getattr(found, f"st_{field}_ns")


def test_the_array_shares_memory_and_outlives_the_file_system(image: Path) -> None:
    with extant.open(image) as fs:
        inodes = fs.bulkstat()
    table, sizes = numpy.asarray(inodes), numpy.asarray(inodes["size"])
    assert numpy.shares_memory(table, sizes)
    del inodes
    assert (table["size"] == sizes).all() and sizes.sum() > 5 << 20
    with pytest.raises(ValueError, match="read-only"):
        table["size"][0] = 1
    frame = pandas.DataFrame(table)
    assert (frame["size"] == 256 * (20 << 10)).any()


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "tables.img"
    extant.mkfs(path, 64 << 20)
    with extant.open(path, writable=True) as fs:
        fs.makedirs("/data/parts")
        frame = pandas.DataFrame({"n": range(1000), "square": [n * n for n in range(1000)]})
        for n in range(4):
            with fs.open(f"/data/parts/{n}.csv", "w") as file:
                frame[n * 250 : (n + 1) * 250].to_csv(file, index=False)
        with fs.open("/data/all.parquet", "wb") as file:
            frame.to_parquet(file)
    return path


def test_pandas_reads_tables_in_an_image(tables: Path) -> None:
    for url in (
        f"ext4://data/all.parquet::file://{tables}",
        f"ext4:///data/all.parquet::{tables}",
    ):
        frame = pandas.read_parquet(url)
        assert frame["square"].sum() == sum(n * n for n in range(1000))
    frame = pandas.read_csv(
        "ext4://data/parts/2.csv", storage_options={"fo": str(tables)}
    )
    assert list(frame["n"]) == list(range(500, 750))


def test_dask_reads_all_parts(tables: Path) -> None:
    frame = dask.dataframe.read_csv(f"ext4://data/parts/*.csv::file://{tables}")
    assert frame["n"].sum().compute() == sum(range(1000))


def test_an_image_on_another_file_system_of_fsspec(tables: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/tables.img", tables.read_bytes())
    try:
        frame = pandas.read_parquet("ext4://data/all.parquet::memory://tables.img")
        assert len(frame) == 1000
        with fsspec.open("ext4://data/parts/0.csv::memory://tables.img", "r") as file:
            assert file.readline() == "n,square\n"
    finally:
        memory.rm("/tables.img")


def test_the_file_system_of_fsspec(tables: Path) -> None:
    with Ext4FileSystem(str(tables)) as fs:
        assert fs.ls("/data", detail=False) == ["data/all.parquet", "data/parts"]
        assert fs.info("data/parts")["type"] == "directory"
        assert fs.find("data") == ["data/all.parquet"] + [f"data/parts/{n}.csv" for n in range(4)]
        assert fs.glob("data/parts/[12].csv") == ["data/parts/1.csv", "data/parts/2.csv"]
        assert fs.cat_file("data/parts/0.csv", 2, 8) == b"square"
        assert fs.cat_file("data/parts/0.csv", -3) == fs.cat_file("data/parts/0.csv")[-3:]
        assert fs.du("data") == sum(fs.info(path)["size"] for path in fs.find("data"))
        assert fs.exists("data") and not fs.exists("nothing")
        with pytest.raises(FileNotFoundError):
            fs.open("nothing")
        with pytest.raises(OSError):
            fs.pipe_file("new", b"read only")
    with Ext4FileSystem(str(tables), mode="r+b") as fs:
        fs.pipe_file("made", b"text")
        fs.mkdir("a/b")
        fs.cp_file("made", "a/b/copy")
        fs.mv("a/b/copy", "a/moved")
        assert fs.cat("a/moved") == b"text"
        fs.rm("a", recursive=True)
        assert not fs.exists("a")
        fs.get("data/parts", str(tables.parent / "got") + "/", recursive=True)
        fs.put(str(tables.parent / "got") + "/", "put", recursive=True)
        assert len(fs.find("put")) == 4
    assert extant.check(tables).is_clean


def test_a_device_of_fsspec_is_any_seekable_file(tables: Path) -> None:
    with open(tables, "rb") as file, Ext4FileSystem(file) as fs:
        assert fs.isdir("data")
    with Ext4FileSystem(io.BytesIO(tables.read_bytes())) as fs:
        assert fs.isfile("data/all.parquet")
