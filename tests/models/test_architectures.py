import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

from informer_fairseq.models.informer_mt import InformerMTModel
from tests.support.models import (
    EFFICIENT_ARCHS,
    SHARING_MODES,
    SMALL,
    batch,
    build,
    build_small,
    count,
    dictionary,
    flags,
)

VOCABULARY = {"source_size": 1000, "target_size": 700}


@pytest.mark.parametrize("vocabulary", [VOCABULARY, {"source_size": 17191, "target_size": 7709}], ids=str)
def test_the_papers_difference_in_parameters(vocabulary):
    """Table 6: 135,368,888 - 126,613,016."""
    assert count(build("conv_linformer_mt", **vocabulary)) - count(build("informer_mt", **vocabulary)) == 8_755_872


@pytest.mark.parametrize("sharing", SHARING_MODES)
def test_parameters_by_sharing_mode(sharing):
    """Hand counts at Table 3's sizes: what a projection has, times how many there are."""
    stock = count(build("transformer", **VOCABULARY))
    projections = {"none": 12, "kv": 6, "layer": 1}[sharing]
    low_rank = 8 * 200
    assert count(build("linformer_mt", encoder_projection_sharing=sharing, **VOCABULARY)) == (
        stock + projections * low_rank
    )
    convolution = 25 * 512 * 512 + 512
    assert convolution == 6_554_112
    with_convolution = stock + projections * convolution
    assert count(build("conv_linformer_mt", encoder_projection_sharing=sharing, **VOCABULARY)) == with_convolution
    feed_forward, organization = 2 * 512 * 2048 + 2048 + 512, 2 * (200 * 200 * 8 + 200)
    assert (feed_forward, organization) == (2_099_712, 640_400)
    assert count(build("informer_mt", encoder_projection_sharing=sharing, **VOCABULARY)) == (
        with_convolution - 6 * (feed_forward - organization)
    )


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_the_tiny_sizes(arch):
    model = build(f"{arch}_tiny")
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (4, 4)
    assert model.encoder.embed_tokens.embedding_dim == model.decoder.embed_tokens.embedding_dim == 128
    assert model.decoder.layers[0].fc1.out_features == 256
    assert model.decoder.layers[0].nh == model.encoder.layers[0].self_attn.num_heads == 4
    assert model.encoder.length_version.tolist() == [200, 8, 0 if arch.startswith("linformer") else 2]


@pytest.mark.parametrize("size", ["", "_tiny"])
def test_the_informer_with_neuron_interaction_is_a_set_of_flags(size):
    composed = {"decoder_layer_composition": "bilinear", "head_composition": "bilinear"}
    mixed = flags(f"informer_ni_mt{size}")
    assert vars(mixed) == {**vars(flags(f"informer_mt{size}", **composed)), "arch": f"informer_ni_mt{size}"}
    assert (mixed.encoder_layer_composition, mixed.composition_rank) == ("top", mixed.encoder_embed_dim)
    assert vars(flags(f"informer_ni_mt{size}", head_composition="linear"))["head_composition"] == "linear"
    assert ARCH_MODEL_REGISTRY[f"informer_ni_mt{size}"] is InformerMTModel


@pytest.mark.parametrize(("size", "depth"), [("", (9, 3)), ("_tiny", (6, 2))])
def test_the_deep_informer_differs_in_its_depths_alone(size, depth):
    usual, deep = (vars(flags(arch)) for arch in (f"informer_mt{size}", f"informer_mt_deep{size}"))
    depths = {"encoder_layers": depth[0], "decoder_layers": depth[1]}
    assert deep == {**usual, **depths, "arch": f"informer_mt_deep{size}"}
    assert vars(flags(f"informer_mt_deep{size}", decoder_layers=5))["decoder_layers"] == 5
    assert ARCH_MODEL_REGISTRY[f"informer_mt_deep{size}"] is InformerMTModel


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_ours_are_the_registered_ones(arch):
    assert MODEL_REGISTRY[arch].__module__ == f"informer_fairseq.models.{arch}"
    assert ARCH_MODEL_REGISTRY[arch] is ARCH_MODEL_REGISTRY[f"{arch}_tiny"] is MODEL_REGISTRY[arch]


