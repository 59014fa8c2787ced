"""Whole training steps of fairseq's own trainer: model, loss, backward, gradient norm, Adam."""

import gc
import json
import logging
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch

from benchmarks.peak_memory import PeakMemory
from benchmarks.rows import Row, counted_row, timed_rows
from benchmarks.side_by_side import interleave

STOCK, PLAIN, CHUNKED = "transformer", "label_smoothed_cross_entropy", "chunked_label_smoothed_cross_entropy"
ARCHS = ("linformer_mt", "conv_linformer_mt", "informer_mt", "linformer_informer_mt", "ni_transformer")


class Setting(NamedTuple):
    """A size of model and batch: types of both sides, B sentences of T positions on either side."""

    name: str
    source_types: int
    target_types: int
    batch: int
    length: int
    tiny: bool


SETTINGS = {
    # The paper's kind of vocabulary; and a batch of Multi30k with a joint BPE of 10,000 merges.
    "table3": Setting("Table 3's sizes, 17,191 and 7,709 types, 40 x 50", 17191, 7709, 40, 50, False),
    "multi30k": Setting("tiny, 9,696 types, 253 x 15 as in Multi30k", 9696, 9696, 253, 15, True),
    # A batch that fills a GPU.
    "table3-large": Setting("Table 3's sizes, 17,191 and 7,709 types, 320 x 50", 17191, 7709, 320, 50, False),
    "small": Setting("tiny, 500 types, 8 x 10 (to see that it works)", 500, 500, 8, 10, True),
}
TINY = {"layers": 4, "embed-dim": 128, "ffn-embed-dim": 256, "attention-heads": 4}
# informer_mt with the chunked loss against stock with its own; ni_transformer's cost is promised in ni_speed.
LIMITS = {"table3": 1.20, "multi30k": 1.35}


