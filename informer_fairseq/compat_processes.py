"""Repairs of several processes: how they find each other, and what they send each other."""

import functools
import inspect
import socket
import sys
from typing import Any, Callable, Dict, List

import torch
import torch.nn as nn
from fairseq import utils
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from informer_fairseq import errors
from informer_fairseq.compat_environment import environment_variables, loads
from informer_fairseq.errors import InputError
from informer_fairseq.processes import launched_rank


def apply_repairs() -> None:
    """Applies every repair whose defect is present."""
    join_launched_processes()
    run_without_gpus_in_parallel()
    refuse_processes_that_run_alone()


# --- Defect 11: where it sees less than two GPUs, fairseq ignores torchrun and Slurm: each process trains alone. ---


def join_launched_processes() -> None:
    """Lets the processes that torchrun or srun started train one model, with GPUs or without.

    Without GPUs fairseq's own start of several processes (``--distributed-world-size 2`` alone) works too.
    """
    call = distributed_utils.call_main
    if getattr(call, "joins_processes", False) or not _ignores_launchers():
        return

    @functools.wraps(call)
    def call_main(cfg: Any, main: Callable[..., Any], **kwargs: Any) -> None:
        if cfg.common.tpu or cfg.distributed_training.pipeline_model_parallel:
            return call(cfg, main, **kwargs)
        settings = cfg.distributed_training
        on_cpu = cfg.common.cpu or not torch.cuda.is_available()
        if settings.distributed_init_method is None:
            _join(settings, on_cpu)
        if on_cpu and settings.distributed_world_size > 1:
            if settings.distributed_backend == "nccl":
                settings.distributed_backend = "gloo"  # nccl has no CPU tensors
            if not settings.distributed_no_spawn:
                return _spawn_on_cpu(cfg, main, kwargs)
        return call(cfg, main, **kwargs)

    call_main.joins_processes = True  # type: ignore[attr-defined]
    distributed_utils.call_main = call_main


def _ignores_launchers() -> bool:
    settings = DistributedTrainingConfig(distributed_world_size=1)
    with environment_variables(MASTER_ADDR="localhost", MASTER_PORT="1", WORLD_SIZE="2", RANK="0"):
        distributed_utils.infer_init_method(settings)
    return settings.distributed_init_method is None


def _join(settings: Any, on_cpu: bool) -> None:
    """Enters what the launcher tells this process into fairseq's settings, where fairseq itself would not."""
    if on_cpu and settings.distributed_world_size == torch.cuda.device_count() and not _asks_for_world_size():
        settings.distributed_world_size = 1  # fairseq's default is the number of GPUs, also with --cpu
    if not on_cpu and settings.distributed_world_size > 1:
        return
    rank = launched_rank(settings.distributed_port)
    if rank is None:
        return
    if settings.distributed_world_size not in (1, rank.world_size):
        raise InputError(
            f"{rank.launcher} started {rank.world_size} processes, --distributed-world-size is "
            f"{settings.distributed_world_size}: leave the flag out"
        )
    if errors.fairseq_program() == "fairseq-interactive":
        raise InputError(
            f"{rank.launcher} started {rank.world_size} processes of fairseq-interactive, which would take lines from "
            "each other: start one, or translate a file with python -m informer_fairseq.parallel_generate"
        )
    settings.distributed_init_method = rank.init_method
    settings.distributed_world_size = rank.world_size
    settings.distributed_rank = rank.rank
    settings.distributed_no_spawn = True
    settings.device_id = 0 if on_cpu else rank.local_rank % torch.cuda.device_count()


def _asks_for_world_size() -> bool:
    names = ("--distributed-world-size", "distributed_training.distributed_world_size")
    return any(word.split("=")[0] in names for word in sys.argv[1:])


def _spawn_on_cpu(cfg: Any, main: Callable[..., Any], kwargs: Dict[str, Any]) -> None:
    """fairseq starts as many processes as there are GPUs; this starts the world."""
    settings = cfg.distributed_training
    if settings.distributed_rank > 0:
        raise InputError(
            f"--distributed-rank {settings.distributed_rank} without --distributed-no-spawn: add it where you start "
            "each process yourself, or use torchrun"
        )
    if settings.distributed_init_method is None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            settings.distributed_init_method = f"tcp://localhost:{free.getsockname()[1]}"
    settings.distributed_rank = None  # each process takes its own number
    arguments = (main, cfg, {**kwargs, "start_rank": 0})
    torch.multiprocessing.spawn(distributed_utils.distributed_main, arguments, nprocs=settings.distributed_world_size)


