#!/usr/bin/env bash
# Multi30k English-German, tiny models on a CPU: download, prepare, train, translate, score, and one line of a table.
#
# usage: [NAME=VALUE ...] bash examples/multi30k_en_de/run.sh SYSTEM SEED [STAGE ...]
#
# SYSTEM: a file of systems/ (transformer, linformer_mt, conv_linformer_mt, informer_mt, ni_transformer, ...), or an
# architecture of fairseq or the plugin. Stages: download prepare train average translate score, or all (all).
# A finished stage is skipped, an interrupted training goes on from its last checkpoint.
#
#   CORPUS=               a folder with train, val and test_2016_flickr, each .en and .de (or .gz); else it is downloaded
#   SCHEDULE=short        short: 2,000 updates of 2,048 tokens, linear decay; long: 8,000 of 4,096, as in the literature
#   LOWERCASE=0           1: train on lower-cased text, as the literature does (then no cased score is given)
#   START=                a SYSTEM to start from: its model of this seed and schedule (--init-from-transformer)
#   MERGES=10000          of the joint BPE
#   UPDATES= LR= WARMUP= DROPOUT= MAX_TOKENS= AVERAGE=      (by schedule)
#   BEAM=5 GENERATE_BATCH=64
#   WORK= RUN=            what is made goes here (work/multi30k_en_de under the repository), and in it to this folder;
#                         RUN is the run's name in tables, too
#   EXTRA_ARGS=           further options of fairseq-train
#   CPU=auto              1: no GPU even if there is one
#   THREADS=1             of the CPU; another number rounds otherwise, and RESULTS.md's losses are of one
#   PYTHON=               the Python with fairseq (that of .venv under the repository, else python)
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PAGE="${MULTI30K_SITE:-https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw}"
# shellcheck source=examples/recipe.sh
source "$HERE/../recipe.sh"
show_help_if_asked "$@"

# ---------------------------------------------------------------------------------------------------------- settings
[[ $# -ge 2 ]] || fail "give a system and a seed, such as: run.sh informer_mt 1; the systems are" \
    "$(cd "$HERE/systems" && echo *.txt | sed 's/\.txt//g')"
SYSTEM="$1" SEED="$2"
shift 2
check_whole_numbers 0 SEED
SCHEDULE="${SCHEDULE:-short}"
LOWERCASE="${LOWERCASE:-0}"
START="${START:-}"
choose_work "$ROOT/work/multi30k_en_de"
OWN_CORPUS="${CORPUS:-}"
CORPUS="${CORPUS:-$WORK/corpus}"
choose_python
choose_threads 1

case "$SCHEDULE" in
    # The short one decays to nothing and translates its best checkpoint; the long one never decays, and averages.
    short) updates=2000 lr=2e-3 warmup=500 dropout=0.1 tokens=2048 average=0 ;;
    long) updates=8000 lr=5e-3 warmup=2000 dropout=0.3 tokens=4096 average=10 ;;
    *) fail "SCHEDULE is '$SCHEDULE'; it is short or long" ;;
esac
case "$LOWERCASE" in
    0) case_name="" ;;
    1) case_name=-lowercase ;;
    *) fail "LOWERCASE is '$LOWERCASE'; it is 0 or 1" ;;
esac
UPDATES="${UPDATES:-$updates}"
LR="${LR:-$lr}"
WARMUP="${WARMUP:-$warmup}"
DROPOUT="${DROPOUT:-$dropout}"
MAX_TOKENS="${MAX_TOKENS:-$tokens}"
AVERAGE="${AVERAGE:-$average}"
BEAM="${BEAM:-5}"
MERGES="${MERGES:-10000}"
GENERATE_BATCH="${GENERATE_BATCH:-64}"
check_whole_numbers 0 WARMUP AVERAGE
check_whole_numbers 1 UPDATES MAX_TOKENS BEAM GENERATE_BATCH MERGES
read -r -a extra <<<"${EXTRA_ARGS:-}"
system=(--arch "$SYSTEM")
if [[ -f "$HERE/systems/$SYSTEM.txt" ]]; then read -r -a system <"$HERE/systems/$SYSTEM.txt"; fi

choose_device

PREPARED="$WORK/prepared$case_name"
PREPARATION="MERGES=$MERGES LOWERCASE=$LOWERCASE"
DATA="$PREPARED/data-bin"
suffix="$case_name"
if [[ "$SCHEDULE" != short ]]; then suffix="$suffix-$SCHEDULE"; fi
START_MODEL="$WORK/$START$suffix-seed$SEED"
FOLDER="$WORK/${RUN:-$SYSTEM${START:+-from-$START}$suffix-seed$SEED}"

case "$SCHEDULE" in
    short) schedule=(--lr-scheduler polynomial_decay --total-num-update "$UPDATES") ;;
    long) schedule=(--lr-scheduler inverse_sqrt) ;;
esac
options=(--task translation --source-lang en --target-lang de "${system[@]}" --share-all-embeddings
    --dropout "$DROPOUT" --criterion chunked_label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam
    --adam-betas "(0.9, 0.98)" --lr "$LR" --warmup-updates "$WARMUP" "${schedule[@]}" --max-tokens "$MAX_TOKENS"
    --required-batch-size-multiple 1 --seed "$SEED")
