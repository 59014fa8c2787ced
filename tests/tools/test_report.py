"""The report: logs, scores, attention and a page that Chromium opens, sorts, and in which hostile text stays text."""

import json
import math
import os
import re
import subprocess
import sys
import time

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

from informer_fairseq.errors import InputError
from informer_fairseq.token_mixers.reduced_attention import ReducedSelfAttention
from informer_fairseq.tools import main, report_attention, report_charts, report_data, report_html, report_sections
from informer_fairseq.tools.models import load_model
from tests.support import browser as chromium
from tests.support.checkpoints import save_small
from tests.support.models import ALL_ARCHS, EFFICIENT_ARCHS

HOSTILE = (
    "<script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 2">',
    "</title></table><svg onload=window.ran=3>",
)
PREFIX = "2026-01-01 00:00:00 | INFO | "
SIMPLE_LOG = (
    "num. shared model params: 1,234 (num. trained: 1,234)\n"
    "epoch 001:    100 / 257 loss=3.4, ppl=3.89, wps=1, num_updates=2, wall=1\n"
    "epoch 001 | valid on 'valid' subset | loss 8.4 | nll_loss 7.7 | ppl 214.5 | wps 7897.8 | num_updates 10\n"
    "epoch 001 | loss 9.5 | nll_loss 9.1 | ppl 500 | wps 1000 | num_updates 10 | train_wall 50 | wall 60\n"
    "epoch 002 | valid on 'valid' subset | loss 5.4 | nll_loss 4.7 | ppl 24.5 | wps 7890 | bleu 12.5 | num_updates 20\n"
    "epoch 002 | loss 7.5 | nll_loss 9.1 | ppl 50 | wps 1200 | num_updates 20 | train_wall 50 | wall 120\n"
)


def run_cli(*words, status=0):
    assert main.main([str(word) for word in words]) == status


def generated(sources, references, hypotheses):
    lines = []
    for index in reversed(range(len(sources))):  # fairseq's order is that of its batches
        lines += [f"S-{index}\t{sources[index]}", f"T-{index}\t{references[index]}"]
        lines += [f"H-{index}\t-0.5\t{hypotheses[index]}", f"D-{index}\t-0.5\t{hypotheses[index]}", f"P-{index}\t-0.1"]
    return "\n".join(lines) + "\nGenerate test with beam=4: BLEU4 = 1\n"


def sentences(count):
    sources = [" ".join(f"w{(7 * n + k) % 60}" for k in range(3 + n % 9)) for n in range(count)]
    references = [line.replace("w", "v") for line in sources]
    return sources, references


@pytest.fixture(scope="module")
def two_runs(data_bin, tmp_path_factory):
    """Two runs' folders with everything a report reads, a hostile sentence among the translations."""
    folder = tmp_path_factory.mktemp("runs")
    sources, references = sentences(40)
    sources[5], references[5] = HOSTILE[0], HOSTILE[1]
    for name, arch in (("stock", "transformer"), ("informer", "informer_mt")):
        run = folder / name
        run.mkdir()
        save_small(run / "averaged.pt", data_bin[0], arch)
        (run / "train.log").write_text(SIMPLE_LOG)
        hypotheses = [
            " ".join(line.split()[: -1 if (n + (name == "stock")) % 3 else None]) or "v1"
            for n, line in enumerate(references)
        ]
        hypotheses[5] = HOSTILE[2]
        (run / "test.generate").write_text(generated(sources, references, hypotheses))
        (run / "test.vi").write_text("\n".join(hypotheses) + "\n")
    (folder / "references").write_text("\n".join(references) + "\n")
    return folder, data_bin[0]


@pytest.fixture(scope="module")
def page(two_runs):
    """The report over both runs: the page's path and the JSON."""
    folder, data = two_runs
    output = folder / "report.html"
    words = ["report", "--run", f"stock={folder}/stock", f"informer={folder}/informer", "--data-bin", data]
    words += ["--references", folder / "references", "--output", output, "--json", folder / "report.json"]
    run_cli(*words, "--title", HOSTILE[0], "--samples", 100)
    return output, json.loads((folder / "report.json").read_text())


