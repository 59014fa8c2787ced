"""Scores translations: BLEU, BLEU-1, chrF, perplexity, significance against a baseline, BLEU by source length.

    informer-fairseq score runs/transformer/test.generate runs/informer_mt/test.generate --remove-bpe --detokenize vi \\
        --reference test.vi --baseline runs/transformer/test.generate --source test.en --by-length
    informer-fairseq score informer=hypotheses.vi --reference test.vi

A run is what fairseq-generate printed, a folder that holds it, or plain text with one translation a line; NAME=PATH
names it. Scores, signatures and tests are sacrebleu's, equal to its own command's; BLEU-1 is the precision of single
words with BLEU's brevity penalty. fairseq-generate's lines are matched by sentence id, its D-lines before its H-lines.
Without --reference its T-lines are the references. Text in subword pieces is refused, and tokenised text unless
--tokenized labels its scores. Perplexity is 2 to the power of the loss in bits per target token of the model's own
dictionary: models with other dictionaries cannot be compared by it.
"""

import argparse
import math
from typing import Any, Dict, List, Sequence

from informer_fairseq.errors import InputError
from informer_fairseq.tools import scoring
from informer_fairseq.tools.files import check_outputs, split_label, table, write_json
from informer_fairseq.tools.text_kinds import assert_kind
from informer_fairseq.tools.translations import System, pick_references, pick_sources, read_system

LENGTH_BOUNDS = (10, 20, 30, 40, 50)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's flags."""
    parser.add_argument("runs", nargs="+", metavar="[NAME=]RUN", help="the systems to score")
    parser.add_argument("--reference", nargs="+", default=[], metavar="FILE", help="raw references (the T-lines)")
    parser.add_argument("--source", metavar="FILE", help="raw source text, for --by-length (the S-lines)")
    parser.add_argument(
        "--remove-bpe",
        nargs="?",
        const="subword_nmt",
        choices=("subword_nmt", "sentencepiece"),
        help="join the pieces in fairseq-generate's output (subword_nmt)",
    )
    parser.add_argument("--detokenize", metavar="LANG", help="then undo Moses' tokenisation in it, such as vi")
    parser.add_argument("--tokenized", action="store_true", help="score tokens as they are, and label the scores so")
    parser.add_argument("--baseline", metavar="[NAME=]RUN", help="test all others against this system")
    test = parser.add_mutually_exclusive_group()
    test.add_argument("--paired-bs", action="store_true", help="by paired bootstrap (the default)")
    test.add_argument("--paired-ar", action="store_true", help="by approximate randomisation")
    parser.add_argument("--samples", type=int, default=0, metavar="N", help="of the test (1000, or 10000 for ar)")
    parser.add_argument(
        "--by-length", nargs="*", type=int, metavar="WORDS", help=f"BLEU up to each source length {LENGTH_BOUNDS}"
    )
    parser.add_argument("--log", nargs="+", default=[], metavar="NAME=FILE", help="perplexity from training logs")
    parser.add_argument("--checkpoint", nargs="+", default=[], metavar="NAME=FILE", help="perplexity on --data")
    parser.add_argument("--data", metavar="FOLDER", help="the data-bin for --checkpoint")
    parser.add_argument("--subset", default="test", help="its set (test)")
    parser.add_argument("--max-tokens", type=int, default=4000, metavar="N", help="batch size for --checkpoint (4000)")
    parser.add_argument("--width", type=int, default=2, metavar="DIGITS", help="digits behind the point (2)")
    parser.add_argument("--json", metavar="FILE", help="also write everything here")


def run(args: argparse.Namespace) -> None:
    """Scores and prints."""
    check_outputs(args.json)
    systems = _read_systems(args)
    references = pick_references(systems, args.reference)
    reference_names = args.reference or [f"{systems[0].path} (T-lines)"]
    for name, lines in [*zip(reference_names, references), *((system.path, system.hypotheses) for system in systems)]:
        assert_kind(lines, name, args.tokenized)
    measures = scoring.build_measures(references, args.tokenized)
    result: Dict[str, Any] = {
        "sentences": len(references[0]),
        "references": reference_names,
        "text": "tokens" if args.tokenized else "ordinary text",
        "systems": {},
    }
    for system in systems:
        result["systems"][system.name] = {"path": system.path, "scores": scoring.score(measures, system.hypotheses)}
    if args.by_length is not None:
        result["by_length"] = _by_length(args, systems, references)
    if args.baseline:
        named = [(system.name, system.hypotheses) for system in systems]
        test = "ar" if args.paired_ar else "bs"
        result["baseline"] = systems[0].name
        # sacrebleu gives a text against itself the smallest p-value there is.
        result["identical_to_baseline"] = [one.name for one in systems[1:] if one.hypotheses == systems[0].hypotheses]
        result["significance"] = scoring.compare(measures, named, test, args.samples)
    _add_perplexities(args, result["systems"])
    write_json(args.json, result)
    print("\n".join(_report(result, args.width)))


