"""``linformer_informer_mt``: low-rank attention with information organization."""

from informer_fairseq.models._efficient import EfficientTransformerModel, register_with_tiny


@register_with_tiny("linformer_informer_mt")
class LinformerInformerMTModel(EfficientTransformerModel):
    """Low-rank self-attention with information organization: in neither paper, the cheapest pair of mixers."""

    token_mixer = "low-rank"
    channel_mixer = "information-organization"