# --------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.parametrize("printed", (False, True))
def test_simple_log(write, printed):
    text = SIMPLE_LOG
    if printed:  # on the terminal every line has a date and a name before it
        names = ["fairseq_cli.train", "train_inner", "valid", "train", "valid", "train"]
        text = "".join(f"{PREFIX}{name} | {line}\n" for name, line in zip(names, text.splitlines()))
    log = report_data.read_log(write("train.log", text))
    assert log.valid == [
        {"update": 10, "epoch": 1, "loss": 8.4, "ppl": 214.5},
        {"update": 20, "epoch": 2, "loss": 5.4, "ppl": 24.5, "bleu": 12.5},
    ]
    assert (log.updates, log.wall, log.speed, log.parameters) == (20, 120, (1000, 1200, 1200), 1234)
    assert log.peak_memory is None and log.devices == []


def test_json_log_and_gpu_memory(write):
    lines = [
        "rank   0: capabilities =  9.0  ; total memory = 100.000 GB ; name = Some GPU",
        PREFIX + 'valid | {"epoch": 1, "valid_loss": "5", "valid_ppl": "16.2", "valid_num_updates": "7"}',
        PREFIX + 'train | {"epoch": 1, "train_loss": "6", "train_wps": "90", "train_num_updates": "7", '
        '"train_gb_free": "60.5", "train_wall": "30"}',
    ]
    log = report_data.read_log(write("train.log", "\n".join(lines)))
    assert log.valid == [{"update": 7, "epoch": 1, "loss": 5, "ppl": 16.2}]
    assert (log.peak_memory, log.devices, log.speed, log.wall) == (39.5, ["Some GPU"], (90, 90, 90), 30)


def test_resumed_log_is_joined(write):
    again = SIMPLE_LOG.replace("num_updates 20", "num_updates 30").replace("wall 120", "wall 70")
    log = report_data.read_log(write("train.log", SIMPLE_LOG + again))
    assert [values["update"] for values in log.valid] == [10, 20, 30]
    assert log.wall == 120 + 70  # a resumed training counts from zero


def test_log_without_validation_is_an_error(write):
    with pytest.raises(InputError, match="has no validation"):
        report_data.read_log(write("train.log", "epoch 001 | loss 1 | wps 5 | num_updates 3 | wall 4\n"))


# ------------------------------------------------------------------------------------------------------------- scores


def test_scores_equal_sacrebleu(two_runs, page):
    folder, _ = two_runs
    references = (folder / "references").read_text().splitlines()
    for label in ("stock", "informer"):
        hypotheses = (folder / label / "test.vi").read_text().splitlines()
        own = page[1]["scores"]["runs"][label]
        assert own["BLEU"]["score"] == pytest.approx(BLEU().corpus_score(hypotheses, [references]).score)
        assert own["chrF"]["score"] == pytest.approx(CHRF().corpus_score(hypotheses, [references]).score)
    assert page[1]["scores"]["runs"]["stock"]["BLEU"]["p"] is None
    assert 0 < page[1]["scores"]["runs"]["informer"]["BLEU"]["p"] <= 1
    assert "bs:100|seed:12345" in page[1]["scores"]["signatures"]["BLEU"]
    assert sum(group["count"] for group in page[1]["lengths"]) == 40


