import copy

import pytest
import torch
from fairseq.models.transformer import TransformerEncoderBase

from informer_fairseq.encoder_layer import EfficientEncoderLayer
from tests.support.models import EFFICIENT_ARCHS, SHARING_MODES, batch, build_small

ARCHS_AND_SHARING = [(arch, sharing) for arch in EFFICIENT_ARCHS for sharing in SHARING_MODES]
LENGTHS = [40, 5, 1, 17, 39, 6]
VARIANTS = [
    {},
    {"encoder_normalize_before": True},
    {"encoder_learned_pos": True},
    {"layernorm_embedding": True},
    {"encoder_token_mixer": "full"},
]


def trained(arch, **overrides):
    """A small model after three steps of plain gradient descent on random targets, in train mode."""
    model = build_small(arch, **overrides).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        source = batch([12, 40, 3], model.encoder.padding_idx, side="left", seed=step)
        target = batch([9, 9, 9], 1, size=45, seed=10 + step)
        logits, _ = model(source, None, target)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def encode_rows(model, tokens, lengths, side):
    """One T x C output a sentence, its own positions only."""
    out = model.encoder(tokens)["encoder_out"][0]
    width = tokens.size(1)
    return [out[slice(0, n) if side == "right" else slice(width - n, width), row] for row, n in enumerate(lengths)]


def overrides_for(arch, variant):
    """With full attention nothing reads r, and with a feed-forward behind it nothing reads n."""
    overrides = dict(variant)
    if overrides.get("encoder_token_mixer") == "full":
        overrides["encoder_reduced_length"] = None
        if arch in ("linformer_mt", "conv_linformer_mt"):
            overrides["encoder_fixed_length"] = None
    return overrides


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_batch_and_padding_side_do_not_matter(arch, variant, training):
    model = trained(arch, **overrides_for(arch, variant)).train(training)
    pad = model.encoder.padding_idx
    right = batch(LENGTHS, pad, side="right")
    left = batch(LENGTHS, pad, side="left")
    alone = [model.encoder(right[row : row + 1, :n])["encoder_out"][0][:, 0] for row, n in enumerate(LENGTHS)]
    for side, tokens in (("right", right), ("left", left)):
        for own, in_batch in zip(alone, encode_rows(model, tokens, LENGTHS, side)):
            torch.testing.assert_close(in_batch, own, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("arch", "sharing"), ARCHS_AND_SHARING)
def test_every_sharing_mode_is_invariant(arch, sharing):
    model = trained(arch, encoder_projection_sharing=sharing).eval()
    tokens = batch(LENGTHS, model.encoder.padding_idx, side="left")
    for row, (n, in_batch) in enumerate(zip(LENGTHS, encode_rows(model, tokens, LENGTHS, "left"))):
        alone = model.encoder(tokens[row : row + 1, tokens.size(1) - n :])["encoder_out"][0][:, 0]
        torch.testing.assert_close(in_batch, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("arch", "sharing"), ARCHS_AND_SHARING)
def test_what_stands_at_padded_positions_moves_nothing(arch, sharing, side):
    """1e3 put into the padded positions in front of every layer changes no real position."""
    model = trained(arch, encoder_projection_sharing=sharing).eval()
    tokens = batch(LENGTHS, model.encoder.padding_idx, side=side)
    expected = encode_rows(model, tokens, LENGTHS, side)

    def disturb(_, args, kwargs):
        mask = kwargs["encoder_padding_mask"]
        return (args[0] + 1e3 * mask.t().unsqueeze(2),), kwargs

    for layer in model.encoder.layers:
        assert isinstance(layer, EfficientEncoderLayer)
        layer.register_forward_pre_hook(disturb, with_kwargs=True)
    for own, disturbed in zip(expected, encode_rows(model, tokens, LENGTHS, side)):
        torch.testing.assert_close(disturbed, own, rtol=0, atol=0)


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_columns_of_all_outputs_belong_to_columns_of_the_source(arch):
    model = build_small(arch).eval()
    pad = model.encoder.padding_idx
    left, right = batch([9, 4], pad, side="left"), batch([9, 4], pad, side="right")
    out = model.encoder(left, return_all_hiddens=True)
    expected = model.encoder(right, return_all_hiddens=True)
    assert torch.equal(out["encoder_padding_mask"][0], left.eq(pad))
    assert len(out["encoder_states"]) == len(expected["encoder_states"]) == 3  # the embedding and two layers
    for state, other in zip(out["encoder_states"], expected["encoder_states"]):
        torch.testing.assert_close(state[5:, 1], other[:4, 1], rtol=0, atol=1e-5)
    embedding, other = out["encoder_embedding"][0], expected["encoder_embedding"][0]
    assert torch.equal(embedding[1, 5:], other[1, :4])


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_given_token_embeddings_take_the_place_of_the_look_up(arch):
    model = build_small(arch).eval()
    tokens = batch([9, 4], model.encoder.padding_idx, side="left")
    embeddings = model.encoder.embed_tokens(tokens)
    given = model.encoder(tokens, token_embeddings=embeddings)["encoder_out"][0]
    torch.testing.assert_close(given, model.encoder(tokens)["encoder_out"][0], rtol=0, atol=0)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 8, 9, 39, 40])
