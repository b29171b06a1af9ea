"""ext4 in user space: read, change, make, check and repair images without mounting them.

    >>> import extant
    >>> with extant.open("disk.img") as fs:
    ...     fs.listdir("/etc")
    ...     (fs.path("/etc") / "hostname").read_text()

Nothing needs root. A `Filesystem` has the functions of `os` that are about files, and `path()`,
which has those of `pathlib`. Names are `str` or `bytes`, as with `os`.
"""

from extant._check import Finding, Fix, Repair, Report, Severity, check, repair
from extant._file import FileIO
from extant._filesystem import Filesystem, open, transaction
from extant._make import Made, mkfs
from extant._native import (
    DamagedError,
    DirEntry,
    ImageError,
    Inodes,
    NotExt4Error,
    Stat,
    __version__,
)
from extant._path import Path

__all__ = [
    "DamagedError",
    "DirEntry",
    "FileIO",
    "Filesystem",
    "Finding",
    "Fix",
    "ImageError",
    "Inodes",
    "Made",
    "NotExt4Error",
    "Path",
    "Repair",
    "Report",
    "Severity",
    "Stat",
    "__version__",
    "check",
    "mkfs",
    "open",
    "repair",
    "transaction",
]
