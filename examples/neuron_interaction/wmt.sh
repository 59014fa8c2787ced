# The download stage of both WMT14 recipes; sourced before pipeline.sh.
#
# Expects: TGT and PIECES, an array of "archive member-prefix" pairs below the site.

SITE="${WMT_SITE:-https://www.statmt.org}"

# unpack ARCHIVE MEMBER: one member of a fetched archive, unpacked, on stdout.
unpack() {
    case "$2" in
        *.gz) tar -xOf "$1" "$2" | gzip -dc ;;
        *) tar -xOf "$1" "$2" ;;
    esac
}

# add_piece ARCHIVE PREFIX: appends PREFIX.en and PREFIX.TGT of an archive to the training set in the making.
add_piece() {
    local archive="$CORPUS/archives/${1##*/}" language suffix="" counts=() before
    fetch_checked "$SITE/$1" "$archive"
    case "$archive" in *.tar) suffix=.gz ;; esac
    for language in en "$TGT"; do
        before="$(wc -l <"$CORPUS/train.$language.partial")"
        unpack "$archive" "$2.$language$suffix" >>"$CORPUS/train.$language.partial"
        counts+=("$(($(wc -l <"$CORPUS/train.$language.partial") - before))")
    done
    [[ "${counts[0]}" == "${counts[1]}" && "${counts[0]}" -gt 0 ]] ||
        fail "$2 of $archive has ${counts[0]} English and ${counts[1]} other lines; remove the archive and try again"
    echo "$2: ${counts[0]} pairs"
}

stage_download() {
    if [[ -n "$OWN_CORPUS" ]]; then
        echo "CORPUS is set: nothing to download"
        return
    fi
    mkdir -p "$CORPUS"
    local set language side piece
    for set in "${VALID_SETS[@]}" "$TEST_SET"; do
        for language in en "$TGT"; do
            if [[ -f "$CORPUS/$set.$language" ]]; then continue; fi
            side=ref
            if [[ "$language" == en ]]; then side=src; fi
            # sacrebleu knows the official sets and their checksums.
            "$PYTHON" -m sacrebleu --test-set "$(sacrebleu_name "$set")" --language-pair "en-$TGT" --echo "$side" \
                >"$CORPUS/$set.$language.partial" || fail "sacrebleu could not fetch $set; put it into $CORPUS by hand"
            mv "$CORPUS/$set.$language.partial" "$CORPUS/$set.$language"
        done
    done
    if [[ -f "$CORPUS/train.en" && -f "$CORPUS/train.$TGT" ]]; then return; fi
    for language in en "$TGT"; do : >"$CORPUS/train.$language.partial"; done
    for piece in "${PIECES[@]}"; do
        add_piece "${piece% *}" "${piece#* }"
    done
    for language in "$TGT" en; do mv "$CORPUS/train.$language.partial" "$CORPUS/train.$language"; done
    echo "train: $(wc -l <"$CORPUS/train.en" | tr -d ' ') pairs"
}

sacrebleu_name() {
    case "$1" in
        newstest2014) echo wmt14/full ;;
        newstest20*) echo "wmt${1#newstest20}" ;;
    esac
}
