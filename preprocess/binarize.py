"""Turns segmented text into what fairseq reads (fairseq-preprocess), and stops when too many words are unknown.

    python preprocess/binarize.py --languages en vi --train bpe/train --valid bpe/valid --test bpe/test \\
        --output data-bin --joined-dictionary

The unknown rate of a file is the share of its words, the ends of its lines not counted, that are not in the dictionary.
A segmentation into pieces leaves well under 1%; a vocabulary of words leaves 1% to 6% where training and test text are
of one kind, more on a small corpus (--max-unknown-rate 0.2). More than that is mostly text that was not segmented, or
not in the way of the training text.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from preprocess.clean import ODD_CHARACTER, read_pairs
from preprocess.files import InputError, build_folder, find_side, read_lines, run_tool

# What fairseq's dictionary keeps for itself. <unk> in a text counts as unknown; these would start, pad or end a line.
RESERVED = frozenset(("<s>", "<pad>", "</s>"))


def split_names(tests: Sequence[str], train: Optional[str], valid: Optional[str]) -> Dict[str, str]:
    """Maps fairseq's name of each split (train, valid, test, test1, ...) to the prefix of its text."""
    splits = {"train": train, "valid": valid}
    splits.update({f"test{number or ''}": prefix for number, prefix in enumerate(tests)})
    return {name: prefix for name, prefix in splits.items() if prefix}


def assert_plain(path: Path, lines: Sequence[str]) -> None:
    """Refuses text that fairseq would cut into other lines or words than ours.

    Raises:
        InputError: a line holds a control character or an odd space, or a word that fairseq reserves.
    """
    for number, line in enumerate(lines, 1):
        odd = ODD_CHARACTER.search(line)
        if odd:
            raise InputError(
                f"{path}, line {number}, holds U+{ord(odd.group()):04X}, where fairseq would split the line or a word; "
                "run clean.py first"
            )
        reserved = RESERVED.intersection(line.split(" "))
        if reserved:
            raise InputError(
                f"{path}, line {number}, holds the word {min(reserved)}, which fairseq keeps for itself; "
                "write it in another way, or tokenise with escapes (tokenize_text.py)"
            )


def read_splits(splits: Dict[str, str], languages: Sequence[str]) -> Dict[Tuple[str, str], List[str]]:
    """Reads and checks every text.

    Returns:
        The lines of each (split, language).

    Raises:
        InputError: a file is missing, empty, not UTF-8, has another number of lines than its other side, or is not
            plain.
    """
    texts = {}
    for name, prefix in splits.items():
        for language, lines in zip(languages, read_pairs(prefix, languages)):
            path = find_side(prefix, language)
            if path.suffix == ".gz":
                raise InputError(f"{path} is packed, and fairseq reads plain text; run gunzip on it first")
            assert_plain(path, lines)
            texts[name, language] = lines
    return texts


def build_dictionaries(
    folder: Path, languages: Sequence[str], prefixes: Sequence[str], given: Dict[str, str], joined: bool, workers: int
) -> Dict[str, Path]:
    """Collects each language's dictionary: the given file, or one of every word of the training text, without a cut.

    Args:
        folder: where a new dictionary is written.
        languages: source and target.
        prefixes: of the texts whose words it takes.
        given: a language's existing dictionary.
        joined: one dictionary for both languages.
        workers: processes that count words.

    Returns:
        The file of each language; the same file twice if joined.

    Raises:
        InputError: a given dictionary is missing, there is no training text to build one from, or two different
            dictionaries are given to be joined.
    """
    for path in given.values():
        if not Path(path).is_file():
            raise InputError(f"no such dictionary: {path}; give the dict.LANGUAGE.txt of the model's data-bin")
    if joined and len({Path(path).read_bytes() for path in given.values()}) > 1:
        raise InputError(
            f"{' and '.join(given.values())} differ, so they are not one joined dictionary; leave --joined-dictionary "
            "out, or give one of them"
        )
    if joined and given:
        return dict.fromkeys(languages, Path(next(iter(given.values()))))
    files = {language: Path(path) for language, path in given.items()}
    missing = [language for language in languages if language not in files]
    if missing and not prefixes:
        raise InputError(f"no dictionary for {' and '.join(missing)}: give --train, or the dictionaries of a model")
    groups = [missing] if joined else [[language] for language in missing]
    for group in groups:
        from fairseq.tasks.translation import TranslationTask  # slow to import: --help and checks come without it

        texts = [str(find_side(prefix, language)) for prefix in prefixes for language in group]
        dictionary = TranslationTask.build_dictionary(texts, workers=workers)
        built = folder / f"dictionary.{'-'.join(group)}.txt"
        dictionary.save(str(built))
        files.update(dict.fromkeys(group, built))
    return files


def run_fairseq_preprocess(
    data: Path,
    scratch: Path,
    languages: Sequence[str],
    splits: Dict[str, str],
    dictionaries: Dict[str, Path],
    workers: int,
) -> None:
    """Runs fairseq-preprocess on every split.

    The texts are linked under plain names in ``scratch`` first: fairseq splits its list of prefixes at commas.

    Raises:
        InputError: it fails; the message ends with its last line.
    """
    for name, prefix in splits.items():
        for language in languages:
            os.symlink(find_side(prefix, language).absolute(), scratch / f"{name}.{language}")
    source, target = languages
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--source-lang", source, "--target-lang", target]
    command += ["--destdir", str(data), "--workers", str(workers)]
    command += ["--srcdict", str(dictionaries[source]), "--tgtdict", str(dictionaries[target])]
    for name in ("train", "valid"):
        if name in splits:
            command += [f"--{name}pref", str(scratch / name)]
    tests = [str(scratch / name) for name in splits if name.startswith("test")]
    if tests:
        command += ["--testpref", ",".join(tests)]
    finished = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    if finished.returncode:
        last = (finished.stdout.strip() or "no output").splitlines()[-1]
        raise InputError(f"fairseq-preprocess ended with status {finished.returncode}: {last}")


