"""ni_transformer and the mixed models."""

import copy
import itertools

import pytest
import torch

from tests.support.composition_references import randomize
from tests.support.models import EFFICIENT_ARCHS, PAPER_ARCHS, SMALL, batch, build, build_small, count

STOCK = {"encoder_layer_composition": "top", "decoder_layer_composition": "top", "head_composition": "linear"}
LAYERS = ("top", "linear", "hierarchical", "bilinear")
HEADS = ("linear", "hierarchical", "bilinear")
PAIRS = list(itertools.product(LAYERS, HEADS))
MIXED = {
    "decoder_layer_composition": "bilinear",
    "encoder_layer_composition": "bilinear",
    "head_composition": "bilinear",
}
VARIANTS = {
    "second order only": {"composition_second_order_only": True},
    "rank below the width": {"composition_rank": 5},
    "rank above the width": {"composition_rank": 21},
    "kept W_O": {"head_composition_keep_output_projection": True},
    "plain start": {"composition_start": "plain"},
    "pre-norm": {"encoder_normalize_before": True, "decoder_normalize_before": True},
    "three layers": {"encoder_layers": 3, "decoder_layers": 3, "encoder_layer_composition": "hierarchical"},
}


def build_pair(layers, heads, **overrides):
    return build_small(
        "ni_transformer",
        encoder_layer_composition=layers,
        decoder_layer_composition=layers,
        head_composition=heads,
        **overrides,
    )


def source_and_target():
    return batch([20, 7, 3], 1, side="left"), batch([9, 9, 9], 1, size=45)


@pytest.mark.parametrize("normalize", [False, True])
def test_top_and_linear_are_the_stock_transformer(normalize):
    norms = {"encoder_normalize_before": normalize, "decoder_normalize_before": normalize}
    stock = build_small("transformer", **norms).eval()
    ours = build_small("ni_transformer", **STOCK, **norms).eval()
    assert ours.state_dict().keys() - stock.state_dict().keys() == {"dictionary_version"}
    ours.load_state_dict(stock.state_dict())
    source, target = source_and_target()
    assert torch.equal(ours(source, None, target)[0], stock(source, None, target)[0])


def test_counts_of_the_base_size_by_hand():
    """NI paper, section 4.4: rank 32 on the heads adds 0.9M parameters (with W_O kept); 18 attentions."""
    stock = count(build("transformer"))
    heads = {**STOCK, "head_composition": "bilinear"}
    kept = build("ni_transformer", **heads, composition_rank=32, head_composition_keep_output_projection=True)
    assert count(kept) - stock == 18 * 49_216 == 885_888
    replaced = build("ni_transformer", **heads, composition_rank=32)
    assert count(replaced) - stock == 18 * (49_216 - 512 * 512 - 512) == -3_841_920
    full = build("ni_transformer", **heads)
    assert count(full) - stock == 18 * (2 * 512 * 512 + 2 * 512 + 512 * 512 - 512 * 512 - 512)

    layers = build("ni_transformer", **{**STOCK, "encoder_layer_composition": "bilinear"})
    assert count(layers) - stock == 2 * 6 * 512 * 512 + 2 * 512 + 512 * 512
    linear = build("ni_transformer", **{**STOCK, "decoder_layer_composition": "linear"})
    assert count(linear) - stock == 6 * 512 * 512
    tree = build("ni_transformer", **{**STOCK, "decoder_layer_composition": "hierarchical"})
    assert count(tree) - stock == sum(k * 512 * 2048 + 2048 + 2048 * 512 + 512 + 2 * 512 for k in (2, 3, 3))
    head_tree = build("ni_transformer", **{**STOCK, "head_composition": "hierarchical"})
    node = {k: k * 512 * 512 + 512 + 512 * 512 + 512 + 2 * 512 for k in (2, 3)}
    assert count(head_tree) - stock == 18 * (node[2] + 3 * node[3] - 512)  # W_O stays, its bias goes

    everything = count(build("ni_transformer")) - stock
    assert everything == count(full) - stock + 2 * (count(layers) - stock)


