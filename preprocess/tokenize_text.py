"""Tokenises text as Moses does (through sacremoses), one line in, one line out.

For example:

    python preprocess/tokenize_text.py --language vi < raw.vi > tokenised.vi
"""

import argparse
import sys
from pathlib import Path
from typing import Callable, Optional, Sequence

from sacremoses import MosesTokenizer

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.clean import normalise_spaces
from preprocess.files import map_lines, run_tool


def line_tokenizer(language: str, escape: bool = True) -> Callable[[str], str]:
    """A function that tokenises one line.

    Args:
        language: the language's two letters. One that Moses has no rules for, such as Vietnamese, takes the general
            rules and the English list of abbreviations.
        escape: write ``&``, ``|``, ``<``, ``>``, quotes and brackets as Moses' escapes (``'`` as ``&apos;``), as the
            IWSLT'15 files of the Stanford page have them.
    """
    moses = MosesTokenizer(lang=language)
    # Normalised before, since odd spaces would become words of their own, and after, so that no rule can add a line.
    return lambda line: normalise_spaces(moses.tokenize(normalise_spaces(line), return_str=True, escape=escape))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and tokenises one text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", required=True, help="the language's two letters, such as en or vi")
    parser.add_argument("--input", metavar="FILE", help="the text, or a .gz of it (stdin)")
    parser.add_argument("--output", metavar="FILE", help="the tokenised text (stdout)")
    parser.add_argument("--no-escape", action="store_true", help="write ' and & as they are, not as &apos; and &amp;")
    args = parser.parse_args(argv)
    map_lines(line_tokenizer(args.language, not args.no_escape), args.input, args.output, "tokenise")


if __name__ == "__main__":
    run_tool(main)
