"""The parts of the report's page, each from the results it shows."""

import difflib
from typing import Any, Dict, List, Optional, Sequence

from informer_fairseq.tools.report_attention import AttentionMaps, strongest
from informer_fairseq.tools.report_charts import heat_map, line_chart
from informer_fairseq.tools.report_data import TestSet, TrainingLog
from informer_fairseq.tools.report_html import Markup, Section, details, join, section, table, tag

UNKNOWN = "not in the log"


def runs_section(infos: Dict[str, Dict[str, Any]], made_with: str) -> Section:
    """What ran: one column a run."""
    labels = list(infos)
    rows: List[List[Any]] = []
    for name in dict.fromkeys(name for info in infos.values() for name in info["about"]):
        rows.append([name, *(infos[label]["about"].get(name, "–") for label in labels)])
    flags = {label: infos[label]["flags"] for label in labels}
    names = sorted({name for own in flags.values() for name in own})
    differing = [name for name in names if len({str(own.get(name)) for own in flags.values() if own}) > 1]
    children = [table("The runs, and what their files say of them", ["", *labels], rows)]
    if differing:
        shown = [[_flag(name), *(_value(flags[label].get(name)) for label in labels)] for name in differing]
        children.append(table("Flags that differ between the runs", ["flag", *labels], shown))
    every = [[_flag(name), *(_value(flags[label].get(name)) for label in labels)] for name in names]
    if every:
        children.append(details(f"All {len(every)} flags", table("All flags", ["flag", *labels], every)))
    children.append(tag("p", f"This page was made with {made_with}.", class_="soft"))
    return section("runs", "What ran", *children)


def _flag(name: str) -> Markup:
    return tag("code", "--" + name.replace("_", "-"))


def _value(value: Any) -> str:
    return "–" if value is None else "yes" if value is True else "no" if value is False else str(value)


def speed_section(logs: Dict[str, Optional[TrainingLog]], parameters: Dict[str, Dict[str, int]]) -> Section:
    """Parameters, speed and memory."""
    labels = list(logs)
    parts = list(dict.fromkeys(name for own in parameters.values() for name in own))
    children: List[Markup] = []
    if parts:
        rows = [[name, *(f"{own[name]:,}" if name in own else "–" for own in parameters.values())] for name in parts]
        children.append(table("Parameters, shared ones counted once", ["part", *parameters], rows))
    if any(logs.values()):
        rows = []
        for label in labels:
            log = logs[label]
            if log is None:
                rows.append([label, *["no log"] * 5])
                continue
            speed = f"{log.speed[1]:,.0f} ({log.speed[0]:,.0f} to {log.speed[2]:,.0f})" if log.speed else UNKNOWN
            memory = UNKNOWN if log.peak_memory is None else f"{log.peak_memory:.1f} GB"
            devices = ", ".join(dict.fromkeys(log.devices)) or "no GPU in the log"
            rows.append([label, f"{log.updates:,}", speed, f"{log.wall / 60:,.1f} min", memory, devices])
        head = ["run", "updates", "target tokens/s, median epoch (range)", "wall time", "GPU memory at most", "device"]
        children.append(table("Training speed and memory, from the logs", head, rows))
    return section("speed", "Parameters, speed and memory", *children)


def curves_section(logs: Dict[str, Optional[TrainingLog]]) -> Section:
    """Validation curves, as pictures and as numbers."""
    children: List[Markup] = []
    axes = {"ppl": ("perplexity", True), "bleu": ("BLEU", False)}
    for name, (title, log_y) in axes.items():
        series = {
            label: [(v["update"], v[name]) for v in log.valid if v.get(name, 0) > 0]
            for label, log in logs.items()
            if log
        }
        series = {label: points for label, points in series.items() if points}
        if not series:
            continue
        ends = ", ".join(f"{label} ends at {points[-1][1]:g}" for label, points in series.items())
        picture = line_chart(
            series,
            title=f"Validation {title} by update: {ends}",
            x_title="update",
            y_title=f"validation {title}" + (" (log scale)" if log_y else ""),
            log_y=log_y,
        )
        caption = tag("figcaption", f"Validation {title} by update, as logged in training")
        rows = [[label, f"{x:g}", f"{y:g}"] for label, points in series.items() for x, y in points]
        numbers = details("The numbers", table(f"Validation {title}", ["run", "update", title], rows))
        children.append(tag("figure", caption, picture, numbers))
    return section("curves", "Validation curves", *children)


