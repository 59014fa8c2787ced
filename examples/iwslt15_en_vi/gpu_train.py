"""One training within a limit of time, with translation, scores and checks inside: the ``train`` mode of gpu.sh.

    python examples/iwslt15_en_vi/gpu_train.py --data prepared --output OUT --arch informer_mt -- --max-tokens 4096

What stands behind ``--`` goes to fairseq-train. All of fairseq's commands run in this one process: starting each anew
would take a minute of the few. Refused before any work: no data-bin, an unknown architecture, sources over the
encoder's length, a folder with another run. OUT then has train.log, the translations, and last summary.json and
summary.txt; the exit status is 1 if a check failed.
"""

import argparse
import gc
import logging
import math
import resource
import shutil
import statistics
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from fairseq import checkpoint_utils, options  # noqa: E402
from fairseq.data import data_utils  # noqa: E402
from fairseq.dataclass.utils import convert_namespace_to_omegaconf  # noqa: E402
from fairseq.models import ARCH_MODEL_REGISTRY  # noqa: E402
from fairseq.models.transformer import DEFAULT_MAX_SOURCE_POSITIONS  # noqa: E402
from fairseq_cli import generate, train  # noqa: E402
from gpu_report import check_training, read_log, report  # noqa: E402

import informer_fairseq  # noqa: E402, F401  (registers the architectures)
import preprocess.files as text_files  # noqa: E402
from benchmarks.checks import checked  # noqa: E402
from benchmarks.machine import environment  # noqa: E402
from benchmarks.peak_memory import PeakMemory  # noqa: E402
from informer_fairseq.config import is_position_bound  # noqa: E402
from informer_fairseq.errors import InputError, one_line_message  # noqa: E402
from informer_fairseq.tools import perplexity, scoring  # noqa: E402
from informer_fairseq.tools.files import write_file, write_json  # noqa: E402
from informer_fairseq.tools.text_kinds import ORDINARY, PIECE_MARK, join_pieces, kind_of, line_detokenizer  # noqa: E402
from preprocess.hypotheses import read_hypotheses  # noqa: E402
from preprocess.segmenters import RESTORE, assert_pairing, read_metadata  # noqa: E402

FLAGS = {"bf16": ["--bf16"], "fp16": ["--fp16"], "fp32": []}
# Bits a token by which a reloaded checkpoint may differ from its last validation: the log has three digits; and
# a model trained in half precision is run in fp32 again.
RELOAD_LIMITS = {"bf16": 0.02, "fp16": 0.02, "fp32": 0.001}


# ------------------------------------------------------------------------------------------------------------ the data
class Corpus(NamedTuple):
    """A data-bin, and the folder of preprocess/prepare.sh around it, if there is one."""

    data: Path
    prepared: Optional[Path]
    source: str
    target: str
    lines: Dict[str, int]  # of the sets to translate: test, where there is one, and valid


def sizes_of(prefix: Path) -> np.ndarray:
    """How many pieces each sentence of a binarized side has, ``</s>`` included."""
    text = data_utils.load_indexed_dataset(str(prefix), None)
    return np.array(text.sizes)  # a copy: the array itself lies in the file, which ends with the object


def find_corpus(path: str) -> Corpus:
    """Finds what ``path`` holds: a data-bin, or the folder that preprocess/prepare.sh made.

    Raises:
        InputError: it holds neither, or a part is missing.
    """
    folder = Path(path)
    data = folder / "data-bin" if (folder / "data-bin").is_dir() else folder
    training = sorted(data.glob("train.*-*.*.idx"))
    if not training or not list(data.glob("dict.*.txt")):
        raise InputError(
            f"no data-bin at {path}: it has no train.*.idx and dict.*.txt, nor a folder data-bin with them; give what "
            "preprocess/prepare.sh or fairseq-preprocess wrote"
        )
    source, target = training[0].name.split(".")[1].split("-")
    lines = {}
    for split in ("test", "valid"):
        prefix = data / f"{split}.{source}-{target}.{source}"
        if Path(f"{prefix}.idx").is_file():
            lines[split] = len(sizes_of(prefix))
    if "valid" not in lines:
        raise InputError(f"{data} has no validation set (valid.{source}-{target}.{source}.idx): binarize one as well")
    prepared: Optional[Path] = data.resolve().parent
    assert prepared is not None
    if not all(found.exists() for found in (prepared / "segmented/model", prepared / "clean")):
        return Corpus(data, None, source, target, lines)
    for split, count in lines.items():
        for language in (source, target):
            text = prepared / "clean" / f"{split}.{language}"
            found = len(text_files.read_lines(text))
            if found != count:
                raise InputError(
                    f"{text} has {found} lines, the binarized {split} {count}: run preprocess/prepare.sh again"
                )
    return Corpus(data, prepared, source, target, lines)


