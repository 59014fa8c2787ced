"""Curves and maps as SVG inside the page: sharp at any size, in the page's own light or dark colours."""

import math
from typing import Dict, List, Optional, Sequence, Tuple

from informer_fairseq.tools.report_html import Markup, join, tag

_COLOURS = 8  # classes s0 to s7 of the style sheet
_DASHES = (None, "7 4", "2 4", "10 3 2 3")  # a second sign beside the colour
Point = Tuple[float, float]


def line_chart(series: Dict[str, List[Point]], *, title: str, x_title: str, y_title: str, log_y: bool) -> Markup:
    """Curves with their names at their ends.

    Args:
        series: the points of each curve, by name.
        title: what a screen reader says of the picture.
        x_title: of the horizontal axis, with its unit.
        y_title: of the vertical axis, likewise.
        log_y: whether the vertical axis is logarithmic.
    """
    width, height, left, right, top, bottom = 720, 340, 56, 150, 30, 44
    points = [point for curve in series.values() for point in curve]
    x_ticks = _ticks(min(x for x, _ in points), max(x for x, _ in points))
    low, high = min(y for _, y in points), max(y for _, y in points)
    y_ticks = _log_ticks(low, high) if log_y else _ticks(low, high)
    scale = math.log if log_y else float

    def place(point: Point) -> Point:
        x = (point[0] - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        y = (scale(point[1]) - scale(y_ticks[0])) / (scale(y_ticks[-1]) - scale(y_ticks[0]))
        return round(left + x * (width - left - right), 1), round(height - bottom - y * (height - top - bottom), 1)

    parts = []
    for tick in y_ticks:
        y = place((x_ticks[0], tick))[1]
        parts.append(tag("line", x1=left, x2=width - right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", f"{tick:g}", x=left - 8, y=y + 4, text_anchor="end", class_="axis"))
    for tick in x_ticks:
        x = place((tick, y_ticks[0]))[0]
        parts.append(tag("text", f"{tick:g}", x=x, y=height - bottom + 18, text_anchor="middle", class_="axis"))
    middle = left + (width - left - right) / 2
    parts.append(tag("text", x_title, x=middle, y=height - 6, text_anchor="middle", class_="axis"))
    parts.append(tag("text", y_title, x=4, y=16, class_="axis"))
    placed = {name: [place(point) for point in curve] for name, curve in series.items()}
    parts += _curves(placed, width - right + 12, height - bottom)
    picture = tag("svg", *parts, viewBox=f"0 0 {width} {height}", width=width, role="img", aria_label=title)
    return tag("div", picture, class_="scroll", tabindex="0", role="region", aria_label=title)


def _curves(series: Dict[str, List[Point]], label_x: float, bottom: float) -> List[Markup]:
    """The curves, and their names at the right edge, near the height of the ends and in their order.

    Args:
        series: points in the picture's units.
        label_x: where the names start.
        bottom: the lowest place of a name.
    """
    parts: List[Markup] = []
    ends = sorted((curve[-1][1], number, name) for number, (name, curve) in enumerate(series.items()))
    heights: List[float] = []
    limit = bottom
    for y, _, _ in reversed(ends):  # from the bottom up, each name clear of the one below
        heights.insert(0, min(y, limit))
        limit = heights[0] - 17
    for (_, number, name), height in zip(ends, heights):
        colour = number % _COLOURS
        dash = _DASHES[number % len(_DASHES)]
        path = " ".join(f"{x},{y}" for x, y in series[name])
        parts.append(tag("polyline", points=path, class_=f"curve s{colour}", stroke_dasharray=dash))
        parts += [tag("circle", cx=x, cy=y, r=2.5, class_=f"dot s{colour}") for x, y in series[name]]
        sample = f"{label_x},{height} {label_x + 26},{height}"
        parts.append(tag("polyline", points=sample, class_=f"curve s{colour}", stroke_dasharray=dash))
        shown = name if len(name) <= 14 else name[:13] + "…"
        parts.append(tag("text", shown, x=label_x + 32, y=height + 4, class_=f"f{colour}"))
    return parts


def _ticks(low: float, high: float) -> List[float]:
    """Round numbers, about five, that enclose both."""
    span = (high - low) or max(abs(high), 1.0) * 0.1
    unit = 10 ** math.floor(math.log10(span / 4))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * 5 >= span)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> List[float]:
    """1, 2, 5, 10 ... that enclose both; linear ticks where the values are close together."""
    if high / low < 3:
        return [tick for tick in _ticks(low, high) if tick > 0]
    grid = [base * 10.0**power for power in range(-3, 9) for base in (1, 2, 5)]
    start = max(number for number, tick in enumerate(grid) if tick <= low)
    end = min(number for number, tick in enumerate(grid) if tick >= high)
    return grid[start : end + 1]


def heat_map(rows: Sequence[str], columns: Sequence[str], weights: Sequence[Sequence[float]], title: str) -> Markup:
    """A map of weights of 0 to 1: the stronger its colour the larger, the largest of the map in full.

    Args:
        rows: their names.
        columns: their names, written upright.
        weights: one list a row.
        title: what a screen reader says of the picture.
    """
    cell = 24
    peak = max(max(row) for row in weights) or 1.0
    left = 14 + 8 * max(len(name) for name in rows)
    top = 14 + 8 * max(len(name) for name in columns)
    parts: List[Optional[Markup]] = []
    for number, name in enumerate(columns):
        x, y = left + number * cell + 16, top - 6
        parts.append(tag("text", name, transform=f"translate({x} {y}) rotate(-90)"))
    for number, name in enumerate(rows):
        parts.append(tag("text", name, x=left - 6, y=top + number * cell + 17, text_anchor="end"))
        for column, weight in enumerate(weights[number]):
            if weight >= 0.005:
                hint = tag("title", f"{name} → {columns[column]}: {weight:.2f}")
                x, y = left + column * cell, top + number * cell
                size = {"width": cell - 1, "height": cell - 1, "fill_opacity": round(weight / peak, 3)}
                parts.append(tag("rect", hint, x=x, y=y, **size))
    width, height = left + len(columns) * cell + 4, top + len(rows) * cell + 4
    frame = {"width": len(columns) * cell, "height": len(rows) * cell}
    parts.append(tag("rect", x=left, y=top, class_="frame", **frame))
    picture = tag(
        "svg", join(parts), viewBox=f"0 0 {width} {height}", width=width, role="img", aria_label=title, class_="heat"
    )
    return tag("div", picture, class_="scroll", tabindex="0", role="region", aria_label=title)
