"""``ni_transformer``: heads and layers composed by extended bilinear pooling."""

from argparse import Namespace

from fairseq.models import register_model_architecture
from fairseq.models.transformer.transformer_legacy import transformer_vaswani_wmt_en_de_big

from informer_fairseq.models._efficient import EfficientTransformerModel, register_with_tiny


@register_with_tiny("ni_transformer")
class NITransformerModel(EfficientTransformerModel):
    """The Transformer with neuron-interaction composition of its heads and of its layers, in encoder and decoder.

    NI paper, row 8 of Table 1. ``ni_transformer_big`` is the same on ``transformer_vaswani_wmt_en_de_big``.
    """

    encoder_activation = None
    layer_composition = "bilinear"
    head_composition = "bilinear"


@register_model_architecture("ni_transformer", "ni_transformer_big")
def ni_transformer_big(args: Namespace) -> None:
    """The big size: width 1024, feed-forward 4096, 16 heads, rank 1024."""
    transformer_vaswani_wmt_en_de_big(args)
    NITransformerModel.set_defaults(args)
