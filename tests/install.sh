# To be sourced. `pip_install PYTHON ARGUMENT...` installs into that Python's environment what pip would, with the same
# arguments: by uv, which takes a tenth of the time, where this machine has it or may get it; else, and where uv finds
# something amiss (it reads no pip.conf, say), by pip.

uv=''

# Sets uv: the command, or "none". With --no-index or an index of your own in pip's configuration, pip it is.
find_uv() {
    [[ -z $uv ]] || return 0
    if "$1" -m pip config list 2>/dev/null | grep -qE '(^|\.)(index-url|no-index)='; then
        uv=none
        return
    fi
    uv=$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/uv # of another environment of ours
    if command -v uv >/dev/null; then
        uv=uv
    elif [[ -x $uv ]]; then
        :
    elif "$1" -m pip install -q --disable-pip-version-check 'uv>=0.5' 2>/dev/null; then
        uv=$(dirname "$1")/uv
    else
        uv=none
    fi
}

pip_install() {
    local python=$1
    shift
    find_uv "$python"
    if [[ $uv != none ]] && UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 "$uv" pip install -q --python "$python" "$@"; then return; fi
    "$python" -m pip install -q --disable-pip-version-check "$@"
}
