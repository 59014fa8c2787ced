#!/usr/bin/env bash
# Neuron interaction on any corpus: a Transformer, then systems that start from it, each with a flag set of flags/.
#
# usage: [NAME=VALUE ...] bash examples/neuron_interaction/run.sh [STAGE ...]
#
# Stages: prepare train average translate score, or all (all); compare: every system translated so far, against row 1.
#
#   CORPUS=               a folder with train, valid and test, each .en and .de (or .gz), ordinary text; must be given
#   SYSTEM=baseline       baseline: stock transformer; row1 to row8, heads_rank32 ...: a file of flags/, which starts
#                         from the baseline's model; row1 is the baseline trained on
#   SIZE=tiny             tiny, base or big
#   SRC=en TGT=de         the languages
#   TOKENIZED=0           1: the corpus is tokenised as Moses does, with escapes
#   MERGES=6000           of the joint BPE
#   RANK=                 r of bilinear compositions (the width)
#   WORK= RUN=            what is made goes here (work/neuron_interaction), and in it to this folder
#   SEED=1 LR= WARMUP= DROPOUT= MAX_TOKENS= UPDATE_FREQ= UPDATES= EPOCHS= SAVE_INTERVAL= AVERAGE=   (by size and system)
#   BEAM=4 LENPEN=0.6 GENERATE_BATCH=64
#   EXTRA_ARGS=           further options of fairseq-train
#   CPU=auto              1: no GPU even if there is one
#   PYTHON=               the Python with fairseq (that of .venv under the repository, else python)
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SRC="${SRC:-en}" TGT="${TGT:-de}"
CORPUS_NAME=neuron_interaction VALID_SETS=(valid) TEST_SET=test
BIG_DROPOUT=0.3 DEFAULT_SIZE=tiny DEFAULT_MERGES=6000

stage_download() {
    [[ -n "$OWN_CORPUS" ]] || fail "CORPUS is not set: give a folder with train, valid and test, each .$SRC and .$TGT"
}

# shellcheck source=examples/neuron_interaction/pipeline.sh
source "$HERE/pipeline.sh"
