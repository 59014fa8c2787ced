"""The scale of what layer compositions read: the same functions and starts, and Adam's step in proportion."""

import argparse

import pytest
import torch
import torch.nn as nn
from fairseq.models.ema.ema import EMA

from informer_fairseq.compositions.bilinear_pooling import LowRankBilinearPooling
from informer_fairseq.compositions.linear import LinearCombination
from informer_fairseq.compositions.scaled_concatenation import ScaledConcatenation, scale_of
from tests.support.models import batch, build_small

SIZES = {"num_inputs": 4, "input_dim": 6, "output_dim": 6}
COMPOSITIONS = {
    "linear": lambda **more: LinearCombination(**SIZES, **more),
    "bilinear": lambda **more: LowRankBilinearPooling(**SIZES, rank=8, **more),
    "low rank": lambda **more: LowRankBilinearPooling(**SIZES, rank=3, **more),
    "second order": lambda **more: LowRankBilinearPooling(**SIZES, rank=8, first_order=False, **more),
}


def vectors():
    return [torch.randn(5, 6) for _ in range(4)]


@pytest.mark.parametrize(
    ("num_inputs", "scale"), [(1, 1), (2, 1 / 2), (3, 1 / 4), (4, 1 / 4), (5, 1 / 8), (6, 1 / 8), (12, 1 / 16)]
)
def test_it_is_a_power_of_two_and_at_most_one_over_the_number(num_inputs, scale):
    assert scale_of(num_inputs) == scale


def test_vectors_lie_side_by_side_times_the_scale():
    inputs = vectors()
    assert torch.equal(ScaledConcatenation(0.25)(inputs), torch.cat(inputs, dim=-1) / 4)


@pytest.mark.parametrize("start", ["reset_parameters", "select_last"])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_starts_are_the_same_functions_to_the_bit(name, start):
    results = []
    for scale in (1.0, 0.25):
        composition = COMPOSITIONS[name](input_scale=scale)
        torch.manual_seed(1)
        getattr(composition, start)()
        results.append(composition(vectors()))
    assert torch.equal(*results)
    assert results[0].all()


def test_a_linear_map_is_taken_over_to_the_bit():
    weight, inputs = torch.randn(6, 24), vectors()
    results = []
    for scale in (1.0, 0.25):
        composition = COMPOSITIONS["bilinear"](input_scale=scale)
        composition.start_from_linear(weight)
        results.append(composition(inputs))
    assert torch.equal(*results)
    torch.testing.assert_close(results[0], torch.cat(inputs, dim=-1) @ weight.t())


def moved(module, inputs, gradient):
    """How far one step of Adam moves the result."""
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, eps=0)
    before = module(inputs)
    (before * gradient).sum().backward()
    optimizer.step()
    return module(inputs) - before


def test_a_step_of_adam_moves_equal_layers_as_far_as_one_linear_map():
    layer, gradient = torch.randn(1, 6, dtype=torch.float64), torch.randn(1, 6, dtype=torch.float64)
    single = moved(nn.Linear(6, 6, bias=False).double(), layer, gradient)
    scaled = moved(COMPOSITIONS["linear"](input_scale=0.25).double(), [layer] * 4, gradient)
    torch.testing.assert_close(scaled, single, rtol=1e-9, atol=0)
    unscaled = moved(COMPOSITIONS["linear"]().double(), [layer] * 4, gradient)
    torch.testing.assert_close(unscaled, 4 * single, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_checkpoint_from_before_the_scale_keeps_its_function(name):
    old, inputs = COMPOSITIONS[name](), vectors()
    weights = {key: value for key, value in old.state_dict().items() if "scale" not in key}
    new = COMPOSITIONS[name](input_scale=0.25)
    new.load_state_dict(weights)
    assert torch.equal(new(inputs), old(inputs))
    kept = COMPOSITIONS[name]()
    kept.load_state_dict(COMPOSITIONS[name](input_scale=0.25).state_dict())
    assert kept.concatenation.scale_version == 0.25


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_a_state_without_its_weights_changes_nothing(name):
    composition = COMPOSITIONS[name](input_scale=0.25)
    composition.load_state_dict({}, strict=False)
    assert composition.concatenation.scale_version == 0.25
    whole = composition.state_dict()
    del whole["concatenation.scale_version"], whole[next(iter(whole))]
    with pytest.raises(RuntimeError, match="Missing key"):
        composition.load_state_dict(whole)


def test_so_does_that_of_a_whole_model():
    old, new = (build_small("ni_transformer", encoder_layers=2, decoder_layers=2).eval() for _ in range(2))
    weights = {key: value for key, value in old.state_dict().items() if "scale" not in key}
    assert len(weights) == len(old.state_dict()) - 2
    new.load_state_dict(weights)
    for side in (old.encoder, old.decoder):
        side.layer_composition.concatenation.scale_version.fill_(1.0)
    tokens = batch((5, 3), pad=1)
    assert torch.equal(new(tokens, None, tokens)[0], old(tokens, None, tokens)[0])


@pytest.mark.parametrize("composition", ["linear", "bilinear"])
@pytest.mark.parametrize(("start", "scale"), [("transformer", 0.25), ("plain", 1.0)])
def test_models_scale_by_their_number_of_layers_and_the_plain_start_does_not(start, scale, composition):
    model = build_small(
        "ni_transformer",
        composition_start=start,
        encoder_layers=4,
        decoder_layers=3,
        encoder_layer_composition=composition,
        decoder_layer_composition=composition,
    )
    assert model.encoder.layer_composition.concatenation.scale_version == scale
    assert model.decoder.layer_composition.concatenation.scale_version == scale


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_another_scale_is_the_same_function(name):
    composition, inputs = COMPOSITIONS[name](input_scale=0.25), vectors()
    before = composition(inputs)
    composition.change_scale(torch.tensor(1.0))
    assert composition.concatenation.scale_version == 1
    assert torch.equal(composition(inputs), before)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("seed_scale", "scale"), [(1.0, 0.25), (0.25, 1.0), (0.25, 0.25)])
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_an_average_that_starts_from_another_scale_is_one(name, seed_scale, scale, wide, tmp_path):
    """--ema-seed-model: the seed's function at first, then the mean of the maps as they act on the inputs."""
    seed, model, inputs = COMPOSITIONS[name](input_scale=seed_scale), COMPOSITIONS[name](input_scale=scale), vectors()
    torch.save({"model": seed.state_dict(), "extra_state": {"ema": seed.state_dict()}}, tmp_path / "seed.pt")
    settings = {"ema_decay": 0.5, "ema_update_freq": 1, "ema_start_update": 0, "ema_fp32": wide}
    average = EMA(model, argparse.Namespace(ema_seed_model=str(tmp_path / "seed.pt"), **settings))
    assert torch.equal(average.get_model()(inputs), seed(inputs))
    average.step(model)
    mean = average.get_model()
    assert mean.concatenation.scale_version == scale
    acts, seed_acts, model_acts = (one.reader().weight * one.concatenation.scale_version for one in (mean, seed, model))
    torch.testing.assert_close(acts, (seed_acts + model_acts) / 2, rtol=0, atol=1e-6)
