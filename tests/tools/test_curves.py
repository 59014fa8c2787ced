"""curves: fairseq's own log formats, resumed runs, seeds, pictures and numbers, one-line errors."""

import csv
import json
import logging
import xml.etree.ElementTree as ElementTree

import pytest
from fairseq.logging import progress_bar

from informer_fairseq.tools import plots
from informer_fairseq.tools.curves import average_seeds, read_runs
from informer_fairseq.tools.main import main
from informer_fairseq.tools.training_logs import Validation, parse_validations, read_validations

BARS = {
    "simple": progress_bar.SimpleProgressBar,
    "tqdm": progress_bar.TqdmProgressBar,
    "json": progress_bar.JsonProgressBar,
}


def entry(epoch, updates, perplexity, bleu=None, subset="valid"):
    """A validation as fairseq's --log-format simple writes it to a --log-file."""
    scores = f"loss 9.9 | nll_loss 1.2 | ppl {perplexity}" + (f" | bleu {bleu}" if bleu is not None else "")
    return f"epoch {epoch:03d} | valid on '{subset}' subset | {scores} | num_updates {updates} | best_loss 9.9\n"


def curves(tmp_path, *words):
    """What the command writes as JSON."""
    assert main(["curves", *map(str, words), "--json", str(tmp_path / "c.json")]) == 0
    return json.loads((tmp_path / "c.json").read_text("utf-8"))


@pytest.mark.parametrize("kind", BARS)
@pytest.mark.parametrize("to_file", [True, False])
def test_what_fairseqs_own_bars_print_is_read(kind, to_file, tmp_path):
    log = tmp_path / "train.log"
    handler = logging.FileHandler(log)
    if not to_file:  # as fairseq-train prints it
        handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    logger = logging.getLogger("fairseq.logging.progress_bar")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        bar = BARS[kind]([0, 1], epoch=3, prefix="valid on 'valid' subset")
        bar.print({"loss": 8.4, "nll_loss": 3.0, "ppl": 8.01, "bleu": 12.5, "num_updates": 771}, tag="valid", step=771)
        train = BARS[kind]([0, 1], epoch=3)
        train.print({"loss": 9.4, "nll_loss": 4.0, "ppl": 16.0, "num_updates": 771}, tag="train", step=771)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert read_validations([str(log)], "valid") == [Validation("valid", 3, 771, 8.01, 12.5, 3.0)]


def test_a_perplexity_that_is_not_logged_comes_from_the_loss_in_bits():
    line = "epoch 001 | valid on 'dev' subset | loss 9 | nll_loss 3 | num_updates 5"
    [found] = parse_validations([line, 'begin validation on "dev" subset', '{"epoch": 1, "cut'])
    assert found == Validation("dev", 1, 5, 8.0, None, 3.0)


def test_bits_that_are_not_logged_come_from_the_perplexity():
    [found] = parse_validations(["epoch 001 | valid on 'dev' subset | loss 2.5 | ppl 4 | num_updates 5"])
    assert found == Validation("dev", 1, 5, 4.0, None, 2.0)


def test_numbers_that_are_not_finite_are_not_drawn():
    [found] = parse_validations([entry(1, 5, "inf", "nan").strip()])
    assert (found.perplexity, found.bleu) == (None, None)


def test_a_resumed_run_replaces_what_it_runs_again(write):
    first = entry(1, 100, 50) + entry(2, 200, 40) + entry(3, 300, 30)
    again = entry(2, 200, 41) + entry(3, 300, 31) + entry(4, 400, 21)
    expected = [(100, 50), (200, 41), (300, 31), (400, 21)]
    one, two, both = (str(write(name, text)) for name, text in (("1", first), ("2", again), ("b", first + again)))
    for paths in ([one, two], [both]):
        assert [(v.updates, v.perplexity) for v in read_validations(paths, "valid")] == expected
    runs = read_runs([f"long={one}+{two}"], "valid")
    assert [v.perplexity for v in runs["long"][f"{one}+{two}"]] == [50, 41, 31, 21]


def test_lines_that_a_log_file_repeats_are_one_validation(write):
    """fairseq opens its --log-file once more for every epoch, and then writes each line as often."""
    log = write("a", entry(1, 100, 50) + 2 * entry(2, 200, 40) + 3 * entry(3, 300, 30))
    assert [v.updates for v in read_validations([str(log)], "valid")] == [100, 200, 300]


def test_seeds_are_averaged_where_all_have_been(write):
    one = str(write("1", entry(1, 100, 50) + entry(2, 200, 40) + entry(3, 300, 30)))
    two = str(write("2", entry(1, 110, 70) + entry(2, 220, 20)))
    [logs] = read_runs([f"informer={one},{two}"], "valid").values()
    line = average_seeds(logs, "epoch", "perplexity", "informer")
    assert line == {"x": [1, 2], "y": [60, 30], "low": [50, 20], "high": [70, 40]}


