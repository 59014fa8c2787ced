"""What the quickstart shows: results only when every line has its translation, progress from fairseq's log."""

import io
import json
import sys

import pytest
import show_progress
import show_results

from preprocess.files import InputError


def write_translations(folder, ids):
    lines = ["2026-11-30 01:00:00 | INFO | fairseq_cli.generate | done"]
    for number in ids:
        lines += [f"S-{number}\tone", f"H-{number}\t-0.1\tmột", f"D-{number}\t-0.1\tmột {number}"]
    path = folder / "translations.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_hypotheses_come_in_the_order_of_the_test_set(tmp_path):
    assert show_results.read_hypotheses(write_translations(tmp_path, [2, 0, 1]), 3) == ["một 0", "một 1", "một 2"]


@pytest.mark.parametrize("ids", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2, 2]])
def test_a_missing_or_double_hypothesis_is_refused(tmp_path, ids):
    with pytest.raises(InputError, match=f"has {len(ids)} translations for 3 test lines"):
        show_results.read_hypotheses(write_translations(tmp_path, ids), 3)


def test_a_perfect_translation_scores_100(tmp_path, capsys):
    (tmp_path / "test.en").write_text("".join(f"one , two and {i}\n" for i in range(4)), encoding="utf-8")
    (tmp_path / "test.vi").write_text("".join(f"một , hai và {i}\n" for i in range(4)), encoding="utf-8")
    lines = "".join(f"D-{i}\t-0.1\tmột, hai và {i}\n" for i in range(4))
    (tmp_path / "translations.txt").write_text(lines, encoding="utf-8")
    show_results.main(["--corpus", str(tmp_path), "--translations", str(tmp_path / "translations.txt")])
    shown = capsys.readouterr().out
    assert "Test BLEU 100.00; 4 of 4 translations are exactly the reference" in shown
    assert "  English      one, two and 3\n  reference    một, hai và 3\n  translation  một, hai và 3  [same]" in shown


def log_line(logger, **values):
    return f"2026-11-30 01:00:00 | INFO | {logger} | {json.dumps(values)}\n"


def test_progress_keeps_every_line_and_shows_each_validation(capsys):
    lines = [
        "Namespace and other noise\n",
        log_line("train_inner", epoch=1, loss="5.25", num_updates="10"),
        log_line("valid", epoch=1, valid_ppl="17.5", valid_num_updates="20"),
        "2026-11-30 01:00:00 | INFO | train | not json\n",
    ]
    log = io.StringIO()
    show_progress.follow(lines, log, 40)
    assert log.getvalue() == "".join(lines)
    assert capsys.readouterr().out == "         20/40 updates: training loss 5.25, valid perplexity 17.50\n"


def test_progress_draws_one_bar_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    steps = [log_line("train_inner", epoch=1, loss="5.25", num_updates=str(count)) for count in (10, 20, 40)]
    show_progress.follow(steps, io.StringIO(), 40)
    assert "100%" in screen.getvalue() and "40/40 updates" in screen.getvalue() and "loss 5.25" in screen.getvalue()