def check_lengths(corpus: Corpus, flags: argparse.Namespace) -> None:
    """Refuses sources that the encoder cannot read, which fairseq-generate would do after the training.

    Raises:
        InputError: a source of the validation or the test set is longer.
    """
    mixers = [getattr(flags, f"encoder_{kind}_mixer", None) for kind in ("token", "channel")]
    limit = getattr(flags, "max_source_positions", None) or DEFAULT_MAX_SOURCE_POSITIONS
    if None not in mixers and is_position_bound(*mixers):
        limit = min(limit, flags.encoder_fixed_length)
    for split in corpus.lines:
        prefix = corpus.data / f"{split}.{corpus.source}-{corpus.target}.{corpus.source}"
        sizes = sizes_of(prefix)
        over = int((sizes > limit).sum())
        if over:
            raise InputError(
                f"{split}: {over} of {len(sizes)} sources exceed the encoder's limit of {limit} positions, the longest "
                f"has {int(sizes.max())} with </s>: split them, or raise n (FIXED_LENGTH={int(sizes.max())} or more)"
            )


# -------------------------------------------------------------------------------------------------------- the training
def training_flags(args: argparse.Namespace, corpus: Corpus, precision: str) -> argparse.Namespace:
    """fairseq-train's flags, all but the limit of time.

    Raises:
        InputError: no such architecture.
    """
    if args.arch not in ARCH_MODEL_REGISTRY:
        ours = sorted(name for name in ARCH_MODEL_REGISTRY if name.endswith("_mt") or name == "ni_transformer")
        raise InputError(
            f"no architecture {args.arch!r}: the plugin's are {', '.join(ours)}, each also as NAME_tiny, and fairseq's "
            "transformer is its baseline"
        )
    words = [str(corpus.data), "--task", "translation", "-s", corpus.source, "-t", corpus.target, "--arch", args.arch]
    words += ["--criterion", "chunked_label_smoothed_cross_entropy", "--label-smoothing", "0.1", "--optimizer", "adam"]
    words += ["--adam-betas", "(0.9, 0.98)", "--lr-scheduler", "inverse_sqrt", "--required-batch-size-multiple", "1"]
    dictionaries = [(corpus.data / f"dict.{language}.txt").read_bytes() for language in (corpus.source, corpus.target)]
    if dictionaries[0] == dictionaries[1]:
        words.append("--share-all-embeddings")
    # fairseq saves at the end, and every --save-interval epochs before: the last and, where it is the best, that too.
    words += ["--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "50"]
    # By default fairseq counts the machine's GPUs, and expects that its command line has started a process for each.
    words += ["--distributed-world-size", "1"]
    words += ["--num-workers", "0" if args.device == "cpu" else "4", *FLAGS[precision], *args.options]
    words += ["--save-dir", str(Path(args.checkpoints or Path(args.output) / "checkpoints"))]
    if args.device == "cpu":
        words.append("--cpu")
    return options.parse_args_and_arch(options.get_training_parser(), words)


def choose_precision(precision: str, device: str) -> str:
    """``auto``: bf16 where the GPU computes in it, else fp16; fp32 on a CPU."""
    if precision != "auto":
        return precision
    if device == "cpu":
        return "fp32"
    # Emulated, as on GPUs before Ampere, it is slower than fp32.
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


@contextmanager
def log_into(path: Path) -> Iterator[None]:
    """Writes the log to a file as well.

    fairseq's own --log-file opens the file anew in every epoch and writes each line once for every epoch before it.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.setLevel(min(level, logging.INFO))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()


def run_training(flags: argparse.Namespace, log: Path) -> Tuple[int, float]:
    """Trains; returns the peak of memory (of the GPU's allocator, or of the process on a CPU) and seconds."""
    # What fairseq keeps on its functions is a process's best loss: there may be one from before.
    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):
        vars(function).clear()
    start = time.time()
    with log_into(log):
        if flags.cpu:
            train.main(convert_namespace_to_omegaconf(flags))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        else:
            with PeakMemory() as record:
                train.main(convert_namespace_to_omegaconf(flags))
            peak = record.bytes
    gc.collect()  # the trainer, whose memory the translation may need
    if not flags.cpu:
        torch.cuda.empty_cache()
    return peak, time.time() - start


# ------------------------------------------------------------------------------------- translation and scores
def translate(args: argparse.Namespace, corpus: Corpus, model: Path, split: str) -> Path:
    """fairseq-generate's output on one set, whole or not at all."""
    output = Path(args.output)
    partial = output / ".translating"
    shutil.rmtree(partial, ignore_errors=True)
    words = [str(corpus.data), "--task", "translation", "-s", corpus.source, "-t", corpus.target, "--path", str(model)]
    words += ["--gen-subset", split, "--nbest", "1", "--beam", str(args.beam), "--batch-size", str(args.batch_size)]
    words += ["--required-batch-size-multiple", "1", "--results-path", str(partial), "--no-progress-bar"]
    words += ["--max-len-a", "1", "--max-len-b", "50"]  # what a model of minutes does not end would take their rest
    words += ["--distributed-world-size", "1"]  # of several GPUs, fairseq would give each a share of the sentences
    words += ["--cpu", "--num-workers", "0"] if args.device == "cpu" else []
    flags = options.parse_args_and_arch(options.get_generation_parser(), words)
    logger = logging.getLogger("fairseq_cli.generate")
    level = logger.level
    logger.setLevel(logging.WARNING)  # it prints its whole configuration
    try:
        generate.main(flags)
        (partial / f"generate-{split}.txt").replace(output / f"{split}.generate")
    finally:
        logger.setLevel(level)
        shutil.rmtree(partial, ignore_errors=True)
    return output / f"{split}.generate"


def read_translations(corpus: Corpus, split: str, output: Path) -> Tuple[List[str], List[str], bool]:
    """Hypotheses and references in words, and whether they are tokens; Raises an error unless one came for each line.

    With the texts of preprocess/prepare.sh: ordinary text against the corpus' own (detokenised by the same tool where
    the corpus is tokenised). With a data-bin alone: the T-lines, pieces joined, as tokens.
    """
    lines = text_files.read_lines(output)
    hypotheses = read_hypotheses(lines, corpus.lines[split], str(output))
    if corpus.prepared is not None:
        method = read_metadata(corpus.prepared / "segmented/model")["method"]
        assert_pairing(method, hypotheses, str(output))
        detokenize = line_detokenizer(corpus.target)
        references = text_files.read_lines(corpus.prepared / "clean" / f"{split}.{corpus.target}")
        if not (corpus.prepared / "tokenized").exists():
            references = list(map(detokenize, references))
        return [detokenize(RESTORE[method](line)) for line in hypotheses], references, False
    targets = {int(line[2:].split("\t")[0]): line.partition("\t")[2] for line in lines if line.startswith("T-")}
    references = [targets[number] for number in range(corpus.lines[split])]
    pieces = "sentencepiece" if any(PIECE_MARK in line for line in references) else "subword_nmt"
    if pieces == "sentencepiece" and not any(PIECE_MARK in line for line in hypotheses):
        pieces = "subword_nmt"  # a model that has learned nothing yet may write no mark
    references, hypotheses = (list(join_pieces(text, pieces, str(output))) for text in (references, hypotheses))
    return hypotheses, references, kind_of(references) != ORDINARY


def score_set(corpus: Corpus, split: str, output: Path) -> Dict[str, Any]:
    """Writes the hypotheses and scores them with sacrebleu; every score has its signature."""
    hypotheses, references, tokenised = read_translations(corpus, split, output)
    write_file(output.with_suffix(f".{corpus.target}"), "".join(f"{line}\n" for line in hypotheses))
    found = scoring.score(scoring.build_measures([references], tokenised), hypotheses)
    text = "tokenised" if tokenised else "ordinary text"
    empty = sum(not line.strip() for line in hypotheses)
    return {"text": text, "hypotheses": len(hypotheses), "empty": empty, "scores": found}


# ---------------------------------------------------------------------------------------------------------------- main
def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", required=True, metavar="FOLDER", help="a data-bin, or what preprocess/prepare.sh made"
    )
    parser.add_argument("--output", required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument("--arch", required=True, help="any architecture of the plugin, or of fairseq")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument(
        "--precision", default="auto", choices=("auto", *FLAGS), help="bf16 where the GPU has it (auto)"
    )
    parser.add_argument("--minutes", type=float, default=10, help="for everything, the start included (10)")
    parser.add_argument("--reserve", type=float, default=120, metavar="SECONDS", help="for what follows training (120)")
    parser.add_argument("--started", type=float, help="when the minutes began, in seconds since 1970 (now)")
    parser.add_argument("--checkpoints", metavar="FOLDER", help="for the checkpoints (OUTPUT/checkpoints)")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256, help="sentences a batch in translation (256)")
    parser.add_argument("options", nargs="*", metavar="-- OPTION", help="of fairseq-train")
    return parser