@pytest.mark.parametrize(
    "overrides", [{}, {"encoder_normalize_before": True, "decoder_normalize_before": True}], ids=str
)
def test_full_attention_and_feed_forward_are_the_stock_transformer(overrides):
    """Same weights, same logits: the presets differ from stock in the two choices and the activation alone."""
    stock = build_small("transformer", **overrides).eval()
    ours = build_small(
        "linformer_mt",
        encoder_token_mixer="full",
        encoder_fixed_length=None,
        encoder_reduced_length=None,
        encoder_activation_fn="relu",
        **overrides,
    ).eval()
    ours.load_state_dict(stock.state_dict())
    source, target = batch([20, 7, 3], 1, side="left"), batch([9, 9, 9], 1, size=45)
    torch.testing.assert_close(ours(source, None, target)[0], stock(source, None, target)[0], rtol=0, atol=1e-5)


def test_the_feed_forward_is_leaky_in_the_encoder_and_relu_in_the_decoder():
    model = build_small("linformer_mt")
    x = torch.tensor([-2.0, 3.0])
    assert torch.equal(model.encoder.layers[0].activation_fn(x.clone()), torch.tensor([-0.02, 3.0]))
    assert torch.equal(model.decoder.layers[0].activation_fn(x.clone()), torch.tensor([0.0, 3.0]))


def test_a_given_activation_holds_on_both_sides_unless_the_encoder_has_its_own():
    x = torch.tensor([-2.0, 3.0])
    gelu = torch.nn.functional.gelu(x)
    both = build_small("linformer_mt", activation_fn="gelu")
    torch.testing.assert_close(both.encoder.layers[0].activation_fn(x.clone()), gelu)
    torch.testing.assert_close(both.decoder.layers[0].activation_fn(x.clone()), gelu)
    own = build_small("linformer_mt", activation_fn="gelu", encoder_activation_fn="leaky_relu")
    assert torch.equal(own.encoder.layers[0].activation_fn(x.clone()), torch.tensor([-0.02, 3.0]))


@pytest.mark.parametrize(
    "tying", [{}, {"share_decoder_input_output_embed": True}, {"share_all_embeddings": True}], ids=str
)
@pytest.mark.parametrize("sharing", SHARING_MODES)
@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_output_is_equal_before_save_and_after_load(arch, sharing, tying, tmp_path):
    joined = "share_all_embeddings" in tying
    model = build_small(arch, joined=joined, encoder_projection_sharing=sharing, **tying).eval()
    source, target = batch([20, 7, 3], 1, side="left", size=45), batch([9, 9, 9], 1, size=45)
    expected = model(source, None, target)[0]
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = build_small(arch, joined=joined, encoder_projection_sharing=sharing, **tying).eval()
    other.load_state_dict(torch.load(tmp_path / "model.pt"), strict=True)
    assert torch.equal(other(source, None, target)[0], expected)
    assert count(other) == count(model)
    if sharing == "layer":
        assert len({id(layer.self_attn.projection) for layer in other.encoder.layers}) == 1
    if tying:
        assert other.decoder.output_projection.weight is other.decoder.embed_tokens.weight
    if joined:
        assert other.encoder.embed_tokens.weight is other.decoder.embed_tokens.weight


@pytest.mark.parametrize("training_dropout", [0.0])
@pytest.mark.parametrize("sharing", SHARING_MODES)
@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_torchscript_gives_the_same_output(arch, sharing, training_dropout):
    model = build_small(arch, encoder_projection_sharing=sharing, dropout=training_dropout).eval()
    scripted = torch.jit.script(model)
    target = batch([9, 9, 9], 1, size=45)
    for side in ("left", "right"):
        for lengths in ([40, 7, 3], [1, 1, 1], [6, 6, 6]):
            source = batch(lengths, 1, side=side)
            expected = model(source, torch.tensor(lengths), target)[0]
            torch.testing.assert_close(scripted(source, torch.tensor(lengths), target)[0], expected, rtol=0, atol=1e-5)


