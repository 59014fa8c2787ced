import pytest

from informer_fairseq.errors import InputError
from tests.support.models import EFFICIENT_ARCHS, SMALL, build_small, flags

ENCODER = {name: value for name, value in SMALL.items() if name.startswith("encoder_")}


@pytest.mark.parametrize(
    ("arch", "token_mixer", "channel_mixer"),
    [
        ("linformer_mt", "low-rank", "feed-forward"),
        ("conv_linformer_mt", "convolution", "feed-forward"),
        ("informer_mt", "convolution", "information-organization"),
        ("linformer_informer_mt", "low-rank", "information-organization"),
    ],
)
def test_architectures_are_presets_of_two_choices(arch, token_mixer, channel_mixer):
    args = flags(arch)
    assert (args.encoder_token_mixer, args.encoder_channel_mixer) == (token_mixer, channel_mixer)
    assert (args.encoder_fixed_length, args.encoder_reduced_length, args.encoder_projection_sharing) == (
        200,
        8,
        "layer",
    )
    assert getattr(args, "encoder_pool_size", None) == (2 if token_mixer == "convolution" else None)
    assert (args.encoder_embed_dim, args.encoder_layers, args.encoder_ffn_embed_dim) == (512, 6, 2048)


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_setting_defaults_twice_changes_nothing(arch):
    args = flags(arch)
    first = dict(vars(args))
    assert vars(flags(**vars(args))) == first


@pytest.mark.parametrize(
    ("arch", "overrides", "message"),
    [
        (
            "informer_mt",
            {"encoder_reduced_length": 7},
            "200 is not divisible by --encoder-reduced-length 7 .*196 or 203",
        ),
        (
            "informer_mt",
            {"encoder_pool_size": 3},
            "--encoder-reduced-length 8 is not divisible by --encoder-pool-size 3",
        ),
        ("informer_mt", {"encoder_pool_size": 0}, "not divisible by --encoder-pool-size 0"),
        ("informer_mt", {"encoder_organization_groups": 3}, "200 is not divisible by --encoder-organization-groups 3"),
        ("informer_mt", {"encoder_organization_groups": 0}, "not divisible by --encoder-organization-groups 0"),
        ("linformer_mt", {"encoder_organization_groups": 2}, "--encoder-organization-groups 2 has no effect with"),
        ("linformer_mt", {"encoder_reduced_length": 201}, "201 is not between 1 and --encoder-fixed-length 200"),
        ("linformer_mt", {"encoder_reduced_length": 0}, "0 is not between 1 and"),
        ("linformer_mt", {"encoder_reduced_length": -8}, "-8 is not between 1 and"),
        ("conv_linformer_mt", {"encoder_reduced_length": 400}, "400 is not between 1 and --encoder-fixed-length 200"),
        ("linformer_mt", {"encoder_fixed_length": 0}, "--encoder-fixed-length 0 is below 1"),
        ("linformer_mt", {"encoder_attention_heads": 7}, "--encoder-embed-dim 512 .* --encoder-attention-heads 7"),
        ("linformer_mt", {"encoder_attention_heads": 0}, "--encoder-attention-heads 0"),
        ("linformer_mt", {"decoder_attention_heads": 7}, "--decoder-embed-dim 512 .* --decoder-attention-heads 7"),
        (
            "informer_mt",
            {"encoder_embed_dim": 36, "encoder_attention_heads": 4},
            "head width is 9 .* choose an even one",
        ),
        (
            "linformer_mt",
            {"encoder_pool_size": 2},
            "--encoder-pool-size 2 has no effect with --encoder-token-mixer low-r",
        ),
        ("informer_mt", {"encoder_activation_fn": "gelu"}, "--encoder-activation-fn gelu has no effect"),
        (
            "linformer_mt",
            {"encoder_token_mixer": "full", "encoder_reduced_length": 4},
            "reduced-length 4 has no effect",
        ),
        ("linformer_mt", {"encoder_token_mixer": "full", "encoder_fixed_length": 99}, "fixed-length 99 has no effect"),
        ("linformer_mt", {"encoder_drop_null_slots": True}, "--encoder-drop-null-slots has no effect"),
        (
            "linformer_mt",
            {"encoder_token_mixer": "sparse"},
            "--encoder-token-mixer sparse is not one of full, low-rank",
        ),
        ("linformer_mt", {"encoder_projection_sharing": "all"}, "sharing all is not one of none, kv, layer"),
        ("linformer_mt", {"quant_noise_pq": 0.1}, "--quant-noise-pq 0.1 cannot be combined with --encoder-token-mixer"),
        ("informer_mt", {"quant_noise_scalar": 0.5}, "--quant-noise-scalar 0.5 cannot be combined"),
        ("linformer_mt", {"encoder_xformers_att_config": "{}"}, "--encoder-xformers-att-config"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(arch, overrides, message):
    with pytest.raises(InputError, match=message) as caught:
        flags(arch, **overrides)
    assert "\n" not in str(caught.value)


def test_information_organization_behind_full_attention_keeps_n():
    args = flags("linformer_mt", encoder_token_mixer="full", encoder_channel_mixer="information-organization")
    assert args.encoder_fixed_length == 200
    assert getattr(args, "encoder_reduced_length", None) is None


def test_low_rank_needs_no_divisible_length():
    assert flags("linformer_mt", encoder_reduced_length=7).encoder_reduced_length == 7


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.5, float("inf"), float("nan")])
def test_a_dropout_that_is_no_probability_is_refused(name, value):
    flag = name.replace("_", "-")
    with pytest.raises(InputError, match=f"--{flag} {value} is not between 0 and 1: give a probability"):
        build_small("informer_mt", **{name: value})