def _read_systems(args: argparse.Namespace) -> List[System]:
    """The systems, the baseline first; Raises InputError when two have one name or flags do not fit together."""
    if args.tokenized and args.detokenize:
        raise InputError("--tokenized scores tokens, which --detokenize undoes: drop one of them")
    if not args.baseline and (args.paired_bs or args.paired_ar or args.samples):
        raise InputError("a test needs a system to compare with: give --baseline RUN")
    if args.width < 0 or args.samples < 0:
        raise InputError(f"--width {args.width} and --samples {args.samples} must not be negative")
    systems = [read_system(run, args.remove_bpe, args.detokenize) for run in args.runs]
    if args.baseline:
        chosen = [system for system, run in zip(systems, args.runs) if args.baseline in (run, system.name)]
        baseline = chosen[0] if chosen else read_system(args.baseline, args.remove_bpe, args.detokenize)
        systems = [baseline, *(system for system in systems if system is not baseline)]
    names = [system.name for system in systems]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two systems are called {twice}: give each run a name of its own, NAME=PATH")
    return systems


def _by_length(
    args: argparse.Namespace, systems: Sequence[System], references: Sequence[Sequence[str]]
) -> Dict[str, Any]:
    sources = pick_sources(systems, args.source)
    if args.source is None:
        assert_kind(sources, f"{systems[0].path} (S-lines; raw text comes with --source FILE)", args.tokenized)
    groups = scoring.group_by_length(sources, args.by_length or LENGTH_BOUNDS)
    return {
        "unit": "words of the tokenised source" if args.tokenized and not args.source else "words of the raw source",
        "groups": [{"length": label, "sentences": len(members)} for label, members in groups],
        "BLEU": {
            system.name: scoring.score_groups(groups, system.hypotheses, references, args.tokenized)
            for system in systems
        },
    }


def _add_perplexities(args: argparse.Namespace, systems: Dict[str, Any]) -> None:
    if args.checkpoint and not args.data:
        raise InputError("--checkpoint needs a set to run on: give --data DATA_BIN, and --subset if it is not test")
    if not args.log and not args.checkpoint:
        return
    from informer_fairseq.tools import perplexity  # loads torch and fairseq, which scores alone do without

    for entry in [*args.log, *args.checkpoint]:
        if split_label(entry)[0] not in systems:
            raise InputError(f"{entry} names no system: write NAME=FILE with a NAME of {', '.join(systems)}")
    for entry in args.log:
        name, path = split_label(entry)
        systems[name].setdefault("perplexity", []).extend(perplexity.from_log(path))
    for entry in args.checkpoint:
        name, path = split_label(entry)
        found = perplexity.from_checkpoint(path, args.data, args.subset, args.max_tokens)
        systems[name].setdefault("perplexity", []).append(found)


def _report(result: Dict[str, Any], width: int) -> List[str]:
    first = next(iter(result["systems"].values()))["scores"]
    lines = [f"{result['sentences']} sentences, references: {', '.join(result['references'])}"]
    if result["text"] == "tokens":
        lines.append("Scores of tokens as given, not of ordinary text: comparable only with the same tokenisation.")
    significance = result.get("significance")
    rows = [["system", *first]]
    for name, system in result["systems"].items():
        cells = [f"{system['scores'][measure]['score']:.{width}f}" for measure in first]
        if significance:
            tested = [significance[measure]["systems"][name] for measure in first]
            cells = [cell + _tested(values, width) for cell, values in zip(cells, tested)]
            if name in result["identical_to_baseline"]:
                cells = [cell.partition(" p = ")[0] + " identical" for cell in cells]
        rows.append([name, *cells])
    lines += ["", *table(rows)]
    if significance:
        lines += ["", f"Baseline: {result['baseline']}.", *_explanation(significance)]
    if "by_length" in result:
        lines += ["", f"BLEU by source length in {result['by_length']['unit']}:", *_length_table(result, width)]
    lines += _perplexity_lines(result)
    lines += ["", "Signatures:"]
    lines += [f"  {name}: {(significance or first)[name]['signature']}" for name in first]
    return lines


def _explanation(significance: Dict[str, Any]) -> List[str]:
    found = [values for measure in significance.values() for values in measure["systems"].values()]
    interval = "In brackets: mean and half the width of the 95% interval of the bootstrap."
    chance = "p: how likely so large a difference is by chance between equal systems; * where at most 0.05."
    return [interval, chance] if any(values["mean"] is not None for values in found) else [chance]


def _tested(values: Dict[str, Any], width: int) -> str:
    interval = f" ({values['mean']:.{width}f} +- {values['ci']:.{width}f})" if values["mean"] is not None else ""
    p_value = values["p_value"]
    return interval + ("" if p_value is None else f" p = {p_value:.4f}{'*' if p_value <= 0.05 else ''}")


def _length_table(result: Dict[str, Any], width: int) -> List[str]:
    by_length = result["by_length"]
    rows = [["length", "sentences", *by_length["BLEU"]]]
    for number, group in enumerate(by_length["groups"]):
        scores = [found[number] for found in by_length["BLEU"].values()]
        cells = ["-" if score is None else f"{score:.{width}f}" for score in scores]
        rows.append([group["length"], str(group["sentences"]), *cells])
    return table(rows)


def _perplexity_lines(result: Dict[str, Any]) -> List[str]:
    rows = [["system", "set", "perplexity", "bits per token", "from"]]
    for name, system in result["systems"].items():
        for one in system.get("perplexity", []):
            assert math.isfinite(one["perplexity"])
            rows.append([name, one["set"], f"{one['perplexity']:.2f}", f"{one['bits']:.3f}", one["from"]])
    if len(rows) == 1:
        return []
    return ["", "Perplexity (2 to the power of the loss in bits per target token, no label smoothing):", *table(rows)]
