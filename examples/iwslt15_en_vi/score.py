"""Scores translations of tst2012 and tst2013: BLEU and chrF on ordinary text, BLEU and BLEU-1 on tokens.

    python examples/iwslt15_en_vi/score.py --title informer_mt --set tst2013 output.vi tst2013.vi --output scores.txt

Hypotheses and references are Moses-tokenised. The corpus has no other references, so the ordinary text is both sides
detokenised by the same tool, and the report says so. Scores on tokens are what the literature on this corpus prints;
they are no sacreBLEU scores in the usual sense and are labelled. BLEU-1, the measure of the Informer paper, is the
precision of single words with the brevity penalty. One run's scores say nothing about another corpus or tokenisation.
"""

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from sacrebleu.metrics import BLEU, CHRF

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from preprocess.detokenize_text import line_detokenizer
from preprocess.files import assert_parallel, read_lines, run_tool, write_lines


def score_set(name: str, hypothesis_path: str, reference_path: str, language: str) -> List[str]:
    """The report's lines on one set.

    Args:
        name: the set's name.
        hypothesis_path: tokenised translations.
        reference_path: tokenised references, as many.
        language: of both, for the detokenisation.

    Raises:
        InputError: a file is missing, or they differ in their number of lines.
    """
    hypotheses = read_lines(hypothesis_path, blank_ok=True)
    references = read_lines(reference_path)
    assert_parallel(hypothesis_path, len(hypotheses), reference_path, len(references))
    detokenize = line_detokenizer(language)
    texts = [[detokenize(line) for line in lines] for lines in (hypotheses, references)]
    report = [f"{name}: {len(hypotheses)} lines"]
    for metric in (BLEU(), CHRF()):
        score = metric.corpus_score(texts[0], [texts[1]])
        report.append(f"  detokenised, against references detokenised by the same tool: {score}")
        report.append(f"    signature: {metric.get_signature()}")
    # force: the text is meant to be tokenised, which sacrebleu warns of otherwise.
    for label, metric in (
        ("BLEU", BLEU(tokenize="none", force=True)),
        ("BLEU-1", BLEU(tokenize="none", force=True, max_ngram_order=1)),
    ):
        score = metric.corpus_score(hypotheses, [references])
        report.append(f"  tokenised, as in the literature: {label} = {score.score:.2f} (BP = {score.bp:.3f})")
        report.append(f"    signature: {metric.get_signature()}{'|max_ngram_order:1' if label == 'BLEU-1' else ''}")
    return report


def read_log(path: Path) -> List[str]:
    """What fairseq-train's log says about the model's size and its last validation (ppl is 2 to the nll_loss)."""
    found = {}
    for line in read_lines(path):
        if "num. shared model params" in line or "num. model params" in line:
            found["model"] = line
        elif "valid on 'valid' subset" in line:
            found["last validation"] = line
    return [f"{name}: {text}" for name, text in found.items()]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line and writes the report, whole or not at all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs=3, action="append", required=True, metavar=("NAME", "HYPOTHESES", "REFERENCES"))
    parser.add_argument("--language", default="vi", help="of hypotheses and references (vi)")
    parser.add_argument("--title", required=True, help="the report's first line")
    parser.add_argument("--log", metavar="FILE", help="of fairseq-train, for the size and the last validation")
    parser.add_argument("--output", required=True, metavar="FILE")
    args = parser.parse_args(argv)
    report = [args.title]
    if args.log:
        report += read_log(Path(args.log))
    for name, hypotheses, references in args.set:
        report += score_set(name, hypotheses, references, args.language)
    write_lines(args.output, report)
    print("\n".join(report))


if __name__ == "__main__":
    run_tool(main)