@pytest.mark.parametrize(("layers", "heads"), PAIRS)
def test_incremental_scores_equal_teacher_forced_ones(layers, heads):
    model = randomize(build_pair(layers, heads), 0.1).eval()
    source, target = source_and_target()
    expected = model(source, None, target)[0]
    encoded, state = model.encoder(source), {}
    steps = [
        model.decoder(target[:, : length + 1], encoder_out=encoded, incremental_state=state)[0] for length in range(9)
    ]
    torch.testing.assert_close(torch.cat(steps, dim=1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("layers", "heads"), PAIRS)
def test_later_target_tokens_move_no_earlier_logit(layers, heads):
    model = randomize(build_pair(layers, heads), 0.1).eval()
    source, target = source_and_target()
    changed = target.clone()
    changed[:, 5:] = 7
    logits, other = model(source, None, target)[0], model(source, None, changed)[0]
    torch.testing.assert_close(other[:, :5], logits[:, :5], rtol=0, atol=1e-6)
    assert not torch.allclose(other[:, 5:], logits[:, 5:])


@pytest.mark.parametrize("overrides", [*VARIANTS.values(), *({"arch": arch} for arch in EFFICIENT_ARCHS)], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_batch_and_padding_side_do_not_matter(overrides, side):
    overrides = {**MIXED, **overrides}
    model = randomize(build_small(overrides.pop("arch", "ni_transformer"), **overrides), 0.1).eval()
    source, target = batch([20, 7, 1], 1, side=side), batch([9, 9, 9], 1, size=45)
    logits = model(source, None, target)[0]
    for row, length in enumerate([20, 7, 1]):
        place = slice(0, length) if side == "right" else slice(20 - length, 20)
        alone = model(source[row : row + 1, place], None, target[row : row + 1])[0]
        torch.testing.assert_close(logits[row], alone[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("layers", "heads"), PAIRS)
@pytest.mark.parametrize("arch", ["ni_transformer", *PAPER_ARCHS])
def test_every_parameter_gets_a_gradient(arch, layers, heads):
    model = build_small(
        arch, encoder_layer_composition=layers, decoder_layer_composition=layers, head_composition=heads
    ).train()
    source, target = source_and_target()
    model(source, None, target)[0].square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS)
def test_every_parameter_gets_a_gradient_with_every_flag(overrides):
    model = build_small("ni_transformer", **overrides).train()
    model(*source_and_target()[:1], None, source_and_target()[1])[0].square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(("layers", "heads"), PAIRS)
def test_torchscript_gives_the_same_output(layers, heads):
    model = randomize(build_pair(layers, heads), 0.1).eval()
    source, target = source_and_target()
    scripted = torch.jit.script(model)(source, torch.tensor([20, 7, 3]), target)[0]
    torch.testing.assert_close(scripted, model(source, None, target)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_torchscript_gives_the_same_output_for_mixed_models(arch):
    model = randomize(build_small(arch, **MIXED), 0.1).eval()
    source, target = source_and_target()
    scripted = torch.jit.script(model)(source, torch.tensor([20, 7, 3]), target)[0]
    torch.testing.assert_close(scripted, model(source, None, target)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("layers", "heads"), [("bilinear", "bilinear"), ("hierarchical", "hierarchical")])
def test_checkpoint_activations_change_no_value(layers, heads):
    plain, wrapped = (build_pair(layers, heads, checkpoint_activations=wrap).double() for wrap in (False, True))
    wrapped.load_state_dict(copy.deepcopy(plain.state_dict()))
    source, target = source_and_target()
    gradients = []
    for model in (plain.train(), wrapped.train()):
        model(source, None, target)[0].square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize("normalize", [False, True])
def test_all_hiddens_are_returned_as_stock_returns_them(normalize):
    norms = {"encoder_normalize_before": normalize, "decoder_normalize_before": normalize}
    stock = build_small("transformer", **norms).eval()
    ours = build_small("ni_transformer", **{**STOCK, "encoder_layer_composition": "bilinear"}, **norms).eval()
    ours.load_state_dict({**ours.state_dict(), **stock.state_dict()})
    source, _ = source_and_target()
    expected, out = (model.encoder(source, return_all_hiddens=True) for model in (stock, ours))
    assert len(out["encoder_states"]) == len(expected["encoder_states"]) == 3
    for state, other in zip(out["encoder_states"], expected["encoder_states"]):
        torch.testing.assert_close(state, other, rtol=0, atol=1e-6)
    for name in ("encoder_padding_mask", "encoder_embedding", "src_lengths"):
        torch.testing.assert_close(out[name], expected[name], rtol=0, atol=0)
    # the composition starts as its top layer
    torch.testing.assert_close(out["encoder_out"], expected["encoder_out"], rtol=0, atol=1e-6)
    assert ours.encoder(source)["encoder_states"] == []


def test_the_composition_reads_every_layer_and_not_the_embedding():
    """Layers zeroed in the composition's weights, one at a time, change its output; there are as many as layers."""
    model = randomize(build_pair("bilinear", "linear"), 0.1).eval()
    source, _ = source_and_target()
    states = model.encoder(source, return_all_hiddens=True)["encoder_states"]
    assert model.encoder.layer_composition.factors.in_features == 2 * 16
    expected = model.encoder.layer_composition(states[1:])
    torch.testing.assert_close(model.encoder(source)["encoder_out"][0], expected, rtol=0, atol=0)


@pytest.mark.parametrize(("layers", "heads"), PAIRS)
def test_the_default_start_is_near_the_stock_transformer(layers, heads):
    """With the same random numbers, wherever a composition can hold a linear map."""
    if "hierarchical" in (layers, heads):
        layers, heads = (name if name != "hierarchical" else "linear" for name in (layers, heads))
    model = build_pair(layers, heads).eval()
    stock = build_small("transformer").eval()
    weights = stock.state_dict()
    for name, value in model.state_dict().items():
        if name in weights and value.shape == weights[name].shape and ".out_proj." not in name:
            weights[name] = value
    for name in [name for name in weights if ".out_proj." in name]:
        width = 16  # U comes first, P is the identity
        weights[name] = model.state_dict()[name][:width]
    stock.load_state_dict(weights)
    source, target = source_and_target()
    torch.testing.assert_close(model(source, None, target)[0], stock(source, None, target)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("variant", ["default", *(name for name in VARIANTS if name != "plain start")])
def test_head_outputs_scaled_by_300_stay_finite(dtype, variant):
    """As in stock attention, whose values times 300 give finite results: the product of two must not overflow.

    (From a plain start the results themselves, of the order of 300 x 300, are beyond float16.)
    """
    overrides = VARIANTS.get(variant, {})
    torch.manual_seed(5)
    model = build("ni_transformer", **{**SMALL_BUT_WIDE, **overrides}).to(dtype).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".v_proj." in name:
                parameter.mul_(300)
    source, target = source_and_target()
    logits = model(source, None, target)[0]
    assert logits.isfinite().all()
    torch.nn.functional.cross_entropy(logits.view(-1, 45).float(), target.flatten()).backward()
    bad = [name for name, parameter in model.named_parameters() if not parameter.grad.isfinite().all()]
    assert bad == []


SMALL_BUT_WIDE = {
    **{name: value for name, value in SMALL.items() if not name.endswith("_length")},
    **{f"{side}_{size}": value for side in ("encoder", "decoder") for size, value in (("embed_dim", 64),)},
    "dropout": 0.0,
}


def test_quantization_noise_reaches_the_compositions():
    model = build_small("ni_transformer", quant_noise_pq=0.1, quant_noise_pq_block_size=4)
    composed = [model.encoder.layer_composition.factors, model.decoder.layers[0].encoder_attn.out_proj]
    assert all(len(linear._forward_pre_hooks) == 1 for linear in composed)
    plain = build_small("ni_transformer")
    assert not plain.encoder.layer_composition.factors._forward_pre_hooks


def test_checkpoints_of_other_compositions_are_refused_in_one_line():
    model = build_small("ni_transformer")
    with pytest.raises(ValueError, match="decoder layers hold|encoder layers hold"):
        model.load_state_dict(build_small("transformer").state_dict())
    with pytest.raises(ValueError, match="encoder's layer composition hold .*composition flags"):
        model.load_state_dict(build_small("ni_transformer", encoder_layer_composition="linear").state_dict())
    with pytest.raises(ValueError, match="out_proj.weight is 10 x 16, this model's is 32 x 16"):
        model.load_state_dict(build_small("ni_transformer", composition_rank=5).state_dict())
