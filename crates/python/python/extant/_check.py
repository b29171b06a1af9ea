"""Checking and repairing images."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from extant import _native

if TYPE_CHECKING:
    from os import PathLike

    from extant._native import Image

__all__ = ["Finding", "Fix", "Repair", "Report", "Severity", "check", "repair"]


class Severity(Enum):
    """How bad a finding is."""

    WARNING = "warning"
    """Worth knowing; the file system is consistent all the same."""
    ERROR = "error"
    """The file system is not consistent."""
    FATAL = "fatal"
    """Not consistent, and parts could not be checked for that reason."""


@dataclass(frozen=True)
class Finding:
    """One thing that a check found: what is wrong, where, and what was seen."""

    code: str
    """A stable name, such as `inode-checksum`."""
    severity: Severity
    group: int | None
    inode: int | None
    inode_block: int | None
    """The block inside the inode."""
    block: int | None
    """The block of the file system."""
    evidence: str


@dataclass(frozen=True)
class Report:
    """The outcome of a check."""

    findings: tuple[Finding, ...]
    """Sorted by place; of each code at most the first 1,000."""
    warnings: int
    errors: int
    fatal: int
    is_clean: bool
    """Whether nothing was found that makes the file system inconsistent."""
    inodes: int
    directories: int
    blocks: int


@dataclass(frozen=True)
class Fix:
    """One thing that a repair put right."""

    code: str
    text: str


@dataclass(frozen=True)
class Repair:
    """The outcome of a repair."""

    fixes: tuple[Fix, ...]
    """In order; of each code at most the first 1,000."""
    fixes_count: int
    left: Report
    """What a check finds afterwards."""
    losses: tuple[str, ...]
    """Files that could be read before and cannot be afterwards."""
    losses_count: int


def _report(told: dict[str, Any]) -> Report:
    findings = tuple(
        Finding(**{**finding, "severity": Severity(finding["severity"])})
        for finding in told["findings"]
    )
    return Report(
        findings=findings,
        warnings=told["warning"],
        errors=told["error"],
        fatal=told["fatal"],
        is_clean=told["is_clean"],
        inodes=told["inodes"],
        directories=told["directories"],
        blocks=told["blocks"],
    )


def check(
    image: Image,
    *,
    partition: int | str | None = None,
    offset: int | None = None,
    length: int | None = None,
    image_format: str | None = None,
    as_is: bool = False,
    verity: bool = False,
) -> Report:
    """Check a file system completely, and change nothing.

    What is judged is what replaying the journal gives, unless `as_is` asks for the bytes as they
    lie. `verity` also compares content that fs-verity protects with its hashes.
    """
    told = _native.check(
        image,
        partition=partition,
        offset=offset,
        length=length,
        image_format=image_format,
        as_is=as_is,
        verity=verity,
    )
    return _report(told)


def repair(
    image: Image,
    *,
    dry_run: bool = False,
    undo: str | bytes | PathLike[str] | PathLike[bytes] | None = None,
    allow_loss: bool = False,
    discard_journal: bool = False,
    partition: int | str | None = None,
    offset: int | None = None,
    length: int | None = None,
    image_format: str | None = None,
) -> Repair:
    """Put right what a check finds.

    `undo` is a file that does not exist yet, by which `extant repair --revert` takes the repair
    back. A repair that would lose files that can be read now is refused, unless `allow_loss` is
    true. With `dry_run` nothing is written.
    """
    told = _native.repair(
        image,
        dry_run=dry_run,
        undo=undo,
        allow_loss=allow_loss,
        discard_journal=discard_journal,
        partition=partition,
        offset=offset,
        length=length,
        image_format=image_format,
    )
    return Repair(
        fixes=tuple(Fix(code, text) for code, text in told["fixes"]),
        fixes_count=told["fixes_count"],
        left=_report(told["left"]),
        losses=tuple(told["losses"]),
        losses_count=told["losses_count"],
    )
