# Stages that the recipes of the NI paper share; a recipe's run.sh sets the corpus and sources this file.
#
# Expects: HERE (the recipe's folder), CORPUS_NAME, SRC, TGT, VALID_SETS (array), TEST_SET, a function stage_download,
# and the defaults that differ: BIG_DROPOUT, DEFAULT_SIZE, DEFAULT_MERGES.

source "$HERE/../recipe.sh"
show_help_if_asked "$@"
FLAGS="$ROOT/examples/neuron_interaction/flags"

# ---------------------------------------------------------------------------------------------------------- settings
SYSTEM="${SYSTEM:-baseline}"
SIZE="${SIZE:-$DEFAULT_SIZE}"
SEED="${SEED:-1}"
RANK="${RANK:-}"
choose_work "$ROOT/work/$CORPUS_NAME"
OWN_CORPUS="${CORPUS:-}"
CORPUS="${CORPUS:-$WORK/corpus}"
choose_python

case "$SIZE" in
    # Updates of the base and the big size are of 8 x 4,096 tokens, as in the paper.
    base) layers=6 width=512 inner=2048 heads=8 lr=7e-4 warmup=4000 dropout=0.1 tokens=4096 freq=8 average=5 ;;
    big) layers=6 width=1024 inner=4096 heads=16 lr=5e-4 warmup=4000 dropout="$BIG_DROPOUT" tokens=4096 freq=8 average=10 ;;
    tiny) layers=4 width=128 inner=256 heads=4 lr=2e-3 warmup=1000 dropout=0.1 tokens=2048 freq=1 average=1 ;;
    *) fail "SIZE is '$SIZE'; it is base, big or tiny" ;;
esac
case "$SIZE-$SYSTEM" in
    base-baseline) updates=100000 epochs=0 save=2000 ;;
    big-baseline) updates=300000 epochs=0 save=2000 ;;
    tiny-baseline) updates=0 epochs=12 save=0 ;;
    base-* | big-*) updates=50000 epochs=0 save=2000 ;;
    tiny-*) updates=0 epochs=3 save=0 ;;
esac
if [[ "$SYSTEM" != baseline ]]; then
    # Training goes on from a trained model, with a fresh optimizer: a gentler start.
    [[ -f "$FLAGS/$SYSTEM.txt" ]] || fail "SYSTEM is '$SYSTEM'; it is baseline, or one of" \
        "$(cd "$FLAGS" && echo *.txt | sed 's/\.txt//g')"
    case "$SIZE" in base) lr=3e-4 ;; big) lr=2e-4 ;; tiny) lr=2e-4 warmup=100 ;; esac
fi
LR="${LR:-$lr}"
WARMUP="${WARMUP:-$warmup}"
DROPOUT="${DROPOUT:-$dropout}"
MAX_TOKENS="${MAX_TOKENS:-$tokens}"
UPDATE_FREQ="${UPDATE_FREQ:-$freq}"
UPDATES="${UPDATES:-$updates}"
EPOCHS="${EPOCHS:-$epochs}"
SAVE_INTERVAL="${SAVE_INTERVAL:-$save}"
AVERAGE="${AVERAGE:-$average}"
BEAM="${BEAM:-4}"
LENPEN="${LENPEN:-0.6}"
MERGES="${MERGES:-$DEFAULT_MERGES}" MAX_WORDS="${MAX_WORDS:-250}" MAX_PIECES="${MAX_PIECES:-250}" TOKENIZED="${TOKENIZED:-0}"
GENERATE_BATCH="${GENERATE_BATCH:-64}"
check_whole_numbers 0 SEED WARMUP UPDATES EPOCHS SAVE_INTERVAL
check_whole_numbers 1 MAX_TOKENS UPDATE_FREQ AVERAGE BEAM GENERATE_BATCH MERGES ${RANK:+RANK}
read -r -a extra <<<"${EXTRA_ARGS:-}"

TRANSLATED="beam $BEAM lenpen $LENPEN"
lengths="UPDATES=$UPDATES EPOCHS=$EPOCHS"
averaged=epochs
if [[ "$SAVE_INTERVAL" -gt 0 ]]; then averaged=updates; fi
set_sizes "$layers" "$width" "$inner" "$heads"
choose_device --fp16

