"""What is worth keeping of one run: settings, commit, versions, losses, scores with their signatures.

    python examples/multi30k_en_de/summary.py --system informer_mt --seed 1 --settings UPDATES=3000 \\
        --flags "--arch informer_mt_tiny" --log train.log --environment train.environment \\
        --tokenised hypotheses references --output summary.json

Scores on ordinary text (``--cased``) compare with anyone's; BLEU on lower-cased tokens is what the literature on
Multi30k prints, and is labelled.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from sacrebleu.metrics import BLEU

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from informer_fairseq.errors import InputError
from informer_fairseq.tools import run_summaries, scoring
from informer_fairseq.tools.files import write_json
from preprocess.files import assert_parallel, read_lines, run_tool


def read_pair(hypotheses: str, references: str) -> List[List[str]]:
    """Translations and references, as many of each."""
    pair = [read_lines(hypotheses, blank_ok=True), read_lines(references)]
    assert_parallel(hypotheses, len(pair[0]), references, len(pair[1]))
    return pair


def score_cased(hypotheses: Sequence[str], references: Sequence[str]) -> Dict[str, Any]:
    """BLEU, BLEU-1 and chrF2 of ordinary text."""
    return scoring.score(scoring.build_measures([references], tokenised=False), hypotheses)


def score_lowercase(hypotheses: Sequence[str], references: Sequence[str]) -> Dict[str, Any]:
    """BLEU of lower-cased Moses tokens. (force: the text is meant to be tokenised.)"""
    measure = BLEU(lowercase=True, tokenize="none", force=True)
    found = measure.corpus_score(hypotheses, [references])
    return {"score": found.score, "signature": measure.get_signature().format()}


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and writes the summary, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_summaries.add_options(parser)
    parser.add_argument("--output", required=True)
    parser.add_argument("--cased", nargs=2, metavar=("HYPOTHESES", "REFERENCES"), help="ordinary text")
    parser.add_argument("--tokenised", nargs=2, required=True, metavar=("HYPOTHESES", "REFERENCES"))
    args = parser.parse_args(argv)
    summary = run_summaries.describe(args)
    summary["scores"] = score_cased(*read_pair(*args.cased)) if args.cased else {}
    summary["scores"]["BLEU, lower-cased tokens"] = score_lowercase(*read_pair(*args.tokenised))
    write_json(args.output, summary)
    scores = ", ".join(f"{name} {found['score']:.2f}" for name, found in summary["scores"].items())
    print(f"{args.system} seed {args.seed}: {summary['parameters']:,} parameters, valid perplexity", end=" ")
    print(f"{summary['best_valid_perplexity']}, {scores}")
    print("\n".join(sorted({found["signature"] for found in summary["scores"].values()})))


if __name__ == "__main__":
    run_tool(main, expected=(InputError,))
