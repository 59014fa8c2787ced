"""What a report says of a run: read from its folder's log, checkpoint and translations, scored by sacrebleu."""

import json
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from sacrebleu.metrics import CHRF

from informer_fairseq.errors import InputError
from informer_fairseq.tools import scoring
from informer_fairseq.tools.files import read_lines

LENGTHS = (5, 10, 15, 20, 30, 50)  # the most words of the source in each group but the last


@dataclass
class Run:
    """One run, as far as its files tell.

    Attributes:
        label: its name in the report.
        log: the training log, or None.
        checkpoint: the model, or None.
        generate: ``fairseq-generate``'s output, or None.
        hypotheses: detokenised translations, one a line, or None.
    """

    label: str
    log: Optional[Path] = None
    checkpoint: Optional[Path] = None
    generate: Optional[Path] = None
    hypotheses: Optional[Path] = None


@dataclass
class TrainingLog:
    """What a training log says.

    Attributes:
        valid: the validations in order: epoch, update, ppl and bleu where logged.
        speed: target tokens a second, of the slowest, the median and the fastest epoch.
        wall: seconds of all parts of the training together.
        updates: the last update.
        parameters: fairseq's own count.
        devices: the names of the GPUs; empty where the log names none.
    """

    valid: List[Dict[str, float]] = field(default_factory=list)
    speed: Tuple[float, ...] = ()
    wall: float = 0.0
    updates: int = 0
    parameters: Optional[int] = None
    devices: List[str] = field(default_factory=list)
    peak_memory: Optional[float] = None
    device_memory: float = 0.0


@dataclass
class Translation:
    """One sentence as ``fairseq-generate`` printed it, in pieces."""

    source: str
    reference: str
    hypothesis: str


def find_run(label: str, folder: Path) -> Run:
    """The files of a run in the layout that the recipes write.

    Raises:
        InputError: no such folder, nothing of a run in it, or several outputs of ``fairseq-generate``.
    """
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}; --run takes LABEL=FOLDER")
    run = Run(label)
    run.log = _first(folder / "train.log")
    names = ("averaged.pt", "checkpoints/checkpoint_best.pt", "checkpoints/checkpoint_last.pt")
    run.checkpoint = _first(*(folder / name for name in names))
    outputs = sorted(folder.glob("*.generate"))
    if len(outputs) > 1:
        listed = ", ".join(path.name for path in outputs)
        raise InputError(f"{folder} has several test sets ({listed}): choose one with --generate {label}=FILE")
    if outputs:
        run.generate = outputs[0]
        beside = [path for path in sorted(folder.glob(f"{outputs[0].stem}.*")) if re.fullmatch(r"\.\w\w", path.suffix)]
        run.hypotheses = beside[0] if beside else None
    if not any((run.log, run.checkpoint, run.generate)):
        raise InputError(f"no run in {folder}: expected train.log, averaged.pt or checkpoints, or test.generate")
    return run


def _first(*paths: Path) -> Optional[Path]:
    return next((path for path in paths if path.is_file()), None)


def _fields(line: str) -> Tuple[str, Dict[str, Any]]:
    """``train`` or ``valid`` and the numbers of one line that sums up an epoch; an empty name for other lines.

    What fairseq prints has a date and a name before it, what ``--log-file`` keeps has neither.
    """
    text = re.sub(r"^.*? \| INFO \| \w+ \| ", "", line).strip()
    if text.startswith("{"):
        try:
            logged = json.loads(text)
        except ValueError:
            return "", {}
        for kind in ("valid", "train"):
            if f"{kind}_loss" in logged and "epoch" in logged:
                return kind, {str(name).removeprefix(f"{kind}_"): value for name, value in logged.items()}
        return "", {}
    if not re.match(r"epoch \d+ \| ", text):
        return "", {}
    kind = "valid" if " | valid on " in text else "train"
    values = {}
    for part in text.split(" | "):
        name, _, value = part.rpartition(" ")
        values[name.strip()] = value
    if subset := re.search(r"valid on '(.+?)' subset", text):
        values["subset"] = subset.group(1)
    return kind, values


