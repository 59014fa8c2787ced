"""What every preparation tool needs from the file system: whole outputs, whole inputs, one-line errors."""

import gzip
import os
import shutil
import signal
import sys
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Callable, Iterator, List, Optional, Sequence, Tuple, Type, Union

from tqdm import tqdm

PathLike = Union[str, Path]


class InputError(ValueError):
    """The user's input does not fit; the message names the value, the limit and the way out, in one line."""


def run_tool(
    main: Callable[[Optional[Sequence[str]]], None],
    argv: Optional[Sequence[str]] = None,
    expected: Tuple[Type[Exception], ...] = (),
) -> None:
    """Runs ``main(argv)`` and turns an expected failure into one line on stderr and exit status 2.

    SIGTERM ends the tool by an exception too, so that what is half written is cleared away.

    Args:
        main: the tool.
        argv: its arguments; by default the command line's.
        expected: failures of one line besides ``InputError`` and ``OSError``.
    """
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        main(argv)
    except (InputError, OSError, *expected) as error:
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted; nothing half-written is left", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)  # as a shell reports it
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def write_whole(path: PathLike, mode: str = "w") -> Iterator[IO]:
    """Opens ``path`` for writing so that it appears complete or not at all.

    Text is written to a temporary file in the same folder and renamed over ``path`` when the block ends without an
    exception, so that an interrupted step leaves the old file, or none.

    Args:
        path: the file to write; its folder is created if missing.
        mode: ``"w"`` (UTF-8, ``\\n`` line ends) or ``"wb"``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
        with os.fdopen(descriptor, mode, encoding=encoding, newline=newline) as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(temporary, 0o666 & ~current_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def build_folder(path: PathLike) -> Iterator[Path]:
    """Yields an empty folder beside ``path`` that takes its place when the block ends without an exception.

    The temporary name is fixed, so what a killed run left behind is cleared away by the next one.
    """
    path = Path(path).absolute()
    partial = path.with_name(f".{path.name}.partial")
    previous = path.with_name(f".{path.name}.previous")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        # A folder cannot be renamed over a full one: the old one steps aside first.
        shutil.rmtree(previous, ignore_errors=True)
        if path.exists():
            os.replace(path, previous)
        os.replace(partial, path)
        shutil.rmtree(previous, ignore_errors=True)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def current_umask() -> int:
    """The process's umask; reading it means setting it, so it is set back at once."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def decode_lines(data: bytes, name: PathLike) -> List[str]:
    """Decodes UTF-8 ``data`` into lines split at ``\\n`` alone, without their ends.

    ``str.splitlines`` and text mode also split at CR, U+0085, U+2028 and others, which gives a file another number of
    lines here than ``wc -l`` and fairseq see.

    Args:
        data: the bytes of a text file.
        name: the file's name, for the error message.

    Raises:
        InputError: the bytes are not UTF-8 (with the line's number).
    """
    lines = data.split(b"\n")
    if lines[-1] == b"":  # the newline that ends the last line starts no further one
        lines.pop()
    decoded = []
    for number, line in enumerate(lines, 1):
        try:
            decoded.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"{name}, line {number}, is not UTF-8 ({error.reason}); convert it with iconv") from None
    return decoded


def read_lines(path: PathLike, blank_ok: bool = False) -> List[str]:
    """Reads the lines of a UTF-8 text file (``.gz`` is unpacked), split at ``\\n`` alone, without their ends.

    Args:
        path: the file to read.
        blank_ok: accept a file that holds nothing but blank lines, such as the output of an untrained model. A file
            without any line is refused all the same.

    Raises:
        InputError: the file is missing, empty, not UTF-8 (with the line's number), or a damaged ``.gz``.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no such file: {path}; check the path, or fetch the corpus first")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as handle:
            data = handle.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged ({error}); fetch it again") from None
    if not (data if blank_ok else data.strip()):
        raise InputError(f"{path} is empty: expected one sentence a line")
    return decode_lines(data, path)


def write_lines(path: PathLike, lines: Sequence[str]) -> None:
    """Writes ``lines`` to ``path``, whole or not at all.

    Raises:
        ValueError: a line holds a newline, so the file would have more lines than were given.
    """
    with write_whole(path) as handle:
        for line in lines:
            if "\n" in line:
                raise ValueError(f"line {line!r} holds a newline")
            handle.write(line + "\n")


def find_side(prefix: PathLike, language: str) -> Path:
    """The file of one language of a parallel corpus: ``PREFIX.LANGUAGE``, or that with ``.gz``.

    Raises:
        InputError: there is neither.
    """
    plain = Path(f"{prefix}.{language}")
    packed = Path(f"{prefix}.{language}.gz")
    for path in (plain, packed):
        if path.is_file():
            return path
    raise InputError(f"no such file: {plain} (nor {packed.name}); check the prefix and the language")


def assert_parallel(first: PathLike, first_count: int, second: PathLike, second_count: int) -> None:
    """Raises InputError unless both sides of a parallel corpus have the same number of lines."""
    if first_count != second_count:
        raise InputError(
            f"{first} has {first_count} lines but {second} has {second_count}: "
            "a parallel corpus needs one line on each side for every pair; find the first line that is off"
        )


def progress(items: Sequence, what: str) -> Iterator:
    """Iterates over ``items`` with a progress bar on a terminal and without one in a log file."""
    return tqdm(items, desc=what, unit=" lines", leave=False, disable=not sys.stderr.isatty())


def map_lines(function: Callable[[str], str], source: Optional[str], target: Optional[str], what: str) -> None:
    """Applies ``function`` to every line of a file, or of stdin, and writes as many lines to a file, or to stdout.

    Args:
        function: maps a line to a line, both without line ends.
        source: the file to read; None is stdin.
        target: the file to write, whole or not at all; None is stdout.
        what: the progress bar's label.
    """
    lines = decode_lines(sys.stdin.buffer.read(), "stdin") if source is None else read_lines(source, blank_ok=True)
    mapped = [function(line) for line in progress(lines, what)]
    if target is not None:
        write_lines(target, mapped)
        return
    sys.stdout.buffer.write("".join(line + "\n" for line in mapped).encode("utf-8"))
    sys.stdout.buffer.flush()
