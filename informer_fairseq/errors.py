"""Errors a user can mend, told in one line."""

import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Iterator, Optional, Type

# What fairseq says, in exceptions of general kinds, of mistakes that its user can mend; with the way out where its own
# words name none.
_FAIRSEQ_ONE_LINERS = {
    r"Size of sample #\S+ is invalid \(=.*\) since max_positions=": "",
    r"Model file not found: ": "",
    r"Dataset not found: ": "; the splits are the names of the .bin files there, without the languages",
    r"Could not infer language pair": ": --source-lang and --target-lang, or the folder that fairseq-preprocess wrote",
    r"Incorrect dictionary format": "; use the dict.LANG.txt files that fairseq-preprocess wrote",
    r"--share-all-embeddings requires a joined dictionary": ": binarize with --joined-dictionary, or drop the flag",
    r"--[a-z-]+ ": "",
}


class InputError(ValueError):
    """The user's flags, files or text do not fit; the message names the value, the limit and the way out."""


def one_line_message(error: BaseException) -> Optional[str]:
    """The one line that tells a user what to mend, or None when ``error`` is a defect and needs its traceback.

    fairseq wraps exceptions in others ("please ensure that the architectures match"), so the chain of causes and
    contexts is searched for the first of ours. Missing files and sentences over the model's limit are told in one line
    too.
    """
    for link in _chain(error):
        if isinstance(link, InputError):
            return str(link)
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        advice = " (a data-bin holds dict.LANG.txt beside its .bin files)" if "dict." in str(error.filename) else ""
        return f"no such file: {error.filename}; check the path{advice}"
    if isinstance(error, IsADirectoryError):
        return f"{error.filename} is a folder: give a file"
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8 (byte 0x{error.object[error.start]:02x}, {error.reason}): convert it with iconv"
    text = " ".join(str(error).split())
    for start, way_out in _FAIRSEQ_ONE_LINERS.items():
        if re.match(start, text):
            return text + way_out
    return None


def show_errors_in_one_line() -> None:
    """Lets fairseq's command-line tools end with one line, not a traceback, on errors their user can mend.

    fairseq's commands have no handler of their own. The hook is set only in a process that runs one of them; in any
    other program an :class:`InputError` stays an ordinary ``ValueError``.
    """
    program = _fairseq_program()
    if program is None or getattr(sys.excepthook, "shows_one_line", False):
        return
    previous = sys.excepthook

    def hook(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        message = one_line_message(error)
        if message is None:
            previous(kind, error, trace)
        else:
            print(f"{program}: error: {message}", file=sys.stderr)

    hook.shows_one_line = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _fairseq_program() -> Optional[str]:
    """``fairseq-train`` and the like when this process runs one, by console script or by ``python -m``."""
    name = Path(sys.argv[0] if sys.argv else "").name
    if name.startswith("fairseq-"):
        return name
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.startswith("fairseq_cli."):
        return "fairseq-" + spec.name.rpartition(".")[2].replace("_", "-")
    return None
