#!/usr/bin/env bash
# From a parallel corpus to a data-bin, with settings from the environment (prepare.py --help explains each).
#
# usage: SRC=en TGT=vi TRAIN=PREFIX VALID=PREFIX TEST="PREFIX ..." OUT=FOLDER bash preprocess/prepare.sh [OPTION ...]
#
#   SEGMENTATION=bpe      word, bpe or sentencepiece
#   TOKENIZED=1           1: the corpus is tokenised already; 0: tokenise it as Moses does
#   LOWERCASE=0           1: lower-case both languages
#   JOINT=0               1: one set of pieces, and one dictionary, for both languages
#   MERGES=8000           bpe: merges
#   VOCABULARY_SIZE=8000  sentencepiece: pieces
#   VOCABULARY_THRESHOLD=0  bpe: split pieces that are rarer than this
#   BPE_DROPOUT=0         bpe: 0.1 writes the training set BPE_DROPOUT_COPIES=4 times, each cut in another way
#   SEED=1                of the dropout
#   MAX_WORDS=200         drop longer training pairs; "199 200" is source and target; 0 is off
#   MAX_PIECES=0          the same after segmentation
#   MAX_UNKNOWN_RATE=0.1  stop above this share of unknown words in a file
#   WORKERS=              processes (all cores)
#   STAGE=                do one step alone: clean, tokenize, segment or binarize
#   FORCE=0               1: do finished steps again
#   PYTHON=python         the Python that has the tools' packages
#
# Further options go to prepare.py as they are.
set -euo pipefail

case "${1:-}" in
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
esac

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
for name in SRC TGT TRAIN VALID TEST OUT; do
    if [[ -z "${!name:-}" ]]; then
        echo "prepare.sh: error: $name is not set; bash preprocess/prepare.sh --help shows the usage" >&2
        exit 2
    fi
done

# TEST, MAX_WORDS and MAX_PIECES are lists, split at spaces.
read -r -a tests <<<"$TEST"
if [[ -f "$TEST.$SRC" || -f "$TEST.$SRC.gz" ]]; then tests=("$TEST"); fi # one, with spaces in its name
read -r -a max_words <<<"${MAX_WORDS:-200}"
read -r -a max_pieces <<<"${MAX_PIECES:-0}"

options=(--languages "$SRC" "$TGT" --train "$TRAIN" --valid "$VALID" --test "${tests[@]}" --output "$OUT")
options+=(--segmentation "${SEGMENTATION:-bpe}" --merges "${MERGES:-8000}")
options+=(--vocabulary-size "${VOCABULARY_SIZE:-8000}" --vocabulary-threshold "${VOCABULARY_THRESHOLD:-0}")
options+=(--bpe-dropout "${BPE_DROPOUT:-0}" --bpe-dropout-copies "${BPE_DROPOUT_COPIES:-4}" --seed "${SEED:-1}")
options+=(--max-words "${max_words[@]}" --max-pieces "${max_pieces[@]}")
options+=(--max-unknown-rate "${MAX_UNKNOWN_RATE:-0.1}")
if [[ "${TOKENIZED:-1}" == 0 ]]; then options+=(--tokenize); fi
if [[ "${LOWERCASE:-0}" == 1 ]]; then options+=(--lowercase); fi
if [[ "${JOINT:-0}" == 1 ]]; then options+=(--joint --joined-dictionary); fi
if [[ -n "${WORKERS:-}" ]]; then options+=(--workers "$WORKERS"); fi
if [[ -n "${STAGE:-}" ]]; then options+=(--stage "$STAGE"); fi
if [[ "${FORCE:-0}" == 1 ]]; then options+=(--force); fi

exec "${PYTHON:-python}" "$HERE/prepare.py" "${options[@]}" "$@"
