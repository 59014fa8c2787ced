"""Turns Moses-tokenised text back into ordinary text (through sacremoses), one line in, one line out.

For example:

    python preprocess/detokenize_text.py --language vi < hypotheses.tokenised > hypotheses.txt
"""

import argparse
import sys
from pathlib import Path
from typing import Callable, Optional, Sequence

from sacremoses import MosesDetokenizer

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.clean import normalise_spaces
from preprocess.files import map_lines, run_tool


def line_detokenizer(language: str, unescape: bool = True) -> Callable[[str], str]:
    """A function that detokenises one line.

    Args:
        language: the language's two letters.
        unescape: write Moses' escapes as the characters they stand for (``&apos;`` as ``'``).
    """
    moses = MosesDetokenizer(lang=language)

    def detokenize(line: str) -> str:
        tokens = normalise_spaces(line).split(" ")
        return normalise_spaces(moses.detokenize(tokens, return_str=True, unescape=unescape))

    return detokenize


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and detokenises one text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", required=True, help="the language's two letters, such as en or vi")
    parser.add_argument("--input", metavar="FILE", help="the tokenised text, or a .gz of it (stdin)")
    parser.add_argument("--output", metavar="FILE", help="the ordinary text (stdout)")
    parser.add_argument("--no-escape", action="store_true", help="the text has no escapes: leave &apos; and others")
    args = parser.parse_args(argv)
    map_lines(line_detokenizer(args.language, not args.no_escape), args.input, args.output, "detokenise")


if __name__ == "__main__":
    run_tool(main)
