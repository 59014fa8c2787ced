"""Takes the translations out of fairseq-generate's output: one line a source line, in the order of the source.

    python preprocess/hypotheses.py --input generate.out --source tst2013.en --model bpe8k --detokenize vi \\
        --output hypotheses.vi

Run fairseq-generate without --remove-bpe: the pieces are joined here, by the method that the model records.
"""

import argparse
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.files import InputError, read_lines, run_tool, write_lines
from preprocess.segment import resolve_method
from preprocess.segmenters import METHODS, RESTORE, assert_pairing


def name_ids(ids: Sequence[int]) -> str:
    """The first ten ids, and how many there are."""
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


def read_hypotheses(lines: Sequence[str], count: int, name: str) -> List[str]:
    """Collects the H-lines (id, score, pieces) of fairseq-generate and sorts them by id.

    Args:
        lines: the output of fairseq-generate.
        count: the number of source lines.
        name: the output's name, for the messages.

    Raises:
        InputError: an id is missing, is not one of 0 to ``count`` - 1, or comes twice.
    """
    found: Dict[int, str] = {}
    twice = set()
    for number, line in enumerate(lines, 1):
        if not line.startswith("H-"):
            continue
        # The pieces may be missing altogether: an empty translation.
        fields = (line[2:] + "\t").split("\t", 2)
        if len(fields) < 3 or not fields[0].isdigit():
            raise InputError(f"{name}, line {number}, is no hypothesis of fairseq-generate: {line[:60]!r}")
        index = int(fields[0])
        if index in found:
            twice.add(index)
        found[index] = fields[2].rstrip("\t")
    missing = sorted(set(range(count)) - set(found))
    extra = sorted(set(found) - set(range(count)))
    problems = []
    if twice:
        problems.append(f"more than one for {name_ids(sorted(twice))} (use --nbest 1 and a new file)")
    if missing:
        problems.append(
            f"none for {name_ids(missing)} (without --required-batch-size-multiple 1 the last batch is lost, with "
            "--skip-invalid-size-inputs-valid-test the over-long lines)"
        )
    if extra:
        problems.append(f"some for {name_ids(extra)}, which the source does not have (is it another text?)")
    if problems:
        raise InputError(f"{name} has {len(found)} hypotheses for {count} source lines: {'; '.join(problems)}")
    return [found[index] for index in range(count)]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and writes one hypothesis a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, metavar="FILE", help="what fairseq-generate printed")
    parser.add_argument("--output", required=True, metavar="FILE", help="one translation a line")
    count = parser.add_mutually_exclusive_group(required=True)
    count.add_argument("--source", metavar="FILE", help="the text that was translated, for its number of lines")
    count.add_argument("--lines", type=int, metavar="N", help="that number itself")
    parser.add_argument("--model", metavar="FOLDER", help="the segmentation model, which records its method")
    parser.add_argument("--method", choices=METHODS, help="the segmentation's method, where there is no model at hand")
    parser.add_argument("--detokenize", metavar="LANGUAGE", help="also turn Moses tokens into ordinary text")
    args = parser.parse_args(argv)
    method = resolve_method(args.model, args.method)
    lines = args.lines if args.source is None else len(read_lines(args.source, blank_ok=True))
    hypotheses = read_hypotheses(read_lines(args.input), lines, args.input)
    assert_pairing(method, hypotheses, args.input)
    hypotheses = [RESTORE[method](line) for line in hypotheses]
    if args.detokenize:
        from preprocess.detokenize_text import line_detokenizer

        detokenize = line_detokenizer(args.detokenize)
        hypotheses = [detokenize(line) for line in hypotheses]
    write_lines(args.output, hypotheses)
    print(f"{args.output}: {len(hypotheses)} hypotheses, {sum(not line for line in hypotheses)} of them empty")


if __name__ == "__main__":
    run_tool(main)
