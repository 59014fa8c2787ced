"""gpu_checks.py: a run at small sizes on a CPU, what its checks tell apart, and how it reads a GPU's memory."""

import json
import math

import pytest
import torch

from benchmarks import gpu_checks, losses, training_steps
from benchmarks.checks import Check, checked
from benchmarks.peak_memory import PeakMemory
from informer_fairseq.errors import InputError


# -------------------------------------------------------------------------------------------------------------- checks
def test_check_mode(tmp_path, capsys):
    """The stock model and two of ours, at small sizes, in this process."""
    files = ["--json", str(tmp_path / "checks.json"), "--text", str(tmp_path / "checks.txt")]
    archs = ["--archs", "transformer", "conv_linformer_mt", "ni_transformer"]
    assert gpu_checks.main(["--device", "cpu", "--small", "--no-speed", *archs, *files]) == 0
    found = json.loads((tmp_path / "checks.json").read_text(encoding="utf-8"))
    assert len(found["checks"]) == 3 * 12 + 3 and all(check["held"] for check in found["checks"])
    assert not torch.are_deterministic_algorithms_enabled()
    printed = capsys.readouterr().out
    assert printed.count("\nheld ") == 39 and "39 of 39 checks held, 0 failed" in printed
    lines = (tmp_path / "checks.txt").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("held ") for line in lines) == 39


@pytest.fixture
def conv_linformer(monkeypatch):
    """Lets a fault be put into the mixer of conv_linformer_mt; returns the names of the checks that fail."""
    from informer_fairseq.token_mixers.convolutional import ConvolutionalSelfAttention as Mixer

    def failing(method, fault):
        original = getattr(Mixer, method)
        monkeypatch.setattr(Mixer, method, lambda self, *given: fault(original, self, *given))
        checks = gpu_checks.correctness(["conv_linformer_mt"], gpu_checks.SMALL, torch.device("cpu"))
        return {check.name for check in checks if not check.held}

    return failing


def test_padding_that_leaks_fails(conv_linformer):
    failed = conv_linformer("keys_and_values", lambda original, self, x, mask: original(self, x, None))
    assert {name.split(": ")[1] for name in failed} == {
        "encoding in a padded batch against alone",
        "scores of a beam search against teacher forcing",
    }
    assert len(failed) == 4


def test_arithmetic_that_differs_fails(conv_linformer):
    """Where only half precision goes wrong; a reference of the same fault would not tell."""

    def fault(original, self, x, mask=None):
        return original(self, x, mask) * (2 if x.dtype == torch.bfloat16 else 1)

    failed = conv_linformer("forward", fault)
    assert failed == {
        "conv_linformer_mt, bf16: logits against float64",
        "conv_linformer_mt, bf16: gradients against float64, the worst parameter",
    }


def test_what_is_not_deterministic_fails(conv_linformer):
    noise = torch.Generator().manual_seed(1)

    def fault(original, self, x, mask=None):
        out = original(self, x, mask)
        return out + torch.randn(out.shape, generator=noise).to(out) * 1e-2 if self.training else out

    failed = conv_linformer("forward", fault)
    assert {name.partition(": ")[2] for name in failed} == {
        "numbers that differ between two runs, deterministic algorithms"
    }


def test_a_refusing_kernel_fails_alone(conv_linformer):
    def fault(original, self, x, mask=None):
        if torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("no deterministic implementation\nadvice")
        return original(self, x, mask)

    failed = conv_linformer("forward", fault)
    assert len(failed) == 2 and not torch.are_deterministic_algorithms_enabled()


def test_a_chunked_loss_that_differs_fails(monkeypatch):
    device = torch.device("cpu")
    assert gpu_checks.loss_difference((30, 8, 50), device, torch.float32) < 1e-5
    right = losses.chunked_smoothed_loss
    monkeypatch.setattr(
        losses, "chunked_smoothed_loss", lambda *given, **more: right(*given, **{**more, "epsilon": 0.11})
    )
    assert gpu_checks.loss_difference((30, 8, 50), device, torch.float32) > 1e-3


def test_figures_that_are_no_numbers_fail_and_are_written():
    assert not Check("x", math.nan, 1).held and Check("x", math.nan, 1).values()["figure"] is None

    def refuse():
        raise InputError("first line\nsecond")

    check = checked("x", 1, refuse)
    assert check.values() == {"name": "x", "figure": None, "limit": 1, "error": "InputError: first line", "held": False}


def test_measurements_have_no_limits_and_stop_in_time(monkeypatch, tmp_path):
    device = torch.device("cpu")
    jobs = gpu_checks.measurements(True, 1, device)
    assert [name for name in jobs if "peak" in name] == ["peak bf16, large batch"]
    rows = {name: jobs[name]() for name in ("encoder bf16, large batch", "step bf16, large batch")}
    systems = [row.system for row in rows["step bf16, large batch"]]
    assert systems == ["stock, own loss", "stock, chunked loss", "linformer_mt, chunked loss"]
    assert all(row.milliseconds > 0 for row in rows["step bf16, large batch"])
    assert all(row.setting.endswith("--bf16") for row in rows["step bf16, large batch"])
    monkeypatch.setattr(gpu_checks, "correctness", lambda *_: [])
    assert gpu_checks.main(["--device", "cpu", "--small", "--minutes", "0", "--json", str(tmp_path / "json")]) == 0
    assert json.loads((tmp_path / "json").read_text())["left_out"] == list(jobs)


# ------------------------------------------------------------------------------------------------- special to a GPU
class Allocator:
    """Stands for torch's record of a GPU's memory."""

    def __init__(self, monkeypatch):
        self.held = self.peak = 0
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: self.peak)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: self.held)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)

    def reset(self):
        self.peak = self.held

    def take(self, count):
        self.held += count
        self.peak = max(self.peak, self.held)


def test_the_peak_outlives_the_trainers_resets(monkeypatch):
    """fairseq's trainer resets the record behind every update, where what it took is given back already."""
    allocator = Allocator(monkeypatch)
    reset = torch.cuda.reset_peak_memory_stats
    allocator.take(500)
    allocator.take(-490)
    with PeakMemory() as peak:
        for need in (70, 90, 20):
            allocator.take(need)
            allocator.take(-need)
            torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 10
    assert peak.bytes == 100
    assert torch.cuda.reset_peak_memory_stats == reset


def test_peaks_of_training_steps_are_above_what_others_hold(monkeypatch):
    allocator = Allocator(monkeypatch)
    allocator.take(7)  # a system measured before

    class Trainer:
        def __init__(self, need):
            allocator.take(30)
            self.need = need

        def __del__(self):
            allocator.take(-30)

        def train_step(self, _):
            allocator.take(self.need)
            allocator.take(-self.need)
            torch.cuda.reset_peak_memory_stats()

    needs = {"label_smoothed_cross_entropy": 70, "chunked_label_smoothed_cross_entropy": 20}

    def build(setting, arch, criterion, given, cpu):
        assert list(given) == ["--bf16"] and not cpu
        return Trainer(needs[criterion])

    monkeypatch.setattr(training_steps, "build_trainer", build)
    rows = training_steps.measure_peak("small", ("informer_mt",), False, ["--bf16"])
    assert [(row.system, row.figure) for row in rows] == [
        ("stock, own loss", 1.0),
        ("stock, chunked loss", 0.5),
        ("informer_mt, chunked loss", 0.5),
    ]
