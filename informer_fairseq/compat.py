"""What knows versions of fairseq and torch; with the other compat modules the only place that does.

Every repair names a defect, tests whether it is there, and does nothing where it is not. Each may be applied twice.
"""

import argparse
import functools
import importlib.util
import math
import os
import pickle
import re
import struct
import sys
import types
import zipfile
from typing import Any, Callable, List, Optional, Sequence, Type

import numpy as np
import torch
import torch.nn as nn
from fairseq import checkpoint_utils, options, search, utils
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from informer_fairseq import compat_averages, compat_files, compat_processes
from informer_fairseq.checkpoint_files import find_damage, way_out
from informer_fairseq.compat_environment import environment_variables, loads
from informer_fairseq.errors import InputError


def apply_repairs() -> None:
    """Applies every repair whose defect is present."""
    allow_checkpoint_classes()
    tell_unreadable_checkpoints()
    free_bf16_from_tpu()
    compat_processes.apply_repairs()
    compat_files.apply_repairs()
    let_diverse_search_find_its_rows()
    let_unknown_words_be_replaced()
    compat_averages.apply_repairs()


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
    if loads(argparse.Namespace(arch="informer_mt")) and loads(np.float64(1.0)) and loads(np.zeros(1)):
        return
    torch.serialization.add_safe_globals(checkpoint_classes())


# --- Defect 2: fairseq passes on torch's page-long advice to switch the protection off, or a bare zip error. ---
# --- Neither of them looks at the checksums, and both obey a variable that lets any pickle run. ---


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
        InputError: the file is damaged, is no checkpoint, or its pickle names a class that no fairseq checkpoint holds.
    """
    is_file = os.path.isfile(path)
    damage = find_damage(path) if is_file else None
    if damage is not None:
        raise InputError(f"{path} is damaged or incomplete ({damage}): {way_out(path)}")
    try:
        # Advice on the web sets the second, and forks of fairseq ask for weights_only=False: the first overrules both.
        with environment_variables(TORCH_FORCE_WEIGHTS_ONLY_LOAD="1", TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=None):
            if read is None:
                return torch.load(path, map_location="cpu", weights_only=True)
            return read()
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        if named is None:
            reason = re.search(r"WeightsUnpickler error: (.+)", str(error))
            raise InputError(
                f"{path} is not a readable checkpoint ({reason.group(1) if reason else _first_line(error)}): "
                f"{way_out(path)}"
            ) from None
        raise InputError(
            f"{path} is refused: its pickle holds {named.group(1)}, which no fairseq checkpoint needs and which could "
            "run code; load only files you trust, and ask their author for a checkpoint with weights and flags alone"
        ) from None
    except RuntimeError as error:
        if "TorchScript archive" in str(error) or ".tar format" in str(error):
            raise InputError(f"{path} is not a fairseq checkpoint ({_first_line(error)}): give one that is") from None
        if is_file and not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not a readable checkpoint ({_first_line(error)}): {way_out(path)}") from None
        if "PytorchStreamReader" not in str(error):
            raise
        raise InputError(f"{path} is damaged or incomplete ({_first_line(error)}): {way_out(path)}") from None
    except _NOT_A_CHECKPOINT as error:
        if not is_file or isinstance(error, InputError):
            raise
        if not zipfile.is_zipfile(path):  # what torch before 1.6 wrote has no checksums
            raise InputError(f"{path} is not a readable checkpoint ({_first_line(error)}): {way_out(path)}") from None
        raise InputError(
            f"{path} is not a fairseq checkpoint ({type(error).__name__}: {_first_line(error)}): give one with the "
            "model and its flags"
        ) from error


_NOT_A_CHECKPOINT = (
    *(EOFError, KeyError, IndexError, TypeError, AttributeError, ValueError, AssertionError, OverflowError),
    struct.error,
)


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


# --- Defect 6: TorchScript compiles neither of two activations: a lambda, and a function that keeps its own number. ---


def activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """fairseq's activation called ``name``, or the same in a form that TorchScript compiles."""
    stock = utils.get_activation_fn(name)
    ours = {"linear": _linear, "gelu_accurate": _gelu_accurate, "gelu_fast": _gelu_accurate}.get(name)
    return stock if ours is None or _compiles(stock) else ours


def _linear(x: torch.Tensor) -> torch.Tensor:
    return x


def _gelu_accurate(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def _compiles(function: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    try:
        torch.jit.script(function)
    except Exception:  # of many kinds: RuntimeError, OSError, torch's own
        return False
    return True


# --- Defect 7: diverse beam search looks rows of a batch up by the sentences' numbers in the data. ---


def let_diverse_search_find_its_rows() -> None:
    """Lets ``--diverse-beam-groups`` work beyond a data set that is one batch.

    Since pull request 5069 the search keeps a table with one row for each sentence of the batch, and indexes it with
    what the generator hands over, the sentences' numbers in the whole data: an IndexError in the first batch that lacks
    sentence 0.
    """
    step_of_search = search.DiverseBeamSearch.step
    if not _takes_numbers_for_rows():
        return

    @functools.wraps(step_of_search)
    def step(
        self: Any,
        step: int,
        lprobs: torch.Tensor,
        scores: Optional[torch.Tensor],
        prev_output_tokens: Optional[torch.Tensor] = None,
        original_batch_idxs: Optional[torch.Tensor] = None,
    ) -> Any:
        if original_batch_idxs is not None:
            if step == 0:
                self.numbers_of_rows = original_batch_idxs
            original_batch_idxs = original_batch_idxs.unsqueeze(1).eq(self.numbers_of_rows).int().argmax(dim=1)
        return step_of_search(self, step, lprobs, scores, prev_output_tokens, original_batch_idxs)

    search.DiverseBeamSearch.step = step


def _takes_numbers_for_rows() -> bool:
    diverse = search.DiverseBeamSearch(Dictionary(), 2, 0.5)
    scores, number = torch.zeros(1, 2, 4).log_softmax(dim=2), torch.tensor([1])
    try:
        for step in range(2):
            diverse.step(step, scores.clone(), torch.zeros(1, 2, 2), None, number)
    except IndexError:
        return True
    return False


# --- Defect 8: --replace-unk indexes the source by pairs of positions, or by an alignment that was not asked for. ---


def let_unknown_words_be_replaced() -> None:
    """Lets ``--replace-unk`` work together with ``--print-alignment``, which finds the alignments.

    fairseq's search has kept none of its own since 0.9, and those of ``--print-alignment`` are pairs (source, target),
    not one source position a target word.
    """
    replace = utils.replace_unk
    if not _indexes_by_pairs(replace):
        return

    @functools.wraps(replace)
    def replace_unk(hypo_str: str, src_str: str, alignment: Any, align_dict: Any, unk: str) -> str:
        words = hypo_str.split()
        if unk in words and len(alignment) == 0:
            raise InputError("--replace-unk needs to know which words attend to which: add --print-alignment")
        if len(alignment) > 0 and isinstance(alignment[0], tuple):
            sources = {target: source for source, target in alignment}
            alignment = [sources.get(place, 0) for place in range(len(words))]
        return replace(hypo_str, src_str, alignment, align_dict, unk)

    utils.replace_unk = replace_unk


def _indexes_by_pairs(replace: Callable[..., str]) -> bool:
    try:
        replace("<unk>", "a b", [(1, 0)], {}, "<unk>")
    except TypeError:
        return True
    return False
