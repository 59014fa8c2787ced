"""Repairs of the moving average of weights (``--store-ema``)."""

import argparse
import functools
from typing import Any, Dict, Iterable, Optional

import torch
import torch.nn as nn
from fairseq.models.ema.ema import EMA

from informer_fairseq.compositions.scaled_concatenation import ScaledComposition


def apply_repairs() -> None:
    """Applies every repair whose defect is present."""
    keep_versions_in_moving_averages()
    average_shared_weights_once()
    average_weights_of_one_scale()


# --- Defect 9: the moving average of a pre-norm model loses its last layer norms. ---


def keep_versions_in_moving_averages() -> None:
    """Lets ``--store-ema`` average pre-norm models.

    Each step loads the average without the ``version`` of encoder and decoder. fairseq takes such a state for one of
    its oldest checkpoints, and drops the layer norms behind the last layers, from the average and from every model that
    is made of it, without a word.
    """
    restore_of_average = EMA.restore
    if _passes_versions_on(EMA):
        return

    @functools.wraps(restore_of_average)
    def restore(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> None:
        versions = {name: value for name, value in self.model.state_dict().items() if "version" in name}
        restore_of_average(self, {**versions, **state_dict}, *args, **kwargs)

    EMA.restore = restore


def _passes_versions_on(average_class: Any) -> bool:
    average = average_class(_Versioned(), _average_settings())
    average.step(_Versioned())
    return "version" in average.get_model().loaded


class _Versioned(nn.Module):
    """Remembers the names of what it was asked to load."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("version", torch.ones(1))
        self.loaded: Any = ()

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        self.loaded = tuple(state_dict)
        return super().load_state_dict(state_dict, *args, **kwargs)


def _average_settings() -> argparse.Namespace:
    return argparse.Namespace(ema_decay=0.5, ema_seed_model=None, ema_fp32=False, ema_update_freq=1, ema_start_update=0)


# --- Defect 10: the moving average of a shared weight decays once for each of its names. ---


def average_shared_weights_once() -> None:
    """Lets ``--store-ema`` average tied embeddings, and projections that layers share.

    A step goes through the names of the state and changes the average in place: a weight with k names is decayed k
    times, so that six layers that share a projection turn a decay of 0.9999 into 0.9994.
    """
    step_of_average = EMA._step_internal
    if _averages_once(EMA):
        return

    @functools.wraps(step_of_average)
    def step(self: Any, new_model: nn.Module, updates: Optional[int] = None) -> None:
        first_of: Dict[str, str] = {}  # a further name of a weight -> its first
        names: Dict[int, str] = {}
        for name, weight in self.model.state_dict().items():
            if weight.numel() > 0 and names.setdefault(weight.data_ptr(), name) != name:
                first_of[name] = names[weight.data_ptr()]
        step_of_average(self, _StateWithout(new_model, first_of), updates)
        for name, first in first_of.items():
            if name in self.fp32_params:
                self.fp32_params[name] = self.fp32_params[first]

    EMA._step_internal = step


class _StateWithout:
    """A model's state without some of its names."""

    def __init__(self, model: nn.Module, names: Iterable[str]):
        self.model, self.names = model, set(names)

    def state_dict(self) -> Dict[str, torch.Tensor]:
        return {name: value for name, value in self.model.state_dict().items() if name not in self.names}


def _averages_once(average_class: Any) -> bool:
    shared = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(shared.weight)
    model = nn.Sequential(shared, shared)
    average = average_class(model, _average_settings())
    nn.init.ones_(shared.weight)
    average.step(model)
    return average.get_model()[0].weight.item() == 0.5


# --- Defect 19: a seed's average keeps the seed's versions, and averages weights that another version reads. ---


def average_weights_of_one_scale() -> None:
    """Lets ``--ema-seed-model`` name a model whose compositions have another scale than the one that trains.

    The average takes the seed's scale with its weights, and keeps it: a scale is a "version" to fairseq. Weights that
    the model divides by its own scale would then be averaged with weights divided by the seed's. Where both have one
    scale there is nothing to do.
    """
    make_average = EMA.__init__
    if getattr(make_average, "takes_the_models_scale", False):
        return

    @functools.wraps(make_average)
    def __init__(self: Any, model: nn.Module, config: Any, *args: Any, **kwargs: Any) -> None:
        make_average(self, model, config, *args, **kwargs)
        if config.ema_seed_model is None:
            return
        for average, trained in zip(self.model.modules(), model.modules()):
            if isinstance(average, ScaledComposition) and isinstance(trained, ScaledComposition):
                average.change_scale(trained.concatenation.scale_version)
        if config.ema_fp32:
            self.build_fp32_params()

    __init__.takes_the_models_scale = True  # type: ignore[attr-defined]
    EMA.__init__ = __init__
