"""RESULTS.md against the runs that are kept: its scores are theirs, and each run tells how to repeat it."""

import json

import pytest

from tests.support.corpora import load_script


@pytest.fixture
def runs(root):
    """The kept summaries by system and seed."""
    found = {}
    for path in sorted((root / "examples/multi30k_en_de/results").glob("*-seed*.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(summary["system"], {})[summary["seed"]] = summary
    return found


def test_scores_are_those_of_the_runs(root, runs):
    text = (root / "RESULTS.md").read_text(encoding="utf-8")
    table = load_script(root, "multi30k_en_de/table.py")
    for name, seeds in runs.items():
        rows = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert rows, name
        for cells in ([cell.strip() for cell in row.split("|")] for row in rows):
            for measure in ("BLEU", "BLEU-1", "chrF2", "BLEU, lower-cased tokens"):
                assert table.spread([summary["scores"][measure]["score"] for summary in seeds.values()]) in cells
                assert {summary["scores"][measure]["signature"] for summary in seeds.values()} <= set(text.split("`"))
            assert table.spread([summary["best_valid_perplexity"] for summary in seeds.values()]) in cells
            assert f"{seeds[min(seeds)]['parameters']:,}" in cells


def test_runs_tell_how_they_were_made(runs):
    """Commit, versions, settings, and the losses that a second run is held against."""
    for seeds in runs.values():
        for summary in seeds.values():
            (environment,) = summary["environment"]
            assert environment.startswith("commit ") and "-dirty" not in environment and "1 threads" in environment
            settings = dict(word.split("=") for word in summary["settings"].split())
            updates = int(settings["UPDATES"])
            assert list(summary["losses"]) == [str(number) for number in range(100, updates + 1, 100)]
            assert summary["epochs"][-1]["updates"] == updates
