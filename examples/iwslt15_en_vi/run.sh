#!/usr/bin/env bash
# IWSLT'15 English-Vietnamese, by fairseq's commands with the plugin's loss: from the download to scores.
#
# usage: [NAME=VALUE ...] bash examples/iwslt15_en_vi/run.sh [STAGE ...]
#
# Stages: download prepare train average translate score, or all (all). A finished stage is skipped, an interrupted
# training goes on from its last checkpoint.
#
#   ARCH=informer_mt      any architecture of the plugin, or of fairseq, such as transformer
#   SETTING=paper         paper: Table 3 of the Informer paper; modern: joint BPE, beam 5, averaged checkpoints
#   SIZE=base             base: 6+6 layers, width 512; tiny: 4+4 layers, width 128
#   CORPUS=               a folder with train, tst2012 and tst2013 .en and .vi, tokenised; else it is downloaded
#   WORK=                 what is made goes here (work/iwslt15_en_vi under the repository)
#   RUN=                  name of the run's folder, and of its row in a table (architecture, size, BPE-dropout and seed)
#   EPOCHS=40 MAX_UPDATE=0 SEED=1 LR= WARMUP= DROPOUT= BATCH_SIZE= MAX_TOKENS= AVERAGE= BEAM=   (by setting and size)
#   FIXED_LENGTH=200      n of the efficient encoders: source positions, with the end of the sentence
#   MERGES=8000 BPE_DROPOUT=0 BPE_DROPOUT_COPIES=4 MAX_UNKNOWN_RATE=0.1   of the preparation
#   GENERATE_BATCH=64     sentences a batch in translation
#   THREADS=              of the CPU (torch's choice); training losses are those of another run only with as many
#   EXTRA_ARGS=           further options of fairseq-train
#   CPU=auto              1: no GPU even if there is one
#   PYTHON=               the Python with fairseq (that of .venv under the repository, else python)
set -euo pipefail

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PAGE="https://nlp.stanford.edu/projects/nmt/data/iwslt15.en-vi"
# shellcheck source=examples/recipe.sh
source "$HERE/../recipe.sh"
show_help_if_asked "$@"

# ---------------------------------------------------------------------------------------------------------- settings
ARCH="${ARCH:-informer_mt}"
SETTING="${SETTING:-paper}"
SIZE="${SIZE:-base}"
SEED="${SEED:-1}"
EPOCHS="${EPOCHS:-40}"
MAX_UPDATE="${MAX_UPDATE:-0}"
FIXED_LENGTH="${FIXED_LENGTH:-200}"
choose_work "$ROOT/work/iwslt15_en_vi"
OWN_CORPUS="${CORPUS:-}"
CORPUS="${CORPUS:-$WORK/corpus}"
choose_python
choose_threads

choose_architecture
case "$SETTING-$SIZE" in
    # The paper prints no learning rate; with 8 sentences an update, the usual 5e-4 is too much for the base size.
    paper-base) lr=2e-4 warmup=8000 ;;
    paper-tiny) lr=5e-4 warmup=4000 ;;
    modern-base) lr=5e-4 warmup=4000 dropout=0.3 ;;
    modern-tiny) lr=2e-3 warmup=1000 dropout=0.1 ;;
    *) fail "SETTING is '$SETTING'; it is paper or modern" ;;
esac
case "$SETTING" in
    paper) average=0 beam=1 sharing=() ;;
    modern) average=5 beam=5 sharing=(--share-all-embeddings) MAX_TOKENS="${MAX_TOKENS:-4096}" ;;
esac
# Sentences and tokens a batch: given both, both limit it.
if [[ -z "${MAX_TOKENS:-}" ]]; then BATCH_SIZE="${BATCH_SIZE:-8}"; fi
batch=() batch_setting=""
if [[ -n "${MAX_TOKENS:-}" ]]; then batch+=(--max-tokens "$MAX_TOKENS") batch_setting+=" MAX_TOKENS=$MAX_TOKENS"; fi
if [[ -n "${BATCH_SIZE:-}" ]]; then batch+=(--batch-size "$BATCH_SIZE") batch_setting+=" BATCH_SIZE=$BATCH_SIZE"; fi
LR="${LR:-$lr}"
WARMUP="${WARMUP:-$warmup}"
DROPOUT="${DROPOUT:-${dropout:-0.1}}"
AVERAGE="${AVERAGE:-$average}"
BEAM="${BEAM:-$beam}"
GENERATE_BATCH="${GENERATE_BATCH:-64}"
check_whole_numbers 0 SEED EPOCHS MAX_UPDATE WARMUP AVERAGE
check_whole_numbers 1 BEAM GENERATE_BATCH ${MAX_TOKENS:+MAX_TOKENS} ${BATCH_SIZE:+BATCH_SIZE}
check_whole_numbers 2 FIXED_LENGTH
read -r -a extra <<<"${EXTRA_ARGS:-}"

