"""sacrebleu's measures and tests over several systems; every figure is sacrebleu's own."""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from informer_fairseq.errors import InputError

Measures = Mapping[str, Any]


def build_measures(references: Sequence[Sequence[str]], tokenised: bool) -> Dict[str, Any]:
    """BLEU, BLEU-1 and chrF2 over fixed references.

    BLEU-1 is the Informer paper's measure: the precision of single words with BLEU's brevity penalty.

    Args:
        references: one list a set of references, each as long as the test set.
        tokenised: split at spaces alone instead of by sacrebleu's tokeniser.
    """
    # force: text that is meant to be tokenised needs no warning of it.
    options: Dict[str, Any] = {"tokenize": "none", "force": True} if tokenised else {}
    return {
        "BLEU": BLEU(references=references, **options),
        "BLEU-1": BLEU(references=references, max_ngram_order=1, **options),
        "chrF2": CHRF(references=references),
    }


def score(measures: Measures, hypotheses: Sequence[str]) -> Dict[str, Any]:
    """One system's scores.

    Returns:
        By measure: ``score`` (0 to 100), ``signature``, and for BLEU ``precisions`` and ``brevity_penalty``.
    """
    scores: Dict[str, Any] = {}
    for name, measure in measures.items():
        result = measure.corpus_score(hypotheses, None)
        scores[name] = {"score": result.score, "signature": signature(name, measure.get_signature())}
        if isinstance(measure, BLEU):
            scores[name].update(precisions=list(result.precisions), brevity_penalty=result.bp)
    return scores


def signature(name: str, of_sacrebleu: Any) -> str:
    """sacrebleu's signature in full; it does not name the order of n-grams, which tells BLEU-1 from BLEU."""
    return f"{of_sacrebleu.format()}{'|max_ngram_order:1' if name == 'BLEU-1' else ''}"


def compare(
    measures: Measures, named_hypotheses: Sequence[Tuple[str, Sequence[str]]], test: str, samples: int
) -> Dict[str, Dict[str, Any]]:
    """sacrebleu's paired test of every system against the first, with its seed (12345, or ``SACREBLEU_SEED``).

    Args:
        measures: as of :func:`build_measures`.
        named_hypotheses: the systems, the baseline first.
        test: ``bs`` for the paired bootstrap, ``ar`` for approximate randomisation.
        samples: resamples or trials; 0 for sacrebleu's 1,000 or 10,000.

    Returns:
        By measure: ``signature``, and by system's name ``score``, ``mean`` and ``ci`` of the bootstrap (mean +- ci is
        the 95% interval; None for ``ar``) and ``p_value`` (None for the baseline).

    Raises:
        InputError: there is only one system.
    """
    if len(named_hypotheses) < 2:
        raise InputError("--baseline needs at least one more system to compare with: give its run too")
    found: Dict[str, Dict[str, Any]] = {}
    for name, measure in measures.items():
        # One test a measure: BLEU and BLEU-1 have the same name for sacrebleu. Each draws the same resamples.
        signatures, results = PairedTest(
            list(named_hypotheses), {name: measure}, references=None, test_type=test, n_samples=samples
        )()
        [(key, kept)] = signatures.items()
        found[name] = {"signature": signature(name, kept), "systems": {}}
        for (system, _), result in zip(named_hypotheses, results[key]):
            values = {field: getattr(result, field) for field in ("score", "mean", "ci", "p_value")}
            found[name]["systems"][system] = {
                field: None if value is None else float(value) for field, value in values.items()
            }
    return found


def group_by_length(sources: Sequence[str], bounds: Sequence[int]) -> List[Tuple[str, List[int]]]:
    """Sentences in groups by source length in words (what spaces part).

    Args:
        sources: the raw source sentences.
        bounds: the largest length of each group but the last, which has none; strictly increasing.

    Returns:
        For each group its label, such as ``11-20``, and the indices of its sentences.

    Raises:
        InputError: the bounds do not increase from 1 or more.
    """
    if not bounds or list(bounds) != sorted(set(bounds)) or bounds[0] < 1:
        raise InputError(
            f"--by-length {' '.join(map(str, bounds))}: give increasing lengths in words, such as 10 20 30"
        )
    lowest = [0, *(bound + 1 for bound in bounds)]
    labels = [f"{low}-{high}" if low else f"up to {high}" for low, high in zip(lowest, bounds)] + [f"over {bounds[-1]}"]
    groups: List[List[int]] = [[] for _ in labels]
    for number, sentence in enumerate(sources):
        length = len(sentence.split())
        groups[next((n for n, bound in enumerate(bounds) if length <= bound), len(bounds))].append(number)
    return list(zip(labels, groups))


def score_groups(
    groups: Sequence[Tuple[str, Sequence[int]]],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenised: bool,
) -> List[Optional[float]]:
    """BLEU of each group's sentences as a corpus of their own; None for a group without any."""
    found: List[Optional[float]] = []
    for _, members in groups:
        if not members:
            found.append(None)
            continue
        chosen = [[lines[number] for number in members] for lines in references]
        measure = build_measures(chosen, tokenised)["BLEU"]
        found.append(measure.corpus_score([hypotheses[number] for number in members], None).score)
    return found
