"""Errors a user can mend, told in one line."""

import errno
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
    r"Incorrect encoding detected in ": ": use the dict.LANG.txt files that fairseq-preprocess wrote, in UTF-8",
    r"Duplicate word found when loading Dictionary": "",
    r"Source and target must contain the same number of examples": ": binarize both sides again, from the same lines",
    r"--finetune-from-model ": "",
    r"--share-all-embeddings requires a joined dictionary": ": binarize with --joined-dictionary, or drop the flag",
    r"--[a-z-]+ ": "",
}

# fairseq's stock models tell of a dictionary of another size with a page of shapes.
_EMBEDDINGS_OF_OTHER_SIZE = re.compile(
    r"size mismatch for (encoder|decoder)\.embed_tokens\.weight: copying a param with shape torch\.Size\(\[(\d+), "
    r"\d+\]\) from checkpoint, the shape in current model is torch\.Size\(\[(\d+), "
)
_DISK = {
    errno.ENOSPC: "make room, or write to another disk",
    errno.EDQUOT: "make room within your quota, or write to another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or write to another disk",
    errno.EROFS: "write to another disk",
    errno.EACCES: "check the rights of the file and its folder",
    errno.EPERM: "check the rights of the file and its folder",
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
    if isinstance(error, (FileExistsError, NotADirectoryError)) and error.filename is not None:
        path = Path(error.filename)
        file = next((part for part in (path, *path.parents) if part.is_file()), path)
        return f"{file} is a file: give a folder"
    if isinstance(error, OSError) and error.errno in _DISK:
        what = f"{error.filename} cannot be read or written" if error.filename else "the output cannot be written"
        return f"{what} ({error.strerror}): {_DISK[error.errno]}"
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8 (byte 0x{error.object[error.start]:02x}, {error.reason}): convert it with iconv"
    text = " ".join(str(error).split())
    if type(error).__module__.startswith("yaml."):
        return f"the YAML cannot be read: {text}"
    for sizes in filter(None, (_EMBEDDINGS_OF_OTHER_SIZE.search(str(link)) for link in _chain(error))):
        side = "source" if sizes[1] == "encoder" else "target"
        return (
            f"the checkpoint's {side} dictionary has {sizes[2]} types, the data's has {sizes[3]}: use the data-bin it "
            "was trained on, or binarize with its dict files"
        )
    spawned = re.findall(r"informer_fairseq\.errors\.InputError: (.+)", str(error))
    if spawned:  # the traceback of a process that this one started, as text
        return spawned[-1]
    lost = re.match(r"\[\S*gloo\S*\] (.*(?:closed by peer|reset by peer|Broken pipe|Timed out)\S*)", text)
    if lost:
        return (
            f"another process of this run ended or hangs ({lost[1]}): its own messages say why; start all of them again"
        )
    for start, way_out in _FAIRSEQ_ONE_LINERS.items():
        if re.match(start, text):
            return text + way_out
    return None


def show_errors_in_one_line() -> None:
    """Lets fairseq's command-line tools end with one line, not a traceback, on errors their user can mend.

    fairseq's commands have no handler of their own. The hook is set only in a process that runs one of them; in any
    other program an :class:`InputError` stays an ordinary ``ValueError``.
    """
    program = fairseq_program()
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


def fairseq_program() -> Optional[str]:
    """``fairseq-train`` and the like when this process runs one, by console script or by ``python -m``."""
    name = Path(sys.argv[0] if sys.argv else "").name
    if name.startswith("fairseq-"):
        return name
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name.startswith("fairseq_cli."):
        return "fairseq-" + spec.name.rpartition(".")[2].replace("_", "-")
    return None
