"""What every tool needs from the file system and the terminal: whole outputs, whole inputs, aligned tables."""

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Iterator, List, Optional, Sequence, Tuple, Union

from informer_fairseq.errors import InputError

PathLike = Union[str, Path]


def check_outputs(*paths: Optional[PathLike]) -> None:
    """Refuses what cannot be written before time is spent; an absent path is None.

    Raises:
        InputError: a path is a folder, or comes twice.
    """
    given = [Path(path) for path in paths if path is not None]
    for number, path in enumerate(given):
        if path.is_dir():
            raise InputError(f"{path} is a folder: give a file to write")
        if path in given[:number]:
            raise InputError(f"{path} is to be written twice: give each output a name of its own")


@contextmanager
def write_whole(path: PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens ``path`` for writing so that it appears complete or not at all.

    Args:
        path: the file to write; its folder is created if missing.
        mode: ``"w"`` (UTF-8, newline as line end) or ``"wb"``.

    Raises:
        InputError: the path is a folder, or the disk refuses.
    """
    check_outputs(path)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
        with os.fdopen(descriptor, mode, encoding=encoding, newline=newline) as handle:
            yield handle
        mask = os.umask(0)  # reading the mask means setting it, so it is set back at once
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        if error.filename is not None:  # of another file
            raise
        raise InputError(
            f"{path} could not be written ({error.strerror or error}): make room, or choose another folder; nothing of "
            "it is kept"
        ) from error
    except BaseException:
        os.unlink(temporary)
        raise


def write_file(path: PathLike, content: Union[str, bytes]) -> None:
    """Writes a text (UTF-8) or bytes, whole or not at all."""
    with write_whole(path, "w" if isinstance(content, str) else "wb") as handle:
        handle.write(content)


def write_json(path: Optional[PathLike], value: Any) -> None:
    """Writes ``value`` as JSON, whole or not at all; does nothing without a path."""
    if path is not None:
        with write_whole(path) as handle:
            handle.write(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_lines(path: PathLike) -> List[str]:
    r"""Reads the lines of a UTF-8 text file (``.gz`` is unpacked), split at ``\n`` alone, without their ends.

    Other splitters also split at carriage returns and Unicode's separators, and would give a file another number of
    lines than fairseq and sacrebleu see.

    Raises:
        InputError: the file is missing, without any line, not UTF-8 (with the line's number), or a damaged ``.gz``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is a folder: give a file" if path.is_dir() else f"no such file: {path}")
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as handle:
            raw = handle.read().split(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged ({error}): fetch it again") from None
    if raw[-1] == b"":  # the newline that ends the last line starts no further one
        raw.pop()
    if not raw:
        raise InputError(f"{path} is empty: expected one sentence or log entry a line")
    lines = []
    for number, line in enumerate(raw, 1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, line {number}, is not UTF-8 ({error.reason}): convert it with iconv") from None
    return lines


def digest(path: PathLike) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    result = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def parse_labelled(words: List[str], flag: str) -> List[Tuple[str, Path]]:
    """``LABEL=PATH`` or ``PATH`` (its label is the name of its folder or file) as (label, path) pairs.

    Raises:
        InputError: two have the same label, or a label is empty.
    """
    pairs: List[Tuple[str, Path]] = []
    for word in words:
        label, sign, path = word.partition("=")
        if not sign or "/" in label:  # a path may hold "=" itself
            path = word
            label = Path(word).resolve().parent.name if Path(word).suffix else Path(word).resolve().name
        if not label or not path:
            raise InputError(f"{flag} {word!r} is not LABEL=PATH: give both, for example baseline={path or 'PATH'}")
        if label in (other for other, _ in pairs):
            raise InputError(f"{flag}: the label {label!r} comes twice; give each its own, as LABEL=PATH")
        pairs.append((label, Path(path)))
    return pairs


def split_label(text: str) -> Tuple[str, str]:
    """``LABEL=PATH`` into its two sides; the label of a bare path is the path itself.

    A path that exists is taken whole, and a label holds no slash, so that paths with an equals sign stay usable.
    """
    label, sign, path = text.partition("=")
    if not sign or not label or "/" in label or Path(text).exists():
        return text, text
    return label, path


def table(rows: Sequence[Sequence[str]]) -> List[str]:
    """Lines of a Markdown table, aligned for the terminal; the first row is the heading, the first column text."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) if n else cell.ljust(width) for n, (cell, width) in enumerate(zip(cells, widths))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if n else "-") for n, width in enumerate(widths)) + "|"
    return [line(rows[0]), rule, *(line(row) for row in rows[1:])]
