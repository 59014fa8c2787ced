"""``informer_mt``: convolution attention with information organization."""

from informer_fairseq.models._efficient import EfficientTransformerModel, register_with_tiny


@register_with_tiny("informer_mt")
class InformerMTModel(EfficientTransformerModel):
    """Informer encoder: convolutional self-attention, information organization in place of the feed-forward.

    Informer paper, section 4.4.
    """

    token_mixer = "convolution"
    channel_mixer = "information-organization"
