
# IMAGE:/path, as the image has it.
function __fish_extant_in_image
    string match -qr '.:' -- (commandline -ct)
end

function __fish_extant_paths
    set -l program (commandline -opc)[1]
    set -l word (string unescape -- (commandline -ct))
    set -q word[1]
    or set word (commandline -ct)
    $program complete-path (string replace -r '^~/' "$HOME/" -- $word) 2>/dev/null
end

complete -c extant -n __fish_extant_in_image -f -a '(__fish_extant_paths)'
