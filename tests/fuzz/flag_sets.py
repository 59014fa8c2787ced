"""Draws sets of command-line flags: half of them sound, half with one to three values changed for odd ones."""

import random
from dataclasses import dataclass, fields
from typing import Dict, List, Optional, Tuple

from fairseq import utils

from informer_fairseq.composition_config import COMPOSITION_STARTS, HEAD_COMPOSITIONS, LAYER_COMPOSITIONS
from informer_fairseq.composition_config import CompositionConfig as Compositions
from informer_fairseq.config import CHANNEL_MIXERS, ENCODER_ACTIVATIONS, SHARING_MODES, TOKEN_MIXERS
from informer_fairseq.config import EfficientEncoderConfig as Encoder
from tests.support.models import ALL_ARCHS

ARCHS = (*(f"{name}{size}" for name in ALL_ARCHS for size in ("", "_tiny")), "ni_transformer_big")
OURS = frozenset(f"--{field.name.replace('_', '-')}" for kind in (Encoder, Compositions) for field in fields(kind))
PRESETS = {
    "linformer_mt": ("low-rank", "feed-forward"),
    "conv_linformer_mt": ("convolution", "feed-forward"),
    "informer_mt": ("convolution", "information-organization"),
    "linformer_informer_mt": ("low-rank", "information-organization"),
    "ni_transformer": ("full", "feed-forward"),
}
SIDES = ("encoder", "decoder")
ACTIVATIONS = tuple(utils.get_available_activation_fns())
CHUNKED = "chunked_label_smoothed_cross_entropy"

# What a hand may slip into a flag. Nothing that would merely take much memory: that is refused by the machine.
NUMBERS = ("0", "-1", "1", "2", "3", "5", "7", "13", "1.5", "x", "")
RATES = ("0", "1", "0.999", "1.5", "-0.1", "nan", "inf", "x")
SLIPS: Dict[str, Tuple[Optional[str], ...]] = {
    **{f"--{side}-{name}": NUMBERS for side in SIDES for name in ("layers", "embed-dim", "ffn-embed-dim")},
    **{f"--{side}-attention-heads": NUMBERS for side in SIDES},
    **{f"--{side}-layerdrop": RATES for side in SIDES},
    **{f"--{side}-layers-to-keep": ("0", "0,1", "5", "x") for side in SIDES},
    **{f"--{side}-learned-pos": (None,) for side in SIDES},
    **{f"--{side}-layer-composition": (*LAYER_COMPOSITIONS, "bottom") for side in SIDES},
    **{f"--{side}-xformers-att-config": ("{}", "x") for side in SIDES},
    **{f"--encoder-{name}": NUMBERS for name in ("fixed-length", "reduced-length", "pool-size", "organization-groups")},
    "--encoder-drop-null-slots": (None,),
    "--encoder-token-mixer": (*TOKEN_MIXERS, "none"),
    "--encoder-channel-mixer": (*CHANNEL_MIXERS, "none"),
    "--encoder-projection-sharing": (*SHARING_MODES, "heads"),
    "--encoder-activation-fn": (*ENCODER_ACTIVATIONS, "softmax"),
    "--head-composition": (*HEAD_COMPOSITIONS, "top"),
    "--composition-rank": NUMBERS,
    "--composition-second-order-only": (None,),
    "--head-composition-keep-output-projection": (None,),
    "--composition-start": (*COMPOSITION_STARTS, "x"),
    "--init-from-transformer": ("/no/such/checkpoint.pt", "/", ""),
    "--init-with-low-rank-approximation": (None,),
    "--decoder-input-dim": NUMBERS,
    "--decoder-output-dim": NUMBERS,
    "--activation-fn": (*ACTIVATIONS, "leaky_relu"),
    **{f"--{name}": RATES for name in ("dropout", "attention-dropout", "activation-dropout", "label-smoothing")},
    "--max-source-positions": NUMBERS,
    "--max-target-positions": NUMBERS,
    "--share-all-embeddings": (None,),
    "--share-decoder-input-output-embed": (None,),
    "--merge-src-tgt-embed": (None,),
    "--no-token-positional-embeddings": (None,),
    "--adaptive-softmax-cutoff": ("8", "8,15", "15,8", "0", "999", "x"),
    "--adaptive-softmax-factor": ("0", "2", "1000"),
    "--tie-adaptive-weights": (None,),
    "--tie-adaptive-proj": (None,),
    "--adaptive-input": (None,),
    "--no-cross-attention": (None,),
    "--cross-self-attention": (None,),
    "--checkpoint-activations": (None,),
    "--offload-activations": (None,),
    "--quant-noise-pq": ("0.1", "1", "-1", "x"),
    "--quant-noise-pq-block-size": ("2", "3", "7", "0", "-1"),
    "--quant-noise-scalar": ("0.1", "1", "-1"),
    "--base-layers": ("0", "1"),
    "--char-inputs": (None,),
    "--export": (None,),
    "--criterion": (CHUNKED, "cross_entropy", "adaptive_loss", "label_smoothed_cross_entropy", "none"),
    "--loss-chunk-rows": NUMBERS,
    "--ignore-prefix-size": ("1", "99"),
}