# The checkpoint that translates.
model=checkpoints/checkpoint_best.pt
if [[ "$AVERAGE" -gt 0 ]]; then model=averaged.pt; fi
if [[ -n "$START" ]]; then options+=(--init-from-transformer "$START_MODEL/$model"); fi
options+=(${extra[@]+"${extra[@]}"})
TRANSLATIONS="$FOLDER/test_2016_flickr"
TRANSLATED="${model##*/} beam $BEAM"

# ------------------------------------------------------------------------------------------------------------ helpers
check_corpus() {
    check_pairs en de train val test_2016_flickr
}

# ------------------------------------------------------------------------------------------------------------- stages
stage_download() {
    local set language lines found
    if [[ -n "$OWN_CORPUS" ]]; then
        echo "CORPUS is set: nothing to download"
        return
    fi
    for set in train:29000 val:1014 test_2016_flickr:1000; do
        lines="${set#*:}" set="${set%:*}"
        for language in en de; do
            fetch_checked "$PAGE/$set.$language.gz" "$CORPUS/$set.$language.gz"
            found="$(gzip -dc "$CORPUS/$set.$language.gz" | wc -l | tr -d ' ')"
            [[ "$found" == "$lines" ]] ||
                fail "$CORPUS/$set.$language.gz has $found lines, not $lines: remove it and try again"
        done
    done
}

stage_prepare() {
    check_corpus
    prepare SRC=en TGT=de TRAIN="$CORPUS/train" VALID="$CORPUS/val" TEST="$CORPUS/test_2016_flickr" TOKENIZED=0 \
        LOWERCASE="$LOWERCASE" SEGMENTATION=bpe JOINT=1 MERGES="$MERGES" MAX_WORDS=150 MAX_PIECES=150
}

stage_train() {
    need "$DATA/dict.en.txt"
    if [[ -n "$START" ]]; then need "$START_MODEL/$model"; fi
    # Interrupted or not, a training sees its sentences in the same order.
    train_once "UPDATES=$UPDATES" "${options[@]}" -- --max-update "$UPDATES" --update-epoch-batch-itr True \
        --keep-last-epochs "$((AVERAGE > 1 ? AVERAGE : 1))" --no-progress-bar ${device[@]+"${device[@]}"}
}

stage_average() {
    if [[ "$AVERAGE" -le 0 ]]; then
        echo "AVERAGE=0: checkpoint_best.pt translates"
        return
    fi
    average_last "$AVERAGE" epochs
}

# translated: the translations are of the model and the source as they are now, with these settings.
translated() {
    finished "$TRANSLATIONS.de" "$TRANSLATED" "$FOLDER/$model" "$PREPARED/clean/test.en"
}

stage_translate() {
    need "$DATA/dict.en.txt" "$FOLDER/$model"
    if [[ "$AVERAGE" -gt 0 ]]; then need_average "$AVERAGE" epochs; fi
    if translated; then
        echo "$TRANSLATIONS.de: translated before"
        return
    fi
    generate en de test "$FOLDER/$model" "$TRANSLATIONS.generate" --beam "$BEAM"
    local collect=("$PYTHON" "$ROOT/preprocess/hypotheses.py" --input "$TRANSLATIONS.generate"
        --source "$PREPARED/clean/test.en" --model "$PREPARED/segmented/model")
    "${collect[@]}" --output "$TRANSLATIONS.tokenised.de"
    "${collect[@]}" --detokenize de --output "$TRANSLATIONS.de"
    printf '%s\n' "$TRANSLATED" >"$TRANSLATIONS.de.made"
}

# One JSON of everything about the run, and a few lines of it to read.
stage_score() {
    need "$DATA/dict.en.txt" "$TRANSLATIONS.de" "$FOLDER/train.log"
    need_training "UPDATES=$UPDATES" "${options[@]}"
    if [[ "$AVERAGE" -gt 0 ]]; then need_average "$AVERAGE" epochs; fi
    translated || fail "$TRANSLATIONS.de is not of $TRANSLATED, or older than the model; run the stage translate"
    local cased=(--cased "$TRANSLATIONS.de" "$PREPARED/clean/test.de")
    if [[ "$LOWERCASE" == 1 ]]; then cased=(); fi
    "$PYTHON" "$HERE/summary.py" --system "${RUN:-$SYSTEM${START:+ from $START}$suffix}" --seed "$SEED" \
        --settings "SCHEDULE=$SCHEDULE${START:+ START=$START} MERGES=$MERGES UPDATES=$UPDATES MAX_TOKENS=$MAX_TOKENS LR=$LR \
WARMUP=$WARMUP DROPOUT=$DROPOUT AVERAGE=$(count_averaged) LOWERCASE=$LOWERCASE BEAM=$BEAM${EXTRA_ARGS:+ EXTRA_ARGS=$EXTRA_ARGS}" \
        --flags "${system[*]}" --log "$FOLDER/train.log" --environment "$FOLDER/train.environment" \
        ${cased[@]+"${cased[@]}"} --tokenised "$TRANSLATIONS.tokenised.de" "$PREPARED/tokenized/test.de" \
        --output "$FOLDER/summary.json"
}

# --------------------------------------------------------------------------------------------------------------- main
if [[ -n "$OWN_CORPUS" ]]; then check_corpus; fi
run_stages "download prepare train average translate score" "$@"