PREPARED="$WORK/prepared"
PREPARATION="MERGES=$MERGES TOKENIZED=$TOKENIZED MAX_WORDS=$MAX_WORDS MAX_PIECES=$MAX_PIECES"
DATA="$PREPARED/data-bin"
BASELINE="$WORK/$SIZE-baseline-seed$SEED"
FOLDER="$WORK/${RUN:-$SIZE-$SYSTEM${RANK:+-rank$RANK}-seed$SEED}"

# ------------------------------------------------------------------------------------------------------------ helpers
check_corpus() {
    check_pairs "$SRC" "$TGT" train "${VALID_SETS[@]}" "$TEST_SET"
}

# approximates OPTION ...: the system's rank is below the width, so that it can only approximate the baseline. (Without
# first-order terms there is nothing to approximate.)
approximates() {
    local rank="$width"
    while [[ $# -gt 0 ]]; do
        case "$1" in
            --composition-rank) rank="$2" ;;
            --composition-second-order-only) return 1 ;;
        esac
        shift
    done
    [[ "$rank" -lt "$width" ]]
}

# ------------------------------------------------------------------------------------------------------------- stages
stage_prepare() {
    check_corpus
    local valid="$CORPUS/${VALID_SETS[0]}" language set
    if [[ "${#VALID_SETS[@]}" -gt 1 ]]; then
        valid="$WORK/joined/valid"
        mkdir -p "$WORK/joined"
        for language in "$SRC" "$TGT"; do
            for set in "${VALID_SETS[@]}"; do
                cat "$CORPUS/$set.$language" 2>/dev/null || gzip -dc "$CORPUS/$set.$language.gz"
            done >"$valid.$language.partial"
            # A file with the same text keeps its time, so that finished steps stay finished.
            if cmp -s "$valid.$language.partial" "$valid.$language"; then
                rm "$valid.$language.partial"
            else
                mv "$valid.$language.partial" "$valid.$language"
            fi
        done
    fi
    prepare SRC="$SRC" TGT="$TGT" TRAIN="$CORPUS/train" VALID="$valid" TEST="$CORPUS/$TEST_SET" SEGMENTATION=bpe JOINT=1 \
        TOKENIZED="$TOKENIZED" MERGES="$MERGES" MAX_WORDS="$MAX_WORDS" MAX_PIECES="$MAX_PIECES"
}

# choose_training: the array options gets what trains SYSTEM.
choose_training() {
    local system=(--arch transformer "${sizes[@]}") flags
    if [[ "$SYSTEM" != baseline ]]; then
        read -r -a flags <"$FLAGS/$SYSTEM.txt"
        system=(--arch ni_transformer "${sizes[@]}" "${flags[@]}" --init-from-transformer "$BASELINE/averaged.pt")
        if [[ -n "$RANK" ]]; then system+=(--composition-rank "$RANK"); fi
        if approximates "${system[@]}"; then system+=(--init-with-low-rank-approximation); fi
    fi
    options=(--task translation --source-lang "$SRC" --target-lang "$TGT" "${system[@]}" --share-all-embeddings
        --dropout "$DROPOUT" --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam
        --adam-betas "(0.9, 0.98)" --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP"
        --max-tokens "$MAX_TOKENS" --update-freq "$UPDATE_FREQ" --required-batch-size-multiple 1 --seed "$SEED"
        ${extra[@]+"${extra[@]}"})
}

stage_train() {
    need "$DATA/dict.$SRC.txt"
    if [[ "$SYSTEM" != baseline ]]; then need "$BASELINE/averaged.pt"; fi
    local options keep
    choose_training
    keep=(--keep-last-epochs "$AVERAGE")
    if [[ "$SAVE_INTERVAL" -gt 0 ]]; then
        keep=(--save-interval-updates "$SAVE_INTERVAL" --keep-interval-updates "$AVERAGE" --no-epoch-checkpoints)
    fi
    train_once "$lengths" "${options[@]}" -- --max-update "$UPDATES" --max-epoch "$EPOCHS" \
        "${keep[@]}" "${device[@]}"
}

