"""Ordinary text, tokens or pieces: what a text looks like, and the way back to ordinary text."""

import html
import re
import unicodedata
from typing import Callable, Sequence

from informer_fairseq.errors import InputError

ORDINARY, TOKENISED, PIECES, UNDECIDED = "ordinary text", "tokenised", "pieces", "without a sign of its kind"
PIECE_MARK = "\u2581"  # sentencepiece writes it where a word begins

_BPE_PIECE = re.compile(r"@@( |$)")
_ESCAPE = re.compile(r"&(apos|quot|amp|lt|gt|#91|#93|#124);|(^| )@[-/,.]@( |$)")
# French sets a space before ! ? : and ;, but no language in Latin script before a full stop or comma.
_MARK = re.compile(r"[.,](?=\s|$)")
_MARK_ON_ITS_OWN = re.compile(r"(?:^|\s)[.,](?=\s|$)")
_SHARE_OF_LINES = 0.05


def kind_of(lines: Sequence[str]) -> str:
    """What a text looks like, judged on all of it: single lines may hold anything.

    Returns:
        ``PIECES`` if at least one line in twenty holds subword marks (``@@`` or U+2581); ``TOKENISED`` if as many hold
        escapes of Moses' tokeniser, or if most full stops and commas stand on their own; ``ORDINARY`` if most follow
        a word; ``UNDECIDED`` where there are none.
    """
    lines = [line for line in lines if line.strip()]
    enough = max(1, _SHARE_OF_LINES * len(lines))
    if sum(PIECE_MARK in line or bool(_BPE_PIECE.search(line)) for line in lines) >= enough:
        return PIECES
    if sum(bool(_ESCAPE.search(line)) for line in lines) >= enough:
        return TOKENISED
    marks = sum(len(_MARK.findall(line)) for line in lines)
    if marks == 0:
        return UNDECIDED
    return TOKENISED if 2 * sum(len(_MARK_ON_ITS_OWN.findall(line)) for line in lines) > marks else ORDINARY


def assert_kind(lines: Sequence[str], name: str, tokenised: bool) -> None:
    """Refuses text that is not what it is scored as.

    Args:
        lines: the whole text.
        name: the text's name, for the message.
        tokenised: it is scored as tokens.

    Raises:
        InputError: the text is in pieces; or tokenised where ordinary text is meant, or the other way round.
    """
    kind = kind_of(lines)
    if kind == PIECES:
        raise InputError(
            f"{name} is in pieces (@@ or {PIECE_MARK}), whose scores are no scores of words: run fairseq-generate with "
            "--remove-bpe, or let this tool join them with --remove-bpe subword_nmt or sentencepiece"
        )
    if kind == TOKENISED and not tokenised:
        raise InputError(
            f"{name} is tokenised (punctuation on its own, or &apos; and the like): detokenise it, or use --detokenize "
            "LANG on fairseq-generate's output, or score tokens and say so with --tokenized"
        )
    if kind == ORDINARY and tokenised:
        raise InputError(f"{name} is ordinary text, not tokens: drop --tokenized, or give the tokenised text")


def join_pieces(lines: Sequence[str], method: str, name: str) -> Sequence[str]:
    """Joins the pieces of every line.

    Args:
        lines: the whole text.
        method: ``subword_nmt`` or ``sentencepiece``.
        name: the text's name, for the message.

    Raises:
        InputError: sentencepiece's mark is nowhere, so that all words would run together.
    """
    if method == "subword_nmt":
        return [re.sub(r"@@( |$)", "", line) for line in lines]
    if not any(PIECE_MARK in line for line in lines):
        raise InputError(f"{name} holds no {PIECE_MARK}: drop --remove-bpe sentencepiece, or use subword_nmt")
    return [line.replace(" ", "").replace(PIECE_MARK, " ").strip(" ") for line in lines]


def line_detokenizer(language: str) -> Callable[[str], str]:
    """A function that undoes Moses' tokenisation of one line, escapes included (``language``: two letters)."""
    from sacremoses import MosesDetokenizer  # slow to import, and needed by --detokenize alone

    moses = MosesDetokenizer(lang=language)
    return lambda line: moses.detokenize(line.split(), return_str=True, unescape=True)


def letters(line: str) -> str:
    """What a line says whatever its tokenisation, pieces, escapes and case: to tell whether two are one sentence."""
    line = html.unescape(_BPE_PIECE.sub("", line).replace(PIECE_MARK, ""))
    return "".join(re.sub(r"@([-/,.])@", r"\1", unicodedata.normalize("NFKC", line)).casefold().split())
