"""An open file system, with the functions of `os` that are about files."""

from __future__ import annotations

import atexit
import io
import itertools
import os
import posixpath
import stat as modes
import threading
import weakref
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TextIO, overload
from uuid import UUID

from extant._file import FileIO, check_layers, encoded, raw_of, wrap
from extant._native import Volume
from extant._path import ABSENT, Path

if TYPE_CHECKING:
    import sys
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from extant._native import AnyPath, Image, StrPath

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

__all__ = ["Committed", "Filesystem", "StatVfs", "open", "transaction"]


class StatVfs(NamedTuple):
    """The space and inodes of a file system, with the names of `os.statvfs_result`."""

    f_bsize: int
    f_frsize: int
    f_blocks: int
    f_bfree: int
    f_bavail: int
    f_files: int
    f_ffree: int
    f_favail: int
    f_namemax: int
    directories: int
    uuid: UUID


class Committed(NamedTuple):
    """What a transaction wrote, in blocks."""

    new_blocks: int
    journaled_blocks: int
    waited_blocks: int


class Filesystem(Volume):
    """An open ext2, ext3 or ext4 file system, which closes at the end of a `with` block.

    Paths begin at its root, with or without a `/`. Any number of threads may use it at once.
    """

    _files: weakref.WeakSet[io.IOBase]
    _files_lock: AbstractContextManager[Any]
    _is_transaction: bool
    _number: int

    def __new__(
        cls,
        image: Image,
        *,
        writable: bool = False,
        partition: int | str | None = None,
        offset: int | None = None,
        length: int | None = None,
        image_format: str | None = None,
        mend: bool = False,
        transaction: bool = False,
    ) -> Self:
        self = super().__new__(
            cls,
            image,
            writable=writable,
            partition=partition,
            offset=offset,
            length=length,
            image_format=image_format,
            mend=mend,
            transaction=transaction,
        )
        self._files = weakref.WeakSet()
        # Finalisers and signal handlers open and close files while their thread has it.
        self._files_lock = threading.RLock()
        self._is_transaction = transaction
        self._number = next(_numbers)
        _open.add(self)
        return self

    def __enter__(self) -> Self:
        if self.closed:
            raise ValueError("I/O operation on a closed file system")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_transaction and kind is None and not (self.closed or self.is_foreign):
            self.commit()
        else:
            self.close()

    def _close_files(self, keeps: bool) -> None:
        """Close all files; write what buffers hold if it is to be kept.

        One that fails keeps no other from being written: the first error is raised in the end.
        """
        with self._files_lock:
            files = list(self._files)
        first: BaseException | None = None
        for file in files:
            try:
                if keeps:
                    file.close()
                else:
                    # What lies above it is closed with it, and has nothing to write then.
                    raw_of(file).close()
            except BaseException as e:
                first = _first(first, e)
        if first is not None:
            raise first

    def close(self) -> None:
        """Close the file system and its files: everything is durable then, and the image clean.

        What a transaction did is forgotten unless it was committed. In a process that was forked
        from the one that writes to the image, nothing is written.
        """
        if self.closed:
            return
        try:
            self._close_files(keeps=not (self._is_transaction or self.is_foreign))
        finally:
            super().close()

    def commit(self) -> Committed:
        """Make the changes of a transaction all at once, and close it.

        If that fails, also for a file whose buffer cannot be written, nothing is changed.
        """
        if self._is_transaction and not (self.closed or self.is_foreign):
            try:
                self._close_files(keeps=True)
            except BaseException:
                super().close()
                raise
        return Committed(*super().commit())

    @overload
    def open(
        self,
        path: AnyPath,
        mode: Literal["r", "w", "x", "a", "r+", "w+", "x+", "a+", "rt", "wt", "xt", "at"] = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> TextIO: ...
    @overload
    def open(
        self,
        path: AnyPath,
        mode: Literal["rb", "wb", "xb", "ab", "r+b", "w+b", "x+b", "a+b", "rb+", "wb+", "ab+"],
        buffering: Literal[0],
        *,
        permissions: int = 0o644,
    ) -> FileIO: ...
    @overload
    def open(
        self,
        path: AnyPath,
        mode: Literal["rb", "wb", "xb", "ab", "r+b", "w+b", "x+b", "a+b", "rb+", "wb+", "ab+"],
        buffering: Literal[-1, 1] = -1,
        *,
        permissions: int = 0o644,
    ) -> BinaryIO: ...
    @overload
    def open(
        self,
        path: AnyPath,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> Any: ...
    def open(
        self,
        path: AnyPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        permissions: int = 0o644,
    ) -> Any:
        """Open a file as the built-in `open` does, and return what that returns.

        A file that is made gets `permissions`.
        """
        kind, plus, binary = _parse(mode, encoding, errors, newline)
        # Before a file is emptied or made for a call that fails.
        check_layers(binary, buffering, encoding, errors, newline)
        raw = self.open_raw(
            path,
            read=kind == "r" or plus,
            write=kind != "r" or plus,
            append=kind == "a",
            truncate=kind == "w",
            create=kind in "wa",
            create_new=kind == "x",
            mode=permissions,
        )
        name = path if isinstance(path, str | bytes) else _text(path)
        file = FileIO(raw, name, kind + "b" + ("+" if plus else ""))
        try:
            wrapped = wrap(file, binary, buffering, encoding, errors, newline)
        except BaseException:
            file.close()
            raise
        with self._files_lock:
            self._files.add(wrapped)
        return wrapped

    def path(self, *parts: StrPath) -> Path:
        """A path of this file system, with the methods of `pathlib.Path`."""
        return Path(self, *parts)

    def isdir(self, path: AnyPath) -> bool:
        """Whether there is a directory; symbolic links are followed."""
        return self._is(path, modes.S_ISDIR)

    def isfile(self, path: AnyPath) -> bool:
        """Whether there is a regular file; symbolic links are followed."""
        return self._is(path, modes.S_ISREG)

    def islink(self, path: AnyPath) -> bool:
        """Whether there is a symbolic link."""
        return self._is(path, modes.S_ISLNK, follow_symlinks=False)

    def _is(
        self, path: AnyPath, test: Callable[[int], bool], *, follow_symlinks: bool = True
    ) -> bool:
        try:
            found = self.stat(path, follow_symlinks=follow_symlinks)
        except OSError as e:
            if e.errno in ABSENT:
                return False
            raise
        except ValueError:
            if self.closed:
                raise
            return False  # A null byte, which no name has.
        return test(found.st_mode)

    def makedirs(self, name: AnyPath, mode: int = 0o755, exist_ok: bool = False) -> None:
        """Make a directory and those above it, as `os.makedirs`."""
        text = _text(name)
        slash: Any = b"/" if isinstance(text, bytes) else "/"
        head, tail = posixpath.split(text.rstrip(slash))
        if head and tail and not self.exists(head):
            try:
                self.makedirs(head, exist_ok=exist_ok)
            except FileExistsError:
                pass  # Made by another thread in between.
            if tail in (".", b"."):
                return  # It is what was made.
        try:
            self.mkdir(text, mode)
        except OSError:
            if not exist_ok or not self.isdir(text):
                raise

    def removedirs(self, name: AnyPath) -> None:
        """Remove an empty directory, and those above it as far as they become empty."""
        text = _text(name)
        self.rmdir(text)
        slash: Any = b"/" if isinstance(text, bytes) else "/"
        head = posixpath.dirname(text.rstrip(slash))
        while head.strip(slash):
            try:
                self.rmdir(head)
            except OSError:
                break
            head = posixpath.dirname(head)

    def rmtree(self, path: AnyPath) -> None:
        """Remove a directory with everything below it, as `shutil.rmtree`."""
        if self.islink(path):
            raise OSError("cannot remove a tree by a symbolic link")
        root: Any = _text(path)
        top: Any
        for top, dirs, files in self.walk(root, topdown=False):
            for name in files:
                self.remove(posixpath.join(top, name))
            for name in dirs:
                below = posixpath.join(top, name)
                if self.islink(below):
                    self.remove(below)
                else:
                    self.rmdir(below)
        self.rmdir(path)

    def write_bytes(self, path: AnyPath, data: Buffer) -> int:
        """Make `data` the content of a file, which is made if need be."""
        view = bytes_of(data)
        with self.open(path, "wb", 0) as file:
            done = 0
            while done < len(view):
                done += file.write(view[done:])
            return done

    def read_text(
        self, path: AnyPath, encoding: str | None = None, errors: str | None = None
    ) -> str:
        """The whole content of a file as text."""
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(
        self,
        path: AnyPath,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Make text the content of a file, which is made if need be."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        self.write_bytes(path, encoded(data, encoding, errors, newline))
        return len(data)

    def statvfs(self, path: AnyPath = "/") -> StatVfs:
        """The space and inodes, the same for every path."""
        fields = self.statvfs_fields()
        return StatVfs(**{**fields, "uuid": UUID(bytes=fields["uuid"])})

    def glob(self, pattern: str) -> Iterator[str]:
        """The paths that a pattern stands for, from the root, in the order of names."""
        for found in self.path("/").glob(pattern.lstrip("/")):
            yield str(found)


def bytes_of(data: Buffer) -> memoryview:
    """The memory of what is to be written, byte by byte."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _first(first: BaseException | None, other: BaseException) -> BaseException:
    """The first of several errors, with a note of the others."""
    if first is None:
        return other
    first.add_note(f"Then there was: {type(other).__name__}: {other}")
    return first


def _text(path: AnyPath) -> str | bytes:
    """A path as `str` or `bytes`."""
    if isinstance(path, str | bytes):
        return path
    if hasattr(path, "__image_path__"):
        return path.__image_path__()
    return os.fspath(path)


def _parse(
    mode: str, encoding: str | None, errors: str | None, newline: str | None
) -> tuple[str, bool, bool]:
    """Take a mode apart, and refuse what the built-in `open` refuses."""
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    letters = set(mode)
    if letters - set("rwxabt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if "t" in letters and "b" in letters:
        raise ValueError("can't have text and binary mode at once")
    kinds = letters & set("rwxa")
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    binary = "b" in letters
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if binary and value is not None:
            raise ValueError(f"binary mode doesn't take an {name} argument")
    return kinds.pop(), "+" in letters, binary


def open(
    image: Image,
    *,
    writable: bool = False,
    partition: int | str | None = None,
    offset: int | None = None,
    length: int | None = None,
    image_format: str | None = None,
    mend: bool = False,
) -> Filesystem:
    """Open the file system in an image.

    `image` is the path of a file or block device, an address as the command `extant` takes it
    (`disk.img#2`, `https://...`, `nbd://...`, `s3://...`), the number of an open file, or a
    seekable binary file object. Disks in qcow2, VHD, VMDK and the like, and compressed ones, are
    seen from their content.

    Nothing is written unless `writable` is true. `partition` (a number or a label), or `offset` and
    `length` in bytes, say which part of a disk is meant. `mend` reads a damaged file system as a
    repair would leave it.
    """
    return Filesystem(
        image,
        writable=writable,
        partition=partition,
        offset=offset,
        length=length,
        image_format=image_format,
        mend=mend,
    )


def transaction(
    image: Image,
    *,
    partition: int | str | None = None,
    offset: int | None = None,
    length: int | None = None,
    image_format: str | None = None,
) -> Filesystem:
    """Open an image for changes that are made as a whole, or not at all.

    They are in the image when the `with` block ends, or `commit` returns. An exception that leaves
    the block, `close`, or a crash before that, forgets them.
    """
    return Filesystem(
        image,
        partition=partition,
        offset=offset,
        length=length,
        image_format=image_format,
        transaction=True,
    )


_open: weakref.WeakSet[Filesystem] = weakref.WeakSet()
_numbers = itertools.count()


def _close_all() -> None:
    """Close what is still open while Python code of file objects can run.

    The last first: it may lie on a file of another.
    """
    first: BaseException | None = None
    for fs in sorted(_open, key=lambda fs: -fs._number):
        if fs.is_copy and not fs.is_foreign:
            continue  # There is nothing to write, and who knows what threads of the parent held.
        try:
            fs.close()
        except BaseException as e:
            first = _first(first, e)
    if first is not None:
        raise first


def _after_fork() -> None:
    """Give back what threads held that are not in this process."""
    for fs in list(_open):
        fs._files_lock = threading.RLock()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
