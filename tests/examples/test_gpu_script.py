"""gpu.sh: what it refuses, one training on a CPU, and the flags of a GPU."""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from informer_fairseq.tools.training_logs import read_validations
from preprocess.files import InputError as TextError


@pytest.fixture
def script(root, tmp_path):
    """Runs gpu.sh from another folder."""

    def run(*arguments, **settings):
        environment = {name: value for name, value in os.environ.items() if name not in ("ARCH", "DATA", "OUT")}
        environment.update({"PYTHON": sys.executable, "CPU": "1", **settings})
        command = ["bash", str(root / "examples/iwslt15_en_vi/gpu.sh"), *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="module")
def gpu_train():
    """The train mode's program, which is no package."""
    from tests.conftest import ROOT

    folder = ROOT / "examples/iwslt15_en_vi"
    spec = importlib.util.spec_from_file_location("gpu_train", folder / "gpu_train.py")
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((), {}, "the mode is ''; it is train (ARCH DATA_BIN OUT) or check (OUT)"),
        (("tune",), {}, "the mode is 'tune'; it is train"),
        (("check",), {}, "no folder for the results: give OUT"),
        (("check", "out", "more"), {}, "check takes 1 arguments, not 2"),
        (("check", "out"), {"SIZE": "huge"}, "SIZE is 'huge'; it is base or tiny"),
        (("check", "out"), {"CPU": "yes"}, "CPU is 'yes'; it is 1, 0 or auto"),
        (("check", "full"), {}, "full is not an empty folder: give a new one"),
        (("train", "informer_mt", "nowhere", "out"), {}, "no data-bin at nowhere: run preprocess/prepare.sh"),
        (("train", "lstm", "full", "out"), {"SIZE": "tiny"}, "SIZE=tiny is for transformer and the plugin's"),
        (("check", "out"), {"PYTHON": "no-such-python"}, "no Python at 'no-such-python'"),
    ],
)
def test_refusals_are_one_line(script, write, tmp_path, arguments, settings, message):
    write("full/file", "x")
    done = script(*arguments, **settings)
    assert done.returncode == 2
    assert done.stderr.startswith("gpu.sh: error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_asking_for_a_gpu_where_there_is_none(script, tmp_path):
    done = script("check", "out", CPU="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "gpu.sh: error: CPU=0, but torch finds no GPU: use CPU=1, or a torch built for this machine's driver\n"
    )
    assert not (tmp_path / "out").exists()


def test_help_is_the_comment(script):
    done = script("--help")
    assert done.returncode == 0 and done.stdout.startswith("One prepared run on one GPU")
    assert "MINUTES=10" in done.stdout and "set -" not in done.stdout


def options(data, output, **more):
    given = {"data": data, "output": output, "device": "cpu", "arch": "informer_mt_tiny", **more}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@pytest.mark.parametrize(
    ("more", "flags", "message"),
    [
        ({"arch": "informer"}, [], "no architecture 'informer': the plugin's are conv_linformer_mt, informer_mt, "),
        ({"data": "{root}"}, [], "no data-bin at .*: it has no train.*idx and dict.*txt"),
        (
            {},
            ["--encoder-fixed-length", "16", "--encoder-reduced-length", "4"],
            r"test: \d+ of 23 sources exceed .* 16",
        ),
        ({"minutes": 2, "reserve": 120}, [], "2 minutes leave no time to train"),
        ({"output": "{data}"}, [], "is not an empty folder"),
    ],
)
def test_refusals_before_any_work(gpu_train, data_bin, root, tmp_path, capsys, more, flags, message):
    more = {key: str(value).format(root=root, data=data_bin[0]) for key, value in more.items()}
    given = options(**{"data": data_bin[0], "output": tmp_path / "out", **more})
    assert gpu_train.main([*given, "--", "--max-tokens", "999", "--lr", "1e-3", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.match(f"gpu.sh: error: .*{message}", error)
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------------- a training
def test_train_from_a_data_bin_alone(script, data_bin, tmp_path):
    """The whole mode, as on a GPU: bf16, with translation and scores."""
    settings = {"SIZE": "tiny", "MINUTES": "5", "PRECISION": "bf16", "DROPOUT": "0", "BEAM": "1", "MAX_TOKENS": "400"}
    settings["EXTRA_ARGS"] = "--log-interval 4 --warmup-updates 10 --max-update 24"
    done = script("train", "informer_mt", data_bin[0], "out", **settings)
    out = tmp_path / "out"
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert len(summary["checks"]) == 7 and all(check["held"] for check in summary["checks"])
    assert {split: one["hypotheses"] for split, one in summary["sets"].items()} == {"test": 23, "valid": 13}
    assert summary["updates"] == 24
    for split, count in (("test", 23), ("valid", 13)):
        assert (out / f"{split}.vi").read_text(encoding="utf-8").count("\n") == count
        assert summary["sets"][split]["text"] == "tokenised"
        assert "tok:none" in summary["sets"][split]["scores"]["BLEU"]["signature"]
    checkpoint = out / "checkpoints/checkpoint_best.pt"
    assert summary["checkpoint_bytes"] == checkpoint.stat().st_size
    weights = torch.load(checkpoint, weights_only=True)
    assert weights["cfg"]["common"]["bf16"] and not weights["cfg"]["common"]["tpu"]
    assert weights["cfg"]["criterion"]["_name"] == "chunked_label_smoothed_cross_entropy"
    assert weights["optimizer_history"][-1]["num_updates"] <= summary["updates"]
    logged = read_validations([str(out / "train.log")], "valid")
    assert [one.bits for one in logged] == summary["validation_bits"]
    assert summary["losses"][-1] < summary["losses"][0] and summary["target_tokens"] > 0
    assert (out / "summary.txt").read_text(encoding="utf-8") in done.stdout
    assert not list(out.glob(".*"))


def test_training_ends_in_time_for_what_follows(gpu_train, data_bin, tmp_path, monkeypatch):
    """fairseq's own --stop-time-hours: 10 minutes, less those that are over and the 2 that are kept."""
    seen = []
    monkeypatch.setattr(gpu_train.time, "time", lambda: 1090.0)
    monkeypatch.setattr(gpu_train, "run_training", lambda flags, log: seen.append(flags.stop_time_hours) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gpu_train.main(
            [*options(data_bin[0], tmp_path / "out", started=1000), "--", "--max-tokens", "99", "--lr", "1e-3"]
        )
    assert seen == [pytest.approx((600 - 90 - 120) / 3600)]


LINE = '2026-01-01 | INFO | {tag} | {{"epoch": {epoch}, {rest}}}'


def log_of(gpu_report, losses, bits=3.0):
    lines = ["x | num. shared model params: 1,234 (num. trained: 1,234)"]
    for number, loss in enumerate(losses, 1):
        inner = f'"update": {number}, "loss": "{loss}", "wps": "{100 * number}"'
        lines.append(LINE.format(tag="train_inner", epoch=1, rest=inner))
        lines.append("x | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0")
        valid = (
            f'"valid_loss": "4", "valid_nll_loss": "{bits}", "valid_ppl": "{bits}", "valid_num_updates": "{7 * number}"'
        )
        lines.append(LINE.format(tag="valid", epoch=number, rest=valid))
        epoch = f'"train_loss": "{loss}", "train_wpb": "10", "train_wps": "50", "train_num_updates": "{7 * number}"'
        lines.append(LINE.format(tag="train", epoch=number, rest=epoch))
    return gpu_report.read_log(lines)


def test_what_the_log_says(gpu_train):
    log = log_of(sys.modules["gpu_report"], [9.0, 7.5, 6.0])
    assert (log.losses, log.speeds, log.validations) == ([9.0, 7.5, 6.0], [100, 200, 300], [3.0, 3.0, 3.0])
    assert (log.tokens, log.updates, log.epochs, log.parameters, log.overflows) == (210, 21, 3, 1234, 3)


@pytest.mark.parametrize(
    ("losses", "bits", "held"),
    [
        ([9.0, 6.0], 3.0, [True, True, True]),
        ([6.0, 9.0], 3.0, [True, False, True]),
        ([9.0, "nan"], 3.0, [False, False, True]),
        ([9.0, 6.0], "nan", [False, True, False]),
        ([9.0, 6.0], 5.0, [True, True, False]),
        ([9.0], 3.0, [True, False, True]),
        ([], 3.0, [False, False, False]),
    ],
)
def test_a_training_that_has_gone_wrong_is_told(gpu_train, losses, bits, held):
    """16 types: a guess costs 4 bits."""
    module = sys.modules["gpu_report"]
    assert [check.held for check in module.check_training(log_of(module, losses, bits), 16)] == held


def generated(write):
    lines = ["S-1\tx@@ y", "T-1\tV@@ ie ,", "H-1\t-0.5\tV@@ ie ,", "D-1\t-0.5\tV@@ ie ,"]
    lines += ["S-0\ta", "T-0\tc d .", "H-0\t-0.1\tc d .", "P-0\t-0.1"]
    return write("test.generate", "\n".join(lines) + "\n")


@pytest.mark.parametrize("tokenised", [True, False])
def test_scores_with_the_texts_of_the_preparation(gpu_train, write, tmp_path, tokenised):
    """Hypotheses are detokenised; the corpus' text is too where it came tokenised."""
    write("segmented/model/segmentation.json", '{"format": 1, "method": "bpe", "languages": ["en", "vi"]}')
    write("clean/test.vi", "c d .\nVie ,\n" if tokenised else "c d.\nVie,\n")
    if not tokenised:
        write("tokenized/test.vi", "c d .\nVie ,\n")
    corpus = gpu_train.Corpus(tmp_path / "data-bin", tmp_path, "en", "vi", {"test": 2})
    found = gpu_train.score_set(corpus, "test", generated(write))
    assert (tmp_path / "test.vi").read_text(encoding="utf-8") == "c d.\nVie,\n"
    assert (found["text"], found["hypotheses"], found["empty"]) == ("ordinary text", 2, 0)
    assert found["scores"]["chrF2"]["score"] == 100 and "tok:13a" in found["scores"]["BLEU"]["signature"]


def test_scores_of_a_data_bin_alone_are_of_tokens(gpu_train, write, tmp_path):
    corpus = gpu_train.Corpus(tmp_path, None, "en", "vi", {"test": 2})
    found = gpu_train.score_set(corpus, "test", generated(write))
    assert (tmp_path / "test.vi").read_text(encoding="utf-8") == "c d .\nVie ,\n"
    assert found["text"] == "tokenised" and "tok:none" in found["scores"]["BLEU-1"]["signature"]
    short = gpu_train.Corpus(tmp_path, None, "en", "vi", {"test": 3})
    (tmp_path / "test.vi").unlink()
    with pytest.raises(TextError, match="2 hypotheses for 3 source lines: none for 2"):
        gpu_train.score_set(short, "test", tmp_path / "test.generate")
    assert not (tmp_path / "test.vi").exists()


@pytest.mark.parametrize(("supported", "precision"), [(True, "bf16"), (False, "fp16")])
def test_bf16_where_the_gpu_computes_in_it(gpu_train, monkeypatch, supported, precision):
    def asked(including_emulation=True):
        return including_emulation or supported

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", asked)
    assert gpu_train.choose_precision("auto", "cuda") == precision
    assert gpu_train.choose_precision("auto", "cpu") == "fp32"
    assert gpu_train.choose_precision("fp32", "cuda") == "fp32"


def test_flags_of_a_gpu(gpu_train, data_bin, tmp_path):
    """What cannot run here, as flags."""
    corpus = gpu_train.find_corpus(str(data_bin[0]))
    args = argparse.Namespace(
        arch="informer_mt", device="cuda", output=str(tmp_path), checkpoints=None, options=["--max-tokens", "16384"]
    )
    flags = gpu_train.training_flags(args, corpus, "fp16")
    assert (flags.fp16, flags.bf16, flags.tpu, flags.cpu) == (True, False, False, False)
    assert (flags.criterion, flags.max_tokens) == ("chunked_label_smoothed_cross_entropy", 16384)
    assert (flags.source_lang, flags.target_lang, flags.share_all_embeddings) == ("en", "vi", False)
    assert flags.save_dir == str(tmp_path / "checkpoints") and flags.num_workers == 4
    assert flags.distributed_world_size == 1


def test_one_of_several_gpus_translates_every_sentence(gpu_train, monkeypatch, tmp_path):
    """By default fairseq-generate gives each GPU that it counts a share of them."""
    seen = []

    def stop(flags):
        seen.append(flags.distributed_world_size)
        (tmp_path / ".translating").mkdir()
        (tmp_path / ".translating/generate-test.txt").write_text("H-0\t0\tx\n")

    monkeypatch.setattr(gpu_train.generate, "main", stop)
    args = argparse.Namespace(output=str(tmp_path), device="cuda", beam=5, batch_size=8)
    corpus = gpu_train.Corpus(tmp_path, None, "en", "vi", {"test": 1})
    gpu_train.translate(args, corpus, tmp_path / "model.pt", "test")
    assert seen == [1]
    assert (tmp_path / "test.generate").read_text() == "H-0\t0\tx\n" and not (tmp_path / ".translating").exists()