@dataclass
class FlagSet:
    """One command line, and how the model that it gives is tried.

    Attributes:
        name: seed and number, which draw it again.
        arch: the architecture.
        flags: pairs of flag and value; None for a switch.
        sound: whether it must run: no value was changed for an odd one.
        joined: whether both languages have one dictionary.
        dtype: of the weights.
        lengths: source and target length of each sentence, ``</s>`` included; cut to the model's limits.
        beam: of the generation; 0 for none.
        reload: whether the weights go through a second model.
    """

    name: str
    arch: str
    flags: Dict[str, Optional[str]]
    sound: bool = True
    joined: bool = False
    dtype: str = "float32"
    lengths: Tuple[Tuple[int, int], ...] = ((1, 1),)
    beam: int = 0
    reload: bool = False

    def words(self, stock: bool = False) -> List[str]:
        """The command line's words; those of stock ``transformer`` with the flags that it has too."""
        words = ["--arch", "transformer" if stock else self.arch]
        for flag, value in self.flags.items():
            if stock and flag == "--encoder-ffn-embed-dim" and self.organizes:
                value = "8"  # no flag of ours here reads it
            if not (stock and flag in OURS):
                words += [flag] if value is None else [f"{flag}={value}"]
        return words

    @property
    def organizes(self) -> bool:
        """Whether the encoder has no feed-forward."""
        return self.flags.get("--encoder-channel-mixer", preset(self.arch)[1]) == "information-organization"

    def __str__(self) -> str:
        how = f"{self.dtype}, lengths {self.lengths}, beam {self.beam}, reload {self.reload}, joined {self.joined}"
        return f"[{self.name}] {' '.join(self.words())}  ({'sound' if self.sound else 'with slips'}; {how})"


def draw(seed: int, number: int) -> FlagSet:
    """The flag set of that number; the same on every machine and Python."""
    name = f"{seed}:{number}"
    generator = random.Random(name)
    drawn = FlagSet(name, generator.choice(ARCHS), {}, joined=generator.random() < 0.3)
    _draw_sizes(drawn, generator)
    _draw_compositions(drawn, generator)
    _draw_stock_flags(drawn, generator)
    _draw_output(drawn, generator)
    drawn.dtype = generator.choices(("float32", "float64", "bfloat16", "float16"), (6, 2, 1, 1))[0]
    drawn.lengths = tuple(
        (generator.randint(1, 9), generator.randint(1, 7)) for _ in range(generator.choice((1, 2, 3, 3, 4)))
    )
    drawn.beam = generator.choice((0, 0, 1, 2, 3))
    drawn.reload = generator.random() < 0.3
    if generator.random() < 0.5:
        drawn.sound = False
        for _ in range(generator.randint(1, 3)):
            flag = generator.choice(sorted(SLIPS))
            drawn.flags[flag] = generator.choice(SLIPS[flag])
    return drawn


def _draw_sizes(drawn: FlagSet, generator: random.Random) -> None:
    flags = drawn.flags
    mixers = list(preset(drawn.arch))
    for position, (flag, choices) in enumerate((("token", TOKEN_MIXERS), ("channel", CHANNEL_MIXERS))):
        if generator.random() < 0.3:
            mixers[position] = generator.choice(choices)
            flags[f"--encoder-{flag}-mixer"] = mixers[position]
    organizes = mixers[1] == "information-organization"
    for side in SIDES:
        heads = generator.randint(1, 4)
        even = side == "encoder" and organizes
        width = heads * generator.choice((2, 4, 6) if even else (1, 2, 3, 4, 5, 6))
        while width < 4:  # sinusoidal positions divide by width // 2 - 1
            width += heads * (2 if even else 1)
        flags[f"--{side}-attention-heads"], flags[f"--{side}-embed-dim"] = str(heads), str(width)
        flags[f"--{side}-ffn-embed-dim"] = str(generator.choice((1, 5, 8, 12, 17)))
        flags[f"--{side}-layers"] = str(generator.choice((1, 1, 2, 2, 3)))
    if generator.random() < 0.5 and not organizes:
        for name in ("attention-heads", "embed-dim"):
            flags[f"--decoder-{name}"] = flags[f"--encoder-{name}"]
    pool = generator.randint(1, 3)
    reduced = pool * generator.randint(1, 4)
    fixed = reduced * generator.randint(1, 5)
    if mixers[0] == "low-rank":
        fixed += generator.randint(0, 7)
    if mixers != ["full", "feed-forward"]:
        flags["--encoder-fixed-length"] = str(fixed)
    if mixers[0] != "full":
        flags["--encoder-reduced-length"] = str(reduced)
        if generator.random() < 0.7:
            flags["--encoder-projection-sharing"] = generator.choice(SHARING_MODES)
    if mixers[0] == "convolution":
        flags["--encoder-pool-size"] = str(pool)
        if generator.random() < 0.3:
            flags["--encoder-drop-null-slots"] = None
    if organizes and generator.random() < 0.4:
        groups = [divisor for divisor in range(1, fixed + 1) if fixed % divisor == 0]
        flags["--encoder-organization-groups"] = str(generator.choice(groups))
    if not organizes and generator.random() < 0.4:
        flags["--encoder-activation-fn"] = generator.choice(ENCODER_ACTIVATIONS)


