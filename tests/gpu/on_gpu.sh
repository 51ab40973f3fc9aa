#!/usr/bin/env bash
# On the machine with the GPU, as root: unpacks what prepare.sh has packed, and runs the ring in each image.
#
#     on_gpu.sh [--work FOLDER] [--output FOLDER] [--minutes N] [--at-once N] [--image NAME] [--case NAME]...
#
# It lies beside the pieces. Prints a table for each image, and at the end what failed; the exit code is then 1. A case for
# which the minutes (9 by default) do not suffice is not run; a second call with --image 2.14 unpacks nothing anew. OUTPUT,
# a new folder, has logs, jobs and results.json of each image.
set -euo pipefail

PIECES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly PIECES BEGAN=$SECONDS
work=/tmp/gpu-ring output=/tmp/gpu-ring-output minutes=9 at_once=6 image='' cases=()

die() {
    printf 'on_gpu.sh: %s\n' "$*" >&2
    exit 2
}

while (($# > 0)); do
    [[ -n ${2-} ]] || die "$1 stands without its value"
    case $1 in
        --work) work=$2 ;;
        --output) output=$2 ;;
        --minutes) minutes=$2 ;;
        --at-once) at_once=$2 ;;
        --image) image=$2 ;;
        --case) cases+=("$2") ;;
        *) die "found the argument '$1'; wanted --work, --output, --minutes, --at-once, --image or --case" ;;
    esac
    shift 2
done

unpack() {
    [[ ! -e $work/unpacked ]] || return 0
    (cd "$PIECES" && sha256sum --check --quiet SHA256SUMS) || die "pieces are missing or damaged: bring them again"
    mkdir -p "$work/first"
    tar -xf "$PIECES/first.tar" -C "$work/first"
    cat "$PIECES"/piece-* | "$work/first/ld.so" --library-path "$work/first" "$work/first/zstd" -dc --long=27 |
        tar -x -C "$work"
    touch "$work/unpacked"
    echo "unpacked after $((SECONDS - BEGAN)) s"
}

# Prints the driver's libraries, wherever this machine has them.
driver() {
    local name
    for name in libcuda.so.1 libnvidia-ml.so.1 libnvidia-ptxjitcompiler.so.1 libnvidia-nvvm.so.4 libnvidia-gpucomp; do
        { ldconfig -p | awk '/=>/{print $NF}' && find /usr/local/nvidia /usr/lib/x86_64-linux-gnu -name "$name*" 2>/dev/null; } |
            grep -F "/$name" | sort -u || true
    done
}

mounted=()
# mount_in WHAT... FOLDER
mount_in() {
    mkdir -p "${*: -1}"
    mount "$@"
    mounted+=("${*: -1}")
}

unmount() {
    local number
    for ((number = ${#mounted[@]} - 1; number >= 0; number--)); do umount --recursive --lazy "${mounted[number]}" || true; done
}

# What a container of the image would have: the kernel's file systems, the GPU's devices, the driver, nvidia-smi, a hosts file.
furnish() {
    local root=$1 each
    mount_in --rbind --make-rslave /proc "$root/proc"
    mount_in --rbind --make-rslave /sys "$root/sys"
    mount_in --rbind --make-rslave /dev "$root/dev"
    mount_in -t tmpfs tmpfs "$root/dev/shm"
    mount_in --bind "$work/ring" "$root/ring"
    mkdir -p "$root/driver" "$root/tmp" "$root/ring-output"
    mount_in --bind "$output" "$root/ring-output"
    while read -r each; do cp -L "$each" "$root/driver/"; done < <(driver)
    [[ -e $root/driver/libcuda.so.1 ]] || die 'found no libcuda.so.1 on this machine: is its driver installed?'
    cp -L "$(command -v nvidia-smi)" "$root/usr/bin/"
    echo /driver >"$root/etc/ld.so.conf.d/000-driver.conf"
    chroot "$root" /sbin/ldconfig
    printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$root/etc/hosts"
}

run_in() {
    local root=$1 name=$2 variables=()
    mapfile -t variables <"$work/roots/$name.env"
    chroot "$root" env -i HOME=/root TF_CPP_MIN_LOG_LEVEL=1 "${variables[@]}" python3 /ring/gpu run --image "$name" \
        --output "/ring-output/$name" --at-once "$at_once" --seconds "$((minutes * 60 - (SECONDS - BEGAN)))" \
        -- "${cases[@]}"
}

main() {
    local name failed=()
    ((EUID == 0)) || die 'it takes root: mount and chroot'
    command -v nvidia-smi >/dev/null || die 'found no nvidia-smi on this machine: is its driver installed?'
    trap unmount EXIT
    unpack
    mkdir -p "$output"
    ip link set lo up 2>/dev/null || true
    nvidia-smi
    for name in ${image:-$(<"$work/roots/order")}; do
        printf '\n== %s, after %d s\n' "$name" "$((SECONDS - BEGAN))"
        furnish "$work/roots/$name"
        run_in "$work/roots/$name" "$name" || failed+=("$name")
    done
    printf '\n%d s in all. ' "$((SECONDS - BEGAN))"
    if ((${#failed[@]} > 0)); then echo "failed: ${failed[*]}, as their tables say" && return 1; fi
    echo 'all came out as expected'
}

main
