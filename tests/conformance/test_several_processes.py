"""Several processes of one training, on CPUs with gloo: fairseq#3599, #3299, #2389 and their kind.

One pair of processes trains everything that is compared here, one after the other; this process trains the same alone.
"""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from informer_fairseq import compat_processes, errors, processes
from informer_fairseq.errors import InputError
from tests.conftest import ROOT
from tests.support import ranks
from tests.support.models import ALL_ARCHS

USER_DIR = str(ROOT / "informer_fairseq")
FLAGS = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 24 "
    "--decoder-ffn-embed-dim 24 --encoder-attention-heads 2 --decoder-attention-heads 2 --dropout 0 --max-tokens 400 "
    "--optimizer adam --lr 1e-3 --label-smoothing 0.1 --num-workers 0 --seed 3 --cpu --no-progress-bar "
    "--update-epoch-batch-itr True --required-batch-size-multiple 1"
).split()
CHUNKED = ("--criterion", "chunked_label_smoothed_cross_entropy", "--loss-chunk-rows", "64")
HIERARCHICAL = "--encoder-layer-composition hierarchical --decoder-layer-composition linear --head-composition".split()
SYSTEMS = {
    "transformer": ("transformer",),
    **{arch: (f"{arch}_tiny",) for arch in ALL_ARCHS},
    "compositions": ("ni_transformer_tiny", *HIERARCHICAL, "hierarchical"),
    "kept projection": ("ni_transformer_tiny", "--head-composition-keep-output-projection"),
    "legacy_ddp": ("informer_mt_tiny", "--ddp-backend", "legacy_ddp"),
    "sharing none": ("linformer_mt_tiny", "--encoder-projection-sharing", "none"),
    "chunked loss": ("informer_mt_tiny", *CHUNKED),
    "chunked loss, stock": ("transformer", *CHUNKED, "--share-decoder-input-output-embed"),
}


def train_job(name, data_bin, save_dir, *more, **kwargs):
    arch, *flags = SYSTEMS.get(name, (name,))
    flags = [*FLAGS, *flags, *more]
    if "--criterion" not in flags:
        flags += ["--criterion", "label_smoothed_cross_entropy"]
    words = [str(data_bin[0]), "--user-dir", USER_DIR, "--arch", arch, "--save-dir", str(save_dir), *flags]
    return {"name": name, "tool": "train", "flags": words, **kwargs}


def validate_job(data_bin, checkpoint):
    flags = [str(data_bin[0]), "--user-dir", USER_DIR, "--path", str(checkpoint), "--task", "translation", "--cpu"]
    flags += ["--max-tokens", "200", "--num-workers", "0", "--required-batch-size-multiple", "1"]
    return {"name": "validate", "tool": "validate", "flags": flags}


@pytest.fixture(scope="module")
def pair(data_bin, tmp_path_factory):
    """A pair of processes that trained all systems, resumed, and of which one was killed at the end: what it left."""
    folder = tmp_path_factory.mktemp("pair")
    jobs = [train_job(name, data_bin, folder / "x", "--max-update", "3", "--no-save") for name in SYSTEMS]
    run = ("informer_mt", data_bin)
    whole = train_job(*run, folder / "whole", "--max-epoch", "3", "--no-epoch-checkpoints")
    first = train_job(*run, folder / "cut", "--max-epoch", "1", "--no-epoch-checkpoints")
    resumed = train_job(*run, folder / "cut", "--max-epoch", "2", "--no-epoch-checkpoints")
    killed = train_job(*run, folder / "cut", "--max-epoch", "3", "--no-epoch-checkpoints")
    jobs += [{**whole, "name": "whole"}, {**first, "name": "first"}, {**resumed, "name": "resumed"}]
    alone = {**first, "flags": [*first["flags"], "--update-freq", "2", "--no-save"]}
    per_epoch = len(ranks.run_jobs([alone])[run[0]]["updates"])
    jobs += [validate_job(data_bin, folder / "cut/checkpoint_last.pt")]
    jobs += [{**killed, "name": "killed", "die_at": 2 * per_epoch + 2, "dier": 1}]
    started = ranks.start_ranks(jobs, folder / "two")
    try:
        codes = [started[1].wait(timeout=150)]
        died = time.monotonic()
        codes.insert(0, started[0].wait(timeout=60))
        lingered = time.monotonic() - died
    finally:
        for process in started:
            process.kill()
    return {"folder": folder, "codes": codes, "lingered": lingered, "per_epoch": per_epoch, "jobs": jobs}


