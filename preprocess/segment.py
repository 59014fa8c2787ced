"""Cuts text into the pieces a model reads, and joins them again: word, bpe (subword-nmt) or sentencepiece.

For example:

    python preprocess/segment.py learn --method bpe --input clean/train --languages en vi --model bpe8k --merges 8000
    python preprocess/segment.py apply --model bpe8k --language en --input clean/train.en --output bpe/train.en
    python preprocess/segment.py restore --model bpe8k --input hypotheses.bpe --output hypotheses.txt
"""

import argparse
import contextlib
import io
import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from subword_nmt.learn_bpe import learn_bpe

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.clean import normalise_spaces
from preprocess.files import (
    InputError,
    build_folder,
    decode_lines,
    find_side,
    map_lines,
    progress,
    read_lines,
    run_tool,
    write_lines,
    write_whole,
)
from preprocess.segmenters import (
    BPE_MARK,
    FORMAT,
    METADATA,
    METHODS,
    RESTORE,
    BpeSegmenter,
    assert_pairing,
    load_segmenter,
    read_metadata,
    train_sentencepiece,
)

LIBRARIES = {"word": (), "bpe": ("subword-nmt",), "sentencepiece": ("sentencepiece",)}


def learn_merges(texts: Sequence[Sequence[str]], merges: int, min_frequency: int, path: Path) -> int:
    """Learns BPE merges with subword-nmt.

    Words that hold ``@@`` are left out: a merge learned from one could end a word in ``@@``, and restoring would glue
    the next word to it.

    Args:
        texts: one or more texts of normalised lines; together they give the merges.
        merges: how many to learn at most.
        min_frequency: the fewest occurrences of a pair that is merged.
        path: the file of merges to write.

    Returns:
        The number of merges learned.

    Raises:
        InputError: no pair of symbols is frequent enough.
    """
    words = Counter(word for text in texts for line in text for word in line.split(" ") if BPE_MARK not in word)
    words.pop("", None)  # blank lines
    counts = io.StringIO("".join(f"{word} {count}\n" for word, count in words.items()))
    codes = io.StringIO()
    # The library draws its bar on any stderr: a log file gets none.
    quiet = contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO())
    with quiet, contextlib.suppress(ValueError):  # it takes the maximum of nothing when every pair is merged
        learn_bpe(counts, codes, merges, min_frequency, is_dict=True)
    learned = codes.getvalue().count("\n") - 1  # the first line is the format's version
    if learned < 1:
        raise InputError(
            f"no pair of characters occurs {min_frequency} times in {len(words)} distinct words, so there is nothing "
            "to merge; give more text, or a lower --min-frequency"
        )
    with write_whole(path) as handle:
        handle.write(codes.getvalue())
    return learned


def learn_bpe_model(folder: Path, texts: Dict[str, List[str]], settings: argparse.Namespace) -> Dict[str, Any]:
    """Learns BPE codes, joint or one a language, and with a threshold each language's vocabulary of pieces.

    Returns:
        What belongs into the metadata.
    """
    files, learned = {}, {}
    groups = [list(texts)] if settings.joint else [[language] for language in texts]
    for group in groups:
        name = "codes.joint" if settings.joint else f"codes.{group[0]}"
        count = learn_merges([texts[item] for item in group], settings.merges, settings.min_frequency, folder / name)
        learned[name] = count
        print(f"learned {count} merges for {' and '.join(group)} ({settings.merges} asked)")
        files.update(dict.fromkeys(group, name))
    if settings.vocabulary_threshold:
        for language, lines in texts.items():
            segmenter = BpeSegmenter(folder / files[language])
            counts = Counter(piece for line in progress(lines, "count") for piece in segmenter.segment(line).split(" "))
            counts.pop("", None)
            write_lines(folder / f"vocabulary.{language}", [f"{piece} {n}" for piece, n in counts.most_common()])
    return {
        "files": files,
        "merges": settings.merges,
        "merges_learned": learned,
        "min_frequency": settings.min_frequency,
        "vocabulary_threshold": settings.vocabulary_threshold,
    }


def learn_sentencepiece_model(
    folder: Path, texts: Dict[str, List[str]], settings: argparse.Namespace
) -> Dict[str, Any]:
    """Learns a sentencepiece model, joint or one a language.

    Returns:
        What belongs into the metadata.
    """
    files = {}
    groups = [list(texts)] if settings.joint else [[language] for language in texts]
    for group in groups:
        name = "joint.model" if settings.joint else f"{group[0]}.model"
        lines = [line for language in group for line in texts[language] if line]
        model = train_sentencepiece(lines, settings.vocabulary_size, settings.sentencepiece_type)
        with write_whole(folder / name, "wb") as handle:
            handle.write(model)
        print(f"learned {settings.vocabulary_size} pieces for {' and '.join(group)}")
        files.update(dict.fromkeys(group, name))
    return {
        "files": files,
        "vocabulary_size": settings.vocabulary_size,
        "sentencepiece_type": settings.sentencepiece_type,
    }


