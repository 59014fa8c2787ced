#!/usr/bin/env bash
# WMT14 English-French: a Transformer, then NI-Transformers that start from it, with stock fairseq commands.
#
# usage: [NAME=VALUE ...] bash examples/wmt14_en_fr/run.sh [STAGE ...]
#
# Stages: download prepare train average translate score, or all (all); compare: every system translated so far, by
# paired bootstrap. A finished stage is skipped, an interrupted training goes on from its last checkpoint.
#
#   SYSTEM=baseline       baseline: stock transformer; row8 (heads and layers), row1 to row7, heads_rank32 ...: a file
#                         of examples/neuron_interaction/flags, which starts from the baseline's averaged model
#   SIZE=base             base (rank 512), big (rank 1024), or tiny for a trial
#   CORPUS=               a folder with train, newstest2012, newstest2013 and newstest2014, each .en and .fr (or .gz);
#                         else the official data is downloaded
#   TOKENIZED=0           1: the corpus is tokenised as Moses does, with escapes
#   MERGES=32000          of the joint BPE
#   RANK=                 r of bilinear compositions (the width)
#   WORK= RUN=            what is made goes here (work/wmt14_en_fr), and in it to this folder
#   SEED=1 LR= WARMUP= DROPOUT= MAX_TOKENS= UPDATE_FREQ= UPDATES= EPOCHS= SAVE_INTERVAL= AVERAGE=   (by size and system)
#   BEAM=4 LENPEN=0.6 GENERATE_BATCH=64
#   EXTRA_ARGS=           further options of fairseq-train
#   CPU=auto              1: no GPU even if there is one
#   PYTHON=               the Python with fairseq (that of .venv under the repository, else python)
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SRC=en TGT=fr
CORPUS_NAME=wmt14_en_fr VALID_SETS=(newstest2012 newstest2013) TEST_SET=newstest2014
BIG_DROPOUT=0.1 DEFAULT_SIZE=base DEFAULT_MERGES=32000
PIECES=(
    "wmt13/training-parallel-europarl-v7.tgz training/europarl-v7.fr-en"
    "wmt13/training-parallel-commoncrawl.tgz commoncrawl.fr-en"
    "wmt13/training-parallel-un.tgz un/undoc.2000.fr-en"
    "wmt14/training-parallel-nc-v9.tgz training/news-commentary-v9.fr-en"
    "wmt10/training-giga-fren.tar giga-fren.release2.fixed"
)

# shellcheck source=examples/neuron_interaction/wmt.sh
source "$HERE/../neuron_interaction/wmt.sh"
# shellcheck source=examples/neuron_interaction/pipeline.sh
source "$HERE/../neuron_interaction/pipeline.sh"
