"""Making images."""

from __future__ import annotations

import errno
import os
import stat as modes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from extant import _native

if TYPE_CHECKING:
    from os import PathLike

    from extant._native import Image

__all__ = ["Made", "mkfs"]


@dataclass(frozen=True)
class Made:
    """A file system that was made."""

    size: int
    """Bytes."""
    block_size: int
    """Bytes of a block."""
    blocks: int
    free_blocks: int
    journal_blocks: int
    inodes: int
    free_inodes: int
    uuid: UUID


def _would_fill_itself(image: Any, source: Any, is_part: bool) -> bool:
    """Whether an image that is written in place is the file of its source."""
    is_path = isinstance(image, str | bytes) or hasattr(image, "__fspath__")
    try:
        at: Any = os.fsencode(image) if is_path else image
        if is_path and not os.path.exists(at):
            at, number, _ = at.rpartition(b"#")  # A partition: `disk.img#2`.
            is_part = bool(number)
        found = os.stat(at if is_path or isinstance(at, int) else at.fileno())
        if is_path and not is_part and modes.S_ISREG(found.st_mode):
            return False  # Such a file appears when it is complete.
        return os.path.samestat(found, os.stat(source))
    except (AttributeError, OSError, TypeError, ValueError):
        return False  # No file, or none of the host.


def mkfs(
    image: Image,
    size: int | Literal["auto"] | None = None,
    *,
    source: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    label: str = "",
    uuid: UUID | str | None = None,
    time: int | None = None,
    block_size: int | None = None,
    inode_size: int | None = None,
    inodes: int | None = None,
    bytes_per_inode: int | None = None,
    features: str = "",
    profile: str = "default",
    journal: bool | int | None = None,
    reserved_percent: float | None = None,
    root_owner: tuple[int, int] | None = None,
    root_mode: int | None = None,
    headroom: float = 10.0,
    overwrite: bool = False,
    partition: int | str | None = None,
    offset: int | None = None,
    length: int | None = None,
    threads: int = 0,
) -> Made:
    """Make an ext4 file system, empty or filled from a directory, an archive or a container image.

    A file `image` must not exist, unless `overwrite` is true, and appears when it is complete.
    Anything else (a block device, a partition or range of what exists, a descriptor, a file object)
    is written in place.

    `size` is in bytes. `"auto"` is as small as `source` allows, with `headroom` percent free, and
    the default for a new file with a source; of what exists, its own size is.

    With `time` (seconds since 1970), nothing depends on anything but the arguments and the source:
    the same give the same bytes. Times of files that are later become that time.

    Owner and permissions of the root are those of the source, or of user 0 and 0755, unless they
    are given.
    """
    if isinstance(uuid, str):
        uuid = UUID(uuid)
    if not (uuid is None or isinstance(uuid, UUID)):
        raise TypeError(f"uuid must be UUID or str, not {type(uuid).__name__}")
    is_part = not (partition is None and offset is None and length is None)
    if source is not None and _would_fill_itself(image, source, is_part):
        raise OSError(
            errno.EINVAL, "the source is what would be written over while it is read", source
        )
    made = _native.mkfs(
        image,
        size,
        source=source,
        label=label,
        uuid=None if uuid is None else uuid.bytes,
        time=time,
        block_size=block_size,
        inode_size=inode_size,
        inodes=inodes,
        bytes_per_inode=bytes_per_inode,
        features=features,
        profile=profile,
        journal=journal,
        reserved_percent=reserved_percent,
        root_owner=root_owner,
        root_mode=root_mode,
        headroom=headroom,
        overwrite=overwrite,
        partition=partition,
        offset=offset,
        length=length,
        threads=threads,
    )
    return Made(**{**made, "uuid": UUID(bytes=made["uuid"])})
