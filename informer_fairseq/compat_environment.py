"""What all repairs need: the environment's variables for a while, and what torch agrees to load."""

import contextlib
import io
import os
import pickle
from typing import Any, Dict, Iterator, Optional

import torch


def loads(value: Any) -> bool:
    """Whether ``torch.load`` reads ``value`` with its protection on."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, weights_only=True)
    except pickle.UnpicklingError:
        return False
    return True


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
