"""Paths of an image, with the methods of `pathlib.Path`."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat as modes
from functools import total_ordering
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sys
    from collections.abc import Callable, Iterator, Sequence

    from extant._filesystem import Filesystem
    from extant._native import Stat, StrPath

    if sys.version_info >= (3, 12):
        from collections.abc import Buffer
    else:
        from typing_extensions import Buffer

__all__ = ["ABSENT", "Path"]

ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""Numbers of errors that say that there is no such file."""


@total_ordering
class Path:
    """A path of an open file system.

    What `pathlib.PurePosixPath` has about the text of a path is here, and what `pathlib.Path` has
    about files. It is no `os.PathLike`: the functions of `os` would look for it on the host.
    """

    __slots__ = ("_fs", "_pure")

    def __init__(self, fs: Filesystem, *parts: StrPath) -> None:
        self._fs = fs
        self._pure = PurePosixPath(*(_str(part) for part in parts))

    def _with(self, pure: PurePosixPath) -> Path:
        made = object.__new__(type(self))
        made._fs = self._fs
        made._pure = pure
        return made

    @property
    def fs(self) -> Filesystem:
        """The file system that it is a path of."""
        return self._fs

    def __image_path__(self) -> str:
        return str(self._pure)

    def __str__(self) -> str:
        return str(self._pure)

    def __bytes__(self) -> bytes:
        return str(self._pure).encode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return f"extant.Path({str(self._pure)!r})"

    def __hash__(self) -> int:
        return hash((id(self._fs), self._pure))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return self._fs is other._fs and self._pure == other._pure

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Path) or self._fs is not other._fs:
            return NotImplemented
        return self._pure < other._pure

    def __truediv__(self, part: StrPath) -> Path:
        try:
            return self._with(self._pure / _str(part))
        except TypeError:
            return NotImplemented

    def __rtruediv__(self, part: str) -> Path:
        try:
            return self._with(part / self._pure)
        except TypeError:
            return NotImplemented

    @property
    def parts(self) -> tuple[str, ...]:
        return self._pure.parts

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        return self._pure.suffixes

    @property
    def parent(self) -> Path:
        return self._with(self._pure.parent)

    @property
    def parents(self) -> Sequence[Path]:
        return [self._with(parent) for parent in self._pure.parents]

    @property
    def drive(self) -> str:
        """Nothing: only paths of Windows have one."""
        return self._pure.drive

    @property
    def root(self) -> str:
        return self._pure.root

    @property
    def anchor(self) -> str:
        return self._pure.anchor

    def as_posix(self) -> str:
        return str(self._pure)

    def is_absolute(self) -> bool:
        return self._pure.is_absolute()

    def absolute(self) -> Path:
        """The same from the root on."""
        return self._with(PurePosixPath("/") / self._pure)

    def joinpath(self, *parts: StrPath) -> Path:
        return self._with(self._pure.joinpath(*(_str(part) for part in parts)))

    def match(self, pattern: str) -> bool:
        return self._pure.match(pattern)

    def with_name(self, name: str) -> Path:
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Path:
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Path:
        return self._with(self._pure.with_suffix(suffix))

    def relative_to(self, other: StrPath) -> Path:
        return self._with(self._pure.relative_to(_str(other)))

    def is_relative_to(self, other: StrPath) -> bool:
        return self._pure.is_relative_to(_str(other))

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        return self._fs.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> Stat:
        return self._fs.lstat(self)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        if follow_symlinks:
            return self._fs.exists(self)
        return self._is(lambda _: True, follow_symlinks=False)

    def is_dir(self) -> bool:
        return self._is(modes.S_ISDIR)

    def is_file(self) -> bool:
        return self._is(modes.S_ISREG)

    def is_symlink(self) -> bool:
        return self._is(modes.S_ISLNK, follow_symlinks=False)

    def is_block_device(self) -> bool:
        return self._is(modes.S_ISBLK)

    def is_char_device(self) -> bool:
        return self._is(modes.S_ISCHR)

    def is_fifo(self) -> bool:
        return self._is(modes.S_ISFIFO)

    def is_socket(self) -> bool:
        return self._is(modes.S_ISSOCK)

    def is_mount(self) -> bool:
        """Whether it is the root: nothing is mounted inside an image."""
        return self.is_dir() and self.samefile("/")

    def _is(self, test: Callable[[int], bool], *, follow_symlinks: bool = True) -> bool:
        try:
            return test(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except OSError as e:
            if e.errno in ABSENT:
                return False
            raise
        except ValueError:
            if self._fs.closed:
                raise
            return False  # A null byte, which no name has.

    def samefile(self, other: StrPath) -> bool:
        return self.stat().st_ino == self._fs.stat(other).st_ino

    def iterdir(self) -> Iterator[Path]:
        for name in self._fs.listdir(self):
            yield self / name

    def glob(self, pattern: str) -> Iterator[Path]:
        """The paths below that match a pattern, names of a directory in their order."""
        yield from _select(self, _pattern(pattern))

    def rglob(self, pattern: str) -> Iterator[Path]:
        """The paths anywhere below that match a pattern; without one all directories."""
        yield from _select(self, ["**", *(_pattern(pattern) if pattern else [])])

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Path, list[str], list[str]]]:
        for top, dirs, files in self._fs.walk(str(self), top_down, on_error, follow_symlinks):
            yield self._with(PurePosixPath(top)), dirs, files

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        return self._fs.open(self, mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        return self._fs.read_bytes(self)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return self._fs.read_text(self, encoding, errors)

    def write_bytes(self, data: Buffer) -> int:
        return self._fs.write_bytes(self, data)

    def write_text(
        self,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        return self._fs.write_text(self, data, encoding, errors, newline)

    def readlink(self) -> Path:
        return self._with(PurePosixPath(self._fs.readlink(self)))

    def resolve(self, strict: bool = False) -> Path:
        """The path without symbolic links and `..`."""
        done = PurePosixPath("/")
        rest = [part for part in reversed(self._pure.parts) if part != "/"]
        links = 0
        while rest:
            part = rest.pop()
            if part == "..":
                done = done.parent
                continue
            here = self._with(done / part)
            if here.is_symlink():
                links += 1
                if links > 40:
                    raise OSError(errno.ELOOP, "Too many levels of symbolic links", str(self))
                target = here.readlink()
                if target.is_absolute():
                    done = PurePosixPath("/")
                rest.extend(part for part in reversed(target.parts) if part != "/")
                continue
            if strict:
                here.lstat()
            done = here._pure
        return self._with(done)

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self._fs.mkdir(self, mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, parents=False, exist_ok=exist_ok)
        except OSError:
            if not exist_ok or not self.is_dir():
                raise

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        if exist_ok and self.exists():
            self._fs.utime(self)
            return
        self._fs.open(self, "ab" if exist_ok else "xb", 0, permissions=mode).close()

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._fs.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        self._fs.rmdir(self)

    def rename(self, target: StrPath) -> Path:
        self._fs.rename(self, target)
        return self._with(PurePosixPath(_str(target)))

    def replace(self, target: StrPath) -> Path:
        self._fs.replace(self, target)
        return self._with(PurePosixPath(_str(target)))

    def symlink_to(self, target: StrPath, target_is_directory: bool = False) -> None:
        self._fs.symlink(target, self, target_is_directory)

    def hardlink_to(self, target: StrPath) -> None:
        self._fs.link(target, self)

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        self._fs.chmod(self, mode, follow_symlinks=follow_symlinks)

    def lchmod(self, mode: int) -> None:
        self.chmod(mode, follow_symlinks=False)

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Path' object: its file system is open in this process")


def _str(part: StrPath) -> str:
    if isinstance(part, str):
        return part
    if hasattr(part, "__image_path__"):
        return str(part.__image_path__())
    text = os.fspath(part)
    if not isinstance(text, str):
        raise TypeError(f"a part of a path is str, not {type(text).__name__}")
    return text


def _pattern(pattern: str) -> list[str]:
    """The parts of a pattern."""
    if not pattern:
        raise ValueError(f"Unacceptable pattern: {pattern!r}")
    if pattern.startswith("/"):
        raise NotImplementedError("Non-relative patterns are unsupported")
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    # With a slash at its end it is about directories.
    return [*parts, ""] if parts and pattern.endswith("/") else parts


def _select(top: Path, parts: list[str]) -> Iterator[Path]:
    seen: set[str] = set()
    # Only with several `**` can one path be found in several ways.
    is_unique = parts.count("**") < 2
    for found in _matches(top, parts):
        text = str(found)
        if is_unique or text not in seen:
            seen.add(text)
            yield found


def _matches(top: Path, parts: list[str]) -> Iterator[Path]:
    """What the parts of a pattern stand for below a path, without recursion."""
    steps: list[tuple[Path, int]] = [(top, 0)]
    while steps:
        here, at = steps.pop()
        if at == len(parts):
            if at:
                yield here
            continue
        part = parts[at]
        if not part:
            if here.is_dir():
                yield here
        elif part == "**":
            if not here.is_dir():
                continue
            below = [(child, at) for child in _directories(here)]
            if at + 1 == len(parts):
                yield here
            else:
                below.insert(0, (here, at + 1))
            steps.extend(reversed(below))
        elif re.search(r"[*?\[]", part):
            wanted = re.compile(fnmatch.translate(part)).match
            names = [name for name in _names(here) if wanted(name)]
            steps.extend((here / name, at + 1) for name in reversed(names))
        elif part == ".." or (here / part).exists(follow_symlinks=False):
            steps.append((here / part, at + 1))


def _names(path: Path) -> list[str]:
    try:
        return sorted(path.fs.listdir(path))
    except OSError as e:
        if e.errno in ABSENT or isinstance(e, PermissionError):
            return []
        raise


def _directories(path: Path) -> list[Path]:
    try:
        with path.fs.scandir(path) as entries:
            names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError as e:
        if e.errno in ABSENT or isinstance(e, PermissionError):
            return []
        raise
    return [path / name for name in names]
