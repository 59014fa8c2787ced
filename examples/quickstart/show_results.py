#!/usr/bin/env python3
"""Scores the quickstart's translations with sacreBLEU and shows a few of them beside their references."""

import argparse
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from sacrebleu.metrics import BLEU
from sacremoses import MosesDetokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from preprocess.files import InputError, read_lines, run_tool  # noqa: E402

EXAMPLES = 12


def read_hypotheses(path: Path, count: int) -> List[str]:
    """Reads fairseq-generate's detokenised hypotheses ("D-<line><tab>score<tab>text") in the order of the test set.

    Raises:
        InputError: there is not exactly one hypothesis for each of the ``count`` lines.
    """
    found: Dict[int, str] = {}
    lines = 0
    for line in read_lines(path):
        if line.startswith("D-"):
            name, _, text = line.split("\t", 2)
            found[int(name[len("D-") :])] = text
            lines += 1
    if sorted(found) != list(range(count)) or lines != count:
        raise InputError(f"{path} has {lines} translations for {count} test lines; delete it and run again")
    return [found[number] for number in range(count)]


def read_plain(path: Path, language: str) -> List[str]:
    """Reads a tokenised file as plain text."""
    moses = MosesDetokenizer(language)
    return [moses.detokenize(line.split()) for line in read_lines(path)]


def show_examples(sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]) -> None:
    """Prints a dozen translations from all over the test set, each under its source and reference."""
    count = min(EXAMPLES, len(sources))
    print(f"\n{count} of them:")
    for place in range(count):
        number = place * len(sources) // count
        verdict = "same" if hypotheses[number] == references[number] else "differs"
        print(f"\n  English      {sources[number]}")
        print(f"  reference    {references[number]}")
        print(f"  translation  {hypotheses[number]}  [{verdict}]")


def show_score(references: Sequence[str], hypotheses: Sequence[str]) -> None:
    """Prints BLEU with the signature that says how it was taken."""
    metric = BLEU()
    score = metric.corpus_score(list(hypotheses), [list(references)])
    same = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references))
    print(f"\nTest BLEU {score.score:.2f}; {same} of {len(references)} translations are exactly the reference")
    print(f"sacreBLEU signature: {metric.get_signature()}")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line, then prints examples and score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder that build_corpus.py wrote")
    parser.add_argument("--translations", type=Path, required=True, help="output of fairseq-generate on the test set")
    args = parser.parse_args(argv)
    sources, references = (read_plain(args.corpus / f"test.{language}", language) for language in ("en", "vi"))
    hypotheses = read_hypotheses(args.translations, len(references))
    show_examples(sources, references, hypotheses)
    show_score(references, hypotheses)


if __name__ == "__main__":
    run_tool(main)
