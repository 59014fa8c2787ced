"""The only file that knows versions of fairseq and torch.

Every repair names a defect, tests whether it is there, and does nothing where it is not. Each may be applied twice.
"""

import argparse
import contextlib
import functools
import importlib.util
import inspect
import io
import os
import pickle
import re
import socket
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type

import numpy as np
import torch
import torch.nn as nn
from fairseq import checkpoint_utils, options, utils
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from informer_fairseq import errors
from informer_fairseq.errors import InputError
from informer_fairseq.processes import launched_rank


def apply_repairs() -> None:
    """Applies every repair whose defect is present."""
    allow_checkpoint_classes()
    tell_unreadable_checkpoints()
    free_bf16_from_tpu()
    join_launched_processes()
    run_without_gpus_in_parallel()
    refuse_processes_that_run_alone()


# --- Defect 1: torch >= 2.6 unpickles with weights_only=True and refuses the classes of every fairseq checkpoint. ---


def checkpoint_classes() -> List[Any]:
    """The classes a fairseq checkpoint holds beside tensors and plain containers; all of them are data.

    ``argparse.Namespace`` holds the flags; numpy's scalars and arrays come from metrics such as BLEU counts.
    """
    make_scalar, make_array = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]  # numpy moves them about
    dtypes = [type(np.dtype(kind)) for kind in ("float64", "float32", "int64", "int32", "bool")]
    return [argparse.Namespace, np.ndarray, np.dtype, make_scalar, make_array, *dtypes]


def allow_checkpoint_classes() -> None:
    """Lets ``torch.load`` read fairseq's checkpoints while it goes on to refuse all other classes."""
    if _loads(argparse.Namespace(arch="informer_mt")) and _loads(np.float64(1.0)) and _loads(np.zeros(1)):
        return
    torch.serialization.add_safe_globals(checkpoint_classes())


def _loads(value: Any) -> bool:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, weights_only=True)
    except pickle.UnpicklingError:
        return False
    return True


# --- Defect 2: fairseq passes on torch's page-long advice to switch the protection off, or a bare zip error. ---


