"""Checks of correctness: a figure beside its limit, held or FAILED."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Optional


@dataclass
class Check:
    """A figure that may be no larger than its limit; one that is not a number fails.

    Args:
        name: what was compared.
        figure: the difference that was found.
        limit: the largest one that passes.
        error: why there is no figure, where there is none.
    """

    name: str
    figure: float
    limit: float
    error: Optional[str] = None

    @property
    def held(self) -> bool:
        """Whether the figure is within its limit."""
        return self.figure <= self.limit

    def line(self) -> str:
        """For people."""
        verdict = "held  " if self.held else "FAILED"
        why = f" ({self.error})" if self.error else ""
        return f"{verdict} {self.name}: {self.figure:.3g}, limit {self.limit:.3g}{why}"

    def values(self) -> Dict[str, Any]:
        """For programs; JSON has no infinity and no NaN."""
        figure = self.figure if math.isfinite(self.figure) else None
        return {**asdict(self), "figure": figure, "held": self.held}


def checked(name: str, limit: float, measure: Callable[[], float]) -> Check:
    """Measures, prints and returns a check; what raises has failed, and those after it still run.

    A kernel that refuses (a precision, a deterministic algorithm) is a finding like any other, and time on a borrowed
    device is short.
    """
    try:
        check = Check(name, float(measure()), limit)
    except Exception as error:  # of any kind: kernels raise RuntimeError, our code ValueError
        reason = (str(error).splitlines() or [""])[0]
        check = Check(name, math.nan, limit, f"{type(error).__name__}: {reason}")
    print(check.line(), flush=True)
    return check
