"""The three segmentations behind one contract: ``segment`` maps a line to its pieces, ``restore`` maps them back.

A model is a folder with ``segmentation.json``, which names the method, the languages, the settings and the library that
learned it, and the files of that library. Whoever segments or restores reads the method there, so that pieces of one
method are never joined by the rule of another. For every normalised line, ``restore(segment(line)) == line``.

- word: every word is a piece. Nothing is learned.
- bpe: subword-nmt (Sennrich et al., 2016); a piece that does not end its word carries ``@@``.
- sentencepiece (Kudo and Richardson, 2018); a piece that starts a word carries U+2581.
"""

import io
import json
import random
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Protocol, Sequence

import sentencepiece
from subword_nmt.apply_bpe import BPE, read_vocabulary

from preprocess.clean import normalise_spaces
from preprocess.files import InputError

METHODS = ("word", "bpe", "sentencepiece")
METADATA = "segmentation.json"
FORMAT = 1
BPE_MARK = "@@"
SENTENCEPIECE_MARK = "\u2581"


def restore_word(line: str) -> str:
    """Words are pieces: nothing to undo."""
    return normalise_spaces(line)


def restore_bpe(line: str) -> str:
    """Joins pieces that end in ``@@`` with the next one; a mark left at the end of the line goes too."""
    return (line + " ").replace(BPE_MARK + " ", "").strip(" ")


def restore_sentencepiece(line: str) -> str:
    """Joins all pieces and turns each U+2581 into a space."""
    return line.replace(" ", "").replace(SENTENCEPIECE_MARK, " ").strip(" ")


RESTORE: Dict[str, Callable[[str], str]] = {
    "word": restore_word,
    "bpe": restore_bpe,
    "sentencepiece": restore_sentencepiece,
}


def assert_pairing(method: str, lines: Sequence[str], name: str) -> None:
    """Refuses to restore text whose marks are those of another method.

    Args:
        method: the method about to be undone.
        lines: the whole text: single lines may hold a mark that the text itself brought along.
        name: the text's name, for the message.

    Raises:
        InputError: sentencepiece on text without a single U+2581 (all words would be joined); another method on text
            whose lines all start with one; word on text where more than a tenth of the lines hold ``@@`` pieces.
    """
    lines = [line for line in lines if line.strip(" ")]
    if not lines:
        return
    bpe_lines = sum(any(piece.endswith(BPE_MARK) for piece in line.split(" ")) for line in lines)
    starts = sum(line.startswith(SENTENCEPIECE_MARK) for line in lines)
    seen = None
    if method == "sentencepiece" and not any(SENTENCEPIECE_MARK in line for line in lines):
        seen = f"{bpe_lines} of {len(lines)} lines with '@@' (bpe) and none with U+2581: all its words would be joined"
    elif method != "sentencepiece" and starts == len(lines):
        seen = f"U+2581 at the start of every line (sentencepiece), which {method} would leave there"
    elif method == "word" and 10 * bpe_lines > len(lines):
        seen = f"'@@' in {bpe_lines} of {len(lines)} lines (bpe), which word would leave there"
    if seen:
        raise InputError(f"{name} is not segmented by {method}: it has {seen}; give the method that segmented it")


class Segmenter(Protocol):
    """What every segmentation offers."""

    def segment(self, line: str) -> str:
        """Cuts ``line``, after normalising its spaces, into pieces with a space between them."""

    def restore(self, line: str) -> str:
        """Undoes ``segment``."""


class WordSegmenter:
    """Every word is a piece."""

    def segment(self, line: str) -> str:
        """Normalises the spaces of ``line``."""
        return normalise_spaces(line)

    def restore(self, line: str) -> str:
        """Undoes ``segment``."""
        return restore_word(line)


class BpeSegmenter:
    """Byte pair encoding with ``@@ ``, by subword-nmt.

    Args:
        codes: the file of merges.
        vocabulary: a file of pieces with counts; pieces rarer than ``threshold`` are split further. None is off.
        threshold: the smallest count of a piece that may stay.
        dropout: the probability of skipping a merge (Provilkov et al., 2020), for training text only.
        seed: of the dropout. subword-nmt draws from Python's shared generator, so one segmenter with dropout at a
            time gives the same pieces in every run.
    """

    def __init__(
        self, codes: Path, vocabulary: Optional[Path] = None, threshold: int = 0, dropout: float = 0.0, seed: int = 1
    ) -> None:
        pieces = None
        if vocabulary is not None:
            with open(vocabulary, encoding="utf-8", newline="\n") as handle:
                pieces = read_vocabulary(handle, threshold)
        with open(codes, encoding="utf-8", newline="\n") as handle:
            self.bpe = BPE(handle, separator=BPE_MARK, vocab=pieces)
        self.dropout = dropout
        random.seed(seed)

    def segment(self, line: str) -> str:
        """Cuts ``line``, after normalising its spaces, into pieces."""
        return self.bpe.segment(normalise_spaces(line), self.dropout)

    def restore(self, line: str) -> str:
        """Undoes ``segment``."""
        return restore_bpe(line)