def test_without_references_the_tokens_are_scored(two_runs, tmp_path):
    folder, _ = two_runs
    run_cli("report", "--run", folder / "stock", "--output", tmp_path / "r.html", "--json", tmp_path / "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["tokenised"] and "tok:none" in result["scores"]["signatures"]["BLEU"]
    text = (tmp_path / "r.html").read_text()
    assert "Scored on the tokens of the training data" in text and 'id="attention"' not in text


def test_pieces_are_joined():
    assert report_data.join_pieces("Afro@@ amerik@@ aner geht .") == "Afroamerikaner geht ."
    assert report_data.join_pieces("▁Ein ▁Af ro") == "Ein Afro" and report_data.join_pieces("") == ""


def test_differences_are_marked():
    marked = report_sections.mark_differences("a <b> d", "a c d")
    assert marked == "a <mark>&lt;b&gt;</mark> d"
    assert report_sections.mark_differences("", "a") == ""
    assert report_sections.mark_differences("same", "same") == "same"


# ---------------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize("arch", ("transformer", *ALL_ARCHS))
def test_attention_of_every_architecture(arch, data_bin, tmp_path):
    save_small(tmp_path / "model.pt", data_bin[0], arch)
    trained = load_model(tmp_path / "model.pt", data_bin[0])
    source, target = [f"w{n}" for n in range(17)], ["v1", "v2", "v3"]
    maps = report_attention.attention_maps(trained, source, target)
    weights = torch.tensor(maps.decoder)
    assert weights.shape == (4, 18) and torch.allclose(weights.sum(dim=1), torch.ones(4), atol=1e-5)
    if arch not in EFFICIENT_ARCHS:
        assert maps.slots == [] and maps.draws == []
        return
    slots, draws = torch.tensor(maps.slots), torch.tensor(maps.draws)
    assert slots.shape == (18, draws.size(0)) and torch.allclose(slots.sum(dim=1), torch.ones(18), atol=1e-5)
    filled = draws.sum(dim=1) > 0
    assert torch.allclose(draws[filled].sum(dim=1), torch.ones(int(filled.sum())), atol=1e-5)
    if arch != "linformer_mt" and arch != "linformer_informer_mt":
        # n 40, r 8, pool 2: a slot is of ten tokens, and the one behind them of none.
        assert draws.size(0) == 3 and filled.tolist() == [True, True, False]
        assert not draws[0, 10:].any() and not draws[1, :10].any()
    assert not any("attend" in vars(module) for module in trained.model.modules())


@pytest.mark.parametrize("arch", ("linformer_mt", "informer_mt"))
def test_slot_weights_are_those_of_the_layer(arch, data_bin, tmp_path):
    """The weights times the values, head by head, give what the layer computes; one head shows them as they are."""
    model = save_small(tmp_path / "model.pt", data_bin[0], arch, extra=["--encoder-attention-heads", "1"])
    layer = next(module for module in model.modules() if isinstance(module, ReducedSelfAttention))
    x, keys, values = torch.randn(2, 6, 16), torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    added = torch.tensor([0.0, -1.0, math.log(4)])
    weights = report_attention.slot_weights(layer, x, keys, added)
    with torch.no_grad():
        assert torch.allclose(layer.out_proj(weights @ values), layer.attend(x, keys, values, added), atol=1e-5)


# --------------------------------------------------------------------------------------------------------------- page


def test_text_is_escaped_and_policy_is_strict(page):
    text = page[0].read_text()
    assert "<script>window.ran" not in text and "<img" not in text and "onload=window" not in text.split("<body>")[0]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text).group(1)
    assert "default-src &#x27;none&#x27;" in policy and "unsafe" not in policy
    assert not re.search(r'(src|href)="(?!#|data:,")', text)  # nothing is loaded
    assert report_html.tag("p", "<b>", title='"', hidden=True, id=None) == '<p title="&quot;" hidden>&lt;b&gt;</p>'


def test_tables_have_captions_and_scopes(page):
    text = page[0].read_text()
    assert text.count("<table") == text.count("<caption>")
    assert not re.search(r"<th(?![^>]*scope)[ >]", text)
    assert all('aria-label="' in svg for svg in re.findall(r"<svg[^>]*>", text))


def test_chart_places_values_and_names():
    chart = report_charts.line_chart(
        {"a": [(0, 1), (10, 100)], "b": [(0, 2), (10, 100)]}, title="t", x_title="x", y_title="y", log_y=True
    )
    first, second = re.findall(r'<polyline points="([\d., ]+) ([\d., ]+?)" class="curve s0"', chart)[0]
    (x0, y0), (x1, y1) = (tuple(map(float, point.split(","))) for point in (first, second))
    assert (x0, x1) == (56, 570) and y0 == 296 and y1 == 30
    names = [float(y) for y in re.findall(r'y="([\d.]+)" class="f\d"', chart)]
    assert abs(names[0] - names[1]) >= 16
    assert report_charts._log_ticks(4.2, 30) == [2, 5, 10, 20, 50] and math.isclose(report_charts._ticks(3, 3)[0], 3)


# ------------------------------------------------------------------------------------------------------------- errors


