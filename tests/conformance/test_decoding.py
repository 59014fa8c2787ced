"""Decoding: no look ahead, a cache that follows its beam, no source cut or lost, embeddings that stay tied."""

import logging
import re

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from informer_fairseq.errors import InputError
from tests.support.checkpoints import save_small
from tests.support.composition_references import randomize
from tests.support.generation import assert_scores_are_teacher_forced, search
from tests.support.models import ALL_ARCHS, POSITION_FREE, batch, build_small, dictionary
from tests.support.systems import TYPES, build_system, examples, lengths, pad, sentences, softmax_of_own_type, systems
from tests.test_command_line import run_generate

POSITION_BOUND = [arch for arch in ALL_ARCHS if arch not in POSITION_FREE]


@examples(60)
@given(systems(), st.integers(1, 6), st.integers(0, 1000))
def test_later_target_tokens_move_no_earlier_logit(system, position, seed):
    model = build_system(*system)
    source = pad(sentences([4, 2]), [True, False])
    target = torch.stack(sentences([7, 7], seed=5))
    changed = target.clone()
    changed[:, position:] = torch.randint(4, TYPES, (2, 7 - position), generator=torch.Generator().manual_seed(seed))
    assume(not torch.equal(changed, target))
    with softmax_of_own_type():
        logits, other = model(source, None, target)[0], model(source, None, changed)[0]
    torch.testing.assert_close(other[:, :position], logits[:, :position], rtol=0, atol=1e-9)
    assert not torch.allclose(other[:, position:], logits[:, position:])


@st.composite
def systems_with_sources(draw):
    arch, flags = draw(systems())
    return arch, flags, draw(lengths(flags)), draw(st.sampled_from([1, 2, 5]))


@examples(40)
@given(systems_with_sources())
def test_scores_of_a_search_are_teacher_forced(case):
    """A cache that does not follow its beam gives a hypothesis the scores of another."""
    arch, flags, sizes, beam = case
    model = build_system(arch, flags, torch.float32)
    source = pad(sentences(sizes), [True] * len(sizes))
    assert_scores_are_teacher_forced(model, source, beam, target=dictionary(TYPES, "v"))


@pytest.mark.parametrize(
    "flags",
    [
        {"no_cross_attention": True},
        {"cross_self_attention": True},
        {"cross_self_attention": True, "no_cross_attention": True},
        {"decoder_output_dim": 12},
        {"decoder_input_dim": 12},
        {"decoder_embed_dim": 32},
        {"encoder_embed_dim": 32},
        {"adaptive_softmax_cutoff": "10,20", "adaptive_softmax_dropout": 0.0},
        {"decoder_normalize_before": True, "no_decoder_final_norm": True},
        {"use_stable_embedding": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("arch", [*ALL_ARCHS, "transformer"])
def test_stock_flags_of_the_decoder_keep_the_scores(arch, flags):
    model = randomize(build_small(arch, **flags), 0.1).eval()
    assert_scores_are_teacher_forced(model, batch([20, 7, 3], 1, side="left"), 3)


@pytest.mark.parametrize("arch", ALL_ARCHS)
def test_a_search_ends_at_the_decoders_positions(arch):
    """A length limit beyond the target positions is fairseq's to lower: no position is asked for that is not there."""
    model = randomize(build_small(arch, max_target_positions=6, decoder_learned_pos=True), 0.1).eval()
    for hypotheses in search([model], batch([20, 7], 1, side="left"), 2, max_len_b=50, min_len=1):
        assert all(len(hypothesis["tokens"]) <= 6 for hypothesis in hypotheses)


@pytest.mark.parametrize("arch", [*ALL_ARCHS, "transformer"])
def test_sharing_all_embeddings_needs_a_joined_dictionary(arch):
    with pytest.raises(ValueError, match="^--share-all-embeddings requires a joined dictionary$"):
        build_small(arch, share_all_embeddings=True)


@pytest.fixture(scope="module", params=POSITION_BOUND)
def short(request, data_bin, tmp_path_factory):
    """A checkpoint whose n, 16, is below the longest test sentence, and the lengths of the test sentences."""
    path = tmp_path_factory.mktemp("short") / "model.pt"
    save_small(path, data_bin[0], request.param, extra=["--encoder-fixed-length", "16"])
    lines = (data_bin[1] / "test.en").read_text().splitlines()
    return path, [len(line.split()) + 1 for line in lines]


@pytest.mark.parametrize("more", [(), ("--max-source-positions", "64")], ids=str)
def test_a_test_set_over_n_is_refused_in_one_line(short, data_bin, tmp_path, more):
    path, sizes = short
    over = sum(size > 16 for size in sizes)
    message = rf"test: {over} of 23 sources exceed the encoder's limit of 16, .* has {max(sizes)} positions"
    with pytest.raises(InputError, match=message) as refusal:
        run_generate(data_bin, path, *more, output=tmp_path)
    assert "\n" not in str(refusal.value)


def test_another_n_cannot_be_laid_over_a_checkpoint(short, data_bin, tmp_path):
    path, _ = short
    with pytest.raises(InputError, match="trained with --encoder-fixed-length 16, not 64"):
        run_generate(data_bin, path, "--model-overrides", "{'encoder_fixed_length': 64}", output=tmp_path)


def test_sources_left_out_on_request_are_counted(short, data_bin, tmp_path, caplog):
    path, sizes = short
    with caplog.at_level(logging.WARNING):
        lines = run_generate(
            *(data_bin, path, "--skip-invalid-size-inputs-valid-test", "--max-len-b", "5"), output=tmp_path
        )
    assert sorted(lines) == [number for number, size in enumerate(sizes) if size <= 16]
    over = sum(size > 16 for size in sizes)
    assert re.search(rf"{over} samples have invalid sizes and will be skipped, max_positions=\(16,", caplog.text)


def test_sources_cut_on_request_are_all_translated(short, data_bin, tmp_path):
    path, _ = short
    cut = ["--truncate-source", "--max-source-positions", "16", "--max-len-b", "5"]
    assert sorted(run_generate(data_bin, path, *cut, output=tmp_path)) == list(range(23))