def scores_section(scores: Dict[str, Any], test: TestSet, baseline: str, samples: int, seed: int) -> Section:
    """Scores of the test set, with the paired bootstrap against the baseline."""
    runs = scores["runs"]
    head = ["run", "BLEU", "difference", "p", "chrF", "difference", "p"]
    rows = []
    for label, own in runs.items():
        row: List[Any] = [label]
        for metric in ("BLEU", "chrF"):
            found, base = own[metric], runs[baseline][metric]["score"]
            spread = "" if found["interval"] is None else f" ± {found['interval']:.2f}"
            row.append(f"{found['score']:.2f}{spread}")
            row.append("baseline" if label == baseline else f"{found['score'] - base:+.2f}")
            row.append("–" if found["p"] is None else f"{found['p']:.4f}" + (" *" if found["p"] < 0.05 else ""))
        rows.append(row)
    count = f"{len(test.references):,} sentences"
    children = [table(f"Test set, {count}", head, rows)]
    if test.tokenised:
        children.append(
            tag(
                "p",
                "Scored on the tokens of the training data, as no --references were given: such scores compare these "
                "runs, and nothing else.",
            )
        )
    if len(runs) > 1:
        children.append(
            tag(
                "p",
                f"± is the 95 % interval, p the paired bootstrap's against {baseline} (Koehn, 2004; {samples:,} "
                f"samples, seed {seed}); * marks p < 0.05.",
                class_="soft",
            )
        )
    lines = [tag("li", tag("code", f"{name}: {text}")) for name, text in scores["signatures"].items()]
    children.append(tag("ul", *lines, class_="soft"))
    return section("scores", "Scores", *children)


def lengths_section(groups: Sequence[Dict[str, Any]], baseline: str) -> Section:
    """BLEU by source length."""
    labels = list(groups[0]["BLEU"])
    rows = []
    for group in groups:
        name = f"{group['from']} to {group['to']}" if group["to"] else f"{group['from']} or more"
        cells = []
        for label in labels:
            own = group["BLEU"][label]
            change = "" if label == baseline else f" ({own - group['BLEU'][baseline]:+.2f})"
            cells.append(f"{own:.2f}{change}")
        rows.append([name, f"{group['count']:,}", *cells])
    shown = table(
        "BLEU by words of the source, in brackets the difference to the baseline", ["words", "sentences", *labels], rows
    )
    few = tag("p", "A group of fewer than about 100 sentences says little.", class_="soft")
    return section("lengths", "BLEU by source length", shown, few)


def mark_differences(text: str, reference: str) -> Markup:
    """The words of ``text``, marked where they differ from the reference's in the shortest edit between the two."""
    words, others = text.split(), reference.split()
    parts: List[Any] = []
    matcher = difflib.SequenceMatcher(None, others, words, autojunk=False)
    for kind, _, _, start, end in matcher.get_opcodes():
        if start == end:
            continue
        run = " ".join(words[start:end])
        parts += [" ", run if kind == "equal" else tag("mark", run)]
    return join(parts[1:])


