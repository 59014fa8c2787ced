import argparse
import io
import os
import pickle

import numpy as np
import pytest
import torch
import torch.nn as nn
from fairseq import checkpoint_utils, options, search, utils
from fairseq.logging import progress_bar
from fairseq.models.ema.ema import EMA

from informer_fairseq import compat, compat_averages, compat_files
from informer_fairseq.errors import InputError


class Hostile:
    """Unpickling it creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def save(value, path):
    torch.save(value, path)
    return str(path)


def test_what_fairseq_checkpoints_hold_is_read(tmp_path):
    state = {
        "args": None,
        "cfg": {"model": argparse.Namespace(arch="informer_mt")},
        "model": {"w": torch.ones(2)},
        "metrics": {"counts": np.array([1, 2]), "bleu": np.float64(3.5), "small": np.float32(1), "n": np.int64(4)},
        "flags": np.array([True, False]),
    }
    loaded = compat.read_checkpoint(save(state, tmp_path / "a.pt"))
    assert loaded["cfg"]["model"].arch == "informer_mt"
    assert loaded["metrics"]["counts"].tolist() == [1, 2] and loaded["metrics"]["bleu"] == 3.5


@pytest.mark.parametrize("read", [compat.read_checkpoint, checkpoint_utils.load_checkpoint_to_cpu])
def test_a_pickle_with_anything_else_is_refused_and_not_run(tmp_path, read):
    trap = tmp_path / "created"
    path = save({"args": None, "model": {}, "extra": Hostile(str(trap))}, tmp_path / "hostile.pt")
    with pytest.raises(InputError, match=r"hostile.pt is refused: its pickle holds posix.mkdir") as caught:
        read(path)
    assert not trap.exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 10, 500])
def test_a_damaged_checkpoint_is_told_in_one_line(tmp_path, kept):
    path = tmp_path / "a.pt"
    save({"model": {"w": torch.ones(200)}}, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="a.pt is (damaged|not a readable)") as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert "\n" not in str(caught.value)


def test_other_errors_of_reading_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        compat.read_checkpoint(str(tmp_path / "none.pt"))
    with pytest.raises(RuntimeError, match="another"):
        compat.read_checkpoint("a.pt", lambda: (_ for _ in ()).throw(RuntimeError("another")))


def test_the_process_still_refuses_other_classes():
    buffer = io.BytesIO()
    torch.save(Hostile("x"), buffer)
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(buffer)


def test_repairs_may_be_applied_twice():
    before = checkpoint_utils.load_checkpoint_to_cpu, options.parse_args_and_arch
    compat.apply_repairs()
    assert (checkpoint_utils.load_checkpoint_to_cpu, options.parse_args_and_arch) == before


@pytest.mark.parametrize(("given", "tpu"), [([], False), (["--bf16"], False), (["--bf16", "--tpu"], True)])
def test_bf16_does_not_imply_a_tpu(given, tpu):
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "informer_mt_tiny", *given])
    assert (args.bf16, args.tpu) == ("--bf16" in given, tpu)


def test_the_bf16_repair_steps_aside_where_it_is_not_needed(monkeypatch):
    def repaired_upstream(parser, input_args=None):
        return argparse.Namespace(bf16=True, tpu=False)

    monkeypatch.setattr(options, "parse_args_and_arch", repaired_upstream)
    compat.free_bf16_from_tpu()
    assert options.parse_args_and_arch is repaired_upstream


def test_the_fused_layer_is_switched_off_where_there_is_one(monkeypatch):
    """Upstream 0.12.2's constructor and loader, in miniature."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.out_proj = nn.Linear(1, 1, bias=False)

    class Upstream(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("in_proj", "out_proj", "fc1", "fc2"):
                setattr(self, f"{name}_weight", nn.Parameter(torch.zeros(1)))
                setattr(self, f"{name}_bias", nn.Parameter(torch.zeros(1)))
            self.self_attn = compat.readable_by_fused_layer(Attention())
            self.seen = self.self_attn.out_proj.bias.shape  # as the constructor reads it
            self.can_use_fastpath = True

        def _load_from_state_dict(self, state_dict, *args):
            raise KeyError("self_attn.q_proj.weight")

    monkeypatch.setattr(compat, "HAS_FUSED_ENCODER_LAYER", True)
    layer = compat.without_fused_encoder_layer(type("Ours", (Upstream,), {}))()
    assert [name for name, _ in layer.named_parameters()] == ["self_attn.out_proj.weight"]
    assert layer.can_use_fastpath is False and layer.self_attn.out_proj.bias is None
    layer.load_state_dict({"self_attn.out_proj.weight": torch.ones(1, 1)})
    assert compat.absent_linear().weight.is_meta

    monkeypatch.setattr(compat, "HAS_FUSED_ENCODER_LAYER", False)
    assert compat.without_fused_encoder_layer(Upstream) is Upstream
    assert compat.absent_linear() is None


def test_flags_parsed_without_defaults_pass():
    """fairseq-validate parses a second time with all defaults suppressed: then there is no bf16 at all."""
    from fairseq import options

    compat.free_bf16_from_tpu()
    parser = options.get_validation_parser()
    args = options.parse_args_and_arch(
        parser, ["data", "--task", "translation", "--path", "x.pt"], suppress_defaults=True
    )
    assert args.path == "x.pt" and not hasattr(args, "bf16")


def test_unknown_words_need_alignments_and_take_pairs():
    assert utils.replace_unk("v1 <unk> <unk>", "a b", [(0, 0), (1, 1), (0, 2)], {"b": "c"}, "<unk>") == "v1 c a"
    assert utils.replace_unk("<unk> v1", "a b", [1, 0], {}, "<unk>") == "b v1"
    assert utils.replace_unk("v1", "a b", torch.empty(0), {}, "<unk>") == "v1"
    with pytest.raises(InputError, match="--replace-unk needs to know .*: add --print-alignment"):
        utils.replace_unk("<unk>", "a b", torch.empty(0), {}, "<unk>")


def test_repairs_step_aside_where_they_are_not_needed():
    repaired = EMA.__init__, EMA.restore, EMA._step_internal, progress_bar.progress_bar
    before = search.DiverseBeamSearch.step, utils.replace_unk, *repaired
    compat.let_diverse_search_find_its_rows()
    compat.let_unknown_words_be_replaced()
    compat_averages.apply_repairs()
    compat_files.log_each_line_once()
    repaired = EMA.__init__, EMA.restore, EMA._step_internal, progress_bar.progress_bar
    assert (search.DiverseBeamSearch.step, utils.replace_unk, *repaired) == before


def test_a_log_file_holds_each_line_once(tmp_path, caplog):
    """A bar an epoch, each with the same file; other files have lines of their own."""
    caplog.set_level("INFO", progress_bar.logger.name)
    handlers = list(progress_bar.logger.handlers)
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    try:
        for epoch, path in ((1, first), (2, first), (3, first), (4, second), (5, first)):
            if epoch == 5:
                first.rename(tmp_path / "moved.log")
            bar = progress_bar.progress_bar([], "simple", 1, str(path), epoch=epoch)
            bar.print({"loss": 1.5}, tag="train", step=epoch)
    finally:
        for handler in set(progress_bar.logger.handlers) - set(handlers):
            progress_bar.logger.removeHandler(handler)
            handler.close()
    epochs = [f"epoch {epoch:03d} | loss 1.5" for epoch in (1, 2, 3, 4, 5)]
    assert (tmp_path / "moved.log").read_text().splitlines() == epochs[:4]
    assert first.read_text().splitlines() == epochs[4:]  # opened anew where it was moved away
    assert second.read_text().splitlines() == epochs[3:]