def run(args: argparse.Namespace) -> int:
    """Everything; returns the exit status."""
    started = time.time() if args.started is None else args.started
    output = Path(args.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} is not an empty folder: give a new one, or remove it")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch finds no GPU: use CPU=1, or a torch built for this machine's driver")
    corpus = find_corpus(args.data)
    precision = choose_precision(args.precision, args.device)
    flags = training_flags(args, corpus, precision)
    check_lengths(corpus, flags)
    left = args.minutes * 60 - args.reserve - (time.time() - started)
    if left <= 0:
        raise InputError(
            f"{args.minutes:g} minutes leave no time to train: {time.time() - started:.0f} s are over and "
            f"{args.reserve:g} are for what follows; raise MINUTES, or lower RESERVE"
        )
    flags.stop_time_hours = left / 3600
    output.mkdir(parents=True, exist_ok=True)
    begun = time.time()
    peak, seconds = run_training(flags, output / "train.log")
    log = read_log(text_files.read_lines(output / "train.log"))
    types = len((corpus.data / f"dict.{corpus.target}.txt").read_text(encoding="utf-8").splitlines()) + 4
    checks = check_training(log, types)
    best, last = (Path(flags.save_dir) / f"checkpoint_{name}.pt" for name in ("best", "last"))

    def reloaded() -> float:
        found = perplexity.from_checkpoint(str(last), str(corpus.data), "valid", 4000)["bits"]
        return abs(found - log.validations[-1])

    name = f"checkpoint_last.pt loaded again: bits a token on valid, from the log's {log.validations[-1:]}"
    checks.append(checked(name, RELOAD_LIMITS[precision], reloaded))
    clock = {"start": begun - started, "training": seconds, "reload": time.time() - begun - seconds}
    sets: Dict[str, Any] = {}
    for split, count in corpus.lines.items():
        before = time.time()

        def missing(split: str = split, count: int = count) -> float:
            sets[split] = score_set(corpus, split, translate(args, corpus, best, split))
            return count - sets[split]["hypotheses"]

        checks.append(checked(f"{split}: lines of {count} without a hypothesis", 0, missing))
        clock[f"translating {split}"] = time.time() - before
    clock["all"] = time.time() - started
    checks.append(checked(f"seconds, of {args.minutes * 60:.0f}", args.minutes * 60, lambda: clock["all"]))
    summary = {
        "title": f"{args.arch}, {precision} on {args.device}, seed {flags.seed}, beam {args.beam}, {corpus.source}-"
        f"{corpus.target}, {args.minutes:g} minutes",
        "environment": environment(torch.device(args.device), torch.get_num_threads()),
        "options": args.options,
        "parameters": log.parameters,
        "checkpoint_bytes": best.stat().st_size if best.exists() else 0,
        "peak_memory_bytes": peak,
        "peak_memory_of": "the process" if args.device == "cpu" else "torch's allocator on the GPU",
        "updates": log.updates,
        "epochs": log.epochs,
        "target_tokens": round(log.tokens),
        "target_tokens_per_second": statistics.median(log.speeds) if log.speeds else 0.0,
        "losses": [loss if math.isfinite(loss) else None for loss in log.losses],
        "gradient_overflows": log.overflows,
        "validation_bits": [bits if math.isfinite(bits) else None for bits in log.validations],
        "seconds": clock,
        "sets": sets,
        "checks": [check.values() for check in checks],
    }
    text = report(summary, checks)
    write_json(output / "summary.json", summary)
    write_file(output / "summary.txt", text)
    print(f"\n{text}", end="")
    return int(any(not check.held for check in checks))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Reads the command line; what its user can mend ends in one line and status 2."""
    args = build_parser().parse_args(argv)
    try:
        return run(args)
    except Exception as error:
        message = str(error) if isinstance(error, text_files.InputError) else one_line_message(error)
        if message is None:
            raise
        print(f"gpu.sh: error: {message}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
