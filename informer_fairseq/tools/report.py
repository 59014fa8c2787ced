"""One HTML page over several runs: what ran, speed, curves, scores with significance, translations, attention.

The page holds everything it shows and loads nothing: it can be mailed, archived and opened without a network.

    informer-fairseq report --run stock=work/baseline informer=work/informer --baseline stock \\
        --references test.de --sources test.en --data-bin data-bin --output report.html

A run's folder has train.log, averaged.pt (or checkpoints), test.generate (what fairseq-generate printed) and test.de
(the same, detokenised); what is not there is left out and said so. Single files can be given as LABEL=FILE instead.
"""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Dict, List, Optional

from omegaconf import OmegaConf
from tqdm import tqdm

from informer_fairseq.compat import read_checkpoint
from informer_fairseq.errors import InputError
from informer_fairseq.tools import report_sections as sections
from informer_fairseq.tools.files import parse_labelled, write_file, write_json
from informer_fairseq.tools.models import TrainedModel, load_model
from informer_fairseq.tools.report_attention import AttentionMaps, attention_maps
from informer_fairseq.tools.report_data import (
    Run,
    TestSet,
    TrainingLog,
    Translation,
    by_length,
    find_run,
    join_test_set,
    read_generate,
    read_log,
    score,
    sentence_scores,
)
from informer_fairseq.tools.report_html import Section, page

_LIBRARIES = ("informer-fairseq", "torch", "ve-fairseq", "fairseq-fixed", "fairseq", "sacrebleu")
# Flags that say where files lie, or nothing of the model and its training.
_HIDDEN = ("data", "save_dir", "log_file", "user_dir", "tensorboard_logdir", "init_from_transformer", "plasma_path")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's options."""
    parser.add_argument(
        "--run", dest="runs", nargs="+", required=True, metavar="[LABEL=]FOLDER", help="the runs, in this order"
    )
    parser.add_argument("--baseline", metavar="LABEL", help="what the others are compared with (the first)")
    parser.add_argument("--output", required=True, metavar="FILE", help="the page, .html")
    parser.add_argument("--references", metavar="FILE", help="the test set's references as ordinary text")
    parser.add_argument("--sources", metavar="FILE", help="its sources as ordinary text, for length and display")
    parser.add_argument("--data-bin", metavar="FOLDER", help="the dictionaries, for parameters and attention")
    for name, what in (
        ("log", "a training log"),
        ("checkpoint", "a checkpoint"),
        ("generate", "an output of fairseq-generate"),
        ("hypotheses", "detokenised translations"),
        ("note", "a text, such as commit or hardware, to show with the run"),
    ):
        kind = "TEXT" if name == "note" else "FILE"
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar=f"LABEL={kind}", help=f"{what} of a run")
    parser.add_argument("--title", default="Translation runs", help="of the page")
    parser.add_argument("--sentence", type=int, metavar="N", help="whose attention is shown, from 1 (a short one)")
    parser.add_argument("--translations", type=int, default=200, metavar="N", help="how many are shown (200)")
    parser.add_argument("--samples", type=int, default=1000, metavar="N", help="of the paired bootstrap (1000)")
    parser.add_argument("--seed", type=int, default=12345, metavar="N", help="of the paired bootstrap (12345)")
    parser.add_argument("--json", metavar="FILE", help="the numbers, for programs")


