"""Runs fairseq's commands in this process, one after another, as one rank of several or alone.

As a program: ``python -m tests.support.ranks JOBS.json RESULTS.json``, in each rank with torchrun's variables.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import checkpoint_utils, metrics, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from fairseq_cli import train, validate

import informer_fairseq  # noqa: F401  (the repairs)

ROOT = Path(__file__).resolve().parents[2]


def run_jobs(jobs):
    """Runs jobs: {"name": str, "tool": "train" or "validate", "flags": [...], "die_at": update or None, "dier": rank}.

    Returns:
        By name: for each update the loss (in bits a token), the gradients' norm and the tokens; the model's digest.
    """
    return {job["name"]: (_train if job["tool"] == "train" else _validate)(job) for job in jobs}


def _train(job):
    checkpoint_utils.save_checkpoint.__dict__.pop("best", None)  # fairseq keeps it from run to run
    args = options.parse_args_and_arch(options.get_training_parser(), job["flags"])
    with _recorded(job) as record:
        distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)
    return record


@contextmanager
def _recorded(job):
    """Looks over the trainer's shoulder: the logs round losses to three digits."""
    record = {"updates": [], "digest": None}
    reduce, step = Trainer._reduce_and_log_stats, Trainer.train_step

    def _reduce_and_log_stats(self, logging_outputs, sample_size, grad_norm=None):
        if grad_norm is not None:
            loss = sum(float(log["loss"]) for log in logging_outputs) / float(sample_size)
            record["updates"].append([loss, float(grad_norm), float(sample_size)])
        return reduce(self, logging_outputs, sample_size, grad_norm)

    def train_step(self, *args, **kwargs):
        if job.get("die_at") == self.get_num_updates() and self.data_parallel_rank == job["dier"]:
            os.kill(os.getpid(), signal.SIGKILL)
        output = step(self, *args, **kwargs)
        record["digest"] = _digest(self.model)
        return output

    Trainer._reduce_and_log_stats, Trainer.train_step = _reduce_and_log_stats, train_step
    try:
        yield record
    finally:
        Trainer._reduce_and_log_stats, Trainer.train_step = reduce, step


def _digest(model):
    """Equal for models whose parameters are equal to the last bit, and only for those."""
    sums = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        sums.update(name.encode() + parameter.detach().numpy().tobytes())
    return sums.hexdigest()


def _validate(job):
    args = options.parse_args_and_arch(options.get_validation_parser(), job["flags"])
    override = options.parse_args_and_arch(options.get_validation_parser(), job["flags"], suppress_defaults=True)
    found = {}

    def main(cfg, **kwargs):
        reduce = metrics.get_smoothed_values
        with metrics.aggregate(new_root=False) as values:
            validate.main(cfg, **kwargs)
        assert reduce is metrics.get_smoothed_values
        found.update({name: float(meter.sum / meter.count) for name, meter in values.items() if name == "loss"})

    distributed_utils.call_main(convert_namespace_to_omegaconf(args), main, override_args=override)
    return found


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def start_ranks(jobs, folder, world_size=2):
    """Starts the ranks as torchrun would, without its agent; returns the processes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    port = free_port()
    processes = []
    for rank in range(world_size):
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": world_size, "RANK": rank}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in variables.items()}}
        command = [sys.executable, "-m", "tests.support.ranks", str(folder / "jobs.json"), str(folder / f"{rank}.json")]
        with open(folder / f"{rank}.log", "wb") as log:
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log))
    return processes


def results(folder, rank):
    return json.loads((folder / f"{rank}.json").read_text())


if __name__ == "__main__":
    jobs, output = map(Path, sys.argv[1:])
    torch.manual_seed(1)
    done = {}
    for job in json.loads(jobs.read_text()):
        done.update(run_jobs([job]))
        output.write_text(json.dumps(done))
