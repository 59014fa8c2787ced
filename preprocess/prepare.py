"""The whole way from a parallel corpus to a data-bin: clean, tokenise, segment, binarize.

    python preprocess/prepare.py --languages en vi --train corpus/train --valid corpus/tst2012 --test corpus/tst2013 \\
        --output work/prepared --segmentation bpe --joint --joined-dictionary

Writes the folders clean/, tokenized/ (only with --tokenize), segmented/ (with the model in segmented/model/) and
data-bin/. A step that is finished is not done again; a changed setting or a changed input does it, and those after it,
again. prepare.sh takes the same settings from the environment.

BPE-dropout (--bpe-dropout 0.1): fairseq reads binarized text, in which a sentence cannot be cut anew every epoch. So
the training set is written --bpe-dropout-copies times, each cut in another way; an epoch over it is that many epochs
over the corpus. The dictionary also takes the pieces of the training set cut without dropout, since that is how valid
and test sets, and later the user's lines, are cut.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.binarize import binarize, split_names
from preprocess.clean import clean_corpus, clean_pairs, describe_limits, normalise_spaces, parse_limits
from preprocess.files import InputError, find_side, map_lines, progress, read_lines, run_tool, write_lines
from preprocess.segment import add_learn_options, learn
from preprocess.segmenters import METHODS, load_segmenter
from preprocess.steps import run_step

STAGES = ("clean", "tokenize", "segment", "binarize")


class Preparation:
    """One corpus on its way through the steps.

    Args:
        args: the command line, as ``build_parser`` defines it.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.output = Path(args.output)
        self.languages = args.languages
        self.splits = split_names(args.test, args.train, args.valid)
        self.limits = parse_limits(args.max_words, "--max-words")
        self.piece_limits = parse_limits(args.max_pieces, "--max-pieces")

    def sides(self, folder: str, names: Sequence[str]) -> Dict[str, Path]:
        """The files of an earlier step, under the names a stamp keeps."""
        paths = (f"{name}.{language}" for name in names for language in self.languages)
        return {path: self.output / folder / path for path in paths}

    def clean(self, force: bool) -> None:
        """Normalises every split and drops training pairs that are empty or too long."""
        args = self.args
        inputs = {
            f"{name}.{language}": find_side(prefix, language)
            for name, prefix in self.splits.items()
            for language in self.languages
        }

        def build(folder: Path) -> None:
            for name, prefix in self.splits.items():
                keep_all = name != "train"
                options = {"unicode_form": args.unicode, "lowercase": args.lowercase}
                clean_corpus(prefix, str(folder / name), self.languages, self.limits, keep_all, **options)

        settings: Dict[str, Any] = {"max_words": self.limits, "unicode": args.unicode}
        if args.lowercase:
            settings.update(lowercase=True)
        run_step(self.output / "clean", inputs, settings, build, force)

    def tokenize(self, force: bool) -> None:
        """Tokenises every split as Moses does."""
        if not self.args.tokenize:
            return

        def build(folder: Path) -> None:
            from preprocess.tokenize_text import line_tokenizer  # slow to import

            for name, path in inputs.items():
                tokenizer = line_tokenizer(path.suffix[1:], self.args.escape)
                map_lines(tokenizer, str(path), str(folder / name), f"tokenise {name}")
            print(f"tokenised {len(inputs)} files, {'with' if self.args.escape else 'without'} escapes")

        inputs = self.sides("clean", list(self.splits))
        run_step(self.output / "tokenized", inputs, {"escape": self.args.escape}, build, force)

    @property
    def words(self) -> str:
        """The folder of the step before the segmentation."""
        return "tokenized" if self.args.tokenize else "clean"

    def segment(self, force: bool) -> None:
        """Learns the segmentation from the training set and cuts every split by it."""
        names = ("joint", "merges", "min_frequency", "vocabulary_threshold", "vocabulary_size", "sentencepiece_type")
        used = {"word": (), "bpe": names[:4], "sentencepiece": ("joint", *names[4:])}[self.args.method]
        settings: Dict[str, Any] = {name: getattr(self.args, name) for name in used}
        settings.update(method=self.args.method, max_pieces=self.piece_limits)
        if self.args.bpe_dropout:
            settings.update(dropout=self.args.bpe_dropout, copies=self.args.bpe_dropout_copies, seed=self.args.seed)
        inputs = self.sides(self.words, list(self.splits))

        def build(folder: Path) -> None:
            learn(folder / "model", str(self.output / self.words / "train"), self.languages, self.args)
            for name in self.splits:
                self.segment_split(folder, name)

        run_step(self.output / "segmented", inputs, settings, build, force)

    def segment_split(self, folder: Path, name: str) -> None:
        """Cuts one split; the training set as often as there are copies, without the pairs that are too long now."""
        dropout = self.args.bpe_dropout if name == "train" else 0.0
        lines = {language: read_lines(self.output / self.words / f"{name}.{language}") for language in self.languages}
        # Without dropout every copy would be the same; with it, the plain cut serves the dictionary alone.
        plain = [self.cut(folder / "model", language, lines[language]) for language in self.languages]
        copies = [plain]
        if dropout:
            for language, side in zip(self.languages, plain):
                write_lines(folder / f"dictionary.{language}", side)
            copies = [
                [
                    self.cut(folder / "model", language, lines[language], dropout, self.args.seed + copy)
                    for language in self.languages
                ]
                for copy in range(self.args.bpe_dropout_copies)
            ]
        source: List[str] = []
        target: List[str] = []
        for source_side, target_side in copies:
            # The text is clean already: the Unicode form stays as it is.
            kept = clean_pairs(source_side, target_side, self.piece_limits, name != "train", "none")
            source += kept.source
            target += kept.target
            fate = "dropped" if name == "train" else "kept (a model with fewer positions refuses them)"
            print(f"{name}: {kept.too_long} pairs {describe_limits(self.piece_limits, 'pieces')} {fate}")
        if not source:
            raise InputError(
                f"no pair of {name} is left: all are {describe_limits(self.piece_limits, 'pieces')}; raise --max-pieces"
            )
        for language, side in zip(self.languages, (source, target)):
            write_lines(folder / f"{name}.{language}", side)

    def cut(self, model: Path, language: str, lines: Sequence[str], dropout: float = 0.0, seed: int = 1) -> List[str]:
        """Cuts the lines of one language."""
        segmenter = load_segmenter(model, language, dropout, seed)
        return [segmenter.segment(normalise_spaces(line)) for line in progress(lines, f"segment {language}")]

    def binarize(self, force: bool) -> None:
        """Writes the data-bin."""
        args = self.args
        inputs = self.sides("segmented", [*self.splits, *(["dictionary"] if args.bpe_dropout else [])])
        source, target = self.languages
        chosen = {source: args.source_dictionary, target: args.target_dictionary}
        given = {language: path for language, path in chosen.items() if path}
        inputs.update({f"dictionary of {language}": Path(path) for language, path in given.items()})

        def build(folder: Path) -> None:
            segmented = self.output / "segmented"
            binarize(
                folder,
                self.languages,
                {name: str(segmented / name) for name in self.splits},
                given,
                args.joined_dictionary,
                [str(segmented / "dictionary")] if args.bpe_dropout else [],
                args.workers,
                args.max_unknown_rate,
            )

        settings = {"joined": args.joined_dictionary, "max_unknown_rate": args.max_unknown_rate}
        run_step(self.output / "data-bin", inputs, settings, build, force)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", required=True, nargs=2, metavar=("SOURCE", "TARGET"), help="such as: en vi")
    parser.add_argument("--train", required=True, metavar="PREFIX", help="reads PREFIX.LANGUAGE, or that with .gz")
    parser.add_argument("--valid", required=True, metavar="PREFIX")
    parser.add_argument("--test", required=True, nargs="+", metavar="PREFIX", help="one or more: test, test1, ...")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="the steps' folders go here")
    parser.add_argument("--stage", choices=STAGES, help="do this step alone; those before it must be finished")
    parser.add_argument("--force", action="store_true", help="do finished steps again")
    cleaning = parser.add_argument_group("clean and tokenise")
    cleaning.add_argument("--max-words", type=int, nargs="+", default=[200], metavar="N", help="see clean.py (200)")
    cleaning.add_argument("--unicode", choices=("NFC", "none"), default="NFC", help="Unicode normalisation form (NFC)")
    cleaning.add_argument("--lowercase", action="store_true", help="lower-case both sides")
    cleaning.add_argument("--tokenize", action="store_true", help="tokenise; else the corpus is tokenised already")
    cleaning.add_argument("--no-escape", dest="escape", action="store_false", help="tokenise without escapes")
    segmenting = parser.add_argument_group("segment")
    segmenting.add_argument("--segmentation", dest="method", choices=METHODS, default="bpe", help="method (bpe)")
    add_learn_options(segmenting)
    segmenting.add_argument("--bpe-dropout", type=float, default=0.0, help="see above; 0 is off (0)")
    segmenting.add_argument("--bpe-dropout-copies", type=int, default=4, help="of the training set (4)")
    segmenting.add_argument("--seed", type=int, default=1, help="of the dropout (1)")
    segmenting.add_argument(
        "--max-pieces",
        type=int,
        nargs="+",
        default=[0],
        metavar="N",
        help="drop training pairs with more pieces on a side; two values are source and target; 0 is off (0)",
    )
    binarizing = parser.add_argument_group("binarize")
    binarizing.add_argument("--joined-dictionary", action="store_true", help="one dictionary for both languages")
    binarizing.add_argument("--source-dictionary", metavar="FILE", help="an existing dictionary, such as a model's")
    binarizing.add_argument("--target-dictionary", metavar="FILE")
    binarizing.add_argument("--max-unknown-rate", type=float, default=0.1, help="largest share of unknown words (0.1)")
    binarizing.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (all cores)")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and does the steps that are not finished."""
    args = build_parser().parse_args(argv)
    if args.languages[0] == args.languages[1]:
        raise InputError(f"--languages {' '.join(args.languages)}: source and target are the same; give two")
    if args.bpe_dropout and args.method != "bpe":
        raise InputError(f"--bpe-dropout is for --segmentation bpe, not {args.method}; set it to 0")
    if args.bpe_dropout and args.bpe_dropout_copies < 1:
        raise InputError(f"--bpe-dropout-copies is {args.bpe_dropout_copies}; it must be 1 or more")
    preparation = Preparation(args)
    for stage in STAGES:
        if args.stage in (None, stage):
            getattr(preparation, stage)(args.force)


if __name__ == "__main__":
    run_tool(main)
