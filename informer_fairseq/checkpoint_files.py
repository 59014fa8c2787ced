"""Checkpoints as files: written whole or not at all, and checked before they are trusted.

torch writes a checksum of every part of a checkpoint, and does not look at them when it reads.
"""

import errno
import os
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Union

import torch

from informer_fairseq.errors import InputError

PathLike = Union[str, Path]

# What waiting does not mend: no space, over a quota or a limit, a disk for reading only.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def find_damage(path: PathLike) -> Optional[str]:
    """What is wrong with a checkpoint's bytes, or None.

    Files that are no zip archives pass, since torch before 1.6 wrote others: they have no checksums.
    """
    try:
        if not zipfile.is_zipfile(path):
            with open(path, "rb") as handle:  # the table of contents is at the end: a cut archive has lost it
                return "its end is missing" if handle.read(4) == b"PK\x03\x04" else None
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (OSError, MemoryError):
        raise
    except Exception as error:  # zipfile raises many kinds where the table of contents itself is damaged
        return f"its table of contents is damaged: {' '.join(str(error).split()) or type(error).__name__}"
    return None if damaged is None else f"{damaged} has another checksum than when it was written"


def newest_whole(path: PathLike) -> Optional[Path]:
    """The newest undamaged checkpoint beside a damaged one; of equal files the one whose name has a number."""
    others = [other for other in Path(path).parent.glob("checkpoint*.pt") if other.name != Path(path).name]
    for candidate in sorted(others, key=lambda other: other.stat().st_mtime, reverse=True):
        if zipfile.is_zipfile(candidate) and find_damage(candidate) is None:
            content = _checksums(candidate)
            return min(other for other in others if other == candidate or _checksums(other) == content)
    return None


def way_out(path: PathLike) -> str:
    """What to do about a damaged checkpoint."""
    whole = newest_whole(path)
    if whole is None:
        return "use an earlier checkpoint, or copy it again"
    return f"the newest whole one beside it is {whole}: train on with --restore-file {whole}, or give that as the path"


def _checksums(path: Path) -> Dict[str, int]:
    try:
        with zipfile.ZipFile(path) as archive:
            # Names start with the name of the file at its first writing.
            return {part.filename.partition("/")[2]: part.CRC for part in archive.infolist()}
    except Exception:
        return {}


def save_whole(value: Any, path: PathLike) -> None:
    """``torch.save`` that leaves a whole file or none, the earlier one under this name in place.

    Raises:
        InputError: it cannot be written; nothing of it is kept.
    """
    with replaced_when_whole(path) as partial:
        for attempt in range(3):  # like fairseq: a network's disk may be away for a moment
            try:
                with open(partial, "wb") as handle:
                    file: Any = _RemembersErrors(handle)
                    try:
                        torch.save(value, file)
                    except RuntimeError:  # torch tells of a wrong position, and not of the disk
                        raise file.error or OSError("torch could not write it") from None
                break
            except OSError as error:
                if error.errno in _FULL or attempt == 2:
                    raise
                time.sleep(2.5)


@contextmanager
def replaced_when_whole(path: PathLike) -> Iterator[str]:
    """The name of a file to write, which becomes ``path`` when it is written and safe on the disk.

    Raises:
        InputError: the disk refuses; what was written of the file is removed.
    """
    partial = f"{path}.tmp"
    try:
        yield partial
        with open(partial, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(partial, path)
    except OSError as error:
        Path(partial).unlink(missing_ok=True)
        raise InputError(
            f"{path} could not be written ({error.strerror or error}): make room, or choose another folder; nothing of "
            "it is kept, and the files written before it stay"
        ) from error
    except Exception:
        Path(partial).unlink(missing_ok=True)
        raise


class _RemembersErrors:
    """A file that keeps the disk's own error."""

    def __init__(self, handle: Any):
        self.handle = handle
        self.error: Optional[OSError] = None

    def write(self, data: Any) -> int:
        try:
            return self.handle.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.handle.flush()
