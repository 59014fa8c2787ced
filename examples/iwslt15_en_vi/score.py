"""Scores translations of tst2012 and tst2013: BLEU and chrF on ordinary text, BLEU and BLEU-1 on tokens.

    python examples/iwslt15_en_vi/score.py --system informer_mt --seed 1 --settings SETTING=modern \\
        --flags "--arch informer_mt" --log train.log --environment train.environment \\
        --set tst2013 output.vi tst2013.vi --output scores.txt --summary summary.json

Hypotheses and references are Moses-tokenised. The corpus has no other references, so the ordinary text is both sides
detokenised by the same tool, and the report says so. Scores on tokens are what the literature on this corpus prints;
they are no sacreBLEU scores in the usual sense and are labelled. BLEU-1, the measure of the Informer paper, is the
precision of single words with the brevity penalty. One run's scores say nothing about another corpus or tokenisation.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from sacrebleu.metrics import BLEU, CHRF

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from informer_fairseq.errors import InputError
from informer_fairseq.tools import run_summaries
from informer_fairseq.tools.files import write_json
from informer_fairseq.tools.scoring import signature
from preprocess.detokenize_text import line_detokenizer
from preprocess.files import assert_parallel, read_lines, run_tool, write_lines

ORDINARY = "detokenised, against references detokenised by the same tool"
TOKENS = "tokenised, as in the literature"


def score_set(hypothesis_path: str, reference_path: str, language: str) -> Dict[str, Dict[str, Any]]:
    """One set's scores.

    Args:
        hypothesis_path: tokenised translations.
        reference_path: tokenised references, as many.
        language: of both, for the detokenisation.

    Returns:
        By measure: ``text`` (what it was measured on), ``score`` (0 to 100), ``line`` to print, ``signature``.

    Raises:
        InputError: a file is missing, or they differ in their number of lines.
    """
    hypotheses = read_lines(hypothesis_path, blank_ok=True)
    references = read_lines(reference_path)
    assert_parallel(hypothesis_path, len(hypotheses), reference_path, len(references))
    detokenize = line_detokenizer(language)
    ordinary = [[detokenize(line) for line in lines] for lines in (hypotheses, references)]
    found: Dict[str, Dict[str, Any]] = {}
    # force: the text is meant to be tokenised, which sacrebleu warns of otherwise.
    for name, text, (sentences, expected), metric in (
        ("BLEU", ORDINARY, ordinary, BLEU()),
        ("chrF2", ORDINARY, ordinary, CHRF()),
        ("BLEU, tokens", TOKENS, (hypotheses, references), BLEU(tokenize="none", force=True)),
        ("BLEU-1, tokens", TOKENS, (hypotheses, references), BLEU(tokenize="none", force=True, max_ngram_order=1)),
    ):
        score = metric.corpus_score(sentences, [expected])
        short = name.partition(",")[0]
        line = str(score) if text == ORDINARY else f"{short} = {score.score:.2f} (BP = {score.bp:.3f})"
        signed = signature(short, metric.get_signature())
        found[name] = {"text": text, "score": score.score, "line": line, "signature": signed}
    return found


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and writes report and summary, each whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_summaries.add_options(parser)
    parser.add_argument("--set", nargs=3, action="append", required=True, metavar=("NAME", "HYPOTHESES", "REFERENCES"))
    parser.add_argument("--language", default="vi", help="of hypotheses and references (vi)")
    parser.add_argument("--output", required=True, metavar="FILE", help="the report, to read")
    parser.add_argument("--summary", required=True, metavar="FILE", help="the same in JSON, with the training's losses")
    args = parser.parse_args(argv)
    summary = {**run_summaries.describe(args), "scores": {}}
    report = [
        f"{args.system} seed {args.seed}: {args.settings}",
        f"parameters: {summary['parameters']:,}",
        f"lowest valid perplexity: {summary['best_valid_perplexity']}",
    ]
    for name, hypotheses, references in args.set:
        found = score_set(hypotheses, references, args.language)
        report.append(f"{name}: {len(read_lines(references))} lines")
        for measure, score in found.items():
            report += [f"  {score['text']}: {score['line']}", f"    signature: {score['signature']}"]
            summary["scores"][f"{name} {measure}"] = {key: score[key] for key in ("score", "signature")}
    write_json(args.summary, summary)
    write_lines(args.output, report)
    print("\n".join(report))


if __name__ == "__main__":
    run_tool(main, expected=(InputError,))