choose_device

PREPARATION="FIXED_LENGTH=$FIXED_LENGTH" segmentation=(SEGMENTATION=word JOINT=0) cut=""
case "$SETTING" in
    paper)
        for name in MERGES BPE_DROPOUT BPE_DROPOUT_COPIES; do
            [[ -z "${!name:-}" ]] ||
                fail "$name is '${!name}', and SETTING=paper has whole words, no BPE: leave it, or take SETTING=modern"
        done
        ;;
    modern)
        MERGES="${MERGES:-8000}" BPE_DROPOUT="${BPE_DROPOUT:-0}" BPE_DROPOUT_COPIES="${BPE_DROPOUT_COPIES:-4}"
        check_whole_numbers 1 MERGES BPE_DROPOUT_COPIES
        if [[ ! "$BPE_DROPOUT" =~ ^0?\.?0*$ ]]; then cut="-dropout$BPE_DROPOUT"; fi
        PREPARATION="MERGES=$MERGES BPE_DROPOUT=$BPE_DROPOUT${cut:+ BPE_DROPOUT_COPIES=$BPE_DROPOUT_COPIES} $PREPARATION"
        # All seeds train on the same data: BPE-dropout draws with a seed of its own.
        segmentation=(SEGMENTATION=bpe JOINT=1 MERGES="$MERGES" BPE_DROPOUT="$BPE_DROPOUT"
            BPE_DROPOUT_COPIES="$BPE_DROPOUT_COPIES" SEED=1)
        ;;
esac
PREPARED="$WORK/$SETTING/prepared$cut"
DATA="$PREPARED/data-bin"
FOLDER="$WORK/$SETTING/${RUN:-$full_name$cut-seed$SEED}"
# The checkpoint that translates: the average, or the one with the best validation loss.
MODEL="$FOLDER/checkpoints/checkpoint_best.pt"
if [[ "$AVERAGE" -gt 0 ]]; then MODEL="$FOLDER/averaged.pt"; fi
TRANSLATED="${MODEL##*/} beam $BEAM"
criterion=label_smoothed_cross_entropy
case "$ARCH" in
    # The same function with less memory, for models that end in a linear projection and can give what stands before.
    transformer* | *informer* | ni_transformer*) criterion=chunked_label_smoothed_cross_entropy ;;
