"""The probing tasks and their files."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines

# Groups and order of the NI paper's Table 3 (after Conneau et al., 2018), with the table's names.
TASKS: Dict[str, Tuple[str, str]] = {
    "sentence_length": ("surface", "SeLen"),
    "word_content": ("surface", "WC"),
    "tree_depth": ("syntactic", "TrDep"),
    "top_constituents": ("syntactic", "ToCo"),
    "bigram_shift": ("syntactic", "BShif"),
    "past_present": ("semantic", "Tense"),
    "subj_number": ("semantic", "SubNm"),
    "obj_number": ("semantic", "ObNm"),
    "odd_man_out": ("semantic", "SOMO"),
    "coordination_inversion": ("semantic", "CoIn"),
}
GROUPS = ("surface", "syntactic", "semantic")
SPLITS = ("tr", "va", "te")
Example = Tuple[str, str]  # sentence, label


@dataclass
class ProbingTask:
    """The sentences and labels of one task.

    Attributes:
        name: one of ``TASKS``.
        train: what the classifier learns from.
        valid: what ends its training.
        test: what it is scored on.
        note: how the splits were made, where the files did not say.
    """

    name: str
    train: List[Example]
    valid: List[Example]
    test: List[Example]
    note: str = ""


def find_tasks(folder: Path, wanted: Optional[Sequence[str]] = None) -> Dict[str, Dict[str, Path]]:
    """The files of every task in a folder: ``TASK.txt`` (all splits), or ``TASK/tr.txt``, ``va.txt``, ``te.txt``.

    Each may be a ``.gz``. The key of a file of all splits is ``all``.

    Raises:
        InputError: no task there, or not one that was asked for.
    """
    if not folder.is_dir():
        raise InputError(
            f"no such folder: {folder}; it holds the probing tasks as TASK.txt or TASK/va.txt, TASK/te.txt"
        )
    found: Dict[str, Dict[str, Path]] = {}
    for name in TASKS:
        whole = _existing(folder / f"{name}.txt")
        splits = {split: path for split in SPLITS if (path := _existing(folder / name / f"{split}.txt"))}
        if whole is not None:
            found[name] = {"all": whole}
        elif splits:
            found[name] = splits
    missing = [name for name in wanted or () if name not in found]
    if missing or not found:
        raise InputError(
            f"{folder} has no {missing[0] if missing else 'probing task'}: expected {missing[0] if missing else 'TASK'}"
            f".txt, or va.txt and te.txt (or .gz) in a folder of that name; TASK is one of {', '.join(TASKS)}"
        )
    return {name: found[name] for name in TASKS if name in found and (not wanted or name in wanted)}


def _existing(path: Path) -> Optional[Path]:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def read_examples(path: Path) -> Dict[str, List[Example]]:
    """The examples of a file by split: ``tr/va/te TAB label TAB sentence``, or ``sentence TAB label`` under ``all``.

    Raises:
        InputError: a line of neither form, named with what was expected.
    """
    splits: Dict[str, List[Example]] = {}
    official: Optional[bool] = None
    for number, line in enumerate(read_lines(path), 1):
        fields = line.rstrip("\r").split("\t")
        if official is None:
            official = len(fields) > 2 and fields[0] in SPLITS
        expected = "tr, va or te TAB label TAB sentence" if official else "sentence TAB label"
        fits = len(fields) >= 3 and fields[0] in SPLITS if official else len(fields) == 2
        if not fits or not all(field.strip() for field in (fields[1], fields[-1], fields[0])):
            raise InputError(f"{path}, line {number}, is not {expected}: {line[:60]!r}")
        # The official files may have fields of their own between label and sentence.
        split, label, sentence = (fields[0], fields[1], fields[-1]) if official else ("all", fields[1], fields[0])
        splits.setdefault(split, []).append((sentence, label))
    if not splits:
        raise InputError(
            f"{path} is empty; expected lines of tr, va or te TAB label TAB sentence, or sentence TAB label"
        )
    return splits


def read_task(name: str, files: Dict[str, Path], limit: Optional[int] = None) -> ProbingTask:
    """Reads one task and makes the splits that its files lack, by a hash of each sentence.

    A hash gives the same splits in every run, and a sentence that comes twice never stands on both sides.

    Args:
        name: one of ``TASKS``.
        files: as :func:`find_tasks` returns them.
        limit: the most examples of each split.

    Raises:
        InputError: an unknown format, no test split, or labels that are all the same.
    """
    splits: Dict[str, List[Example]] = {}
    for key, path in files.items():
        for split, examples in read_examples(path).items():
            own = key if split == "all" and key != "all" else split
            splits.setdefault(own, []).extend(examples)
    notes: List[str] = []
    if "all" in splits and "te" not in splits:
        splits = {"va": splits["all"], "te": splits["all"]}
    if "te" not in splits or len(splits) < 2:
        raise InputError(
            f"{name} has the splits {', '.join(splits)} only: a training (tr or va) and a test (te) are needed"
        )
    if "tr" not in splits and splits["va"] == splits["te"]:
        splits["va"], splits["te"] = _divide(splits["te"], lambda bucket: bucket < 20)
        splits["tr"], splits["va"] = _divide(splits["va"], lambda bucket: bucket < 30)
        notes.append("va and te are one: 70 % of it for training, 10 % for validation, 20 % for the test")
    if "tr" not in splits or "va" not in splits:
        source = "tr" if "tr" in splits else "va"
        splits["tr"], splits["va"] = _divide(splits[source], lambda bucket: bucket < 10)
        notes.append(f"no {'tr' if source == 'va' else 'va'}: 90 % of {source} for training, 10 % for validation")
    for split, examples in splits.items():
        splits[split] = examples[:limit] if limit else examples
    if any(not examples for examples in splits.values()) or len({label for _, label in splits["tr"]}) < 2:
        raise InputError(
            f"{name} has too few examples, or one label only: two labels and some hundred lines are needed"
        )
    return ProbingTask(name, splits["tr"], splits["va"], splits["te"], "; ".join(notes))


def _divide(examples: List[Example], apart: Callable[[int], bool]) -> Tuple[List[Example], List[Example]]:
    """The examples that stay, and those whose bucket of 0 to 99 is to stand apart."""
    parts: Tuple[List[Example], List[Example]] = ([], [])
    for example in examples:
        bucket = int.from_bytes(hashlib.sha256(example[0].encode("utf-8")).digest()[:8], "big") % 100
        parts[apart(bucket)].append(example)
    return parts
