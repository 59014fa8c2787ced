"""Line charts of runs: colours that the colour-blind tell apart, labels at the lines' ends, PNG or SVG."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import write_whole

# Okabe and Ito's colours without yellow, which is too faint for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
STYLES = ("-", "--", ":")
FORMATS = (".png", ".svg")
_LABEL_OFFSET = 14  # points from a line's end


@dataclass(frozen=True)
class Line:
    """One run's line in a panel.

    Attributes:
        label: written at the line's end.
        x: strictly increasing positions.
        y: the mean over seeds at each.
        low: the smallest of the seeds; equal to ``y`` for one seed.
        high: the largest.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One chart: its lines, and what its axes show, with units."""

    lines: Sequence[Line]
    x_label: str
    y_label: str


def check_format(path: str) -> None:
    """Raises InputError unless ``path`` ends in one of :data:`FORMATS`."""
    if Path(path).suffix not in FORMATS:
        raise InputError(f"--output {path} must end in {' or '.join(FORMATS)}, which tells the kind of picture")


def draw(panels: Sequence[Panel], title: str, path: str) -> None:
    """Draws panels side by side into a picture that is written whole or not at all.

    A run has the same colour, marker and style in every panel. Perplexity-like ranges of a factor ten or more get a
    logarithmic axis. The same input gives the same bytes.

    Args:
        panels: one chart each.
        title: what all show.
        path: a ``.png`` or ``.svg``.
    """
    check_format(path)
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    # Text stays text in an SVG: searchable, and read out by screen readers.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "informer-fairseq", "font.size": 10}):
        figure = Figure(figsize=(6.4 * len(panels), 4.0), dpi=110, layout=ConstrainedLayoutEngine(wspace=0.06))
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        figure.suptitle(title)
        for axis, panel in zip(axes, panels):
            _draw_panel(axis, panel, labels)
        # The layout is final only after one pass of drawing, and labels are moved apart in its pixels.
        figure.draw_without_rendering()
        for axis in axes:
            _move_labels_apart(figure, axis)
        suffix = Path(path).suffix[1:]
        metadata: Dict[str, Any] = {"Date": None, "Title": title} if suffix == "svg" else {"Title": title}
        with write_whole(path, "wb") as handle:
            figure.savefig(handle, format=suffix, metadata=metadata)


def _draw_panel(axis: Axes, panel: Panel, labels: Sequence[str]) -> None:
    for line in panel.lines:
        number = labels.index(line.label)
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(
            line.x,
            line.y,
            color=colour,
            marker=MARKERS[number % len(MARKERS)],
            markersize=3.5,
            linestyle=STYLES[number // len(COLOURS) % len(STYLES)],
        )
        if list(line.low) != list(line.high):
            axis.fill_between(line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
        axis.annotate(
            line.label,
            (line.x[-1], line.y[-1]),
            xytext=(_LABEL_OFFSET, 0),
            textcoords="offset points",
            color="#222222",  # small text needs more contrast than the colours have; a stroke of colour leads to it
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "shrinkA": 2, "shrinkB": 0, "relpos": (0, 0.5)},
            annotation_clip=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},  # other lines may pass here
        )
    lowest, highest = (pick(pick(side) for side in sides) for pick, sides in _extremes(panel))
    if lowest > 0 and highest / lowest >= 10:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)


def _extremes(panel: Panel) -> Tuple[Any, Any]:
    return (min, [line.low for line in panel.lines]), (max, [line.high for line in panel.lines])


def _move_labels_apart(figure: Figure, axis: Axes) -> None:
    """Shifts labels that would overlap up or down, in the order of the lines' ends, within the chart's height."""
    points_per_pixel = 72 / figure.dpi
    texts: List[Any] = sorted(axis.texts, key=lambda text: axis.transData.transform(text.xy)[1])
    ends = [axis.transData.transform(text.xy)[1] * points_per_pixel for text in texts]
    # The extent of the text alone; the annotation's own includes the stroke.
    heights = [Text.get_window_extent(text).height * points_per_pixel for text in texts]
    places = list(ends)
    bottom, top = axis.bbox.y0 * points_per_pixel, axis.bbox.y1 * points_per_pixel
    for _ in range(200):  # neighbours push each other until all have room
        moved = False
        if sum(heights) + len(heights) < top - bottom:
            places[0] = max(places[0], bottom + heights[0] / 2)
            places[-1] = min(places[-1], top - heights[-1] / 2)
        for n in range(len(places) - 1):
            short = (heights[n] + heights[n + 1]) / 2 + 1 - (places[n + 1] - places[n])
            if short > 0.01:
                places[n], places[n + 1], moved = places[n] - short / 2, places[n + 1] + short / 2, True
        if not moved:
            break
    for text, place, end in zip(texts, places, ends):
        text.set_position((_LABEL_OFFSET, place - end))
