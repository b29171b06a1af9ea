
# IMAGE:/path, as the image has it.

# Sets `word` to the word before the cursor, without its quotes, and `quote` to one that is open.
_extant_word() {
    local line="${COMP_LINE:0:COMP_POINT}" i c
    word= quote=
    for (( i = 0; i < ${#line}; i++ )); do
        c="${line:i:1}"
        if [[ $quote == "'" ]]; then
            if [[ $c == "'" ]]; then quote=; else word+="$c"; fi
        elif [[ $c == "\\" ]]; then
            (( i++ ))
            word+="${line:i:1}"
        elif [[ $quote == '"' ]]; then
            if [[ $c == '"' ]]; then quote=; else word+="$c"; fi
        elif [[ $c == "'" || $c == '"' ]]; then
            quote="$c"
        elif [[ $c == [[:space:]] ]]; then
            word=
        else
            word+="$c"
        fi
    done
}

_extant() {
    local word quote found start asked
    _extant_word
    if [[ $word == ?*:* ]]; then
        asked="$word"
        [[ -z $quote && $word == "~/"* ]] && asked="$HOME${word:1}"
        # What is before the last colon is a word of its own, unless it is quoted.
        start=
        [[ -z $quote && $COMP_WORDBREAKS == *:* ]] && start="${asked%"${asked##*:}"}"
        COMPREPLY=()
        while IFS= read -r found; do
            found="${found#"$start"}"
            # In an open quote names go in as they are: not those that would end it, or that it does
            # not keep from being carried out.
            case "$quote" in
                "'") [[ $found == *"'"* ]] && continue ;;
                '"') [[ $found == *[\\\$\`\"!]* ]] && continue ;;
                *) printf -v found '%q' "$found" ;;
            esac
            COMPREPLY+=("$found")
            [[ $found == */ ]] && compopt -o nospace 2>/dev/null
        done < <("${COMP_WORDS[0]}" complete-path "$asked" 2>/dev/null)
        (( ${#COMPREPLY[@]} )) && return 0
    fi
    _extant_options "$@"
}
