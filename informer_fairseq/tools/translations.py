"""Translations to score: fairseq-generate's output or plain text, matched to references by sentence id."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from informer_fairseq.errors import InputError
from informer_fairseq.tools.files import read_lines, split_label
from informer_fairseq.tools.text_kinds import join_pieces, letters, line_detokenizer

_ENTRY = re.compile(r"([STHD])-(\d+)(?:\t|$)")
_KINDS = {"S": "source", "T": "reference", "H": "hypothesis", "D": "hypothesis"}


@dataclass
class System:
    """One system's translations, in the order of the test set.

    Attributes:
        name: what the user calls it.
        path: the file they were read from.
        hypotheses: one a sentence.
        references: the T-lines of fairseq-generate; None for plain text or without targets.
        sources: its S-lines; None likewise.
    """

    name: str
    path: str
    hypotheses: List[str]
    references: Optional[List[str]] = field(default=None, repr=False)
    sources: Optional[List[str]] = field(default=None, repr=False)


def read_system(run: str, remove_bpe: Optional[str], detokenize: Optional[str]) -> System:
    """Reads one run.

    Args:
        run: ``PATH`` or ``NAME=PATH``: fairseq-generate's output, plain text, or a folder with one such output.
        remove_bpe: joins the pieces in fairseq-generate's output: ``subword_nmt`` or ``sentencepiece``.
        detokenize: then undoes Moses' tokenisation of its hypotheses and references, in this language.

    Raises:
        InputError: nothing to read there, or a sentence comes twice or lacks its hypothesis.
    """
    name, given = split_label(run)
    path = str(find_output(given))
    lines = read_lines(path)
    entries = _collect(lines, path)
    if not entries["H"] and not entries["D"]:
        return System(name, path, [line.rstrip() for line in lines])
    # D-lines hold what --bpe and --tokenizer of fairseq-generate restored; H-lines what the model wrote.
    hypotheses = entries["D"] or entries["H"]
    count = 1 + max(number for found in entries.values() for number in found)
    texts: Dict[str, Optional[List[str]]] = {}
    for kind, found in (("hypotheses", hypotheses), ("T", entries["T"]), ("S", entries["S"])):
        if kind != "hypotheses" and not found:
            texts[kind] = None
            continue
        _assert_complete(found, count, path, "H- or D-lines" if kind == "hypotheses" else f"{kind}-lines")
        text = [found[number] for number in range(count)]
        if remove_bpe:
            text = list(join_pieces(text, remove_bpe, f"{path} ({kind})"))
        if detokenize and kind != "S":
            text = list(map(line_detokenizer(detokenize), text))
        texts[kind] = [line.rstrip() for line in text]
    return System(name, path, texts["hypotheses"] or [], texts["T"], texts["S"])


def find_output(path: str) -> Path:
    """The file that ``path`` names: itself, or the one output of fairseq-generate in a folder; Raises InputError."""
    folder = Path(path)
    if not folder.is_dir():
        return folder
    outputs = sorted([*folder.glob("*.generate"), *folder.glob("generate-*.txt")])
    if len(outputs) != 1:
        found = f"several outputs ({', '.join(output.name for output in outputs)})" if outputs else "no run"
        raise InputError(
            f"{found} in {path}: expected one file *.generate or generate-SUBSET.txt that fairseq-generate wrote; "
            "give the file's own path"
        )
    return outputs[0]


def pick_references(systems: Sequence[System], paths: Sequence[str]) -> List[List[str]]:
    """The references all systems are scored against, one list a reference file.

    Args:
        systems: as read.
        paths: reference files; if there are none, the systems' own T-lines, which must then agree.

    Raises:
        InputError: the systems have other test sets, references are of another length, or words are unknown in them.
    """
    if paths:
        references = [[line.rstrip() for line in read_lines(path)] for path in paths]
        for path, lines in zip(paths, references):
            for system in systems:
                _assert_length(system, len(lines), path)
        for system in systems:
            if system.references is not None:
                assert_same_sentences(system.references, references[0], f"{system.path} (T-lines)", paths[0])
        return references
    first = systems[0]
    for system in systems:
        if system.references is None:
            raise InputError(f"{system.path} has no references (T-lines of fairseq-generate): give --reference FILE")
        _assert_length(system, len(first.hypotheses), first.path)
        differing = [n for n, (a, b) in enumerate(zip(system.references, first.references or [])) if a != b]
        if differing:
            raise InputError(
                f"{system.path} and {first.path} are over different test sets, or prepared differently: "
                f"{len(differing)} references differ, the first is sentence {differing[0]}; give --reference FILE"
            )
    unknown = sum("<<unk>>" in line for line in first.references or [])
    if unknown:
        raise InputError(
            f"{first.path}: {unknown} references (T-lines) hold <<unk>> for words that the dictionary lacks, which no "
            "reference should: give the raw text with --reference FILE"
        )
    return [first.references or []]


def pick_sources(systems: Sequence[System], path: Optional[str]) -> List[str]:
    """The source sentences: of a file, or the S-lines of the first system that has some; Raises InputError."""
    with_sources = next((system for system in systems if system.sources is not None), None)
    if path is None:
        if with_sources is None or with_sources.sources is None:
            raise InputError("no system has source sentences (S-lines of fairseq-generate): give --source FILE")
        return with_sources.sources
    lines = read_lines(path)
    for system in systems:
        _assert_length(system, len(lines), path)
    if with_sources is not None and with_sources.sources is not None:
        assert_same_sentences(with_sources.sources, lines, f"{with_sources.path} (S-lines)", path)
    return lines


def assert_same_sentences(found: Sequence[str], expected: Sequence[str], name: str, expected_name: str) -> None:
    """Refuses lines most of which are not the other text's, compared without spaces, marks and case.

    Preparation changes characters here and there, so half of the lines may differ; lines with unknown words are left
    out. A shift by one line, or another test set of equal size, does not pass.
    """
    pairs = [(n, a, b) for n, (a, b) in enumerate(zip(found, expected)) if "<unk>" not in a]
    differing = [n for n, a, b in pairs if letters(a) != letters(b)]
    if 2 * len(differing) > len(pairs):
        raise InputError(
            f"{name} and {expected_name} are not the same sentences: {len(differing)} of {len(pairs)} differ, the "
            f"first is sentence {differing[0]}; give the text of this test set in its order"
        )


def _collect(lines: Sequence[str], path: str) -> Dict[str, Dict[int, str]]:
    """S-, T-, H- and D-lines of fairseq-generate's output by sentence id; Raises InputError if one comes twice."""
    entries: Dict[str, Dict[int, str]] = {kind: {} for kind in _KINDS}
    for line in lines:
        match = _ENTRY.match(line)
        if match is None:
            continue
        kind, number = match.group(1), int(match.group(2))
        if number in entries[kind]:
            raise InputError(
                f"{path} has a second {_KINDS[kind]} for sentence {number}: generate with --nbest 1 into a new file"
            )
        fields = line.split("\t", 2 if kind in "HD" else 1)
        # An empty translation may come without its last field.
        entries[kind][number] = fields[-1] if len(fields) == (3 if kind in "HD" else 2) else ""
    return entries


def _assert_complete(found: Dict[int, str], count: int, path: str, what: str) -> None:
    missing = [number for number in range(count) if number not in found]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise InputError(
            f"{path} lacks {what} for {len(missing)} of {count} sentences ({shown}): generate without "
            "--skip-invalid-size-inputs-valid-test and with --required-batch-size-multiple 1"
        )


def _assert_length(system: System, count: int, path: str) -> None:
    if len(system.hypotheses) != count:
        raise InputError(
            f"{system.path} has {len(system.hypotheses)} translations, {path} has {count} sentences: give files of the "
            "same test set, or translate all of it"
        )