def build_trainer(setting: Setting, arch: str, criterion: str, options: Sequence[str], cpu: bool) -> Any:
    """fairseq's trainer for one system, made from fairseq-train's own flags."""
    from fairseq import options as fairseq_options
    from fairseq import tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")  # of hydra and torch, about fairseq
    words = ["--arch", arch, "--criterion", criterion, "--label-smoothing", "0.1", "--dropout", "0.1"]
    words += ["--task", "translation", "-s", "en", "-t", "de", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
    words += ["--lr", "1e-4", "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4000", "--max-tokens", "4096"]
    words += ["--distributed-world-size", "1"]  # fairseq counts the machine's GPUs and expects a process for each
    if setting.tiny:
        words += ["--share-decoder-input-output-embed"]
        if arch == STOCK:
            for side in ("encoder", "decoder"):
                for name, value in TINY.items():
                    words += [f"--{side}-{name}", str(value)]
        else:
            words[1] += "_tiny"
    with tempfile.TemporaryDirectory() as folder:
        for language, types in (("en", setting.source_types), ("de", setting.target_types)):
            lines = "".join(f"w{number} 1\n" for number in range(types - 4))
            Path(folder, f"dict.{language}.txt").write_text(lines, encoding="utf-8")
        parser = fairseq_options.get_training_parser()
        args = fairseq_options.parse_args_and_arch(parser, [folder, *words, *(["--cpu"] if cpu else []), *options])
        cfg = convert_namespace_to_omegaconf(args)
        task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def build_sample(setting: Setting) -> Dict[str, Any]:
    """A batch without padding."""
    generator = torch.Generator().manual_seed(1)
    shape = (setting.batch, setting.length)
    source = torch.randint(4, setting.source_types, shape, generator=generator)
    target = torch.randint(4, setting.target_types, shape, generator=generator)
    source[:, -1] = target[:, -1] = 2
    inputs = {
        "src_tokens": source,
        "src_lengths": torch.full((setting.batch,), setting.length),
        "prev_output_tokens": target.roll(1, dims=1),
    }
    return {
        "id": torch.arange(setting.batch),
        "nsentences": setting.batch,
        "ntokens": target.numel(),
        "net_input": inputs,
        "target": target,
    }


def systems(archs: Sequence[str]) -> Dict[str, Tuple[str, str]]:
    """Names of the table -> architecture and criterion."""
    named = {"stock, own loss": (STOCK, PLAIN), "stock, chunked loss": (STOCK, CHUNKED)}
    named.update({f"{arch}, chunked loss": (arch, CHUNKED) for arch in archs})
    return named


def measure(key: str, rounds: int, archs: Sequence[str], cpu: bool, options: Sequence[str] = ()) -> List[Row]:
    """Times as fast as stock with its own loss; ``options`` of fairseq-train are given to all systems."""
    setting, sample = SETTINGS[key], build_sample(SETTINGS[key])
    trainers = {name: build_trainer(setting, *system, options, cpu) for name, system in systems(archs).items()}
    runs = {name: lambda trainer=trainer: trainer.train_step([sample]) for name, trainer in trainers.items()}
    limits = {"informer_mt, chunked loss": LIMITS[key]} if key in LIMITS else {}
    times = interleave(runs, rounds)
    job = "Training step: times as fast as stock with its own loss"
    return timed_rows(job, " ".join([setting.name, *options]), times, "stock, own loss", limits)


def measure_bf16(key: str, rounds: int, archs: Sequence[str], cpu: bool) -> List[Row]:
    """``--bf16``: times as fast as the same architecture in fp32."""
    setting, sample = SETTINGS[key], build_sample(SETTINGS[key])
    rows: List[Row] = []
    for arch in archs:
        precisions = {"fp32": [], f"{arch}, --bf16": ["--bf16"]}
        trainers = {name: build_trainer(setting, arch, CHUNKED, words, cpu) for name, words in precisions.items()}
        runs = {name: lambda trainer=trainer: trainer.train_step([sample]) for name, trainer in trainers.items()}
        limits = {f"{arch}, --bf16": 1.4} if cpu and key == "table3" else {}
        made = timed_rows(
            "bf16 training step: times as fast as fp32", setting.name, interleave(runs, rounds), "fp32", limits
        )
        rows += made[1:]
    return rows


def measure_peak(key: str, archs: Sequence[str], cpu: bool, options: Sequence[str] = ()) -> List[Row]:
    """Peak memory of training steps, above what was held before them.

    On a CPU of a process that makes three steps, with a trained model; on a GPU of one step, its model included.
    """
    peaks = {}
    for name, (arch, criterion) in systems(archs).items():
        if not cpu:  # torch's own record tells this process's parts apart
            peaks[name] = peak_of_one(key, arch, criterion, cpu, options)
            continue
        command = [sys.executable, "-m", "benchmarks.training_steps", key, arch, criterion, "cpu", *options]
        made = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=Path(__file__).resolve().parents[1]
        )
        peaks[name] = json.loads(made.stdout.splitlines()[-1])
    stock = peaks["stock, own loss"]
    job = "Training step: peak memory of stock's with its own loss"
    limits = {"informer_mt, chunked loss": 0.99} if key in LIMITS else {}
    setting = " ".join([SETTINGS[key].name, *options])
    return [counted_row(job, setting, name, value / stock, limits.get(name)) for name, value in peaks.items()]


def peak_of_one(key: str, arch: str, criterion: str, cpu: bool, options: Sequence[str] = ()) -> int:
    """Bytes; on a CPU called in a process of its own, since that is what the system counts."""
    if not cpu:
        gc.collect()  # the system measured before
        before = torch.cuda.memory_allocated()
    trainer, sample = build_trainer(SETTINGS[key], arch, criterion, options, cpu), build_sample(SETTINGS[key])
    if not cpu:
        trainer.train_step([sample])
        with PeakMemory() as peak:
            trainer.train_step([sample])
        return peak.bytes - before
    trainer.optimizer  # noqa: B018  (built when first read)
    before = resident()
    for _ in range(3):
        trainer.train_step([sample])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def resident() -> int:
    """Bytes of memory that the process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    import informer_fairseq  # noqa: F401  (registers the architectures)

    torch.set_num_threads(2)
    print(peak_of_one(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "cpu", sys.argv[5:]))