@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_every_length_up_to_n_runs(arch, length):
    model = build_small(arch).eval()
    out = model.encoder(batch([length, 1], model.encoder.padding_idx))["encoder_out"][0]
    assert out.shape == (length, 2, 16) and out.isfinite().all()


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_a_longer_source_is_refused(arch):
    model = build_small(arch)
    assert model.encoder.max_positions() == model.max_positions()[0] == 40
    with pytest.raises(ValueError, match="source of 41 positions .* fixed length 40"):
        model.encoder(batch([41], model.encoder.padding_idx))


def test_max_source_positions_can_only_lower_the_limit():
    assert build_small("informer_mt", max_source_positions=30).encoder.max_positions() == 30
    assert build_small("informer_mt", max_source_positions=300).encoder.max_positions() == 40
    assert build_small("informer_mt", encoder_learned_pos=True).encoder.max_positions() == 40


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_half_precision_is_finite_with_a_fully_padded_row(arch, dtype):
    model = build_small(arch).to(dtype).eval()
    tokens = batch([9, 4], model.encoder.padding_idx)
    tokens[1] = model.encoder.padding_idx
    assert model.encoder(tokens)["encoder_out"][0].isfinite().all()


@pytest.mark.parametrize(("arch", "sharing"), ARCHS_AND_SHARING)
@pytest.mark.parametrize("lengths", [[1], [40, 3]], ids=str)
def test_every_parameter_gets_a_gradient(arch, sharing, lengths):
    """What distributed training needs, whatever the batch: also one that fills a single window."""
    model = build_small(arch, encoder_projection_sharing=sharing).train()
    source = batch(lengths, model.encoder.padding_idx, side="left")
    model(source, None, batch([5] * len(lengths), 1, size=45))[0].square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_checkpoint_activations_change_no_value(arch):
    plain, wrapped = build_small(arch).double(), build_small(arch, checkpoint_activations=True).double()
    wrapped.load_state_dict(copy.deepcopy(plain.state_dict()))
    gradients = []
    for model in (plain.train(), wrapped.train()):
        source = batch([9, 4], model.encoder.padding_idx, side="left")
        model(source, None, batch([5, 5], 1, size=45))[0].square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-9, atol=1e-10, msg=name)


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_layerdrop_drops_layers_in_training_only(arch):
    model = build_small(arch, encoder_layerdrop=0.5, encoder_layers=6)
    tokens = batch([9, 4], model.encoder.padding_idx)
    counts = {len(model.train().encoder(tokens, return_all_hiddens=True)["encoder_states"]) for _ in range(20)}
    assert min(counts) < 7
    assert len(model.eval().encoder(tokens, return_all_hiddens=True)["encoder_states"]) == 7


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_deterministic_algorithms_give_two_equal_runs(arch):
    torch.use_deterministic_algorithms(True)
    try:
        first, second = trained(arch), trained_again(arch)
    finally:
        torch.use_deterministic_algorithms(False)
    for (name, one), two in zip(first.named_parameters(), second.parameters()):
        assert torch.equal(one, two), name


def trained_again(arch):
    torch.manual_seed(1)
    return trained(arch)


def test_an_attention_mask_is_refused_over_compressed_keys():
    layer = build_small("linformer_mt").encoder.layers[0]
    with pytest.raises(ValueError, match="attn_mask has no meaning"):
        layer(torch.zeros(4, 1, 16), None, attn_mask=torch.zeros(4, 4))


ORDERS = [[0, 0, 1, 1, 2, 2], [1, 0, 3, 3, 5, 4], [2, 3, 0, 1], [0, 0, 3, 2], [3], [0]]


@pytest.mark.parametrize("scripted", [False, True])
def test_reordering_equals_stock_and_copies_only_what_moves(scripted):
    """Beams of two: rows repeated, hypotheses exchanged within and between sentences, sentences finished."""
    model = build_small("informer_mt").eval()
    source = batch([7, 3, 5], model.encoder.padding_idx)
    own = model.encoder(source, return_all_hiddens=not scripted)
    stock = {name: list(tensors) for name, tensors in own.items()}
    encoder = torch.jit.script(model.encoder) if scripted else model.encoder
    moved = []
    for order in map(torch.tensor, ORDERS):
        before = own["encoder_out"][0].data_ptr()
        own = encoder.reorder_encoder_out(own, order)
        stock = TransformerEncoderBase.reorder_encoder_out(model.encoder, stock, order)
        moved.append(own["encoder_out"][0].data_ptr() != before)
        for name, tensors in stock.items():
            assert len(own[name]) == len(tensors), name
            assert all(torch.equal(one, other) for one, other in zip(own[name], tensors)), name
    assert moved == [True, False, True, False, True, False]
