"""What must hold on every supported Python, torch and fairseq; tests/matrix.sh runs it on upstream 0.12.2 too."""

import argparse
import sys
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY

from informer_fairseq import compat
from tests.support.checkpoints import save_small
from tests.support.models import ALL_ARCHS, batch, build_small

FAIRSEQS = {"ve-fairseq": "0.12.3", "fairseq-fixed": "0.12.3.1", "fairseq": "0.12.2"}


def distribution_versions(names):
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def test_the_environment_is_a_supported_one():
    found = distribution_versions(FAIRSEQS)
    assert len(found) == 1 and found.items() <= FAIRSEQS.items()
    assert (3, 10) <= sys.version_info[:2] <= (3, 12)
    assert (2, 6) <= tuple(int(number) for number in torch.__version__.split(".")[:2])
    assert np.__version__.startswith("1.")
    # Upstream alone has the fused layer; its version string does not tell it from the forks.
    assert compat.HAS_FUSED_ENCODER_LAYER == ("fairseq" in found)


def test_importing_again_by_path_registers_nothing_twice(root):
    before = dict(ARCH_MODEL_REGISTRY)
    utils.import_user_module(argparse.Namespace(user_dir=str(root / "informer_fairseq")))
    assert before == ARCH_MODEL_REGISTRY
    expected = {f"{arch}{size}" for arch in ALL_ARCHS for size in ("", "_tiny")} | {
        "informer_mt_deep",
        "informer_mt_deep_tiny",
        "informer_ni_mt",
        "informer_ni_mt_tiny",
        "ni_transformer_big",
    }
    assert expected <= ARCH_MODEL_REGISTRY.keys()
    assert "chunked_label_smoothed_cross_entropy" in CRITERION_REGISTRY


@pytest.mark.parametrize("mixers", [None, ("full", "feed-forward")], ids=["own mixers", "stock mixers"])
@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_evaluation_after_loading_runs_our_parts(arch, mixers):
    """Upstream evaluates a loaded stock layer by a fused one that never calls what is overridden: training differs."""
    overrides = {}
    if mixers is not None:
        overrides = dict(zip(("encoder_token_mixer", "encoder_channel_mixer"), mixers))
        overrides.update(encoder_fixed_length=None, encoder_reduced_length=None)
    model = build_small(arch, **overrides).double()
    model.load_state_dict({name: weight.clone() for name, weight in model.state_dict().items()})
    source, target = batch([20, 7, 3], 1, side="left"), batch([9, 9, 9], 1, size=45)
    trained = model.train()(source, None, target)[0].detach()
    with torch.no_grad():
        evaluated = model.eval()(source, None, target)[0]
    assert trained.isfinite().all() and trained.std() > 0.1
    torch.testing.assert_close(evaluated, trained, rtol=0, atol=1e-10)


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_a_checkpoint_goes_round(arch, data_bin, tmp_path):
    """Saved as fairseq saves it and read by fairseq's own reader, weights_only protection included."""
    model = save_small(tmp_path / "a.pt", data_bin[0], arch)
    (loaded,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "a.pt")])
    source, target = batch([20, 7, 3], 1, side="left"), batch([9, 9, 9], 1, size=45)
    with torch.no_grad():
        expected, found = (one.eval()(source, None, target)[0] for one in (model, loaded))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert sum(weight.numel() for weight in loaded.parameters()) == sum(w.numel() for w in model.parameters())
    generator = task.build_generator([loaded], argparse.Namespace(beam=2, max_len_b=5))
    sample = {"id": torch.arange(3), "net_input": {"src_tokens": source, "src_lengths": torch.tensor([20, 7, 3])}}
    hypotheses = task.inference_step(generator, [loaded], sample)
    assert len(hypotheses) == 3 and all(torch.isfinite(best[0]["positional_scores"]).all() for best in hypotheses)