stage_average() {
    average_last "$AVERAGE" "$averaged"
}

# translated: the translations are of the model and the source as they are now, with these settings.
translated() {
    finished "$FOLDER/$TEST_SET.$TGT" "$TRANSLATED" "$FOLDER/averaged.pt" "$PREPARED/clean/test.$SRC"
}

stage_translate() {
    need "$DATA/dict.$SRC.txt"
    need_average "$AVERAGE" "$averaged"
    local output="$FOLDER/$TEST_SET"
    if translated; then
        echo "$output.$TGT: translated before"
        return
    fi
    # At most 50 pieces more than the source has, as Vaswani et al. 2017 decode.
    generate "$SRC" "$TGT" test "$FOLDER/averaged.pt" "$output.generate" --beam "$BEAM" --lenpen "$LENPEN" \
        --max-len-a 1 --max-len-b 50
    "$PYTHON" "$ROOT/preprocess/hypotheses.py" --input "$output.generate" --source "$PREPARED/clean/test.$SRC" \
        --model "$PREPARED/segmented/model" --detokenize "$TGT" --output "$output.$TGT"
    printf '%s\n' "$TRANSLATED" >"$output.$TGT.made"
}

# The reference is the text of the corpus as it came, or detokenised by the tool that detokenises the translations.
reference() {
    if [[ "$TOKENIZED" == 0 ]]; then
        echo "$PREPARED/clean/test.$TGT"
        return
    fi
    "$PYTHON" "$ROOT/preprocess/detokenize_text.py" --language "$TGT" --input "$PREPARED/clean/test.$TGT" \
        --output "$WORK/reference.$TGT" >&2
    echo "$WORK/reference.$TGT"
}

stage_score() {
    need "$DATA/dict.$SRC.txt" "$FOLDER/$TEST_SET.$TGT"
    local text options
    choose_training
    need_training "$lengths" "${options[@]}"
    need_average "$AVERAGE" "$averaged"
    translated || fail "$FOLDER/$TEST_SET.$TGT is not of $TRANSLATED, or older than the model; run the stage translate"
    text="$(reference)"
    "$PYTHON" -m sacrebleu "$text" --input "$FOLDER/$TEST_SET.$TGT" --metrics bleu chrf --width 2 --format text |
        tee "$FOLDER/scores.txt.partial"
    mv "$FOLDER/scores.txt.partial" "$FOLDER/scores.txt"
}

# Every system that has been translated, against row 1 (the baseline trained on for as long), else the baseline.
stage_compare() {
    local systems=() system text first
    for first in row1 baseline; do
        if [[ -f "$WORK/$SIZE-$first-seed$SEED/$TEST_SET.$TGT" ]]; then break; fi
    done
    need "$WORK/$SIZE-$first-seed$SEED/$TEST_SET.$TGT"
    systems=("$WORK/$SIZE-$first-seed$SEED/$TEST_SET.$TGT")
    for system in "$WORK/$SIZE"-*-seed"$SEED/$TEST_SET.$TGT"; do
        if [[ "$system" != "${systems[0]}" ]]; then systems+=("$system"); fi
    done
    [[ "${#systems[@]}" -gt 1 ]] || fail "$first is the only system translated so far; run others before compare"
    text="$(reference)"
    # Paired bootstrap resampling (Koehn 2004); the seed is sacrebleu's own default.
    "$PYTHON" -m sacrebleu "$text" --input "${systems[@]}" --metrics bleu --paired-bs --paired-bs-n 1000 --width 2 \
        --format text | tee "$WORK/$SIZE-compare-seed$SEED.txt.partial"
    mv "$WORK/$SIZE-compare-seed$SEED.txt.partial" "$WORK/$SIZE-compare-seed$SEED.txt"
}

# --------------------------------------------------------------------------------------------------------------- main
if [[ -n "$OWN_CORPUS" ]]; then check_corpus; fi
run_stages "download prepare train average translate score (compare)" "$@"