def run(args: argparse.Namespace) -> None:
    """Reads the runs and writes the page.

    Raises:
        InputError: a folder without a run, a log without validations, runs over different test sets.
    """
    for name in ("translations", "samples"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name} {getattr(args, name)} is less than 1")
    runs = collect_runs(args)
    baseline = args.baseline or next(iter(runs))
    if baseline not in runs:
        raise InputError(f"--baseline {baseline!r} is no run; the runs are {', '.join(runs)}")
    logs = {label: read_log(own.log) if own.log else None for label, own in runs.items()}
    outputs = {label: read_generate(own.generate) for label, own in runs.items() if own.generate}
    test = None
    if outputs:
        if baseline not in outputs:
            raise InputError(f"the baseline {baseline!r} has no translations: give --generate {baseline}=FILE")
        texts = {label: own.hypotheses for label, own in runs.items() if own.hypotheses}
        references = Path(args.references) if args.references else None
        test = join_test_set(outputs, texts, references, Path(args.sources) if args.sources else None)
    models = load_models(runs, args.data_bin)
    parts: List[Section] = []
    result: Dict[str, Any] = {"title": args.title, "baseline": baseline}
    add_training(parts, result, runs, logs, models, args)
    if test is not None:
        add_scores(parts, result, test, baseline, args)
        add_attention(parts, result, outputs, models, args)
        parts.append(show_translations(test, baseline, args.translations))  # last: the longest by far
    write_file(args.output, page(args.title, parts))
    if args.json:
        write_json(args.json, result)
    print(f"{args.output}: {len(runs)} run{'s' if len(runs) > 1 else ''}, {Path(args.output).stat().st_size:,} bytes")


def collect_runs(args: argparse.Namespace) -> Dict[str, Run]:
    """The runs of ``--run``, with single files put in their places.

    Raises:
        InputError: no run in a folder, no such file, or a file for a run that is not there.
    """
    runs = {label: find_run(label, folder) for label, folder in parse_labelled(args.runs, "--run")}
    for name in ("log", "checkpoint", "generate", "hypotheses"):
        for label, path in parse_labelled(getattr(args, name), f"--{name}"):
            if label not in runs:
                raise InputError(f"--{name} {label}={path}: no run has this label; the runs are {', '.join(runs)}")
            if not path.is_file():
                raise InputError(f"no such file: {path} (--{name} {label})")
            setattr(runs[label], name, path)
    return runs


def load_models(runs: Dict[str, Run], data_bin: Optional[str]) -> Dict[str, TrainedModel]:
    """The models of the runs that have a checkpoint; none of them without ``--data-bin``."""
    if data_bin is None:
        return {}
    labels = [label for label, own in runs.items() if own.checkpoint]
    progress = tqdm(labels, desc="models", disable=None, leave=False)
    return {label: load_model(str(runs[label].checkpoint), data_bin) for label in progress}


def read_flags(run: Run, model: Optional[TrainedModel]) -> Dict[str, Any]:
    """The flags of a run from its checkpoint; empty where it has none."""
    if model is None and run.checkpoint is None:
        return {}
    flags: Any = model.flags if model else read_checkpoint_flags(str(run.checkpoint))
    own: Any = OmegaConf.to_container(flags) if OmegaConf.is_config(flags) else vars(flags)
    return {str(name): value for name, value in own.items() if not str(name).startswith("_") and name not in _HIDDEN}


def read_checkpoint_flags(path: str) -> Any:
    """The model's flags in a checkpoint.

    Raises:
        InputError: it is not one of fairseq's.
    """
    state = read_checkpoint(path)
    flags = (state.get("cfg") or {}).get("model") or state.get("args") if isinstance(state, dict) else None
    if flags is None:
        raise InputError(f"{path} is not a fairseq checkpoint (it lacks the model's flags): give one that is")
    return argparse.Namespace(**flags) if isinstance(flags, dict) else flags


def count_parameters(model: Any) -> Dict[str, int]:
    """Parameters by part; one that several parts share counts once, where it stands first."""
    counts = {"embeddings": 0, "encoder": 0, "decoder": 0}
    for name, parameter in model.named_parameters():
        part = "embeddings" if "embed" in name else "decoder" if name.startswith("decoder.") else "encoder"
        counts[part] += parameter.numel()
    return {**counts, "all": sum(counts.values())}