esac
lengths="EPOCHS=$EPOCHS MAX_UPDATE=$MAX_UPDATE"
options=(--task translation --source-lang en --target-lang vi "${architecture[@]}"
    ${sharing[@]+"${sharing[@]}"} --dropout "$DROPOUT" "${batch[@]}" --required-batch-size-multiple 1
    --criterion "$criterion" --label-smoothing 0.1 --optimizer adam --adam-betas "(0.9, 0.98)"
    --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP" --seed "$SEED" ${extra[@]+"${extra[@]}"})

# ------------------------------------------------------------------------------------------------------------ helpers
check_corpus() {
    check_pairs en vi train tst2012 tst2013
}

# ------------------------------------------------------------------------------------------------------------- stages
# fetch FILE LINES: one file of the page, checked before it takes its place.
fetch() {
    local file="$1" lines="$2" found
    fetch_checked "$PAGE/$file" "$CORPUS/$file"
    found="$(wc -l <"$CORPUS/$file" | tr -d ' ')"
    [[ "$found" == "$lines" ]] || fail "$CORPUS/$file has $found lines, not $lines: remove it and try again"
    echo "$file: $lines lines, checksum right"
}

stage_download() {
    if [[ -n "$OWN_CORPUS" ]]; then
        echo "CORPUS is set: nothing to download"
        return
    fi
    mkdir -p "$CORPUS"
    fetch train.en 133317
    fetch train.vi 133317
    fetch tst2012.en 1553
    fetch tst2012.vi 1553
    fetch tst2013.en 1268
    fetch tst2013.vi 1268
    # The page's own vocabularies, cut by frequency, for comparison; no stage reads them.
    fetch vocab.en 17191
    fetch vocab.vi 7709
}

stage_prepare() {
    check_corpus
    # The efficient encoders have n positions and the end of the sentence takes one: sources over n - 1 cannot be read.
    # The paper drops pairs over 200 tokens; here 199 on the source side. Both counts are printed.
    local limits="$((FIXED_LENGTH - 1)) 200"
    prepare "${segmentation[@]}" SRC=en TGT=vi TRAIN="$CORPUS/train" VALID="$CORPUS/tst2012" TEST="$CORPUS/tst2013" \
        TOKENIZED=1 MAX_WORDS="$limits" MAX_PIECES="$limits" MAX_UNKNOWN_RATE="${MAX_UNKNOWN_RATE:-0.1}"
}

stage_train() {
    need "$DATA/dict.en.txt"
    train_once "$lengths" "${options[@]}" -- --max-epoch "$EPOCHS" --max-update "$MAX_UPDATE" \
        --keep-last-epochs "$((AVERAGE > 1 ? AVERAGE : 1))" --no-progress-bar ${device[@]+"${device[@]}"}
}

stage_average() {
    if [[ "$AVERAGE" -le 0 ]]; then
        echo "AVERAGE=0: checkpoint_best.pt translates"
        return
    fi
    average_last "$AVERAGE" epochs
}

# translated SUBSET NAME: the translations are of the model and the source as they are now, with these settings.
translated() {
    finished "$FOLDER/$2.tokenised.vi" "$TRANSLATED" "$MODEL" "$PREPARED/clean/$1.en"
}

# translate SUBSET NAME: one set, with as many hypotheses as source lines or an error.
translate() {
    local subset="$1" output="$FOLDER/$2"
    if translated "$@"; then
        echo "$output.tokenised.vi: translated before"
        return
    fi
    generate en vi "$subset" "$MODEL" "$output.generate" --beam "$BEAM"
    local collect=("$PYTHON" "$ROOT/preprocess/hypotheses.py" --input "$output.generate"
        --source "$PREPARED/clean/$subset.en" --model "$PREPARED/segmented/model")
    "${collect[@]}" --detokenize vi --output "$output.vi"
    "${collect[@]}" --output "$output.tokenised.vi"
    printf '%s\n' "$TRANSLATED" >"$output.tokenised.vi.made"
}

stage_translate() {
    need "$DATA/dict.en.txt" "$MODEL"
    if [[ "$AVERAGE" -gt 0 ]]; then need_average "$AVERAGE" epochs; fi
    translate valid tst2012
    translate test tst2013
}

stage_score() {
    local settings set sets=()
    need "$DATA/dict.en.txt" "$FOLDER/tst2012.tokenised.vi" "$FOLDER/tst2013.tokenised.vi" "$FOLDER/train.log"
    need_training "$lengths" "${options[@]}"
    if [[ "$AVERAGE" -gt 0 ]]; then need_average "$AVERAGE" epochs; fi
    for set in "valid tst2012" "test tst2013"; do
        # shellcheck disable=SC2086
        translated $set ||
            fail "$FOLDER/${set#* }.tokenised.vi is not of $TRANSLATED, or older than the model; run the stage translate"
    done
    [[ -f "$FOLDER/train.environment" ]] || fail "no such file: $FOLDER/train.environment, which a training with" \
        "this recipe writes: train again under a new RUN"
    settings="SETTING=$SETTING SIZE=$SIZE $lengths$batch_setting LR=$LR WARMUP=$WARMUP \
DROPOUT=$DROPOUT $PREPARATION AVERAGE=$(count_averaged) BEAM=$BEAM${EXTRA_ARGS:+ EXTRA_ARGS=$EXTRA_ARGS}"
    if [[ -f "$FOLDER/summary.json" ]] &&
        finished "$FOLDER/scores.txt" "$settings" "$FOLDER/tst2012.tokenised.vi" "$FOLDER/tst2013.tokenised.vi"; then
        cat "$FOLDER/scores.txt"
        return
    fi
    sets=(--set tst2012 "$FOLDER/tst2012.tokenised.vi" "$PREPARED/clean/valid.vi")
    sets+=(--set tst2013 "$FOLDER/tst2013.tokenised.vi" "$PREPARED/clean/test.vi")
    "$PYTHON" "$HERE/score.py" --system "${RUN:-$full_name$cut}" --seed "$SEED" --settings "$settings" \
        --flags "${architecture[*]}" --log "$FOLDER/train.log" --environment "$FOLDER/train.environment" "${sets[@]}" \
        --output "$FOLDER/scores.txt" --summary "$FOLDER/summary.json"
    printf '%s\n' "$settings" >"$FOLDER/scores.txt.made"
}

# --------------------------------------------------------------------------------------------------------------- main
if [[ -n "$OWN_CORPUS" ]]; then check_corpus; fi
run_stages "download prepare train average translate score" "$@"
