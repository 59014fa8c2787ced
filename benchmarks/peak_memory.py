"""The most memory that torch's allocator hands out on a GPU, also while fairseq's trainer runs."""

from typing import Any

import torch


class PeakMemory:
    """Within a ``with`` block: the largest number of bytes allocated at a time, as ``bytes`` behind it.

    fairseq's trainer starts torch's own record anew at the end of every update, to log what the next one takes. A
    record read behind an update tells what is held then, not what the update needed, so it is read before each reset.
    """

    def __init__(self) -> None:
        self.bytes = 0

    def note(self) -> None:
        """Takes torch's record into account."""
        self.bytes = max(self.bytes, torch.cuda.max_memory_allocated())

    def __enter__(self) -> "PeakMemory":
        self._reset = torch.cuda.reset_peak_memory_stats
        self._reset()

        def reset(*args: Any, **kwargs: Any) -> None:
            self.note()
            self._reset(*args, **kwargs)

        torch.cuda.reset_peak_memory_stats = reset
        return self

    def __exit__(self, *_: Any) -> None:
        torch.cuda.reset_peak_memory_stats = self._reset
        self.note()
