import pytest

from tests.support.models import EFFICIENT_ARCHS, flags


def test_the_defaults_of_ni_transformer():
    args = flags("ni_transformer")
    assert args.encoder_layer_composition == args.decoder_layer_composition == args.head_composition == "bilinear"
    assert (args.composition_rank, args.encoder_embed_dim, args.decoder_layers) == (512, 512, 6)
    assert (args.encoder_activation_fn, args.activation_fn) == ("relu", "relu")
    big = flags("ni_transformer_big")
    assert (big.composition_rank, big.encoder_embed_dim, big.encoder_ffn_embed_dim) == (1024, 1024, 4096)
    assert (big.encoder_attention_heads, big.dropout) == (16, 0.3)
    tiny = flags("ni_transformer_tiny")
    assert (tiny.composition_rank, tiny.encoder_embed_dim, tiny.encoder_layers) == (128, 128, 4)


@pytest.mark.parametrize("arch", EFFICIENT_ARCHS)
def test_the_defaults_of_the_efficient_encoders(arch):
    args = flags(arch)
    assert args.encoder_layer_composition == args.decoder_layer_composition == "top"
    assert args.head_composition == "linear" and args.composition_rank is None


def test_the_rank_follows_the_width():
    assert flags("informer_mt", head_composition="bilinear").composition_rank == 512
    assert flags("ni_transformer", encoder_embed_dim=256, decoder_embed_dim=384).composition_rank == 384


def test_filling_in_twice_changes_nothing():
    """fairseq runs the architecture's function once for the command line and once more for every model it builds."""
    from informer_fairseq.models.ni_transformer import NITransformerModel

    args = flags("ni_transformer_tiny", composition_second_order_only=True)
    before = dict(vars(args))
    NITransformerModel.set_defaults(args)
    assert vars(args) == before


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"composition_rank": 0}, "--composition-rank 0 is below 1: give a rank of 1 or more"),
        ({"encoder_layerdrop": 0.1}, "--encoder-layerdrop 0.1 changes the number of layers.*use --encoder-layer-comp"),
        ({"decoder_layerdrop": 0.1}, "--decoder-layerdrop 0.1 changes the number of layers.*--decoder-layer-compos"),
        ({"encoder_layers_to_keep": "0,1"}, "--encoder-layers-to-keep 0,1 changes the number of layers"),
        ({"decoder_layers_to_keep": "0,1"}, "--decoder-layers-to-keep 0,1 changes the number of layers"),
        ({"base_layers": 1}, "--base-layers 1 cannot be combined with --decoder-layer-composition bilinear"),
        ({"head_composition": "average"}, "--head-composition average is not one of linear, hierarchical, bilinear"),
        ({"encoder_layer_composition": "all"}, "--encoder-layer-composition all is not one of top, linear"),
        (
            {"head_composition": "linear", "head_composition_keep_output_projection": True},
            "--head-composition-keep-output-projection has no effect with .*--head-composition linear",
        ),
        ({"init_with_low_rank_approximation": True}, "has no effect without --init-from-transformer"),
        (
            {"init_from_transformer": "x.pt", "composition_rank": 256},
            "--init-from-transformer needs --composition-rank 512, the model's width, or more, not 256.*"
            "--init-with-low-rank-approximation",
        ),
        (
            {"init_from_transformer": "x.pt", "init_with_low_rank_approximation": True},
            "has no effect where no bilinear composition has a rank below the width 512",
        ),
        (
            {"init_from_transformer": "x.pt", "composition_start": "plain"},
            "--composition-start plain cannot be combined with --init-from-transformer",
        ),
        (
            {"encoder_layers": 0},
            "--encoder-layer-composition bilinear has nothing to compose with --encoder-layers 0: give 1 or more",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_in_one_line(overrides, message):
    with pytest.raises(ValueError, match=message) as refusal:
        flags("ni_transformer", **overrides)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("composition_rank", 64), ("composition_second_order_only", True), ("composition_start", "plain")],
)
def test_flags_that_no_composition_reads_are_refused(flag, value):
    with pytest.raises(
        ValueError, match=f"--{flag.replace('_', '-')}.* has no effect with --encoder-layer-composition"
    ):
        flags("informer_mt", **{flag: value})


def test_layerdrop_and_pruning_go_with_the_top_layer():
    args = flags(
        "ni_transformer",
        encoder_layer_composition="top",
        decoder_layer_composition="top",
        encoder_layerdrop=0.1,
        decoder_layers_to_keep="0,2",
    )
    assert args.composition_rank == 512


def test_second_order_heads_need_no_rank_for_a_warm_start():
    """They hold no linear map at any rank, so there is nothing to approximate."""
    flags("ni_transformer", init_from_transformer="x.pt", composition_rank=64, composition_second_order_only=True)
