"""Checkpoints as models with their dictionaries, for tools that look into a trained model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Union

import torch
import torch.nn as nn
from fairseq import checkpoint_utils, tasks
from omegaconf import OmegaConf, open_dict

import informer_fairseq  # noqa: F401  (registers the architectures, repairs the loading)
from informer_fairseq.errors import InputError


@dataclass
class TrainedModel:
    """A model in evaluation mode on the CPU, and what it was trained with.

    Attributes:
        model: fairseq's encoder-decoder model.
        flags: its architecture's flags, as a namespace or configuration.
        task: fairseq's task, which holds both dictionaries.
        source: the source dictionary.
        target: the target dictionary.
        source_lang: the source language's name in the data-bin.
    """

    model: nn.Module
    flags: Any
    task: Any
    source: Any
    target: Any
    source_lang: str


def load_model(
    path: Union[str, Path], data_bin: Optional[Union[str, Path]] = None, untrained_seed: Optional[int] = None
) -> TrainedModel:
    """Builds the model of a checkpoint and loads its weights in 32-bit floats, running no code the file may hold.

    Args:
        path: the checkpoint.
        data_bin: the folder with the dictionaries it was trained on; the one its flags name by default.
        untrained_seed: leave the weights as this seed initialises them: an untrained model of the same flags.

    Raises:
        InputError: no such file, not a fairseq checkpoint, no dictionaries there, or others than it was trained on.
    """
    if not Path(path).is_file():
        raise InputError(f"no such checkpoint: {path}; check the path")
    # What these ask of other files happened when training started: the checkpoint has all weights.
    overrides: Dict[str, Any] = {"init_from_transformer": None, "init_with_low_rank_approximation": False}
    if data_bin is not None:
        overrides["data"] = str(data_bin)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    if not isinstance(state, dict) or "model" not in state or not (state.get("cfg") or state.get("args")):
        raise InputError(f"{path} is not a fairseq checkpoint (it lacks the model or its flags): give one that is")
    cfg = state["cfg"] if OmegaConf.is_config(state["cfg"]) else OmegaConf.create(state["cfg"], flags=_ALLOW_OBJECTS)
    OmegaConf.set_struct(cfg, False)
    _override(cfg, overrides)
    folder = Path(str(cfg.task.data).split(":")[0])
    for side in ("source", "target"):
        language = cfg.task[f"{side}_lang"]
        if language is not None and not (folder / f"dict.{language}.txt").is_file():
            raise InputError(
                f"no such file: {folder / f'dict.{language}.txt'}; give the data-bin that {path} was trained on "
                "with --data-bin"
            )
    task = tasks.setup_task(cfg.task)
    if untrained_seed is not None:
        torch.manual_seed(untrained_seed)
    model = task.build_model(cfg.model)
    if untrained_seed is None:
        _check_vocabularies(model, state["model"], path, folder)
        model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
    model.float().eval()
    return TrainedModel(model, cfg.model, task, task.source_dictionary, task.target_dictionary, cfg.task.source_lang)


_ALLOW_OBJECTS = {"allow_objects": True}  # the architecture's flags are a namespace inside the configuration


def _override(cfg: Any, overrides: dict) -> None:
    for part in (cfg.task, cfg.model):
        for name, value in overrides.items():
            if OmegaConf.is_config(part):
                if name in part:
                    with open_dict(part):
                        part[name] = value
            elif hasattr(part, name):
                setattr(part, name, value)


def _check_vocabularies(model: nn.Module, weights: dict, path: Any, folder: Path) -> None:
    """fairseq's own message about a dictionary of another size is a page of shapes."""
    own = model.state_dict()
    for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        if name in weights and name in own and own[name].size(0) != weights[name].size(0):
            raise InputError(
                f"{path} was trained with {weights[name].size(0)} types, the dictionary in {folder} has "
                f"{own[name].size(0)}: give its own data-bin with --data-bin"
            )