class SentencePieceSegmenter:
    """A sentencepiece model.

    Args:
        model: the model file.
    """

    def __init__(self, model: Path) -> None:
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(model))

    def segment(self, line: str) -> str:
        """Cuts ``line``, after normalising its spaces, into pieces.

        Raises:
            InputError: the line holds U+2581, which could not be told from a space afterwards.
        """
        line = normalise_spaces(line)
        if SENTENCEPIECE_MARK in line:
            raise InputError(
                f"the line {line[:60]!r} holds U+2581, by which sentencepiece marks a space; replace it in the text, "
                "for example by '_'"
            )
        return " ".join(self.processor.encode(line, out_type=str))

    def restore(self, line: str) -> str:
        """Undoes ``segment``."""
        return restore_sentencepiece(line)


def read_metadata(folder: Path) -> Dict[str, Any]:
    """Reads what ``segment.py learn`` wrote about a model.

    Raises:
        InputError: there is no model in the folder, or one of another format.
    """
    path = Path(folder) / METADATA
    if not path.is_file():
        raise InputError(f"no segmentation model in {folder} ({METADATA} is missing); run segment.py learn first")
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); run segment.py learn again") from None
    if metadata.get("format") != FORMAT or metadata.get("method") not in METHODS:
        raise InputError(
            f"{path} has format {metadata.get('format')!r} and method {metadata.get('method')!r}, not {FORMAT} and one "
            f"of {', '.join(METHODS)}; run segment.py learn again"
        )
    return metadata


def load_segmenter(folder: Path, language: str, dropout: float = 0.0, seed: int = 1) -> Segmenter:
    """The segmenter of one language of a model.

    Args:
        folder: the model.
        language: one of the languages it was learned for.
        dropout: the probability of skipping a merge, for training text only.
        seed: of the dropout.

    Raises:
        InputError: no such model, not one of its languages, or a dropout that the method does not have.
    """
    folder = Path(folder)
    metadata = read_metadata(folder)
    if language not in metadata["languages"]:
        raise InputError(
            f"{folder} was learned for {' and '.join(metadata['languages'])}, not for {language!r}; give one of those"
        )
    if not 0.0 <= dropout < 1.0:
        raise InputError(f"dropout {dropout} is not a probability from 0 to below 1; 0.1 is usual")
    method = metadata["method"]
    if dropout and method != "bpe":
        # sentencepiece can sample, but in 0.2.3 its generator is salted by the process: no seed repeats a text.
        raise InputError(
            f"dropout {dropout} is for bpe, whose pieces a seed repeats, and {folder} segments by {method}; set the "
            "dropout to 0, or learn with --method bpe"
        )
    if method == "word":
        return WordSegmenter()
    model = folder / metadata["files"][language]
    if method == "sentencepiece":
        return SentencePieceSegmenter(model)
    threshold = metadata["vocabulary_threshold"]
    return BpeSegmenter(model, folder / f"vocabulary.{language}" if threshold else None, threshold, dropout, seed)


def train_sentencepiece(lines: Sequence[str], vocabulary_size: int, kind: str) -> bytes:
    """Learns a sentencepiece model that changes no character of the text.

    Args:
        lines: normalised training lines.
        vocabulary_size: the number of pieces, with three of the library's own.
        kind: unigram or bpe.

    Raises:
        InputError: the text does not give as many pieces, or has more characters than that.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocabulary_size,
            model_type=kind,
            character_coverage=1.0,  # the default leaves rare characters out, which become unknown words
            normalization_rule_name="identity",  # the default, NFKC, would change the text
            # A longer line would be left out without a word; the unit is the byte.
            max_sentence_length=max(4192, *(len(line.encode("utf-8")) for line in lines)),
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rsplit("] ", 1)[-1]
        raise InputError(f"sentencepiece cannot learn {vocabulary_size} pieces: {reason}") from None
    return model.getvalue()
