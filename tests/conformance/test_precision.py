"""Half precision, scripts, and what distributed training asks of gradients."""

import pytest
import torch
from fairseq import utils
from hypothesis import given
from hypothesis import strategies as st

from tests.support.composition_references import randomize
from tests.support.generation import search
from tests.support.models import ALL_ARCHS, batch, build_small
from tests.support.systems import PAD, build_system, examples, lengths, pad, sentences, systems

COMPOSED = [
    {},
    {"head_composition": "bilinear", "encoder_layer_composition": "bilinear", "decoder_layer_composition": "bilinear"},
    {"head_composition": "hierarchical", "encoder_layer_composition": "linear"},
]


def with_an_empty_row(sizes):
    """A batch whose last row is padding alone, and its targets."""
    source = batch([*sizes, 1], PAD, side="left")
    source[-1] = PAD
    return source, batch([5] * (len(sizes) + 1), PAD, size=45)


@pytest.mark.parametrize("flags", COMPOSED, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_a_row_of_padding_keeps_everything_finite(arch, dtype, flags):
    """Outputs of the whole model and all gradients; fairseq's own transformer gives no number there."""
    source, target = with_an_empty_row([9, 4])
    model = randomize(build_small(arch, **flags), 0.1).to(dtype)
    logits = model.train()(source, None, target)[0]
    assert logits.isfinite().all()
    logits.float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    alone = model.eval()(source[:2], None, target[:2])[0]
    torch.testing.assert_close(
        model(source, None, target)[0][:2], alone, rtol=0, atol=1e-5 if dtype.itemsize > 2 else 0.1
    )


def test_the_stock_transformer_gives_no_number_for_a_row_of_padding():
    source, target = with_an_empty_row([9, 4])
    logits = build_small("transformer").eval()(source, None, target)[0]
    assert logits[:2].isfinite().all() and logits[2].isnan().all()


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_a_row_of_padding_is_searched_and_scripted_too(arch):
    source, target = with_an_empty_row([9, 4])
    model = randomize(build_small(arch), 0.1).eval()
    assert all(hypothesis["score"].isfinite() for row in search([model], source, 3) for hypothesis in row)
    expected = model(source, None, target)[0]
    scripted = torch.jit.script(model)(source, torch.tensor([9, 4, 0]), target)[0]
    torch.testing.assert_close(scripted, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", utils.get_available_activation_fns())
def test_every_activation_of_both_sides_is_fairseqs_and_scripted(name):
    model = build_small("linformer_mt", activation_fn=name).eval()
    x = torch.linspace(-6, 6, 61, dtype=torch.float64)
    for layer in (model.encoder.layers[0], model.decoder.layers[0]):
        assert torch.equal(layer.activation_fn(x), utils.get_activation_fn(name)(x))
    source, target, sizes = batch([9, 4], PAD), batch([5, 5], PAD, size=45), torch.tensor([9, 4])
    expected = model(source, sizes, target)[0]
    torch.testing.assert_close(torch.jit.script(model)(source, sizes, target)[0], expected, rtol=0, atol=1e-5)


@st.composite
def systems_with_batches(draw):
    arch, flags = draw(systems())
    return arch, flags, draw(lengths(flags))


@examples(60)
@given(systems_with_batches())
def test_every_parameter_gets_a_gradient_from_any_batch(case):
    """Also from one that fills a single window, or has a single token: DistributedDataParallel waits for all."""
    arch, flags, sizes = case
    model = build_system(arch, flags).train()
    source, target = pad(sentences(sizes), [True] * len(sizes)), torch.stack(sentences([5] * len(sizes), seed=5))
    model(source, None, target)[0].square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@examples(40)
@given(systems_with_batches(), st.sampled_from([torch.float16, torch.bfloat16]))
def test_half_precision_stays_finite(case, dtype):
    arch, flags, sizes = case
    model = build_system(arch, flags, torch.float32).to(dtype)
    source, target = pad(sentences(sizes), [True] * len(sizes)), torch.stack(sentences([5] * len(sizes), seed=5))
    assert model(source, None, target)[0].isfinite().all()


@examples(6)
@given(systems_with_batches())
def test_scripted_systems_give_the_same_output(case):
    arch, flags, sizes = case
    model = build_system(arch, flags, torch.float32)
    source, target = pad(sentences(sizes), [True] * len(sizes)), torch.stack(sentences([5] * len(sizes), seed=5))
    expected = model(source, torch.tensor(sizes), target)[0]
    scripted = torch.jit.script(model)(source, torch.tensor(sizes), target)[0]
    torch.testing.assert_close(scripted, expected, rtol=0, atol=1e-5)
