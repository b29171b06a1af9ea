
# IMAGE:/path, as the image has it.
_extant() {
    local word="${(Q)PREFIX}" found
    local -a files dirs
    if [[ $word == ?*:* ]]; then
        [[ $PREFIX == '~/'* ]] && word="$HOME${word:1}"
        while IFS= read -r found; do
            [[ $PREFIX == '~/'* ]] && found="~${found#$HOME}"
            if [[ $found == */ ]]; then dirs+=("$found"); else files+=("$found"); fi
        done < <("${words[1]}" complete-path "$word" 2>/dev/null)
        if (( $#files + $#dirs )); then
            (( $#dirs )) && compadd -S '' -- "${dirs[@]}"
            (( $#files )) && compadd -- "${files[@]}"
            return 0
        fi
    fi
    _extant_options "$@"
}