def _number(value: Any) -> Optional[float]:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def read_log(path: Path) -> TrainingLog:
    """Reads a training log; the parts of a resumed one are joined by update, the last word counting.

    Raises:
        InputError: there is no validation in it.
    """
    log = TrainingLog()
    valid: Dict[int, Dict[str, float]] = {}
    speed: Dict[int, float] = {}
    subset: Optional[str] = None
    wall, total = 0.0, 0.0
    for line in read_lines(path):
        kind, values = _fields(line)
        numbers = {name: number for name, value in values.items() if (number := _number(value)) is not None}
        update = int(numbers.get("num_updates", 0))
        if kind == "valid" and subset in (None, values.get("subset")):  # of several validation sets, the first
            subset = values.get("subset")
            valid[update] = {
                "update": update,
                **{n: numbers[n] for n in ("epoch", "loss", "ppl", "bleu") if n in numbers},
            }
        elif kind == "train" and "wps" in numbers:
            speed[update] = numbers["wps"]
            log.updates = max(log.updates, update)
            if numbers.get("wall", 0.0) < wall:  # a resumed training counts from zero
                total += wall
            wall = numbers.get("wall", 0.0)
        _read_machine(line, numbers, log)
    if not valid:
        raise InputError(f"{path} has no validation: give the log of a training, in the format simple or json")
    log.valid = [valid[update] for update in sorted(valid)]
    log.wall = total + wall
    ordered = sorted(speed.values())
    log.speed = (ordered[0], ordered[len(ordered) // 2], ordered[-1]) if ordered else ()
    return log


def _read_machine(line: str, numbers: Dict[str, float], log: TrainingLog) -> None:
    if found := re.search(r"num\. shared model params: ([\d,]+)", line):
        log.parameters = int(found.group(1).replace(",", ""))
    if found := re.search(r"total memory = ([\d.]+) GB ; name = (.+?)\s*$", line):
        log.devices.append(found.group(2))
        log.device_memory = float(found.group(1))
    if "gb_free" in numbers and log.device_memory:
        log.peak_memory = max(log.peak_memory or 0.0, log.device_memory - numbers["gb_free"])


def read_generate(path: Path) -> Dict[int, Translation]:
    """The sentences of ``fairseq-generate``'s output by id.

    Raises:
        InputError: it holds none, one comes twice, or one lacks source or hypothesis.
    """
    parts: Dict[int, Dict[str, str]] = {}
    for number, line in enumerate(read_lines(path), 1):
        found = re.match(r"([STH])-(\d+)\t(.*)", line)
        if not found:
            continue
        kind, index, rest = found.group(1), int(found.group(2)), found.group(3)
        own = parts.setdefault(index, {})
        if kind in own:
            raise InputError(f"{path}, line {number}: a second {kind}-{index}; generate with --nbest 1 into a new file")
        own[kind] = rest.split("\t", 1)[-1] if kind == "H" and "\t" in rest else "" if kind == "H" else rest
    if not parts:
        raise InputError(f"{path} has no translations (lines S-0, T-0, H-0): give what fairseq-generate printed")
    for index, own in parts.items():
        if "H" not in own or "S" not in own:
            raise InputError(
                f"{path}: sentence {index} has no {'H' if 'H' not in own else 'S'} line; generate it again"
            )
    return {i: Translation(own["S"], own.get("T", ""), own["H"]) for i, own in sorted(parts.items())}


def join_pieces(text: str) -> str:
    """Words out of the pieces of BPE or sentencepiece; text of words stays as it is."""
    if "\u2581" in text:
        return text.replace(" ", "").replace("\u2581", " ").strip()
    return (text + " ").replace("@@ ", "").strip()


@dataclass
class TestSet:
    """What all runs translated, and their translations.

    Attributes:
        sources: by line, as text.
        references: likewise.
        hypotheses: the translations of each run, by its label.
        tokenised: whether these are words of the training data, and not ordinary text.
    """

    sources: List[str]
    references: List[str]
    hypotheses: Dict[str, List[str]]
    tokenised: bool


def join_test_set(
    outputs: Dict[str, Dict[int, Translation]],
    texts: Dict[str, Path],
    references: Optional[Path] = None,
    sources: Optional[Path] = None,
) -> TestSet:
    """Lines up the translations of all runs.

    Args:
        outputs: of ``fairseq-generate``, by run.
        texts: detokenised translations, by run.
        references: ordinary text; without it, the words of the training data are compared.
        sources: ordinary text; without it, as for the references.

    Raises:
        InputError: two runs translated different sets, or a file has another number of lines.
    """
    first = next(iter(outputs))
    for label, own in outputs.items():
        for index in outputs[first].keys() | own.keys():
            ours, theirs = outputs[first].get(index), own.get(index)
            if ours is None or theirs is None or join_pieces(ours.source) != join_pieces(theirs.source):
                raise InputError(
                    f"{first} and {label} translated different test sets (sentence {index} differs): compare runs over "
                    "the same one"
                )
    order = list(outputs[first])
    if order != list(range(len(order))):
        missing = next(index for index, found in enumerate([*order, -1]) if index != found)
        raise InputError(f"{first} has no translation of sentence {missing}: translate the whole test set")
    tokenised = references is None
    hypotheses = {label: [join_pieces(own[index].hypothesis) for index in order] for label, own in outputs.items()}
    lines = [join_pieces(outputs[first][index].reference) for index in order]
    if references is not None:
        lacking = [label for label in outputs if label not in texts]
        if lacking:
            raise InputError(
                f"{lacking[0]} has no detokenised translations for --references: give --hypotheses {lacking[0]}=FILE"
            )
        lines = _read_parallel(references, len(order))
        hypotheses = {label: _read_parallel(texts[label], len(order)) for label in outputs}
    elif not all(lines):
        raise InputError("fairseq-generate's output has no references (T lines): give --references FILE")
    source_lines = [join_pieces(outputs[first][index].source) for index in order]
    if sources is not None:
        source_lines = _read_parallel(sources, len(order))
    return TestSet(source_lines, lines, hypotheses, tokenised)


def _read_parallel(path: Path, count: int) -> List[str]:
    lines = read_lines(path)
    if len(lines) != count:
        raise InputError(
            f"{path} has {len(lines)} lines, the translations have {count}: give the text of this test set"
        )
    return lines


def score(test: TestSet, baseline: str, samples: int, seed: int) -> Dict[str, Any]:
    """BLEU and chrF of every run, and the paired bootstrap against the baseline.

    Returns:
        ``signatures`` by metric, and ``runs``: by label and metric the score, its 95 % interval's half width and the
        p-value (None for the baseline, and where it is the only run).
    """
    built = scoring.build_measures([test.references], test.tokenised)
    measures = {"BLEU": built["BLEU"], "chrF": built["chrF2"]}
    labels = [baseline, *(label for label in test.hypotheses if label != baseline)]
    if len(labels) == 1:
        alone = scoring.score(measures, test.hypotheses[baseline])
        found = {name: {"score": values["score"], "interval": None, "p": None} for name, values in alone.items()}
        signatures = {name: values["signature"] for name, values in alone.items()}
        return {"signatures": signatures, "runs": {baseline: found}}
    with _sacrebleu_seed(seed):
        tested = scoring.compare(measures, [(label, test.hypotheses[label]) for label in labels], "bs", samples)
    runs: Dict[str, Dict[str, Any]] = {label: {} for label in labels}
    for name, values in tested.items():
        for label, result in values["systems"].items():
            runs[label][name] = {"score": result["score"], "interval": result["ci"], "p": result["p_value"]}
    return {"signatures": {name: values["signature"] for name, values in tested.items()}, "runs": runs}


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Sets the seed of sacrebleu's tests, for which it has an environment variable alone."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def by_length(test: TestSet) -> List[Dict[str, Any]]:
    """BLEU of every run in groups of like source length, in words between spaces; empty groups are left out."""
    groups = scoring.group_by_length(test.sources, LENGTHS)
    scores = {
        label: scoring.score_groups(groups, lines, [test.references], test.tokenised)
        for label, lines in test.hypotheses.items()
    }
    edges = [(low + 1, high) for low, high in zip((0, *LENGTHS), (*LENGTHS, None))]
    return [
        {"from": low, "to": high, "count": len(members), "BLEU": {label: own[n] for label, own in scores.items()}}
        for n, ((low, high), (_, members)) in enumerate(zip(edges, groups))
        if members
    ]


def sentence_scores(hypotheses: Sequence[str], references: Sequence[str]) -> List[float]:
    """chrF of each sentence alone; unlike BLEU it is not zero for want of one common run of four words."""
    metric = CHRF()
    return [metric.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, references)]
