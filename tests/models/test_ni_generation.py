"""Beam search over every pair of layer and head composition: incremental scores are the teacher-forced ones."""

import itertools

import pytest
import torch

from tests.models.test_ni_transformer import MIXED, build_pair
from tests.support.composition_references import randomize
from tests.support.generation import assert_scores_are_teacher_forced, search, teacher_forced_scores
from tests.support.models import PAPER_ARCHS, batch, build_small

PAIRS = list(itertools.product(("linear", "hierarchical", "bilinear"), ("linear", "hierarchical", "bilinear")))


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize(("layers", "heads"), PAIRS)
def test_incremental_scores_equal_teacher_forced_scores(layers, heads, beam):
    model = randomize(build_pair(layers, heads), 0.2).eval()
    assert_scores_are_teacher_forced(model, batch([20, 7, 3], 1, side="left"), beam)


@pytest.mark.parametrize("arch", PAPER_ARCHS)
def test_mixed_models_too(arch):
    model = randomize(build_small(arch, **MIXED), 0.2).eval()
    assert_scores_are_teacher_forced(model, batch([20, 7, 3], 1, side="left"), 5)


@pytest.mark.parametrize(("layers", "heads"), PAIRS)
def test_a_batch_of_two_equals_two_batches_of_one(layers, heads):
    model = randomize(build_pair(layers, heads), 0.2).eval()
    together = batch([20, 7], 1, side="left")
    alone = [*search([model], together[:1], 4), *search([model], together[1:, 13:], 4)]
    for hypotheses, others in zip(search([model], together, 4), alone):
        assert len(hypotheses) == len(others) == 4
        for hypothesis, other in zip(hypotheses, others):
            assert torch.equal(hypothesis["tokens"], other["tokens"])
            assert hypothesis["score"].item() == pytest.approx(other["score"].item(), abs=1e-4)


def test_an_ensemble_averages_its_models():
    models = [randomize(build_pair("bilinear", "bilinear"), 0.2).eval() for _ in range(2)]
    source = batch([20], 1)
    best = search(models, source, 5)[0][0]
    scores = [teacher_forced_scores(model, source, best["tokens"]).exp() for model in models]
    expected = (sum(scores) / 2).log()
    torch.testing.assert_close(best["positional_scores"], expected, rtol=0, atol=1e-4)