def learn(folder: Path, prefix: str, languages: Sequence[str], settings: argparse.Namespace) -> None:
    """Learns the segmentation of a training corpus into a folder, whole or not at all.

    Args:
        folder: the model's folder; one that exists is replaced.
        prefix: of the training text, one file a language.
        languages: one or two.
        settings: what ``add_learn_options`` defines.

    Raises:
        InputError: the text or a setting does not fit.
    """
    for name in ("merges", "vocabulary_size", "min_frequency"):
        if getattr(settings, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(settings, name)}; it must be 1 or more")
    if settings.vocabulary_threshold < 0:
        raise InputError(f"--vocabulary-threshold is {settings.vocabulary_threshold}; it must be 0 (off) or more")
    if settings.vocabulary_threshold and settings.method != "bpe":
        raise InputError(f"--vocabulary-threshold is for bpe, and the method is {settings.method}; leave it out")
    texts = {}
    for language in languages:
        texts[language] = [normalise_spaces(line) for line in read_lines(find_side(prefix, language))]
    metadata = {
        "format": FORMAT,
        "method": settings.method,
        "languages": list(languages),
        "joint": bool(settings.joint and settings.method != "word"),
        "versions": {library: version(library) for library in LIBRARIES[settings.method]},
    }
    with build_folder(folder) as partial:
        if settings.method == "bpe":
            metadata.update(learn_bpe_model(partial, texts, settings))
        elif settings.method == "sentencepiece":
            metadata.update(learn_sentencepiece_model(partial, texts, settings))
        else:
            metadata["files"] = {}
            print("word: every word of the training text is a piece; nothing to learn")
        with write_whole(partial / METADATA) as handle:
            handle.write(json.dumps(metadata, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def restore(method: str, source: Optional[str], target: Optional[str]) -> None:
    """Joins the pieces of a text.

    Args:
        method: the one that made the pieces.
        source: the file to read; None is stdin.
        target: the file to write; None is stdout.

    Raises:
        InputError: the marks in the text are those of another method.
    """
    name = source or "stdin"
    lines = read_lines(source, blank_ok=True) if source else decode_lines(sys.stdin.buffer.read(), name)
    assert_pairing(method, lines, name)
    restored = [RESTORE[method](line) for line in lines]
    if target:
        write_lines(target, restored)
    else:
        sys.stdout.buffer.write("".join(line + "\n" for line in restored).encode("utf-8"))


def resolve_method(model: Optional[str], method: Optional[str]) -> str:
    """The method of a model, or the one given by name; both must agree.

    Raises:
        InputError: neither is given, or they differ.
    """
    if model is None:
        if method is None:
            raise InputError("give --model FOLDER, which records its method, or --method NAME")
        return method
    recorded = read_metadata(Path(model))["method"]
    if method not in (None, recorded):
        raise InputError(f"{model} segments by {recorded}, not by {method}; leave --method out, or give another model")
    return recorded


def add_learn_options(parser: argparse._ActionsContainer) -> None:
    """Adds the settings of a segmentation to a parser or a group of one; prepare.py has them too."""
    parser.add_argument("--joint", action="store_true", help="one set of pieces for all languages; else one for each")
    parser.add_argument("--merges", type=int, default=8000, help="bpe: merges to learn (8000)")
    parser.add_argument("--min-frequency", type=int, default=2, help="bpe: fewest occurrences of a merged pair (2)")
    parser.add_argument(
        "--vocabulary-threshold",
        type=int,
        default=0,
        help="bpe: split pieces that are rarer in their language's training text; 0 is off (0); 50 is usual",
    )
    parser.add_argument("--vocabulary-size", type=int, default=8000, help="sentencepiece: number of pieces (8000)")
    parser.add_argument(
        "--sentencepiece-type", choices=("unigram", "bpe"), default="unigram", help="sentencepiece: model (unigram)"
    )


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    learned = commands.add_parser("learn", help="learn a segmentation from training text into a folder")
    learned.add_argument("--method", choices=METHODS, required=True)
    learned.add_argument("--input", required=True, metavar="PREFIX", help="reads PREFIX.LANGUAGE for each language")
    learned.add_argument("--languages", required=True, nargs="+", metavar="LANGUAGE")
    learned.add_argument("--model", required=True, metavar="FOLDER", help="the folder to write")
    add_learn_options(learned)
    applied = commands.add_parser("apply", help="cut a text into pieces")
    applied.add_argument("--model", required=True, metavar="FOLDER")
    applied.add_argument("--language", required=True)
    applied.add_argument("--dropout", type=float, default=0.0, help="skip merges at random, in training text only (0)")
    applied.add_argument("--seed", type=int, default=1, help="of the dropout (1)")
    restored = commands.add_parser("restore", help="join the pieces of a text")
    restored.add_argument("--model", metavar="FOLDER", help="the model that cut it, which records its method")
    restored.add_argument("--method", choices=METHODS, help="where there is no model at hand")
    for command in (applied, restored):
        command.add_argument("--input", metavar="FILE", help="(stdin)")
        command.add_argument("--output", metavar="FILE", help="(stdout)")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and learns, applies or restores."""
    args = build_parser().parse_args(argv)
    if args.command == "learn":
        learn(Path(args.model), args.input, args.languages, args)
    elif args.command == "apply":
        segmenter = load_segmenter(Path(args.model), args.language, args.dropout, args.seed)
        map_lines(segmenter.segment, args.input, args.output, "segment")
    else:
        restore(resolve_method(args.model, args.method), args.input, args.output)


if __name__ == "__main__":
    run_tool(main)
