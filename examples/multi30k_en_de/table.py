"""The table of finished runs: mean and range over seeds, and the difference to a baseline with its 95% interval.

    cd work/multi30k_en_de
    python ../../examples/multi30k_en_de/table.py *-seed* --reference prepared/clean/test.de
    cd work/iwslt15_en_vi/modern
    python ../../../examples/multi30k_en_de/table.py *-seed* --baseline transformer_tiny --hypotheses tst2013.vi \\
        --reference prepared/clean/test.vi --detokenize vi

A run is a folder that its recipe has scored. Differences are averaged over the seeds that both have, in the BLEU among
their scores that --hypotheses and --reference give (ordinary text, or tokens). The interval is of the paired bootstrap:
test sentences are drawn with replacement, and each draw scores system and baseline seed by seed. It holds the test
set's scatter, not that of seeds, which the ranges show. --costs adds what costs.py measured of the same systems.
Columns with nothing in them are left out; settings stand there where runs differ in them.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy
from sacrebleu.metrics import BLEU

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from informer_fairseq.tools.files import table
from preprocess.detokenize_text import line_detokenizer
from preprocess.files import InputError, assert_parallel, read_lines, run_tool, write_lines

COSTS = ("training speed", "bytes kept", "decoding speed")
Seeds = Dict[int, Tuple[Dict[str, Any], List[str]]]  # by seed: the summary and the translations
Runs = Dict[str, Seeds]
Costs = Dict[str, Dict[str, float]]


def read_summary(folder: Path) -> Dict[str, Any]:
    """What the score stage of a recipe wrote of one run.

    Raises:
        InputError: the run was not scored.
    """
    path = folder / "summary.json"
    if not path.is_file():
        raise InputError(f"{folder} has no summary.json: run the score stage there first, or leave it out")
    summary: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary


def read_runs(folders: Sequence[str], hypotheses: str) -> Runs:
    """Summaries and translations (the file of that name in each folder) by system and seed.

    Raises:
        InputError: a folder has no summary, or two runs are of one system and seed.
    """
    runs: Runs = {}
    for folder in map(Path, folders):
        summary = read_summary(folder)
        seeds = runs.setdefault(summary["system"], {})
        if summary["seed"] in seeds:
            raise InputError(
                f"{folder}: a second run of {summary['system']} with seed {summary['seed']}; leave one out"
            )
        seeds[summary["seed"]] = (summary, read_lines(folder / hypotheses, blank_ok=True))
    return runs


def differences(
    systems: Sequence[Sequence[str]],
    baselines: Sequence[Sequence[str]],
    references: Sequence[str],
    samples: int = 1000,
    **kind: Any,
) -> "numpy.ndarray":
    """BLEU of the systems less that of their baselines, the mean over pairs, for each draw of test sentences.

    Args:
        systems: translations by seed.
        baselines: those of the baseline, of the same seeds.
        references: as many lines as each has.
        kind: options of sacrebleu's BLEU.
        samples: draws; the random numbers are those of sacrebleu's own paired bootstrap (seed 12345).
    """
    measure = BLEU(references=[references], **kind)
    draws = numpy.random.default_rng(12345).choice(len(references), size=(samples, len(references)), replace=True)
    total = numpy.zeros(samples)
    for sign, group in ((1, systems), (-1, baselines)):
        for hypotheses in group:
            # What sacrebleu's own test draws from: counts of each sentence. It has no public name.
            counts = numpy.array(measure._extract_corpus_statistics(hypotheses, None), dtype="float64")
            drawn = (counts[draw].sum(0) for draw in draws)
            total += sign * numpy.array([measure._compute_score_from_stats(one.tolist()).score for one in drawn])
    return total / len(systems)


def settings_that_differ(runs: Runs) -> Dict[str, str]:
    """By system, those of its settings (NAME=VALUE) that not all runs share; none if all runs are alike."""
    words = {
        name: [re.split(r" (?=[A-Z_]+=)", one["settings"]) for one, _ in seeds.values()] for name, seeds in runs.items()
    }
    shared = set.intersection(*(set(settings) for found in words.values() for settings in found))
    return {
        name: " ".join(dict.fromkeys(word for settings in found for word in settings if word not in shared))
        for name, found in words.items()
    }


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The mean, and the range where there are several."""
    mean = f"{sum(values) / len(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def read_costs(path: str) -> Costs:
    """Figures by system, as costs.py wrote them.

    Raises:
        InputError: it did not write this file.
    """
    try:
        costs = json.loads(Path(path).read_text(encoding="utf-8"))["systems"]
        return {system: {name: float(found[name]["figure"]) for name in COSTS} for system, found in costs.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not what costs.py --output writes ({error!r}): make it anew") from None


def compare(seeds: Seeds, baseline: Seeds, references: Sequence[str], measure: str, kind: Dict[str, Any]) -> str:
    """The mean difference of their scores over the seeds that both have, its interval; kind: sacrebleu's options."""
    common = sorted(set(seeds) & set(baseline))
    if seeds is baseline or not common:
        return ""
    drawn = differences(*([of[seed][1] for seed in common] for of in (seeds, baseline)), references, **kind)
    low, high = numpy.percentile(drawn, [2.5, 97.5])
    whole = [
        seeds[seed][0]["scores"][measure]["score"] - baseline[seed][0]["scores"][measure]["score"] for seed in common
    ]
    return f"{sum(whole) / len(whole):+.2f} ({low:+.2f} to {high:+.2f})"


def find_measure(runs: Runs, references: Sequence[str]) -> Tuple[str, Dict[str, Any]]:
    """The BLEU among the summaries' scores that these translations have against these references.

    Returns:
        Its name, and the options of sacrebleu's BLEU that give it: ordinary text, tokens, or tokens in lower case.

    Raises:
        InputError: there is none that all runs have: they were scored against other references, or in another form.
    """
    of_tokens = {"tokenize": "none", "force": True}  # force: tokenised text is meant
    kinds: List[Dict[str, Any]] = [{}, of_tokens, {**of_tokens, "lowercase": True}]
    names = dict.fromkeys(name for seeds in runs.values() for one, _ in seeds.values() for name in one["scores"])
    possible = [(name, kind) for name in names for kind in kinds]
    for system, seeds in runs.items():
        for seed, (summary, hypotheses) in seeds.items():
            scores = {name: one["score"] for name, one in summary["scores"].items()}
            found = [BLEU(**{**kind, "force": True}).corpus_score(hypotheses, [references]).score for kind in kinds]
            possible = [
                (name, kind)
                for name, kind in possible
                if name in scores and abs(scores[name] - found[kinds.index(kind)]) < 0.005
            ]
            if not possible:
                listed = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
                raise InputError(
                    f"{system} seed {seed} has BLEU {found[0]:.2f} against --reference, none of its scores ({listed}); "
                    "give the hypotheses and the reference that were scored; --detokenize makes ordinary text of "
                    "tokenised references"
                )
    return possible[0]


def build_rows(runs: Runs, baseline: str, references: Sequence[str], costs: Optional[Costs] = None) -> List[List[str]]:
    """One row a system, the header first; the baseline leads."""
    differing = settings_that_differ(runs)
    header = ["system", "settings", "seeds", "parameters", *(f"{name}, of {baseline}'s" for name in COSTS)]
    all_scores = [summary["scores"] for seeds in runs.values() for summary, _ in seeds.values()]
    measures = list(dict.fromkeys(name for scores in all_scores for name in scores))
    compared, kind = find_measure(runs, references)
    header += ["lowest valid perplexity", *measures, f"{compared} less {baseline}'s, 95%"]
    rows = [header]
    for system, seeds in sorted(runs.items(), key=lambda item: item[0] != baseline):
        summaries = [summary for summary, _ in seeds.values()]
        row = [f"`{system}`", differing[system], " ".join(map(str, sorted(seeds))), f"{summaries[0]['parameters']:,}"]
        row += [f"{costs[system][name]:.2f}" if costs and system in costs else "" for name in COSTS]
        row.append(spread([summary["best_valid_perplexity"] for summary in summaries]))
        for name in measures:
            found = [summary["scores"][name]["score"] for summary in summaries if name in summary["scores"]]
            row.append(spread(found) if found else "")
        rows.append([*row, compare(seeds, runs[baseline], references, compared, kind)])
    used = [column for column in range(len(header)) if any(row[column] for row in rows[1:])]
    return [[row[column] for column in used] for row in rows]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Reads the command line, prints the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="FOLDER")
    parser.add_argument("--reference", required=True, metavar="FILE", help="the test set's ordinary text")
    parser.add_argument(
        "--detokenize", metavar="LANGUAGE", help="the reference is tokenised: bring it to ordinary text"
    )
    parser.add_argument(
        "--hypotheses", default="test_2016_flickr.de", metavar="NAME", help="in each folder (%(default)s)"
    )
    parser.add_argument("--baseline", default="transformer", metavar="SYSTEM", help="(transformer)")
    parser.add_argument("--costs", metavar="FILE", help="what costs.py wrote")
    parser.add_argument("--output", metavar="FILE", help="also write the table here")
    args = parser.parse_args(argv)
    runs, references = read_runs(args.runs, args.hypotheses), read_lines(args.reference)
    if args.detokenize:
        references = list(map(line_detokenizer(args.detokenize), references))
    if args.baseline not in runs:
        raise InputError(f"no run of {args.baseline} among {', '.join(runs)}: add one, or choose another --baseline")
    for system, seeds in runs.items():
        for seed, (_, hypotheses) in seeds.items():
            assert_parallel(f"{system} seed {seed}", len(hypotheses), args.reference, len(references))
    lines = table(build_rows(runs, args.baseline, references, read_costs(args.costs) if args.costs else None))
    print("\n".join(lines))
    if args.output:
        write_lines(args.output, lines)


if __name__ == "__main__":
    run_tool(main)