def check_binarized(
    data: Path, texts: Dict[Tuple[str, str], List[str]], languages: Sequence[str], max_unknown_rate: float
) -> None:
    """Compares fairseq's output with the text, and prints and checks the unknown rate of every file.

    Raises:
        InputError: fairseq read another number of lines, or a rate is over the limit.
    """
    from fairseq.data import Dictionary, data_utils
    from fairseq.tokenizer import tokenize_line

    dictionaries = {language: Dictionary.load(str(data / f"dict.{language}.txt")) for language in languages}
    for language in languages:
        print(f"dict.{language}.txt: {len(dictionaries[language])} entries")
    over = []
    for (name, language), lines in texts.items():
        dictionary = dictionaries[language]
        prefix = data / f"{name}.{languages[0]}-{languages[1]}.{language}"
        dataset = data_utils.load_indexed_dataset(str(prefix), dictionary)
        if dataset is None or len(dataset) != len(lines):
            sentences = 0 if dataset is None else len(dataset)
            raise InputError(
                f"fairseq made {sentences} sentences of the {len(lines)} lines of {name}.{language}; run clean.py on it"
            )
        words = unknown = 0
        for line in lines:
            indices = [dictionary.index(word) for word in tokenize_line(line)]
            words += len(indices)
            unknown += indices.count(dictionary.unk())
        rate = unknown / max(words, 1)
        print(f"{name}.{language}: {len(lines)} lines, {words} words, {unknown} unknown ({rate:.2%})")
        if rate > max_unknown_rate:
            over.append(f"{name}.{language} ({rate:.2%}: {unknown} of {words})")
    if over:
        raise InputError(
            f"too many unknown words, over the limit of {max_unknown_rate:.2%}, in {', '.join(over)}; segment "
            "every text with the model of the training text, or raise --max-unknown-rate"
        )


def binarize(
    output: Path,
    languages: Sequence[str],
    splits: Dict[str, str],
    given: Dict[str, str],
    joined: bool = False,
    dictionary_texts: Sequence[str] = (),
    workers: int = 1,
    max_unknown_rate: float = 0.1,
) -> None:
    """Binarizes the texts into a folder, which appears whole or not at all.

    Args:
        output: the folder; one that exists is replaced.
        languages: source and target.
        splits: the prefix of each split's text.
        given: a language's existing dictionary.
        joined: one dictionary for both languages.
        dictionary_texts: prefixes of further training text that only lends its words to the dictionary.
        workers: processes.
        max_unknown_rate: the largest share of unknown words in any file.

    Raises:
        InputError: a text, a dictionary or a rate does not fit.
    """
    if not splits:
        raise InputError("nothing to binarize: give --train, --valid or --test")
    if not 0.0 <= max_unknown_rate <= 1.0:
        raise InputError(f"--max-unknown-rate is {max_unknown_rate}; it is a share, from 0 to 1")
    if workers < 1:
        raise InputError(f"--workers is {workers}; it must be 1 or more")
    texts = read_splits(splits, languages)
    for prefix in dictionary_texts:
        for language in languages:
            assert_plain(find_side(prefix, language), read_lines(find_side(prefix, language)))
    prefixes = ([splits["train"]] if "train" in splits else []) + list(dictionary_texts)
    with _quiet_fairseq(), build_folder(output) as partial, tempfile.TemporaryDirectory() as scratch:
        dictionaries = build_dictionaries(Path(scratch), languages, prefixes, given, joined, workers)
        run_fairseq_preprocess(partial, Path(scratch), languages, splits, dictionaries, workers)
        check_binarized(partial, texts, languages, max_unknown_rate)


@contextmanager
def _quiet_fairseq() -> Iterator[None]:
    """Keeps fairseq's progress out of the terminal, its warnings aside: the report says what was read."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and binarizes one corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--languages", required=True, nargs=2, metavar=("SOURCE", "TARGET"), help="such as: en vi")
    parser.add_argument("--train", metavar="PREFIX", help="reads PREFIX.LANGUAGE; not needed with given dictionaries")
    parser.add_argument("--valid", metavar="PREFIX")
    parser.add_argument("--test", metavar="PREFIX", nargs="+", default=[], help="one or more; named test, test1, ...")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="the data-bin; one that exists is replaced")
    parser.add_argument("--joined-dictionary", action="store_true", help="one dictionary for both languages")
    parser.add_argument("--source-dictionary", metavar="FILE", help="an existing dictionary, such as a model's")
    parser.add_argument("--target-dictionary", metavar="FILE")
    parser.add_argument(
        "--dictionary-text",
        metavar="PREFIX",
        nargs="+",
        default=[],
        help="further training text that only lends its words to a new dictionary",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--max-unknown-rate", type=float, default=0.1, help="largest share of unknown words (0.1)")
    args = parser.parse_args(argv)
    source, target = args.languages
    given = {source: args.source_dictionary, target: args.target_dictionary}
    binarize(
        Path(args.output),
        args.languages,
        split_names(args.test, args.train, args.valid),
        {language: path for language, path in given.items() if path},
        args.joined_dictionary,
        args.dictionary_text,
        args.workers,
        args.max_unknown_rate,
    )


if __name__ == "__main__":
    run_tool(main)