def test_later_target_tokens_move_no_earlier_logit():
    model = build_small("informer_mt").eval()
    source, target = batch([20, 7], 1), batch([9, 9], 1, size=45)
    changed = target.clone()
    changed[:, 5:] = 7
    logits, other = model(source, None, target)[0], model(source, None, changed)[0]
    torch.testing.assert_close(other[:, :5], logits[:, :5], rtol=0, atol=1e-6)
    assert not torch.allclose(other[:, 5:], logits[:, 5:])


def test_checkpoints_of_other_sizes_are_refused_in_one_line():
    model = build_small("linformer_mt")
    other_n = build_small("linformer_mt", encoder_fixed_length=48)
    with pytest.raises(ValueError, match="trained with --encoder-fixed-length 48, not 40"):
        model.load_state_dict(other_n.state_dict())
    with pytest.raises(ValueError, match="source dictionary has 60 types, the data's has 50"):
        model.load_state_dict(build_small("linformer_mt", source_size=60).state_dict())
    with pytest.raises(ValueError, match="target dictionary has 46 types, the data's has 45"):
        model.load_state_dict(build_small("linformer_mt", target_size=46).state_dict())
    with pytest.raises(ValueError, match="encoder.layers.0.fc1.weight is 32 x 16, this model's is 24 x 16"):
        model.load_state_dict(build_small("linformer_mt", encoder_ffn_embed_dim=32).state_dict())


@pytest.mark.parametrize("arch", [arch for arch in EFFICIENT_ARCHS if arch != "informer_mt"])
def test_a_checkpoint_of_other_mixers_is_told_by_its_parts(arch):
    with pytest.raises(
        ValueError, match="the checkpoint's encoder layers hold .*--arch, mixer, sharing and composition flags"
    ):
        build_small("informer_mt").load_state_dict(build_small(arch).state_dict())


def test_another_n_is_refused_even_where_all_shapes_agree():
    """n 40, r 8 and n 20, r 4 have convolutions of the same size."""
    other = build_small("conv_linformer_mt", encoder_fixed_length=20, encoder_reduced_length=4)
    with pytest.raises(ValueError, match="--encoder-fixed-length 20, not 40, --encoder-reduced-length 4, not 8"):
        build_small("conv_linformer_mt").load_state_dict(other.state_dict())


def test_a_dictionary_of_equal_size_with_other_words_is_refused():
    model = build_small("linformer_mt")
    state = build_small("linformer_mt").state_dict()
    model.load_state_dict(state)
    task = SimpleNamespace(datasets={}, load_dataset=lambda *_: None)
    task.source_dictionary, task.target_dictionary = dictionary(50), dictionary(45, "u")
    other = ARCH_MODEL_REGISTRY["linformer_mt"].build_model(flags("linformer_mt", **SMALL, dropout=0.0), task)
    with pytest.raises(ValueError, match="target dictionary has other words, or another order"):
        other.load_state_dict(state)


def test_building_leaves_the_flags_of_another_model_alone():
    state = copy.deepcopy(build_small("informer_mt").state_dict())
    build_small("linformer_mt", encoder_fixed_length=48)
    build_small("informer_mt").load_state_dict(state)


def test_hydras_configuration_builds_the_same_model():
    from omegaconf import OmegaConf

    cfg = OmegaConf.create({"_name": "informer_mt", **SMALL})
    task = type("Task", (), {"source_dictionary": dictionary(50), "target_dictionary": dictionary(45, "v")})()
    task.datasets, task.load_dataset = {}, lambda *_: None
    assert count(InformerMTModel.build_model(cfg, task)) == count(build_small("informer_mt"))