def test_what_is_not_drawn_is_told(write, tmp_path, capsys):
    one = write("1", entry(1, 100, 50, 9.5) + entry(2, 200, 40, 9.75))
    two = write("2", entry(1, 100, 70))
    curves(tmp_path, "--run", f"short={one},{two}", f"long={one}", "--output", tmp_path / "c.svg")
    told = capsys.readouterr().out
    assert "short: perplexity drawn at 1 of 2 validations, where all seeds have it" in told
    assert "short: no bleu in every log, so no line" in told


@pytest.mark.parametrize("suffix", plots.FORMATS)
def test_picture_numbers_and_summary(suffix, write, tmp_path, capsys):
    a = write("a", entry(1, 100, 50, 3.5) + entry(2, 200, 4, 20.25))
    b, c = write("b", entry(1, 100, 60)), write("c", entry(1, 100, 80))
    picture = tmp_path / f"out/curves{suffix}"
    found = curves(tmp_path, "--run", f"first={a}", f"second={b},{c}", "--output", picture)
    assert found["x"] == "epoch" and list(found["runs"]["second"]) == [str(b), str(c)]
    rows = list(csv.DictReader((tmp_path / "out/curves.csv").open()))
    assert rows[1] == dict(
        zip(
            ("run", "log", "subset", "epoch", "updates", "perplexity", "bleu"),
            ("first", str(a), "valid", "2", "200", "4.0", "20.25"),
        )
    )
    assert [row["bleu"] for row in rows] == ["3.5", "20.25", "", ""]
    assert "20.25" in capsys.readouterr().out
    data = picture.read_bytes()
    if suffix == ".png":
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        return
    texts = "".join(ElementTree.fromstring(data).itertext())
    for text in ("first", "second", "epoch", "perplexity (2^bits per target token)", "BLEU (0 to 100)"):
        assert text in texts
    assert plots.COLOURS[0].lower() in data.decode().lower()
    curves(tmp_path, "--run", f"first={a}", f"second={b},{c}", "--output", picture)
    assert picture.read_bytes() == data  # the same input gives the same bytes


def test_several_validations_in_an_epoch_are_drawn_by_updates(write, tmp_path):
    log = write("a", entry(1, 100, 50) + entry(1, 200, 40) + entry(2, 300, 30))
    assert curves(tmp_path, "--run", f"a={log}", "--output", tmp_path / "c.svg")["x"] == "updates"


def test_labels_at_the_same_end_are_moved_apart():
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    figure = Figure(layout="constrained")
    axis = figure.subplots()
    same = [plots.Line(f"run {n}", [1, 2], [9, 5], [9, 5], [9, 5]) for n in range(4)]
    plots._draw_panel(axis, plots.Panel(same, "epoch", "perplexity"), [line.label for line in same])
    figure.draw_without_rendering()
    plots._move_labels_apart(figure, axis)
    boxes = sorted((Text.get_window_extent(text) for text in axis.texts), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in zip(boxes, boxes[1:]))


@pytest.mark.parametrize(
    "words, told",
    [
        (["--run", "a={empty}"], "has no validation on 'valid'; give a log of fairseq-train"),
        (["--run", "a={good}", "--subset", "dev"], "it has some on valid"),
        (["--run", "a={nowhere}"], "no such file"),
        (["--run", "a={folder}"], "no run in"),
        (["--run", "a={good}", "a={good}"], "two runs are called a"),
        (["--run", "a={good},{good}"], "or one twice"),
        (["--run", "a={good}", "--metric", "bleu"], "train with --eval-bleu"),
        (["--run", "a={twice}", "--x", "epoch"], "draw with --x updates"),
        (["--run", "a={good},{later}"], "never validated at the same epoch"),
        (["--run", "a={good}", "--output", "c.jpg"], "must end in .png or .svg"),
        (["--run", "a={good}", "--csv", "{folder}"], "is a folder: give a file"),
        (["--run", "a={good}", "--csv", "{folder}/c.svg"], "is to be written twice"),
    ],
)
def test_errors_are_one_line_and_write_nothing(words, told, write, tmp_path, capsys):
    texts = {
        "empty": "epoch 001 | loss 9 | ppl 8 | num_updates 100\n",
        "good": entry(1, 100, 50),
        "later": entry(2, 200, 50),
        "twice": entry(1, 100, 50) + entry(1, 200, 40),
    }
    paths = {name: str(write(name, text)) for name, text in texts.items()}
    paths.update(nowhere=str(tmp_path / "nowhere"), folder=str(tmp_path))
    before = sorted(tmp_path.iterdir())
    words = ["--output", str(tmp_path / "c.svg"), *(word.format(**paths) for word in words)]
    assert main(["curves", *words, "--json", str(tmp_path / "c.json")]) == 2
    message = capsys.readouterr().err.strip()
    assert told in message and "\n" not in message
    assert sorted(tmp_path.iterdir()) == before