@pytest.fixture(scope="module")
def both(pair):
    return [ranks.results(pair["folder"] / "two", rank) for rank in (0, 1)]


def assert_same_losses(found, expected):
    assert len(found) == len(expected) > 0
    for mine, theirs in zip(found, expected):
        assert mine == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
def test_two_ranks_give_the_losses_and_gradients_of_one(name, both, data_bin, tmp_path):
    """One process that takes two batches an update sees the same tokens: loss, gradients' norm and size are equal."""
    alone = train_job(name, data_bin, tmp_path, "--max-update", "3", "--no-save", "--update-freq", "2")
    expected = ranks.run_jobs([alone])[name]["updates"]
    assert_same_losses(both[0][name]["updates"], expected)
    assert expected[0][0] != pytest.approx(expected[2][0], rel=1e-3)  # it learns


@pytest.mark.parametrize("name", SYSTEMS)
def test_both_ranks_end_with_the_same_parameters(name, both):
    assert both[0][name]["digest"] == both[1][name]["digest"]
    assert both[0][name]["updates"] == both[1][name]["updates"]


def test_two_ranks_resume_as_if_never_interrupted(pair, both):
    """The checkpoint travels from the first rank to the second, under torch's weights_only protection."""
    size = pair["per_epoch"]
    assert both[0]["resumed"]["updates"] == both[0]["whole"]["updates"][size : 2 * size]
    assert both[0]["first"]["updates"] == both[0]["whole"]["updates"][:size]
    assert both[0]["resumed"]["digest"] == both[1]["resumed"]["digest"]


def test_two_ranks_validate_as_one_with_an_uneven_number_of_batches(both, pair):
    job = next(job for job in pair["jobs"] if job["tool"] == "validate")
    alone = ranks.run_jobs([job])["validate"]["loss"]
    assert both[0]["validate"]["loss"] == pytest.approx(alone, rel=1e-6)


def test_a_killed_rank_ends_the_other_soon_and_in_one_line(pair):
    assert pair["codes"][1] == -signal.SIGKILL and pair["codes"][0] == 1
    assert pair["lingered"] < 30
    log = (pair["folder"] / "two/0.log").read_text()
    told = errors.one_line_message(RuntimeError(re.findall(r"RuntimeError: (.+)", log)[-1]))
    assert told is not None and told.startswith("another process of this run ended or hangs (")


def run(command, folder, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        **{"cwd": folder, "env": environment, "capture_output": True, "text": True, "timeout": 120, "check": False},
    )
    return done.returncode, done.stdout + done.stderr


def test_torchrun_resumes_after_the_kill_with_plain_commands(pair, data_bin):
    """Plain ``torchrun``: the epoch of the kill, from the checkpoint before it, equals an uninterrupted one."""
    job = next(job for job in pair["jobs"] if job["name"] == "killed")
    program = ["torch.distributed.run", "--nproc-per-node", "2", "--master-port", ranks.free_port()]
    program += ["-m", "fairseq_cli.train", *job["flags"], "--log-format", "json", "--log-interval", "1"]
    code, output = run(program, pair["folder"])
    assert code == 0, output
    states = [torch.load(pair["folder"] / name / "checkpoint_last.pt") for name in ("cut", "whole")]
    for name, weight in states[1]["model"].items():
        assert torch.equal(states[0]["model"][name], weight), name
    assert output.count("| train_inner |") == pair["per_epoch"]  # one of the two logs


def test_fairseqs_own_start_of_two_processes_works_on_cpus(pair, both, data_bin, tmp_path):
    """``--distributed-world-size 2`` alone."""
    flags = train_job("informer_mt", data_bin, tmp_path, "--max-epoch", "1", "--no-epoch-checkpoints")["flags"]
    code, output = run(["fairseq_cli.train", *flags, "--distributed-world-size", "2"], tmp_path)
    assert code == 0, output
    first = torch.load(tmp_path / "checkpoint_last.pt")
    assert first["extra_state"]["train_iterator"]["iterations_in_epoch"] == 0
    assert first["optimizer_history"][-1]["num_updates"] == pair["per_epoch"]


TORCHRUN = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "node[1-2]",
}


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """A stand-in for Slurm's tool that lists the nodes."""
    tool = tmp_path / "bin/scontrol"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\n[ "$*" = "show hostnames node[1-2]" ] && printf "node1\\nnode2\\n"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")