def test_errors_are_one_line_and_leave_nothing(two_runs, tmp_path, write, capsys):
    folder, data = two_runs
    output = ["--output", tmp_path / "out.html", "--json", tmp_path / "out.json"]
    both = ["report", "--run", f"stock={folder}/stock", f"informer={folder}/informer", *output]
    sources, references = sentences(40)
    other = write("other.generate", generated(sources[:30], references[:30], references[:30]))
    changed = write("changed.generate", generated([*sources[:39], "w1"], references, references))
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        (["report", "--run", empty, *output], "no run in"),
        (["report", "--run", tmp_path / "none", *output], "no such folder"),
        ([*both, "--log", f"stock={write('a.log', 'nothing')}"], "has no validation"),
        ([*both, "--generate", f"informer={other}"], "different test sets (sentence"),
        ([*both, "--generate", f"informer={changed}"], "different test sets (sentence"),
        ([*both, "--references", write("few", "a\nb\n")], "has 2 lines, the translations have 40"),
        ([*both, "--baseline", "nobody"], "the runs are stock, informer"),
        ([*both, "--log", "nobody=x"], "no run has this label"),
        ([*both, "--data-bin", empty], "dict.en.txt"),
        ([*both, "--data-bin", data, "--sentence", 99], "--sentence 99 is not one of 1 to 40"),
        ([*both, "--generate", f"stock={write('b', 'x')}"], "has no translations"),
    ]
    for words, message in cases:
        run_cli(*words, status=2)
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("informer-fairseq report: error: ") and message in error, error
    assert not list(tmp_path.glob("out*"))


# ------------------------------------------------------------------------------------------------------------ browser


# A page can only be opened where there is a browser; .ci/run installs one.
@pytest.mark.skipif(chromium.CHROMIUM is None or chromium.DRIVER is None, reason=chromium.MISSING)
def test_page_in_chromium(page):
    with chromium.browser() as driver:
        driver.get(page[0].as_uri())
        time.sleep(0.3)
        assert driver.get_log("browser") == []
        assert driver.title == HOSTILE[0] and driver.execute_script("return window.ran") is None
        shown = driver.execute_script("return document.querySelector('#translations').innerText")
        assert all(text in shown for text in HOSTILE)
        _check_sorting(driver)
        # Chromium's own tree of what a screen reader gets: nothing to press or follow without a name.
        nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        wanted = ("button", "link", "image", "table", "region")
        unnamed = [n["role"]["value"] for n in nodes if n.get("role", {}).get("value") in wanted and not _name(n)]
        assert unnamed == [] and sum(n.get("role", {}).get("value") == "table" for n in nodes) >= 6
        driver.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 4\">')")
        time.sleep(0.3)
        assert driver.execute_script("return window.ran") is None  # even markup that got in would run nothing


def _name(node):
    return node.get("name", {}).get("value") or node.get("ignored")


def _check_sorting(driver):
    column = "return [...document.querySelectorAll('.sortable tbody tr')].map(r => Number(r.cells[3].dataset.value))"
    before = driver.execute_script(column)
    button = driver.find_elements("css selector", ".sortable th button")[2]
    assert button.text.startswith("stock")
    for key, ordered in (("\ue007", sorted(before)), (" ", sorted(before, reverse=True))):  # Enter, then the space bar
        button.send_keys(key)
        assert driver.execute_script(column) == ordered
        state = driver.execute_script("return arguments[0].closest('th').ariaSort", button)
        assert state == ("ascending" if key == "\ue007" else "descending")
        assert "Sorted by stock" in driver.find_element("id", "sort-status").text


# A page can only be opened where there is a browser; .ci/run installs one.
@pytest.mark.skipif(chromium.CHROMIUM is None or chromium.DRIVER is None, reason=chromium.MISSING)
def test_page_on_a_phone_in_the_dark(page):
    with chromium.browser(width=390, height=800, dark=True) as driver:
        driver.get(page[0].as_uri())
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
        assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"


def test_bootstrap_equals_sacrebleu_command(two_runs, page):
    folder, _ = two_runs
    inputs = [str(folder / label / "test.vi") for label in ("stock", "informer")]
    command = [sys.executable, "-m", "sacrebleu", str(folder / "references"), "-i", *inputs, "-m", "bleu", "chrf"]
    command += ["--paired-bs", "--paired-bs-n", "100", "--format", "json"]
    environment = {name: value for name, value in os.environ.items() if name != "SACREBLEU_SEED"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    theirs = json.loads(done.stdout)[1]  # of the second system
    ours = page[1]["scores"]["runs"]["informer"]
    for metric, name in (("BLEU", "BLEU"), ("chrF", "chrF2")):
        assert round(ours[metric]["score"], 4) == pytest.approx(theirs[name]["score"], abs=1e-3)
        assert ours[metric]["p"] == pytest.approx(theirs[name]["p_value"], abs=1e-4)
        assert ours[metric]["interval"] == pytest.approx(theirs[name]["ci"], abs=1e-3)