def translations_section(
    test: TestSet, scores: Dict[str, List[float]], baseline: str, chosen: Sequence[int]
) -> Section:
    """Translations side by side: one row a sentence, sortable by every number."""
    labels = list(test.hypotheses)
    numbers = {label: scores[label] for label in labels}  # by the name of their column
    for label in labels:
        if label != baseline:
            numbers[f"{label} − {baseline}"] = [a - b for a, b in zip(scores[label], scores[baseline])]
    head = [_sorting_head(name) for name in ("sentence", "words", *numbers)]
    head.insert(2, tag("th", "text", scope="col", role="columnheader"))
    rows = [_sentence_row(test, line, numbers) for line in chosen]
    some = "those where the runs differ most" if len(labels) > 1 else "the worst"
    which = f"{len(chosen):,} of {len(test.sources):,} sentences, {some}."
    note = tag(
        "p",
        "All sentences." if len(chosen) == len(test.sources) else which,
        " Numbers are the chrF of the sentence alone. Marked and underlined: words that differ from the reference. The "
        "buttons in the table's head sort.",
    )
    shown = tag(
        "table",
        tag("caption", "Translations side by side"),
        tag("thead", tag("tr", *head, role="row"), role="rowgroup"),
        tag("tbody", *rows, role="rowgroup"),
        class_="sortable",
        role="table",  # the narrow screen's style takes the meaning from table elements; the roles give it back
    )
    status = tag("p", id="sort-status", role="status", class_="soft")
    return section("translations", "Translations", note, status, tag("div", shown, class_="scroll"))


def _sorting_head(name: str) -> Markup:
    return tag("th", tag("button", name, type="button"), scope="col", aria_sort="none", role="columnheader")


def _sentence_row(test: TestSet, line: int, numbers: Dict[str, List[float]]) -> Markup:
    """One sentence: its texts and its numbers, each with the value to sort by."""
    words = len(test.sources[line].split())
    texts = [
        tag("p", tag("span", "source", class_="who"), test.sources[line]),
        tag("p", tag("span", "reference", class_="who"), test.references[line]),
    ]
    for label, hypotheses in test.hypotheses.items():
        marked = mark_differences(hypotheses[line], test.references[line])
        texts.append(tag("p", tag("span", label, class_="who"), marked))
    cells = [
        tag("th", line + 1, scope="row", role="rowheader", data_value=line, data_label="sentence"),
        tag("td", words, role="cell", class_="number", data_value=words, data_label="words"),
        tag("td", *texts, role="cell"),
    ]
    for name, values in numbers.items():
        shown = f"{values[line]:.1f}" if name in test.hypotheses else f"{values[line]:+.1f}"
        value = f"{values[line]:.4f}"
        cells.append(tag("td", shown, role="cell", class_="number", data_value=value, data_label=name))
    return tag("tr", *cells, role="row")


def attention_section(sentence: int, maps: Dict[str, AttentionMaps]) -> Section:
    """Attention in one sentence, for every run."""
    intro = (
        f"Sentence {sentence + 1} and each run's own translation, in pieces. The stronger the colour, the larger the "
        "weight, as a share of the largest in each map; rows sum to 1; mean over heads, last layer."
    )
    children: List[Markup] = [tag("p", intro)]
    for label, own in maps.items():
        children.append(tag("h3", label))
        title = f"{label}: from the translation (rows) to the source (columns)"
        children.append(_map(title, own.target, own.source, own.decoder))
        if own.slots:
            children += _slot_maps(label, own)
    return section("attention", "Attention in one sentence", *children)


def _slot_maps(label: str, own: AttentionMaps) -> List[Markup]:
    names = [f"slot {number + 1}" for number in range(len(own.draws))]
    if not any(own.draws[-1]):
        names[-1] = "empty slots"  # those that cover no token, as one
    filled = [number for number, row in enumerate(own.draws) if any(row)]
    to_slots = f"{label}: encoder, from the tokens (rows) to the slots (columns)"
    draws = f"{label}: encoder, the tokens (columns) each slot (row) draws on"
    rows = [names[number] for number in filled]
    return [
        _map(to_slots, own.source, names, own.slots),
        _map(draws, rows, own.source, [own.draws[number] for number in filled]),
    ]


def _map(title: str, rows: List[str], columns: List[str], weights: List[List[float]]) -> Markup:
    words = table(title, ["from", "most weight"], [list(line) for line in strongest(weights, rows, columns)])
    return tag(
        "figure",
        tag("figcaption", f"{title}; largest {max(map(max, weights)):.2f}"),
        heat_map(rows, columns, weights, title),
        details("In words", words),
    )
