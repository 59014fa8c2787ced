"""A sentence's numbers depend on the sentence: not on its batch, its padding, the file it went through or the run."""

import copy

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.systems import PAD, build_system, examples, lengths, pad, sentences, softmax_of_own_type, systems


@st.composite
def systems_with_batches(draw):
    """(architecture, flags, lengths, padding sides, columns that hold padding alone)."""
    arch, flags = draw(systems())
    sizes = draw(lengths(flags))
    sides = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    spare = flags.get("encoder_fixed_length", 17) - max(sizes)
    return arch, flags, sizes, sides, draw(st.integers(0, min(spare, 2)))


def encode(encoder, tokens, **more):
    """What the encoder gives at the tokens of each row, padding left out."""
    out = encoder(tokens, **more)["encoder_out"][0].transpose(0, 1)
    return [row[mask] for row, mask in zip(out, tokens.ne(PAD))]


def put_into_padding(model, value):
    """Adds ``value`` to the padded positions in front of every layer."""

    def disturb(_, args, kwargs):
        mask = args[1] if len(args) > 1 else kwargs["encoder_padding_mask"]
        return (args[0] if mask is None else args[0] + value * mask.t().unsqueeze(2), *args[1:]), kwargs

    return [layer.register_forward_pre_hook(disturb, with_kwargs=True) for layer in model.encoder.layers]


@examples(120)
@given(systems_with_batches())
def test_the_encoding_depends_on_neither_batch_nor_padding(case):
    """Float64: each sentence alone, in a batch of mixed padding sides, and with 1e3 wherever padding stands."""
    arch, flags, sizes, sides, extra = case
    model = build_system(arch, flags)
    rows = sentences(sizes)
    alone = [encode(model.encoder, row.unsqueeze(0))[0] for row in rows]
    tokens = pad(rows, sides, extra)
    loud = model.encoder.embed_tokens(tokens)
    loud[tokens.eq(PAD)] += 1e3
    results = [encode(model.encoder, tokens), encode(model.encoder, tokens, token_embeddings=loud)]
    put_into_padding(model, 1e3)
    results.append(encode(model.encoder, tokens, token_embeddings=loud))
    for result in results:
        for expected, encoded in zip(alone, result):
            torch.testing.assert_close(encoded, expected, rtol=0, atol=1e-9)


@examples(60)
@given(systems_with_batches())
def test_the_logits_depend_on_neither_batch_nor_padding(case):
    """Float64: the decoder reads the encoder's padded columns through a mask, and no logit may move."""
    arch, flags, sizes, sides, extra = case
    model = build_system(arch, flags)
    rows = sentences(sizes)
    target = torch.stack(sentences([6] * len(rows), seed=5))
    with softmax_of_own_type():
        logits = model(pad(rows, sides, extra), None, target)[0]
        alone = [model(row.unsqueeze(0), None, target[n : n + 1])[0][0] for n, row in enumerate(rows)]
    for one, expected in zip(logits, alone):
        torch.testing.assert_close(one, expected, rtol=0, atol=1e-9)


@examples(30)
@given(systems(), st.sampled_from([{}, {"share_decoder_input_output_embed": True}, {"share_all_embeddings": True}]))
def test_the_encoding_is_equal_before_save_and_after_load(tmp_path_factory, system, tying):
    """In evaluation, where fairseq 0.12.2 takes another path once weights were loaded."""
    arch, flags = system
    joined = "share_all_embeddings" in tying
    model = build_system(arch, {**flags, **tying}, torch.float32, joined)
    tokens, target = pad(sentences([4, 1, 2]), [True, False, True]), torch.stack(sentences([5] * 3, seed=5))
    path = tmp_path_factory.mktemp("saved") / "model.pt"
    torch.save(model.state_dict(), path)
    other = build_system(arch, {**flags, **tying}, torch.float32, joined)
    other.load_state_dict(torch.load(path), strict=True)
    for ours, theirs in zip(encode(model.encoder, tokens), encode(other.encoder, tokens)):
        assert torch.equal(ours, theirs)
    assert torch.equal(model(tokens, None, target)[0], other(tokens, None, target)[0])
    embeddings = [other.encoder.embed_tokens, other.decoder.embed_tokens, other.decoder.output_projection]
    tied = {(): 3, ("share_decoder_input_output_embed",): 2, ("share_all_embeddings",): 1}[tuple(tying)]
    assert len({id(embedding.weight) for embedding in embeddings}) == tied


def losses_of_three_updates(arch, flags):
    torch.manual_seed(7)
    model = build_system(arch, {**flags, "dropout": 0.1}, torch.float32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    tokens, target = pad(sentences([4, 1, 3]), [True, False, True]), torch.stack(sentences([5] * 3, seed=5))
    losses = []
    for _ in range(3):
        logits = model(tokens, None, target)[0]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@examples(20)
@given(systems())
def test_two_runs_with_one_seed_are_equal_under_deterministic_algorithms(system):
    torch.use_deterministic_algorithms(True)
    try:
        first, second = losses_of_three_updates(*system), losses_of_three_updates(*copy.deepcopy(system))
    finally:
        torch.use_deterministic_algorithms(False)
    assert first == second and len(set(first)) == 3