def test_what_the_launchers_tell_is_understood(scontrol):
    assert processes.launched_rank(-1, TORCHRUN) == processes.Rank("torchrun", 4, 3, 1, "env://")
    assert processes.launched_rank(-1, SLURM) == processes.Rank("srun", 4, 3, 1, "tcp://node1:10219")
    assert processes.launched_rank(12345, SLURM) == processes.Rank("srun", 4, 3, 1, "tcp://node1:12345")
    with pytest.raises(InputError, match="mpirun started 2 processes, .* torchrun --nproc-per-node 2"):
        processes.launched_rank(-1, {"OMPI_COMM_WORLD_SIZE": "2"})


@pytest.mark.parametrize(
    "alone",
    [{}, {**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, {"WORLD_SIZE": "2"}],
)
def test_a_process_alone_stays_alone(alone):
    """A batch script of Slurm has SLURM_NTASKS too, but runs once."""
    assert processes.launched_rank(-1, alone) is None


def test_slurm_without_its_tool_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"srun started this process, but its nodes 'node\[1-2\]' cannot be read"):
        processes.launched_rank(-1, SLURM)


@pytest.mark.parametrize("variables", [TORCHRUN, SLURM], ids=["torchrun", "srun"])
def test_each_process_gets_its_settings(variables, monkeypatch, scontrol):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    met = []
    monkeypatch.setattr(distributed_utils, "distributed_main", lambda *given: met.append(given))
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.common.cpu = True
    distributed_utils.call_main(cfg, met.append)
    settings = met[0][2].distributed_training
    assert (settings.distributed_world_size, settings.distributed_rank, settings.device_id) == (4, 3, 0)
    assert settings.distributed_no_spawn and settings.distributed_backend == "gloo"
    assert settings.distributed_init_method == ("env://" if variables is TORCHRUN else "tcp://node1:10219")


@pytest.mark.parametrize(
    ("program", "words", "message"),
    [
        (
            "fairseq-train",
            ["--distributed-world-size", "3"],
            "torchrun started 4 processes, --distributed-world-size is 3",
        ),
        ("fairseq-interactive", [], "torchrun started 4 processes of fairseq-interactive, which would take lines"),
    ],
)
def test_processes_that_cannot_join_are_refused(program, words, message, monkeypatch):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", [program, *words])
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.common.cpu = True
    cfg.distributed_training.distributed_world_size = int(words[1]) if words else 1
    with pytest.raises(InputError, match=message):
        distributed_utils.call_main(cfg, lambda cfg: pytest.fail("each process runs alone"))


@pytest.mark.parametrize("program", ["fairseq-generate", "fairseq-hydra-train"])
def test_processes_that_would_each_do_all_of_the_work_are_refused(program, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program])
    compat_processes.refuse_processes_that_run_alone()
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"torchrun started 4 processes of {program}, each of which would do all of"):
        compat_processes.refuse_processes_that_run_alone()
    monkeypatch.setattr(sys, "argv", [program, "--distributed-world-size", "4", "--distributed-rank", "1"])
    compat_processes.refuse_processes_that_run_alone()


def test_a_rank_without_its_process_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "--distributed-world-size", "2", "--distributed-rank", "1"])
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.common.cpu = True
    cfg.distributed_training.distributed_world_size, cfg.distributed_training.distributed_rank = 2, 1
    with pytest.raises(InputError, match="--distributed-rank 1 without --distributed-no-spawn: add it"):
        distributed_utils.call_main(cfg, lambda cfg: pytest.fail("not started"))


def test_cpu_on_a_machine_with_gpus_is_one_process(monkeypatch):
    """fairseq's default is as many processes as there are GPUs, which --cpu does not change."""
    monkeypatch.setattr(sys, "argv", ["fairseq-train", "--cpu"])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    cfg, met = OmegaConf.structured(FairseqConfig), []
    cfg.common.cpu, cfg.distributed_training.distributed_world_size = True, 8
    distributed_utils.call_main(cfg, met.append)
    assert len(met) == 1 and met[0].distributed_training.distributed_world_size == 1


def test_a_mistake_in_a_started_process_is_told_in_one_line():
    """torch hands on the traceback of a process that it spawned as text."""
    text = (
        "-- Process 1 terminated with the following error:\nTraceback ...\ninformer_fairseq.errors.InputError: n is 7\n"
    )
    assert errors.one_line_message(Exception(text)) == "n is 7"


def test_stock_fairseq_trains_alone_under_torchrun():
    """The defect behind the repair: with one GPU or none, torchrun's variables change nothing."""
    assert compat_processes._ignores_launchers()
