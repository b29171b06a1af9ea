"""Open files as the classes of `io`."""

from __future__ import annotations

import io
from operator import index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sys

    from extant._native import RawFile, Stat

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

__all__ = ["BUFFER_SIZE", "FileIO", "check_layers", "encoded", "raw_of", "wrap"]

BUFFER_SIZE = 128 << 10
"""Bytes that a buffered file reads and writes at once."""


class FileIO(io.RawIOBase):
    """An open file without buffers: each call goes to the file system.

    `pread`, `preadinto` and `pwrite` leave the position alone, and may be called from several
    threads at once.
    """

    def __init__(self, raw: RawFile, name: str | bytes, mode: str) -> None:
        self._raw = raw
        self.name = name
        self._mode = mode
        self._reads = "+" in mode or "r" in mode
        self._writes = "+" in mode or "r" not in mode

    @property
    def mode(self) -> str:
        """The mode, as `io.FileIO` writes it."""
        return self._mode

    def readable(self) -> bool:
        self._check()
        return self._reads

    def writable(self) -> bool:
        self._check()
        return self._writes

    def seekable(self) -> bool:
        self._check()
        return True

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")

    def _need(self, is_so: bool, what: str) -> None:
        self._check()
        if not is_so:
            raise io.UnsupportedOperation(f"File not open for {what}")

    def readinto(self, buffer: Buffer, /) -> int:
        if not self._reads:
            self._need(False, "reading")
        return self._raw.readinto(buffer)

    def read(self, size: int | None = -1, /) -> bytes:
        if not self._reads:
            self._need(False, "reading")
        return self._raw.read(-1 if size is None else size)

    def readall(self) -> bytes:
        return self.read(-1)

    def write(self, data: Buffer, /) -> int:
        if not self._writes:
            self._need(False, "writing")
        return self._raw.write(data)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def truncate(self, size: int | None = None, /) -> int:
        self._need(self._writes, "writing")
        return self._raw.truncate(size)

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes from byte `offset`."""
        self._need(self._reads, "reading")
        return self._raw.pread(size, offset)

    def preadinto(self, buffer: Buffer, offset: int) -> int:
        """Read into a buffer from byte `offset`; return how many bytes."""
        self._need(self._reads, "reading")
        return self._raw.preadinto(buffer, offset)

    def pwrite(self, data: Buffer, offset: int) -> int:
        """Write at byte `offset`; return how many bytes."""
        self._need(self._writes, "writing")
        return self._raw.pwrite(data, offset)

    def sync(self, data_only: bool = False) -> None:
        """Make what was written durable, as `os.fsync` or `os.fdatasync`."""
        self._raw.sync(data_only)

    def stat(self) -> Stat:
        """What is known about the file, as `os.fstat`."""
        return self._raw.stat()

    def allocate(self, offset: int, length: int) -> None:
        """Reserve space for a range, as `os.posix_fallocate`."""
        self._need(self._writes, "writing")
        self._raw.allocate(offset, length)

    def punch_hole(self, offset: int, length: int) -> None:
        """Make a hole of a range: it reads as zeros and takes no space."""
        self._need(self._writes, "writing")
        self._raw.punch_hole(offset, length)

    def extents(self) -> list[tuple[int, int, int | None, bool]]:
        """Where the content lies: (offset, length, offset on the device, only reserved)."""
        return self._raw.extents()

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                self._raw.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<extant.FileIO [closed]>"
        return f"<extant.FileIO name={self.name!r} mode={self._mode!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'FileIO' object")


def check_layers(
    binary: bool,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> None:
    """Refuse what `wrap` would refuse, while nothing is opened."""
    if buffering == 0 and not binary:
        raise ValueError("can't have unbuffered text I/O")
    if index(buffering) > 1:
        io.BufferedWriter(io.BytesIO(), buffering)
    if not binary:
        io.TextIOWrapper(io.BytesIO(), encoding, errors, newline)


def encoded(data: str, encoding: str | None, errors: str | None, newline: str | None) -> bytes:
    """The bytes that a file has after text was written to it."""
    memory = io.BytesIO()
    text = io.TextIOWrapper(memory, encoding, errors, newline)
    text.write(data)
    text.flush()
    return memory.getvalue()


def raw_of(file: io.IOBase) -> io.IOBase:
    """The file below the layers of `wrap`, as far as they are still there."""
    for layer in ("buffer", "raw"):
        try:
            file = getattr(file, layer, file)
        except ValueError:
            break  # It was detached.
    return file


def wrap(
    raw: FileIO,
    binary: bool,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> io.IOBase:
    """Put the layers over a raw file that `open` puts there."""
    line_buffering = buffering == 1 and not binary
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else BUFFER_SIZE
    buffered: io.BufferedRandom | io.BufferedReader | io.BufferedWriter
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if binary:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering)
    text.mode = raw.mode.replace("b", "")  # type: ignore[misc]
    return text