def preset(arch: str) -> Tuple[str, str]:
    """The mixers of an architecture."""
    return PRESETS[arch.replace("_tiny", "").replace("_big", "")]


def is_bound(flags: Dict[str, Optional[str]]) -> bool:
    """Whether the encoder has weights over positions."""
    return "--encoder-fixed-length" in flags


def _draw_compositions(drawn: FlagSet, generator: random.Random) -> None:
    flags = drawn.flags
    is_ni = drawn.arch.startswith("ni_")
    chosen = {f"--{side}-layer-composition": "bilinear" if is_ni else "top" for side in SIDES}
    chosen["--head-composition"] = "bilinear" if is_ni else "linear"
    for flag in chosen:
        if generator.random() < 0.5:
            chosen[flag] = generator.choice(HEAD_COMPOSITIONS if flag.startswith("--head") else LAYER_COMPOSITIONS)
            flags[flag] = chosen[flag]
    layers = [chosen[f"--{side}-layer-composition"] for side in SIDES]
    if "bilinear" in chosen.values():
        if generator.random() < 0.7:
            flags["--composition-rank"] = str(generator.choice((1, 2, 5, 8, 31)))
        if generator.random() < 0.3:
            flags["--composition-second-order-only"] = None
    if chosen["--head-composition"] == "bilinear" and generator.random() < 0.3:
        flags["--head-composition-keep-output-projection"] = None
    if ("bilinear" in chosen.values() or "linear" in layers) and generator.random() < 0.4:
        flags["--composition-start"] = generator.choice(COMPOSITION_STARTS)
    for side, composition in zip(SIDES, layers):
        if composition == "top" and generator.random() < 0.2:
            flags[f"--{side}-layerdrop"] = generator.choice(("0.2", "0.5"))


def _draw_stock_flags(drawn: FlagSet, generator: random.Random) -> None:
    flags = drawn.flags
    switches = [f"--{side}-{name}" for side in SIDES for name in ("normalize-before", "learned-pos")]
    switches += ["--no-token-positional-embeddings", "--layernorm-embedding", "--no-scale-embedding"]
    switches += ["--no-decoder-final-norm", "--checkpoint-activations", "--left-pad-source", "--left-pad-target"]
    for switch in switches:
        if generator.random() < 0.2:
            flags[switch] = None
    for name in ("dropout", "attention-dropout", "activation-dropout"):
        flags[f"--{name}"] = generator.choice(("0", "0", "0.1", "0.4"))
    if generator.random() < 0.4:
        flags["--activation-fn"] = generator.choice(ACTIVATIONS)
    if generator.random() < 0.1:
        flags["--max-source-positions"] = str(generator.randint(1, 12))
    if generator.random() < 0.1:
        flags["--max-target-positions"] = str(generator.randint(2, 12))
    if not is_bound(flags) and generator.random() < 0.15:
        flags["--quant-noise-pq"] = "0.1"
        flags["--quant-noise-pq-block-size"] = "1"
    same_width = flags["--encoder-embed-dim"] == flags["--decoder-embed-dim"]
    if same_width and generator.random() < 0.1:
        flags["--no-cross-attention"] = flags["--cross-self-attention"] = None


def _draw_output(drawn: FlagSet, generator: random.Random) -> None:
    """Embeddings, output projection and loss."""
    flags = drawn.flags
    same_width = flags["--encoder-embed-dim"] == flags["--decoder-embed-dim"]
    kind = generator.choice(("apart", "apart", "tied", "joined", "narrow", "adaptive"))
    criterion = generator.choice((CHUNKED, "label_smoothed_cross_entropy", "cross_entropy"))
    if kind == "tied":
        flags["--share-decoder-input-output-embed"] = None
    elif kind == "joined" and drawn.joined and same_width:
        flags["--share-all-embeddings"] = None
    elif kind == "narrow":
        flags["--decoder-output-dim"] = str(generator.choice((3, 7, 16)))
    elif kind == "adaptive":
        flags["--adaptive-softmax-cutoff"] = generator.choice(("8", "8,15"))
        flags["--adaptive-softmax-dropout"] = generator.choice(("0", "0.3"))
        if generator.random() < 0.3:
            flags["--tie-adaptive-proj"] = None
        criterion = "adaptive_loss"
        flags["--ddp-backend"] = "legacy_ddp"
    flags["--criterion"] = criterion
    if "smoothed" in criterion:
        flags["--label-smoothing"] = generator.choice(("0", "0.1", "0.9"))
        if generator.random() < 0.3:
            flags["--report-accuracy"] = None
    if criterion == CHUNKED and generator.random() < 0.7:
        flags["--loss-chunk-rows"] = str(generator.choice((1, 2, 3, 100)))
    if generator.random() < 0.2:
        flags["--sentence-avg"] = None
