"""Text as a checkpoint read it in training: tokenised, cut into pieces, looked up in its dictionary."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import sentencepiece
import torch
from sacremoses import MosesTokenizer
from subword_nmt.apply_bpe import BPE, read_vocabulary
from torch import Tensor

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import digest

BPE_MARK = "@@"
SENTENCEPIECE_MARK = "\u2581"
_ESCAPES = ("&apos;", "&quot;", "&amp;")


@dataclass
class TextPipeline:
    """Maps lines to pieces.

    Attributes:
        method: ``bpe``, ``sentencepiece`` or ``word``.
        segment: from a tokenised line to pieces with spaces between them.
        tokenize: from a line to a tokenised one.
        key: what the result depends on, for the cache.
    """

    method: str
    segment: Callable[[str], str]
    tokenize: Callable[[str], str]
    key: str

    def pieces(self, line: str) -> List[str]:
        """The pieces of one line."""
        return self.segment(self.tokenize(normalise_spaces(line))).split()


def normalise_spaces(line: str) -> str:
    """One space between words and none at the ends."""
    return " ".join(line.split())


def build_pipeline(
    *,
    language: str,
    tokenize: str = "none",
    model_folder: Optional[str] = None,
    bpe_codes: Optional[str] = None,
    sentencepiece_model: Optional[str] = None,
) -> TextPipeline:
    """The pipeline that flags describe; every word is a piece without any.

    Args:
        language: of the text, for Moses' rules and the segmentation folder.
        tokenize: ``moses`` or ``none``.
        model_folder: a folder with ``segmentation.json``.
        bpe_codes: a file of merges by subword-nmt.
        sentencepiece_model: a sentencepiece model.

    Raises:
        InputError: a file is missing or of another kind.
    """
    files: List[Path] = []
    threshold = 0
    method = "word"
    if model_folder is not None:
        method, files, threshold = _read_folder(Path(model_folder), language)
    elif bpe_codes is not None:
        method, files = "bpe", [Path(bpe_codes)]
    elif sentencepiece_model is not None:
        method, files = "sentencepiece", [Path(sentencepiece_model)]
    for path in files:
        if not path.is_file():
            raise InputError(f"no such file: {path}; give the segmentation that the checkpoint's data was made with")
    segment: Callable[[str], str] = normalise_spaces
    if method == "bpe":
        segment = _bpe_segmenter(files, threshold)
    elif method == "sentencepiece":
        segment = _sentencepiece_segmenter(files[0])
    tokenizer: Callable[[str], str] = normalise_spaces
    if tokenize == "moses":
        moses = MosesTokenizer(lang=language)

        def tokenizer(line: str) -> str:
            return normalise_spaces(moses.tokenize(line, return_str=True, escape=True))

    parts = [method, tokenize, language, str(threshold), *(digest(path) for path in files)]
    return TextPipeline(method, segment, tokenizer, hashlib.sha256("\n".join(parts).encode()).hexdigest())


def _read_folder(folder: Path, language: str) -> Tuple[str, List[Path], int]:
    """Method, files and vocabulary threshold that ``segmentation.json`` names for a language."""
    path = folder / "segmentation.json"
    if not path.is_file():
        raise InputError(f"no segmentation model in {folder} (segmentation.json is missing); check the path")
    try:
        metadata: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        method, threshold = metadata["method"], int(metadata.get("vocabulary_threshold", 0))
        if method not in ("word", "bpe", "sentencepiece"):
            raise ValueError(f"method {method!r} is not word, bpe or sentencepiece")
        if method == "word":
            return method, [], 0
        if language not in metadata["files"]:
            raise InputError(f"{folder} was learned for {', '.join(metadata['files'])}, not for {language!r}")
        files = [folder / metadata["files"][language]]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a description of a segmentation ({error}); learn the model again") from None
    if method == "bpe" and threshold:
        files.append(folder / f"vocabulary.{language}")
    return method, files, threshold


def _bpe_segmenter(files: List[Path], threshold: int) -> Callable[[str], str]:
    pieces = None
    if len(files) > 1:
        with open(files[1], encoding="utf-8", newline="\n") as handle:
            pieces = read_vocabulary(handle, threshold)
    try:
        with open(files[0], encoding="utf-8", newline="\n") as handle:
            bpe = BPE(handle, separator=BPE_MARK, vocab=pieces)
    except (SystemExit, UnicodeDecodeError, ValueError, IndexError):  # the library exits on a line of another form
        raise InputError(f"{files[0]} is no file of BPE merges by subword-nmt; give the one it wrote") from None
    return lambda line: bpe.segment(line)


def _sentencepiece_segmenter(path: Path) -> Callable[[str], str]:
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (RuntimeError, OSError):
        raise InputError(f"{path} is no sentencepiece model; give the .model file that its training wrote") from None
    return lambda line: " ".join(processor.encode(line, out_type=str))


def check_pipeline(pipeline: TextPipeline, dictionary: Any, checkpoint: Any) -> None:
    """Refuses a segmentation that is not the one the dictionary was made with.

    Raises:
        InputError: the dictionary holds pieces of BPE or sentencepiece, and the text would be cut otherwise.
    """
    symbols = dictionary.symbols[dictionary.nspecial :]
    marked = {
        "bpe": sum(symbol.endswith(BPE_MARK) for symbol in symbols),
        "sentencepiece": sum(symbol.startswith(SENTENCEPIECE_MARK) for symbol in symbols),
    }
    made_with = max(marked, key=lambda method: marked[method])
    if marked[made_with] * 100 < len(symbols):  # single marks may be words of the text
        made_with = "word"
    if made_with == pipeline.method:
        return
    flags = {
        "bpe": "--segmentation-model FOLDER or --bpe-codes FILE",
        "sentencepiece": "--segmentation-model FOLDER or --sentencepiece-model FILE",
        "word": "neither --bpe-codes nor --sentencepiece-model",
    }
    raise InputError(
        f"the dictionary of {checkpoint} is made of {made_with} pieces ({marked.get(made_with, 0):,} of "
        f"{len(symbols):,} bear its mark), the text would be cut by {pipeline.method}: give {flags[made_with]}"
    )


def holds_escapes(dictionary: Any) -> bool:
    """Whether the dictionary was made of text with Moses' escapes."""
    return any(escape in dictionary.indices for escape in _ESCAPES)


def encode_pieces(pieces: List[str], dictionary: Any) -> Tensor:
    """The indices of the pieces and of ``</s>`` behind them, 1-dimensional."""
    return torch.tensor([*(dictionary.index(piece) for piece in pieces), dictionary.eos()])
