"""Cleans a parallel corpus: one kind of space, one Unicode form, no empty or over-long training pair.

For example:

    python preprocess/clean.py --input corpus/train --output clean/train --languages en vi --max-words 200
    python preprocess/clean.py --input corpus/tst2013 --output clean/test --languages en vi --keep-all
"""

import argparse
import re
import sys
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.files import InputError, assert_parallel, find_side, progress, read_lines, run_tool, write_lines

# Control characters (C0, DEL, C1; CR and U+0085 among them), every Unicode space, the line and paragraph separators,
# the zero-width space and the byte order mark. Tools disagree about which of these end a line or a word: none may stay.
# The joiners U+200C and U+200D do, since Persian, Indic scripts and emoji need them.
ODD_SPACE = "\x00-\x1f\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
ODD_CHARACTER = re.compile(f"[{ODD_SPACE}]")
SPACES = re.compile(f"[ {ODD_SPACE}]+")

Limits = Tuple[int, int]


def normalise_spaces(line: str) -> str:
    """Turns each run of spaces, odd spaces and control characters into one plain space, and strips both ends."""
    return SPACES.sub(" ", line).strip(" ")


def normalise(line: str, unicode_form: str = "NFC", lowercase: bool = False) -> str:
    """Normalises the spaces of a line, its characters to Unicode's NFC (``"none"`` leaves them), its case if asked."""
    line = normalise_spaces(line)
    line = line.lower() if lowercase else line
    return line if unicode_form == "none" else unicodedata.normalize("NFC", line)


@dataclass
class CleanPairs:
    """The pairs that stay, and what happened to the others.

    Attributes:
        source: the source lines that stay.
        target: the target lines that stay, as many.
        read: the pairs before cleaning.
        empty: the pairs with an empty side.
        too_long: the pairs without an empty side that are over a length limit.
        changed: the lines, of both sides, that normalisation changed.
    """

    source: List[str] = field(default_factory=list)
    target: List[str] = field(default_factory=list)
    read: int = 0
    empty: int = 0
    too_long: int = 0
    changed: int = 0


def clean_pairs(
    source: Sequence[str],
    target: Sequence[str],
    limits: Limits = (0, 0),
    keep_all: bool = False,
    unicode_form: str = "NFC",
    lowercase: bool = False,
) -> CleanPairs:
    """Normalises the pairs of a corpus and drops those with an empty or an over-long side.

    Args:
        source: the source lines.
        target: the target lines, as many.
        limits: the most whitespace words of a source and of a target line; 0 is no limit.
        keep_all: only count what would be dropped.
        unicode_form: NFC or ``"none"``.
        lowercase: lower-case both sides.

    Raises:
        ValueError: the sides differ in their number of lines.
    """
    if len(source) != len(target):
        raise ValueError(f"{len(source)} source lines but {len(target)} target lines")
    result = CleanPairs(read=len(source))
    for pair in progress(list(zip(source, target)), "clean"):
        cleaned = [normalise(line, unicode_form, lowercase) for line in pair]
        result.changed += sum(before != after for before, after in zip(pair, cleaned))
        empty = not all(cleaned)
        too_long = not empty and any(limit and len(line.split(" ")) > limit for line, limit in zip(cleaned, limits))
        result.empty += empty
        result.too_long += too_long
        if keep_all or not (empty or too_long):
            result.source.append(cleaned[0])
            result.target.append(cleaned[1])
    return result


def read_pairs(prefix: str, languages: Sequence[str]) -> Tuple[List[str], List[str]]:
    """Reads both sides of a parallel corpus.

    Raises:
        InputError: a side is missing, empty, not UTF-8, or they differ in their number of lines.
    """
    paths = [find_side(prefix, language) for language in languages]
    source, target = (read_lines(path) for path in paths)
    assert_parallel(paths[0], len(source), paths[1], len(target))
    return source, target


def parse_limits(values: Sequence[int], flag: str) -> Limits:
    """Reads one limit for both sides, or one for each.

    Raises:
        InputError: more than two values, or a negative one.
    """
    if len(values) not in (1, 2) or min(values) < 0:
        raise InputError(f"{flag} takes one limit, or one for each side, of 0 (no limit) or more; got {list(values)}")
    return values[0], values[-1]


def describe_limits(limits: Limits, unit: str) -> str:
    """The limits in words, for the report."""
    return f"over {limits[0] or 'no limit'} source / {limits[1] or 'no limit'} target {unit}"


def clean_corpus(
    source_prefix: str,
    target_prefix: str,
    languages: Sequence[str],
    limits: Limits,
    keep_all: bool,
    unicode_form: str = "NFC",
    unit: str = "words",
    lowercase: bool = False,
) -> CleanPairs:
    """Cleans the corpus at one prefix into another and prints the counts.

    Raises:
        InputError: a side is missing or does not fit the other, or no pair is left.
    """
    result = clean_pairs(*read_pairs(source_prefix, languages), limits, keep_all, unicode_form, lowercase)
    dropped = "all kept" if keep_all else f"{len(result.source)} kept"
    print(
        f"{Path(target_prefix).name}: {result.read} pairs read, {dropped}, {result.empty} with an empty side, "
        f"{result.too_long} too long ({describe_limits(limits, unit)}), {result.changed} lines normalised"
    )
    if not result.source:
        raise InputError(
            f"no pair of {source_prefix} is left: {result.empty} have an empty side, {result.too_long} are "
            f"{describe_limits(limits, unit)}; check the files, or raise the limit"
        )
    for language, lines in zip(languages, (result.source, result.target)):
        write_lines(f"{target_prefix}.{language}", lines)
    return result


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and cleans one corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, metavar="PREFIX", help="reads PREFIX.LANGUAGE, or PREFIX.LANGUAGE.gz")
    parser.add_argument("--output", required=True, metavar="PREFIX", help="writes PREFIX.LANGUAGE")
    parser.add_argument("--languages", required=True, nargs=2, metavar=("SOURCE", "TARGET"), help="such as: en vi")
    parser.add_argument(
        "--max-words",
        type=int,
        nargs="+",
        default=[200],
        metavar="N",
        help="drop pairs with more whitespace words on a side; two values are source and target; 0 is off (200)",
    )
    parser.add_argument(
        "--keep-all",
        action="store_true",
        help="for dev and test sets: normalise only, keep every pair, and report those that are empty or too long",
    )
    parser.add_argument("--unicode", choices=("NFC", "none"), default="NFC", help="Unicode normalisation form (NFC)")
    parser.add_argument("--lowercase", action="store_true", help="lower-case both sides")
    args = parser.parse_args(argv)
    limits = parse_limits(args.max_words, "--max-words")
    options = {"unicode_form": args.unicode, "lowercase": args.lowercase}
    clean_corpus(args.input, args.output, args.languages, limits, args.keep_all, **options)


if __name__ == "__main__":
    run_tool(main)
