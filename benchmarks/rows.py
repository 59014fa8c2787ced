"""One figure of the harness, and tables of them."""

import statistics
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence

from benchmarks.side_by_side import ratio


@dataclass
class Row:
    """A system's figure beside stock's, or another's, in one setting.

    Args:
        job: what was measured.
        setting: with which shapes and sizes.
        system: of which system.
        figure: the median over rounds of the ratio within a round (or a plain ratio, for what is counted).
        low: the smallest of these ratios.
        high: the largest.
        milliseconds: the system's own median, where time was measured.
        ideal: what the multiply-adds alone would give.
        limit: what the project promises; None if nothing.
        at_least: the figure should be no smaller than the limit; False: no larger.
    """

    job: str
    setting: str
    system: str
    figure: float
    low: float
    high: float
    milliseconds: Optional[float] = None
    ideal: Optional[float] = None
    limit: Optional[float] = None
    at_least: bool = True

    @property
    def held(self) -> Optional[bool]:
        """Whether the limit is held; None without one. Figures count as they are printed, to two decimals."""
        if self.limit is None:
            return None
        figure = round(self.figure, 2)
        return figure >= self.limit if self.at_least else figure <= self.limit


def timed_rows(
    job: str,
    setting: str,
    times: Dict[str, List[float]],
    baseline: str,
    limits: Optional[Dict[str, float]] = None,
    ideals: Optional[Dict[str, float]] = None,
    *,
    as_cost: bool = False,
) -> List[Row]:
    """Rows of interleaved times: how many times as fast as the baseline, or with ``as_cost`` as long."""
    rows = []
    for system, own in times.items():
        pair = (own, times[baseline]) if as_cost else (times[baseline], own)
        figure, low, high = ratio(*pair)
        limit, ideal = (limits or {}).get(system), (ideals or {}).get(system)
        milliseconds = 1000 * statistics.median(own)
        rows.append(Row(job, setting, system, figure, low, high, milliseconds, ideal, limit, not as_cost))
    return rows


def counted_row(job: str, setting: str, system: str, figure: float, limit: Optional[float] = None) -> Row:
    """A row of a ratio that should be small and is counted, not timed."""
    return Row(job, setting, system, figure, figure, figure, limit=limit, at_least=False)


def markdown(rows: Sequence[Row]) -> str:
    """One table a job."""
    parts = []
    for job in unique(row.job for row in rows):
        lines = [f"### {job}", "", "| setting | system | ms | figure | range | by multiply-adds | limit | |"]
        lines.append("|---|---|---|---|---|---|---|---|")
        for row in rows:
            if row.job == job:
                lines.append(_line(row))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> str:
    milliseconds = "" if row.milliseconds is None else f"{row.milliseconds:.0f}"
    spread = "" if row.low == row.high else f"{row.low:.2f}-{row.high:.2f}"
    ideal = "" if row.ideal is None else f"{row.ideal:.2f}"
    limit = "" if row.limit is None else f"{'at least' if row.at_least else 'at most'} {row.limit:.2f}"
    verdict = "" if row.held is None else "held" if row.held else "MISSED"
    cells = (row.setting, row.system, milliseconds, f"{row.figure:.2f}", spread, ideal, limit, verdict)
    return f"| {' | '.join(cells)} |"


def unique(names: Iterable[str]) -> List[str]:
    """In order of appearance."""
    return list(dict.fromkeys(names))