def tell_unreadable_checkpoints() -> None:
    """Lets fairseq say in one line that a checkpoint is damaged, or holds what no fairseq checkpoint holds."""
    load = checkpoint_utils.load_checkpoint_to_cpu
    if getattr(load, "tells_in_one_line", False):
        return

    @functools.wraps(load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        return read_checkpoint(path, lambda: load(path, *args, **kwargs))

    load_checkpoint_to_cpu.tells_in_one_line = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu


def read_checkpoint(path: str, read: Optional[Callable[[], Any]] = None) -> Any:
    """Reads a checkpoint to the CPU without running code that it may contain.

    Args:
        path: the file.
        read: how to read it; ``torch.load`` with ``weights_only=True`` by default.

    Raises:
        InputError: the file is damaged, or its pickle names a class that no fairseq checkpoint holds.
    """
    try:
        if read is None:
            return torch.load(path, map_location="cpu", weights_only=True)
        return read()
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named is None:
            reason = re.search(r"WeightsUnpickler error: (.+)", str(error))
            raise InputError(
                f"{path} is not a readable checkpoint ({reason.group(1) if reason else _first_line(error)}): use an "
                "earlier one, or copy it again"
            ) from None
        raise InputError(
            f"{path} is refused: its pickle holds {named.group(1)}, which no fairseq checkpoint needs and which could "
            "run code; load only files you trust, and ask their author for a checkpoint with weights and flags alone"
        ) from None
    except (EOFError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
            raise
        raise InputError(
            f"{path} is damaged or incomplete ({_first_line(error)}): use an earlier checkpoint, or copy it again"
        ) from None


def _first_line(error: BaseException) -> str:
    """The first sentence of a library's message: what follows is advice for programmers."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.split(". ")[0].rstrip(". ")


# --- Defect 3: --bf16 switches --tpu on, and every other device fails for want of torch_xla. ---


def free_bf16_from_tpu() -> None:
    """Lets ``--bf16`` run on CPU and GPU: it stands for a TPU only where torch_xla is installed or ``--tpu`` given."""
    parse = options.parse_args_and_arch
    if getattr(parse, "bf16_without_tpu", False) or not _bf16_implies_tpu(parse):
        return

    @functools.wraps(parse)
    def parse_args_and_arch(
        parser: argparse.ArgumentParser, input_args: Optional[Sequence[str]] = None, *args: Any, **kwargs: Any
    ) -> Any:
        parsed = parse(parser, input_args, *args, **kwargs)
        flags = parsed[0] if isinstance(parsed, tuple) else parsed
        asked = "--tpu" in (sys.argv[1:] if input_args is None else input_args)
        # fairseq-validate also parses with all defaults suppressed.
        if getattr(flags, "bf16", False) and not asked and importlib.util.find_spec("torch_xla") is None:
            flags.tpu = False
        return parsed

    parse_args_and_arch.bf16_without_tpu = True  # type: ignore[attr-defined]
    options.parse_args_and_arch = parse_args_and_arch


def _bf16_implies_tpu(parse: Callable[..., Any]) -> bool:
    parser = argparse.ArgumentParser()
    for flag in ("--bf16", "--fp16"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--batch-size")
    return bool(parse(parser, ["--bf16"]).tpu)


# --- Defect 4: fairseq 0.12.2 from PyPI runs a fused stock layer in eval mode and never calls overridden parts. ---

HAS_FUSED_ENCODER_LAYER = "_load_from_state_dict" in vars(TransformerEncoderLayerBase)


def without_fused_encoder_layer(layer_class: Type[nn.Module]) -> Type[nn.Module]:
    """Class decorator: keeps a subclass of fairseq's encoder layer off the fused path of fairseq 0.12.2.

    There, ``load_state_dict`` sets ``load_to_BT``, after which evaluation bypasses ``forward``'s attention and
    feed-forward; each layer also carries eight parameters that get no gradient, and demands keys of stock layers.
    """
    if not HAS_FUSED_ENCODER_LAYER:
        return layer_class
    initialize = layer_class.__init__

    @functools.wraps(initialize)
    def __init__(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        for name in ("in_proj", "out_proj", "fc1", "fc2"):
            for kind in ("weight", "bias"):
                self._parameters.pop(f"{name}_{kind}", None)  # gone already where a parent class is decorated
        self.can_use_fastpath = False  # type: ignore[assignment]
        out_proj: Any = self.self_attn.out_proj  # type: ignore[union-attr]
        if out_proj.bias is not None and out_proj.bias.numel() == 0:
            out_proj.bias = None

    layer_class.__init__ = __init__  # type: ignore[method-assign]
    layer_class._load_from_state_dict = nn.Module._load_from_state_dict  # type: ignore[method-assign]
    return layer_class


def readable_by_fused_layer(attention: Any) -> Any:
    """Lets fairseq 0.12.2's constructor read the shape of ``out_proj.bias`` also where there is none.

    It gets an empty one, which the decorator takes away again.
    """
    if HAS_FUSED_ENCODER_LAYER and attention.out_proj.bias is None:
        attention.out_proj.bias = nn.Parameter(torch.empty(0))
    return attention


def absent_linear() -> Optional[nn.Module]:
    """What to give fairseq's encoder layer in place of ``fc1`` and ``fc2`` while it is built: None.

    fairseq 0.12.2 reads their shapes in its constructor; there it gets a linear map without memory.
    """
    return nn.Linear(1, 1, device="meta") if HAS_FUSED_ENCODER_LAYER else None


# --- Defect 5: TorchScript compiles a subclass of fairseq's attention only after the class itself. ---


def scriptable_attention(attention_class: Type[nn.Module]) -> Type[nn.Module]:
    """Class decorator: lets ``torch.jit.script`` compile a subclass of fairseq's ``MultiheadAttention``.

    Its ``forward`` calls a static method by the name of its class. TorchScript knows that name only after it has
    compiled the class itself, so that is done first, once, and only when something is scripted.
    """

    def __prepare_scriptable__(self: nn.Module) -> nn.Module:
        _script_stock_attention()
        return self

    attention_class.__prepare_scriptable__ = __prepare_scriptable__  # type: ignore[attr-defined]
    return attention_class


@functools.lru_cache(maxsize=1)
def _script_stock_attention() -> None:
    torch.jit.script(MultiheadAttention(2, 1, self_attention=True))


def renamed(function: Any, name: str) -> Any:
    """The same function under another name: TorchScript has no ``super()`` and compiles methods by their names."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    copy.__annotations__ = function.__annotations__
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


# --- Defect 6: where it sees less than two GPUs, fairseq ignores torchrun and Slurm: each process trains alone. ---


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
    if on_cpu and not _asks_for_world_size():
        settings.distributed_world_size = 1  # fairseq's default is the number of GPUs
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


# --- Defect 7: what fairseq's processes send each other needs GPUs, or classes that torch >= 2.6 does not unpickle. ---


def run_without_gpus_in_parallel() -> None:
    """Lets several processes train, resume and validate on CPUs, and resume on any device."""
    if getattr(distributed_utils, "runs_without_gpus", False):
        return
    distributed_utils.runs_without_gpus = True
    if "device_ids=[args.device_id]" in inspect.getsource(distributed_fairseq_model.DistributedFairseqModel):
        distributed_fairseq_model.DistributedDataParallel = _data_parallel_on_any_device
    if "torch.cuda.ByteTensor" in inspect.getsource(distributed_utils.all_gather_list):
        distributed_utils.all_gather_list = _gathers_over_gloo(distributed_utils.all_gather_list)
    if not _loads(distributed_utils._TensorPlaceholder(0)):
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


@contextlib.contextmanager
def environment_variables(**values: Optional[str]) -> Iterator[None]:
    """Sets variables of the environment for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in values}
    _set_variables(values)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: Dict[str, Optional[str]]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
