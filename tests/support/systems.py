"""Random systems and batches for property-based tests: every architecture with any flags that fit together."""

from unittest.mock import patch

import torch
from fairseq import utils
from fairseq.models import ARCH_MODEL_REGISTRY
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from informer_fairseq.composition_config import HEAD_COMPOSITIONS, LAYER_COMPOSITIONS
from informer_fairseq.config import CHANNEL_MIXERS, ENCODER_ACTIVATIONS, SHARING_MODES, TOKEN_MIXERS, is_position_bound
from tests.support.composition_references import randomize
from tests.support.models import ALL_ARCHS, build

PAD, EOS, TYPES = 1, 2, 50
ACTIVATIONS = tuple(name for name in ENCODER_ACTIVATIONS if name != "gelu_fast")  # fairseq: renamed to gelu_accurate


def examples(count):
    """``count`` examples, the same in every run: a test of this suite passes or fails for everybody."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=checks)


@st.composite
def mixers(draw, arch):
    """Flags of the encoder: the mixers, often the architecture's own, and the sizes that they read."""
    model = ARCH_MODEL_REGISTRY[arch]
    token = draw(st.sampled_from([model.token_mixer, *TOKEN_MIXERS]))
    channel = draw(st.sampled_from([model.channel_mixer, *CHANNEL_MIXERS]))
    window, r = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    n = max(4, window * r + (draw(st.integers(0, 3)) if token == "low-rank" else 0))
    if token == "convolution":
        n = -(-n // r) * r
    flags = {"encoder_token_mixer": token, "encoder_channel_mixer": channel}
    if is_position_bound(token, channel):
        flags["encoder_fixed_length"] = n
    if token != "full":
        flags["encoder_reduced_length"] = r
        flags["encoder_projection_sharing"] = draw(st.sampled_from(SHARING_MODES))
    if token == "convolution":
        flags["encoder_pool_size"] = draw(st.sampled_from(divisors(r)))
        flags["encoder_drop_null_slots"] = draw(st.booleans())
    if channel == "information-organization":
        flags["encoder_organization_groups"] = draw(st.sampled_from(divisors(n)))
    else:
        flags["encoder_activation_fn"] = draw(st.sampled_from(ACTIVATIONS))
    return flags


@st.composite
def compositions(draw):
    """Flags of the compositions of heads and layers, and what the bilinear ones read."""
    flags = {
        "encoder_layer_composition": draw(st.sampled_from(LAYER_COMPOSITIONS)),
        "decoder_layer_composition": draw(st.sampled_from(LAYER_COMPOSITIONS)),
        "head_composition": draw(st.sampled_from(HEAD_COMPOSITIONS)),
    }
    if "bilinear" in flags.values():
        flags["composition_rank"] = draw(st.sampled_from([3, 16, 21]))
        flags["composition_second_order_only"] = draw(st.booleans())
    if "bilinear" in flags.values() or "linear" in list(flags.values())[:2]:
        flags["composition_start"] = draw(st.sampled_from(["transformer", "plain"]))
    if flags["head_composition"] == "bilinear":
        flags["head_composition_keep_output_projection"] = draw(st.booleans())
    return flags


@st.composite
def systems(draw, archs=ALL_ARCHS, **fixed):
    """(architecture, flags) of a model of width 16 without dropout; ``fixed`` flags are given to every one."""
    arch = draw(st.sampled_from(archs))
    flags = {"dropout": 0.0, **draw(mixers(arch)), **draw(compositions())}
    for side in ("encoder", "decoder"):
        flags[f"{side}_embed_dim"], flags[f"{side}_ffn_embed_dim"] = 16, 24
        flags[f"{side}_attention_heads"] = draw(st.sampled_from([1, 2, 4, 8]))
        flags[f"{side}_layers"] = draw(st.integers(1, 3))
        flags[f"{side}_normalize_before"] = draw(st.booleans())
        flags[f"{side}_learned_pos"] = draw(st.booleans())
    flags["activation_fn"] = draw(st.sampled_from([name for name in ACTIVATIONS if name != "leaky_relu"]))
    for switch in ("layernorm_embedding", "no_token_positional_embeddings", "no_scale_embedding"):
        flags[switch] = draw(st.booleans())
    return arch, {**flags, **fixed}


@st.composite
def lengths(draw, flags):
    """Lengths of the sentences of a batch: any, and those at which something ends (1, 2, r, n and their neighbours)."""
    n, r = flags.get("encoder_fixed_length", 17), flags.get("encoder_reduced_length", 4)
    ends = sorted({length for length in (1, 2, r - 1, r, r + 1, n - 1, n) if 1 <= length <= n})
    return draw(st.lists(st.one_of(st.sampled_from(ends), st.integers(1, n)), min_size=1, max_size=5))


def build_system(arch, flags, dtype=torch.float64, joined=False):
    """The model of ``systems``, in eval mode, every parameter moved away from its start (biases leave zero).

    The same weights at each call, so that a case that fails fails again.
    """
    torch.manual_seed(1)
    model = build(arch, TYPES, TYPES, joined, **flags).to(dtype)
    return randomize(model, 0.1).eval()


def softmax_of_own_type():
    """A context in which fairseq's softmaxes, of attention and of the output, are of the model's type.

    They are in float32 otherwise, and what stands behind or before them enlarges that rounding beyond what a float64
    test may allow.
    """
    return patch.multiple(
        utils,
        softmax=lambda x, dim, onnx_trace=False: x.softmax(dim),
        log_softmax=lambda x, dim, onnx_trace=False: x.log_softmax(dim),
    )


def sentences(sizes, seed=3):
    """One random sentence of each length, ``</s>`` last."""
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randint(4, TYPES, (size,), generator=generator) for size in sizes]
    for sentence in made:
        sentence[-1] = EOS
    return made


def pad(rows, sides, extra=0):
    """B x T: the sentences, each padded on its own side (True for left), to ``extra`` columns over the longest."""
    width = max(map(len, rows)) + extra
    tokens = torch.full((len(rows), width), PAD)
    for number, (row, left) in enumerate(zip(rows, sides)):
        tokens[number, width - len(row) if left else 0 :][: len(row)] = row
    return tokens


def divisors(number):
    """All of them, smallest first."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]
