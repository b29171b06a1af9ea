"""Images as file systems of fsspec: `ext4://PATH::ADDRESS OF THE IMAGE`.

    pandas.read_csv("ext4://data/table.csv::file:///images/disk.img")
    fsspec.filesystem("ext4", fo="disk.img").ls("/etc")

The image may lie on any file system of fsspec, in a format of disk images, and in a partition.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import shutil
import stat as modes
from datetime import UTC, datetime
from glob import has_magic
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec  # type: ignore[import-untyped]
from fsspec import AbstractFileSystem

from extant._file import encoded
from extant._filesystem import Filesystem, bytes_of
from extant._native import DamagedError
from extant._path import ABSENT

if TYPE_CHECKING:
    from extant._native import Stat

__all__ = ["Ext4FileSystem"]

_TYPES = {
    modes.S_IFREG: "file",
    modes.S_IFDIR: "directory",
    modes.S_IFLNK: "link",
}


class Ext4FileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of an ext4 image.

    `fo` is the image: an address of fsspec, a path of the host, or an open file. With
    `mode="r+b"` the image is changed; `close` makes everything durable. `partition`, `offset`,
    `length`, `image_format` and `mend` are those of `extant.open`.
    """

    root_marker = ""
    protocol: ClassVar[str] = "ext4"
    cachable = False
    async_impl = False

    def __init__(
        self,
        fo: Any = "",
        mode: str = "r",
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        partition: int | str | None = None,
        offset: int | None = None,
        length: int | None = None,
        image_format: str | None = None,
        mend: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in ("r", "rb", "r+", "r+b"):
            raise ValueError("mode is 'r' to read an image, or 'r+b' to change it")
        writable = "+" in mode
        self._carrier: Any = None
        self.fo = fo
        image = fo
        if isinstance(fo, str):
            image = self._local(fo, target_protocol)
            if image is None:
                options = target_options or {}
                self._carrier = fsspec.open(
                    fo, "r+b" if writable else "rb", protocol=target_protocol, **options
                )
                image = self._carrier.__enter__()
        try:
            self.image = Filesystem(
                image,
                writable=writable,
                partition=partition,
                offset=offset,
                length=length,
                image_format=image_format,
                mend=mend,
            )
        except BaseException:
            self._close_carrier()
            raise

    @staticmethod
    def _local(fo: str, protocol: str | None) -> str | None:
        """The path of a file of the host, which is opened without Python in between."""
        if protocol not in (None, "file", "local"):
            return None
        for scheme in ("file://", "local://"):
            if fo.startswith(scheme):
                return fo[len(scheme) :]
        return None if "://" in fo or "::" in fo else fo

    def _close_carrier(self) -> None:
        if self._carrier is not None:
            self._carrier.__exit__(None, None, None)
            self._carrier = None

    def close(self) -> None:
        """Close the image and the file that it lies on."""
        try:
            self.image.close()
        finally:
            self._close_carrier()

    def __enter__(self) -> Ext4FileSystem:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        # A path from the root on, without the slash: as those of archives are.
        return str(super()._strip_protocol(path)).strip("/")

    @staticmethod
    def _at(path: str) -> str:
        return "/" + path.strip("/")

    def _info(self, path: str, found: Stat) -> dict[str, Any]:
        return {
            "name": path,
            "size": found.st_size,
            "type": _TYPES.get(modes.S_IFMT(found.st_mode), "other"),
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            "mtime": found.st_mtime,
            "created": found.st_birthtime,
        }

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        at = self._at(path)
        link = self.image.lstat(at)
        if not modes.S_ISLNK(link.st_mode):
            return self._info(path, link)
        info = {"islink": True, "destination": self.image.readlink(at)}
        try:
            # What a link leads to is what is read by its name.
            return self._info(path, self.image.stat(at)) | info
        except OSError as e:
            if e.errno not in ABSENT:
                raise
            return self._info(path, link) | info | {"size": 0}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        at = self._at(path)
        if not self.image.isdir(at):
            found = self.info(path)
            return [found] if detail else [found["name"]]
        names = sorted(self.image.listdir(at))
        below = [posixpath.join(path, name) for name in names]
        return [self._entry(name) for name in below] if detail else below

    def _entry(self, path: str) -> dict[str, Any]:
        """The information about an entry of a directory, which does not hide the others."""
        try:
            info = self.info(path)
        except OSError as e:
            self._pass_over(e)
            # What reads it learns what is wrong with it.
            return {"name": path, "size": 0, "type": "other"}
        if info["type"] == "directory" and "islink" in info:
            # Otherwise what is listed recursively could come again and again.
            info["type"] = "link"
        return info

    @staticmethod
    def _pass_over(e: OSError) -> None:
        """Raise an error that is not of one file alone: the image cannot be read."""
        is_of_file = isinstance(e, DamagedError | FileNotFoundError) or e.errno in ABSENT
        if not is_of_file:
            raise e

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        **kwargs: Any,
    ) -> Any:
        on_error = self._pass_over if on_error == "omit" else on_error
        return super().walk(path, maxdepth, topdown, on_error, **kwargs)

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.image.exists(self._at(self._strip_protocol(path)))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        return self.image.path(self._at(self._strip_protocol(path))).exists(follow_symlinks=False)

    def isdir(self, path: str) -> bool:
        return self.image.isdir(self._at(self._strip_protocol(path)))

    def isfile(self, path: str) -> bool:
        return self.image.isfile(self._at(self._strip_protocol(path)))

    def created(self, path: str) -> datetime:
        seconds = self.info(path)["created"]
        if seconds is None:
            raise NotImplementedError("inodes of this file system have no time of creation")
        return datetime.fromtimestamp(seconds, UTC)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def _change(self) -> None:
        """Refuse a change in a transaction of fsspec, which would put it off."""
        if self._intrans:
            raise NotImplementedError("a file of an image is written at once")

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if "b" in mode or compression is not None:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        # The layer of text is one that is closed with the image, so that nothing stays in it.
        if mode not in ("r", "rt"):
            self._change()
        at = self._at(self._strip_protocol(path))
        names = ("encoding", "errors", "newline")
        layers: dict[str, Any] = {name: kwargs.get(name) for name in names}
        return self.image.open(at, mode, self._buffering(block_size), **layers)

    @staticmethod
    def _buffering(block_size: int | None) -> int:
        return block_size if block_size is not None and block_size > 1 else -1

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> io.IOBase:
        if mode != "rb":
            self._change()
            if not autocommit:
                raise NotImplementedError("a file of an image is written at once")
        opened: Any = self.image.open(self._at(path), mode, self._buffering(block_size))
        if mode == "rb":
            # What reads blocks of files asks for it.
            opened.size = opened.raw.stat().st_size
        file: io.IOBase = opened
        return file

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        with self.image.open(self._at(self._strip_protocol(path)), "rb", 0) as file:
            if start is None and end is None:
                return file.read()
            size = file.stat().st_size
            first, last, _ = slice(start, end).indices(size)
            return file.pread(max(last - first, 0), first)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self._change()
        view = bytes_of(value)
        path = self._at(self._strip_protocol(path))
        with self.image.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(view)

    def write_text(
        self,
        path: str,
        value: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        **kwargs: Any,
    ) -> int:
        if not isinstance(value, str):
            raise TypeError(f"write() argument must be str, not {type(value).__name__}")
        self.pipe_file(path, encoded(value, encoding, errors, newline))
        return len(value)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self._change()
        at = self._at(self._strip_protocol(path))
        if create_parents:
            self.image.makedirs(posixpath.dirname(at), exist_ok=True)
        self.image.mkdir(at)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._change()
        self.image.makedirs(self._at(self._strip_protocol(path)), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self._change()
        self.image.rmdir(self._at(self._strip_protocol(path)))

    def rm_file(self, path: str) -> None:
        self._change()
        self.image.remove(self._at(self._strip_protocol(path)))

    _rm = rm_file

    def _found(self, path: Any, maxdepth: int | None = None) -> list[str]:
        """What a path, a pattern, or several stand for. A name that is there is no pattern."""
        found: dict[str, None] = {}
        for one in [path] if isinstance(path, str | os.PathLike) else path:
            name = self._strip_protocol(one)
            is_pattern = has_magic(name) and not self.lexists(name)
            found |= dict.fromkeys(
                self.expand_path(name, maxdepth=maxdepth) if is_pattern else [name]
            )
        return list(found)

    def rm(
        self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        self._change()
        # What lies in a directory that is found as well comes before it.
        for one in reversed(self._found(path, maxdepth)):
            at = self._at(one)
            if not recursive or not self.image.isdir(at) or self.image.islink(at):
                self.image.remove(at)
            elif maxdepth is None:
                self.image.rmtree(at)
            else:
                below = self.find(one, maxdepth=maxdepth, withdirs=True)
                for name in sorted({one, *below}, reverse=True):
                    self.image.remove(self._at(name))

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Rename files and directories, into a directory where there is one, as `shutil.move`.

        What a pattern stands for, and several paths, are renamed into a directory.
        """
        self._change()
        if not isinstance(path2, str | os.PathLike):
            for one, other in zip(path1, path2, strict=True):
                self._move(self._strip_protocol(one), self._strip_protocol(other))
            return
        into = self._strip_protocol(path2)
        found = self._found(path1, maxdepth)
        if len(found) > 1 and not self.isdir(into):
            number = errno.ENOTDIR if self.lexists(into) else errno.ENOENT
            raise OSError(number, os.strerror(number), self._at(into))
        for one in found:
            above = posixpath.dirname(one)
            while above and above not in found:
                above = posixpath.dirname(above)
            if not above:
                self._move(one, into)  # Otherwise it goes with that directory.

    def _move(self, path1: str, path2: str) -> None:
        one, other = self._at(path1), self._at(path2)
        is_itself = self._is_same(one, other) and not self.image.islink(one)
        if self.image.isdir(other) and not is_itself:
            other = posixpath.join(other, posixpath.basename(one))
            if self.lexists(other):
                raise shutil.Error(f"Destination path '{other}' already exists")
        self.image.rename(one, other)

    def _is_same(self, one: str, other: str) -> bool:
        """Whether two paths lead to one file."""
        return (
            self.image.exists(one)
            and self.image.exists(other)
            and self.image.stat(one).st_ino == self.image.stat(other).st_ino
        )

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._change()
        self.image.rename(
            self._at(self._strip_protocol(path1)), self._at(self._strip_protocol(path2))
        )

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._change()
        one, other = (self._at(self._strip_protocol(path)) for path in (path1, path2))
        if self.image.isdir(one):
            self.image.makedirs(other, exist_ok=True)
            return
        if self._is_same(one, other):
            raise shutil.SameFileError(f"{one!r} and {other!r} are the same file")
        # With a buffer, which writes on where a write ends early, or fails.
        with self.image.open(one, "rb", 0) as source, self.image.open(other, "wb") as target:
            while data := source.read(1 << 20):
                target.write(data)