def refuse_processes_that_run_alone() -> None:
    """Ends a command that a launcher started several times, where each process would do all of the work.

    fairseq-generate never joins processes, and fairseq-hydra-train loads the plugin when it has decided already.

    Raises:
        InputError: this is such a process.
    """
    program = errors.fairseq_program()
    if program not in ("fairseq-generate", "fairseq-hydra-train") or torch.distributed.is_initialized():
        return
    if any(word.split("=")[0] == "--distributed-rank" for word in sys.argv[1:]):
        return  # fairseq-generate's own way to share out the batches
    rank = launched_rank()
    if rank is None:
        return
    way_out = {
        "fairseq-generate": "start one, or python -m informer_fairseq.parallel_generate",
        "fairseq-hydra-train": "use fairseq-train, or give each process distributed_training.distributed_init_method, "
        ".distributed_world_size, .distributed_rank and .distributed_no_spawn",
    }[program]
    raise InputError(
        f"{rank.launcher} started {rank.world_size} processes of {program}, each of which would do all of the work: "
        f"{way_out}"
    )


# --- Defect 12: fairseq's processes send each other what needs GPUs, or classes that torch >= 2.6 does not read. ---


def run_without_gpus_in_parallel() -> None:
    """Lets several processes train, resume and validate on CPUs, and resume on any device."""
    if getattr(distributed_utils, "runs_without_gpus", False):
        return
    distributed_utils.runs_without_gpus = True
    if "device_ids=[args.device_id]" in inspect.getsource(distributed_fairseq_model.DistributedFairseqModel):
        distributed_fairseq_model.DistributedDataParallel = _data_parallel_on_any_device
    if "torch.cuda.ByteTensor" in inspect.getsource(distributed_utils.all_gather_list):
        distributed_utils.all_gather_list = _gathers_over_gloo(distributed_utils.all_gather_list)
    if not loads(distributed_utils._TensorPlaceholder(0)):
        distributed_utils._broadcast_object_slow = _sends_what_loads(distributed_utils._broadcast_object_slow)
    if _stumbles_over_empty_shares():
        for task in (FairseqTask, TranslationTask):
            task.valid_step = _passes_over_empty_shares(task.valid_step)


def _data_parallel_on_any_device(module: nn.Module, **kwargs: Any) -> nn.Module:
    """torch refuses numbers of GPUs for a module on CPUs; fairseq always gives one."""
    if all(parameter.device.type == "cpu" for parameter in module.parameters()):
        kwargs.update(device_ids=None, output_device=None)
    return nn.parallel.DistributedDataParallel(module=module, **kwargs)


def _gathers_over_gloo(gather: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(gather)
    def all_gather_list(data: Any, group: Any = None, max_size: int = 16384) -> List[Any]:
        group = distributed_utils.get_global_group() if group is None else group
        if torch.distributed.get_backend(group) != "gloo":
            return gather(data, group=group, max_size=max_size)
        gathered: List[Any] = [None] * distributed_utils.get_world_size(group)
        torch.distributed.all_gather_object(gathered, utils.move_to_cpu(data), group=group)
        return gathered

    return all_gather_list


def _sends_what_loads(broadcast: Callable[..., Any]) -> Callable[..., Any]:
    """A resumed checkpoint goes from the first process to the others as a pickle, its configuration included."""

    @functools.wraps(broadcast)
    def _broadcast_object_slow(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, dict):
            obj = {k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in obj.items()}
        with torch.serialization.safe_globals([distributed_utils._TensorPlaceholder]):
            return broadcast(obj, *args, **kwargs)

    return _broadcast_object_slow


def _stumbles_over_empty_shares() -> bool:
    try:
        FairseqTask.valid_step(object.__new__(FairseqTask), {}, nn.Module(), lambda model, sample: sample["net_input"])
    except KeyError:
        return True
    return False


def _passes_over_empty_shares(valid_step: Callable[..., Any]) -> Callable[..., Any]:
    """Where batches do not go round evenly, fairseq-validate hands a process an empty one."""

    @functools.wraps(valid_step)
    def step(self: Any, sample: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return valid_step(self, sample, *args, **kwargs) if sample else (0, 0, {})

    return step
