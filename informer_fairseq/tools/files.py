"""What the tools need of the file system: whole inputs in one-line errors, outputs whole or not at all."""

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any, List, Tuple, Union

from informer_fairseq.errors import InputError

PathLike = Union[str, Path]


def read_lines(path: PathLike) -> List[str]:
    """The lines of a UTF-8 text, or of a ``.gz`` of it, without their ends; only ``\\n`` ends a line.

    Raises:
        InputError: no such file, not UTF-8, or a damaged ``.gz``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no such file: {path}; check the path")
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}, is not UTF-8 text; convert it, for example with iconv") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); copy it again") from None
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def write_whole(path: PathLike, content: Union[str, bytes]) -> None:
    """Writes a file under a temporary name beside ``path`` and renames it: a reader sees all of it, or the old one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content.encode("utf-8") if isinstance(content, str) else content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's file is its owner's alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path: PathLike, value: Any) -> None:
    """Writes ``value`` as indented JSON, whole or not at all."""
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


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