def add_training(
    parts: List[Section],
    result: Dict[str, Any],
    runs: Dict[str, Run],
    logs: Dict[str, Optional[TrainingLog]],
    models: Dict[str, TrainedModel],
    args: argparse.Namespace,
) -> None:
    """The sections of what ran and how it went."""
    notes = dict(word.partition("=")[::2] for word in args.note)
    infos: Dict[str, Dict[str, Any]] = {}
    for label, own in runs.items():
        log, flags = logs[label], read_flags(own, models.get(label))
        about = {"architecture": flags.get("arch", "–"), "seed": flags.get("seed", "–")}
        about["task"] = flags.get("task", "–")
        if log is not None:
            best = min(log.valid, key=lambda values: values.get("loss", 0.0))
            about["best validation"] = f"perplexity {best.get('ppl', 0):g} at update {best['update']:,}"
            about["parameters"] = f"{log.parameters:,}" if log.parameters else "–"
        files = (own.log, own.checkpoint, own.generate, own.hypotheses)
        about["files read"] = ", ".join(path.name for path in files if path)
        if args.note:
            about["note"] = notes.get(label, "–")
        infos[label] = {"about": about, "flags": flags}
    parameters = {label: count_parameters(own.model) for label, own in models.items()}
    parts.append(sections.runs_section(infos, made_with()))
    if parameters or any(logs.values()):
        parts.append(sections.speed_section(logs, parameters))
    if any(logs.values()):
        parts.append(sections.curves_section(logs))
    result["runs"] = {
        label: {
            **{name: str(value) for name, value in infos[label]["about"].items()},
            "parameters": parameters.get(label),
            "log": vars(log) if (log := logs[label]) else None,
        }
        for label in runs
    }


def made_with() -> str:
    """The versions that made the page; a training's own are not in its log."""
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Python {platform.python_version()}, {', '.join(found)}; the logs do not say what the training ran with"


def add_scores(
    parts: List[Section], result: Dict[str, Any], test: TestSet, baseline: str, args: argparse.Namespace
) -> None:
    """The sections of scores, over all and by length."""
    scores = score(test, baseline, args.samples, args.seed)
    groups = by_length(test)
    result.update(scores=scores, lengths=groups, tokenised=test.tokenised)
    parts.append(sections.scores_section(scores, test, baseline, args.samples, args.seed))
    parts.append(sections.lengths_section(groups, baseline))


def show_translations(test: TestSet, baseline: str, count: int) -> Section:
    """The section of ``count`` translations."""
    single = {
        label: sentence_scores(own, test.references)
        for label, own in tqdm(test.hypotheses.items(), desc="sentences", disable=None, leave=False)
    }
    return sections.translations_section(test, single, baseline, choose_sentences(single, baseline, count))


def choose_sentences(scores: Dict[str, List[float]], baseline: str, count: int) -> List[int]:
    """The lines on which the runs differ most from the baseline, in order; of a single run, its worst."""
    base = scores[baseline]

    def interest(line: int) -> float:
        if len(scores) == 1:
            return -base[line]
        return max(abs(own[line] - base[line]) for own in scores.values())

    return sorted(sorted(range(len(base)), key=interest, reverse=True)[:count])


def add_attention(
    parts: List[Section],
    result: Dict[str, Any],
    outputs: Dict[str, Dict[int, Translation]],
    models: Dict[str, TrainedModel],
    args: argparse.Namespace,
) -> None:
    """The section of attention, where models are at hand."""
    shown = [label for label in outputs if label in models]
    if not shown:
        return
    lengths = {index: len(own.source.split()) for index, own in outputs[shown[0]].items()}
    if args.sentence is not None and args.sentence - 1 not in lengths:
        raise InputError(f"--sentence {args.sentence} is not one of 1 to {len(lengths)}")
    # By default one that fits on a screen: of the sentences with twelve pieces or the next count to it, the first.
    chosen = min(lengths, key=lambda index: (abs(lengths[index] - 12), index))
    sentence = chosen if args.sentence is None else args.sentence - 1
    maps: Dict[str, AttentionMaps] = {}
    for label in shown:
        own = outputs[label][sentence]
        maps[label] = attention_maps(models[label], own.source.split(), own.hypothesis.split())
    parts.append(sections.attention_section(sentence, maps))
    result["attention"] = {"sentence": sentence + 1, **{label: vars(own) for label, own in maps.items()}}
