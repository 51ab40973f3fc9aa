#!/usr/bin/env bash
# Makes the base of a stand-in for other people's images with debootstrap, and prints its name: trixie, noble, jammy, ... Needs
# root and docker; it stays for the next time.
set -euo pipefail

suite=${1:?wanted a suite of Debian or Ubuntu, such as trixie or noble}
readonly NAME=sagemaker-tf-entrypoint-$suite:base
readonly PATHS=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

make_base() {
    local ubuntu=/usr/share/debootstrap/scripts/gutsy options=() from=()
    case $suite in
        # All of Ubuntu's are made as gutsy is, those that are newer than debootstrap, too; that script knows where they are.
        # Python's venv is in universe.
        jammy | noble)
            options=(--components=main,universe)
            from=("$(awk '/default_mirror .*archive/ {print $2; exit}' "$ubuntu")" "$ubuntu")
            ;;
    esac
    debootstrap --arch=amd64 --variant=minbase "${options[@]}" "$suite" "$work/rootfs" "${from[@]}" >&2
    # debootstrap copies the resolver and the name of this machine; docker gives every container its own.
    tar -C "$work/rootfs" --numeric-owner -c --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' \
        --exclude='./etc/resolv.conf' --exclude='./etc/hostname' --exclude='./var/cache/apt/*' . |
        docker import --change "ENV PATH=$PATHS" - "$NAME" >&2
}

docker image inspect "$NAME" >/dev/null 2>&1 || make_base
echo "$NAME"
