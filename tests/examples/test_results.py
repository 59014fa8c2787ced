"""RESULTS.md against the runs that are kept: its scores are theirs, and each run tells how to repeat it."""

import gzip
import json
import re

import pytest

from tests.support.corpora import load_script

# The kept runs of a recipe, the heading that their tables stand under, and how many runs there are at least.
MULTI30K = ("multi30k_en_de/results", "## Multi30k English-German", 40)
SECOND_CPU = ("multi30k_en_de/results/second_cpu", "## Multi30k, seed 2 on another CPU", 5)
MODERN = ("iwslt15_en_vi/results/modern", "### Modern setting", 12)
PAPER = ("iwslt15_en_vi/results/paper", "### The papers' setting", 5)
KEPT = pytest.mark.parametrize(("folder", "heading", "at_least"), [MULTI30K, SECOND_CPU, MODERN, PAPER])


def read_runs(folder, at_least):
    """The kept summaries by system and seed."""
    found = {}
    paths = sorted([*folder.glob("*-seed*.json"), *folder.glob("*-seed*/summary.json")])
    assert len(paths) >= at_least
    for path in paths:
        summary = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(summary["system"], {})[summary["seed"]] = summary
    return found


def section(text, heading):
    """What stands under a heading, its own subheadings included."""
    level = heading.partition(" ")[0]
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, heading
    return re.split(rf"\n#{{1,{len(level)}}} ", rest)[0]


def tables_of(text):
    """All tables, each the list of its rows, each row by the header."""
    header, tables = None, []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if not cells:
            header = None
        elif header is None:
            header = cells
            tables.append([])
        elif set(line) - set("|-"):
            assert len(cells) == len(header), line
            tables[-1].append(dict(zip(header, cells)))
    return tables


@KEPT
def test_scores_are_those_of_the_runs(root, folder, heading, at_least):
    text = (root / "RESULTS.md").read_text(encoding="utf-8")
    tables = tables_of(section(text, heading))
    rows = [row for rows in tables for row in rows]
    table = load_script(root, "multi30k_en_de/table.py")
    runs = read_runs(root / "examples" / folder, at_least)
    assert {row["system"] for row in rows} == {f"`{name}`" for name in runs}
    for row in rows:
        seeds = runs[row["system"].strip("`")]
        summaries = [seeds[seed] for seed in sorted(seeds)]
        assert row["seeds"] == " ".join(map(str, sorted(seeds)))
        assert row["parameters"] == f"{summaries[0]['parameters']:,}"
        perplexities = [summary["best_valid_perplexity"] for summary in summaries]
        assert row["lowest valid perplexity"] == table.spread(perplexities)
        for measure in summaries[0]["scores"]:
            assert row[measure] == table.spread([summary["scores"][measure]["score"] for summary in summaries])
            assert {summary["scores"][measure]["signature"] for summary in summaries} <= set(text.split("`"))


@KEPT
def test_differences_and_settings_are_those_of_the_runs(root, folder, heading, at_least):
    """In each table of several systems: the last column, and the settings in which its rows differ."""
    table = load_script(root, "multi30k_en_de/table.py")
    runs = read_runs(root / "examples" / folder, at_least)
    for rows in tables_of(section((root / "RESULTS.md").read_text(encoding="utf-8"), heading)):
        if len(rows) == 1:
            continue
        column = list(rows[0])[-1]
        measure, baseline = re.fullmatch("(.*) less (.*)'s, 95%", column).groups()
        named = [row["system"].strip("`") for row in rows]
        settings = table.settings_that_differ(
            {name: {seed: (one, []) for seed, one in runs[name].items()} for name in named}
        )
        for name, row in zip(named, rows):
            if "settings" in row:
                assert row["settings"] == settings[name]
            if name == baseline:
                assert row[column] == ""
                continue
            pairs = [(runs[name][seed], runs[baseline][seed]) for seed in set(runs[name]) & set(runs[baseline])]
            found = [one["scores"][measure]["score"] - other["scores"][measure]["score"] for one, other in pairs]
            mean, low, high = re.fullmatch(r"([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\)", row[column]).groups()
            assert mean == f"{sum(found) / len(found):+.2f}" and float(low) < float(mean) < float(high)


def test_costs_are_those_that_were_measured(root):
    folder, heading, _ = MULTI30K
    costs = json.loads((root / "examples" / folder / "costs.json").read_text(encoding="utf-8"))["systems"]
    tables = tables_of(section((root / "RESULTS.md").read_text(encoding="utf-8"), heading))
    told = [row for rows in tables for row in rows if "training speed" in row]
    assert len({row["system"] for row in told}) >= 8
    for row in told:
        for name in ("training speed", "bytes kept", "decoding speed"):
            assert row[name] == f"{costs[row['system'].strip('`')][name]['figure']:.2f}"


@KEPT
def test_runs_tell_how_they_were_made(root, folder, heading, at_least):
    """Commit, versions, settings, and the losses that a second run is held against."""
    for seeds in read_runs(root / "examples" / folder, at_least).values():
        for summary in seeds.values():
            (environment,) = summary["environment"]
            assert (
                environment.startswith("commit ") and "-dirty" not in environment and environment.endswith(" 1 threads")
            )
            settings = dict(re.findall(r"(\w+)=(\S+)", summary["settings"]))
            updates = int(settings["UPDATES"] if "UPDATES" in settings else settings["MAX_UPDATE"])
            assert list(summary["losses"]) == [str(number) for number in range(100, updates + 1, 100)]
            assert summary["epochs"][-1]["updates"] == updates


def test_kept_translations_are_of_the_whole_test_set(root):
    folder, _, at_least = SECOND_CPU
    kept = sorted((root / "examples" / folder).glob("*/test_2016_flickr.de.gz"))
    assert len(kept) == at_least == len({path.read_bytes() for path in kept})
    for path in kept:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        assert len(lines) == 1000 and len(set(lines)) > 900, path
