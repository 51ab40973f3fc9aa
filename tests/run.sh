#!/usr/bin/env bash
# Runs the tests, on a fresh machine, too: it gets what it needs first. `main`, at the end, is the story.
set -euo pipefail

if [[ $(uname) == Darwin ]]; then
    printf '%s\n' 'tests/run.sh: the tests need Linux, and this is macOS: run them in a virtual machine with Linux, or in CI' >&2
    exit 2
fi
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly HERE
readonly IMAGE=sagemaker-tf-entrypoint:latest
DEFAULT_LINE=$(sed -n 's/^readonly DEFAULT_LINE=//p' "$HERE/build.sh")
readonly DEFAULT_LINE
readonly CONSTRAINTS=container/lines/$DEFAULT_LINE/requirements.txt
readonly VENV=$HERE/.venv
readonly TABLE=tests/local/test_outcome_table.py

usage() {
    cat <<TEXT
Usage: tests/run.sh [--all] [--ring RING]... [--no-docker] [-k EXPRESSION] [-- PYTEST-ARGUMENT...]

  --all           also the tests that are marked as variants of others (pytest.mark.more), and all rows of the outcome
                  table; if all pass, tests/full_run.json records it, ring by ring
  --ring RING     unit, local, cluster, sdk, benchmarks, lines, arm64, zoo or gpu; may be repeated. Without it: all but
                  lines, arm64, zoo and gpu, after ruff, mypy and the strict build of the site of docs/
  --no-docker     leave out what needs Docker: the image and the rings cluster, sdk, benchmarks, lines, arm64 and zoo
  -k EXPRESSION   only tests whose names match, as pytest takes it
  --              what follows goes to pytest as it is

unit        values in, values out; with local and --all, the branches that both cover are shown, and have a minimum
local       real processes on this machine; the outcome table; 25 random jobs under random faults
            (benchmarks/chaos)
cluster     jobs of several containers, on the image that ./build.sh builds
sdk         jobs that SageMaker's own SDKs run on that image, in their local mode
benchmarks  a few cases of benchmarks/side_by_side, against AWS's toolkit: fails only on differences beyond noise
lines       the other lines of the image (container/lines), and all for GPUs: each is built, and its cells of
            docs/matrix.md run, on CPUs. Only if asked for by name; other runs print whether it has passed on these
            pins (tests/full_run.json)
arm64       the images for linux/arm64, of all lines: each is built, and trains in each mode on two containers. On another
            processor by emulation, for hours: as root on Debian the emulator is installed, and stays. Only if asked for
            by name
gpu         the cases for a machine with a GPU (tests/gpu), those that can be run without one: in the images for GPUs,
            or without Docker in .venv. Only if asked for by name

It makes .venv with Python 3.11 and what the tests import, and for the ring sdk one more for each SDK. As root on
Debian it also installs with apt what is missing (Docker, Open MPI, ssh, ...) and starts dockerd where no daemon
answers; it stops the one that it started. What cannot be installed is left out, and the summary lists it. With CI=true,
leaving something out is a failure.
TEXT
}

say() { printf '\n== %s\n' "$*"; }

die() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 2
}

# ---- what is asked for ------------------------------------------------------------------------------------------------

rings=() use_docker=yes all=no pytest_arguments=()

read_arguments() {
    while (($# > 0)); do
        case $1 in
            --ring)
                case ${2-} in
                    unit | local | cluster | sdk | benchmarks | lines | arm64 | zoo | gpu) rings+=("$2") ;;
                    *) die "--ring is '${2-}'; wanted unit, local, cluster, sdk, benchmarks, lines, arm64, zoo or gpu" ;;
                esac
                shift 2
                ;;
            --all) all=yes && shift ;;
            --no-docker) use_docker=no && shift ;;
            -k) [[ -n ${2-} ]] || die "-k lacks its expression" && pytest_arguments+=(-k "$2") && shift 2 ;;
            -h | --help) usage && exit 0 ;;
            --) shift && pytest_arguments+=("$@") && break ;;
            *) die "unknown argument '$1'; --help lists them all" ;;
        esac
    done
}

asked_for() {
    local ring
    ((${#rings[@]} > 0)) || return 0
    for ring in "${rings[@]}"; do [[ $ring != "$1" ]] || return 0; done
    return 1
}

by_name() { [[ " ${rings[*]-} " == *" $1 "* ]]; }

# ---- what is here, and what is not ------------------------------------------------------------------------------------

may_install() { ((EUID == 0)) && command -v apt-get >/dev/null; }

apt_lists=old
apt_install() {
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    [[ $apt_lists == new ]] || apt-get update -q && apt_lists=new
    apt-get install -y -q --no-install-recommends "$@"
}

# need COMMAND PACKAGE...: installs the packages if the command is not there and we may.
need() {
    local name=$1
    shift
    PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null && return
    may_install && apt_install "$@" && PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null
}

# Prints a Python 3.11 that can make virtual environments.
find_python() {
    local name
    for name in python3.11 python3 /usr/bin/python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# shellcheck source=tests/install.sh
. "$HERE/tests/install.sh"

# The stamp says what the environment was made from, so that it is made once and again when that changes.
make_venv() {
    local python stamp
    stamp=$(cat pyproject.toml "$CONSTRAINTS" | sha256sum | cut -d' ' -f1)
    if [[ $(cat "$VENV/.stamp" 2>/dev/null) == "$stamp" && -d $VENV/mlflow && -d $VENV/jax ]] &&
        "$VENV/bin/python" -c 'import entrypoint' 2>/dev/null; then
        return
    fi
    if ! python=$(find_python); then
        may_install && apt_install python3.11 python3.11-venv python3.11-dev && python=$(find_python) ||
            die "wanted Python 3.11 with venv; none is here, and it could not be installed"
    fi
    need gcc gcc libc6-dev || true # sagemaker-training brings a file of C
    say "making .venv with $("$python" -V)"
    # pip in an environment that is there, too: it only does what is missing.
    "$python" -m venv "$VENV"
    pip_install "$VENV/bin/python" -c "$CONSTRAINTS" -e '.[tensorflow,mpi,dev]'
    # sagemaker-training has a command `train`, too. What is installed last has the name, and uv knows no order.
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall -e .
    # The line of sagemaker-training that AWS's newer images have, for tests/unit/launcher/plan/test_parity.py.
    pip_install "$VENV/bin/python" --no-deps --upgrade --target "$VENV/sagemaker-training-5.1" sagemaker-training==5.1.4
    # What MLflow wants is not what TensorFlow 2.14 wants: for tests/local/test_mlflow_local.py, whose jobs alone see it.
    pip_install "$VENV/bin/python" --target "$VENV/mlflow" mlflow-skinny==2.22.5
    # Nor is what jax wants: for tests/local/test_jax_local.py, in the versions of the image that has it.
    pip_install "$VENV/bin/python" -c container/lines/2.21/requirements.txt --target "$VENV/jax" jax
    printf '%s\n' "$stamp" >"$VENV/.stamp"
}

daemon_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# Sets why_no_docker where there is no Docker to be had.
why_no_docker='' dockerd_pid='' dockerd_log=''
get_docker() {
    if [[ $use_docker == no ]]; then
        why_no_docker='--no-docker'
    elif ! need docker docker.io iptables; then
        why_no_docker='there is no docker command (as root on Debian it would be installed)'
    elif ! daemon_answers && ! start_dockerd; then
        : # start_dockerd has said why
    fi
    [[ -z $why_no_docker ]]
}

start_dockerd() {
    local pidfile=/var/run/docker.pid second
    if ((EUID != 0)); then
        why_no_docker='the Docker daemon does not answer, and starting one takes root'
        return 1
    fi
    need dockerd docker.io iptables || { why_no_docker='the Docker daemon does not answer, and there is no dockerd' && return 1; }
    # Left by a daemon that was killed; with its number taken by another process, dockerd would not start.
    if [[ -f $pidfile && $(cat "/proc/$(cat $pidfile)/comm" 2>/dev/null) != dockerd ]]; then rm -f $pidfile; fi
    say "starting dockerd"
    dockerd_log=$(mktemp)
    PATH=$PATH:/usr/sbin:/sbin setsid dockerd >"$dockerd_log" 2>&1 </dev/null &
    dockerd_pid=$!
    for ((second = 0; second < 60; second++)); do
        if daemon_answers; then return; fi
        kill -0 "$dockerd_pid" 2>/dev/null || break
        sleep 1
    done
    tail -n 20 "$dockerd_log" >&2
    why_no_docker="dockerd did not start: $(tail -n 1 "$dockerd_log")"
    return 1
}

# A signal to this script reaches what it runs once, as Ctrl-C would: a second SIGINT would end tests before they have
# cleaned up. What a test process leaves all the same, since pytest-xdist waits for it for seconds only, goes here.
clean_up() {
    local pid left
    trap '' INT TERM HUP
    for pid in "${running[@]}"; do kill -INT -- "-$pid" 2>/dev/null || true; done
    for pid in "${running[@]}"; do wait "$pid" || true; done
    if [[ -n ${TEST_IMAGE-} ]]; then
        left=$(docker ps --all --quiet --filter "label=$TEST_LABEL")
        [[ -z $left ]] || docker rm --force --volumes $left >/dev/null || true
        left=$(docker network ls --quiet --filter "label=$TEST_LABEL")
        [[ -z $left ]] || docker network rm $left >/dev/null || true
    fi
    if [[ -n $dockerd_pid ]]; then
        kill "$dockerd_pid" 2>/dev/null && wait "$dockerd_pid" 2>/dev/null || true
        rm -f "$dockerd_log"
    fi
    if [[ -n $scratch ]]; then rm -rf "$scratch"; fi
}

# ---- the steps --------------------------------------------------------------------------------------------------------

summary=() failures=0

# Of what runs: the process, which leads a group of its own, by name.
declare -A running=()

# launch NAME COMMAND...: runs it in the background; `await NAME` has its status.
launch() {
    local name=$1
    shift
    set -m # a group of its own, in which SIGINT is not ignored
    "$@" &
    set +m
    running[$name]=$!
}

await() {
    local status=0
    wait "${running[$1]}" || status=$?
    unset "running[$1]"
    return $status
}

# step NAME COMMAND...: runs it, notes how it ended. In the background, as bash hears of no signal while it waits for others.
step() {
    local name=$1 began=$SECONDS
    shift
    say "$name"
    launch "$name" "$@"
    note "$name" "$began" await "$name"
}

# begin NAME COMMAND...: runs it beside others; `finish NAME` waits for it, prints what it said and notes how it ended.
begin() { launch "$@" >"$scratch/$1" 2>&1; }

finish() {
    local began=$SECONDS
    say "$1, the rest"
    note "$1, the rest" "$began" finished "$1"
}

finished() {
    local status=0
    await "$1" || status=$?
    cat "$scratch/$1"
    return $status
}

# note NAME BEGAN COMMAND...: puts into the summary how the command ends.
note() {
    local name=$1 began=$2 status=0
    shift 2
    "$@" || status=$?
    if ((status == 0)); then
        summary+=("$name: passed in $((SECONDS - began)) s")
    elif ((status == 5)) && [[ " ${pytest_arguments[*]-} " == *" -k "* ]]; then
        summary+=("$name: no test matches")
    else
        summary+=("$name: FAILED (exit code $status) in $((SECONDS - began)) s")
        failures=$((failures + 1))
        return 1
    fi
}

# left_out NAME WHY: with CI=true it is a failure.
left_out() {
    summary+=("$1: left out: $2")
    if [[ ${CI-} == true ]]; then failures=$((failures + 1)); fi
}

check() {
    "$VENV/bin/ruff" check . && "$VENV/bin/ruff" format --check . && "$VENV/bin/mypy" && runs_on_macos &&
        runs_on_python310 && workflows
}

# No test machine is a Mac. What docs/local.md promises there uses nothing that Python lacks there; the modules left out
# are of engines for Linux, and of Pipe mode.
runs_on_macos() {
    "$VENV/bin/mypy" --platform darwin --cache-dir .mypy_cache/darwin --follow-imports silent \
        --exclude '/simulate/(compose_host|mounts|netns_engine|netns_host|pipe_writer|process_engine)\.py$' \
        entrypoint/{base,check,cli,record,simulate,usercode} entrypoint/launcher/{job,outcome,plan,policy,places.py} \
        entrypoint/launcher/host/machine.py entrypoint/observe/{export,live,replay,report} entrypoint/programs/{caught.py,prepare}
}

# For those who fork: they cannot run here.
workflows() {
    "$VENV/bin/check-jsonschema" --builtin-schema vendor.github-workflows .github/workflows/*.yml &&
        "$VENV/bin/zizmor" --offline --quiet --pedantic .github
}

# That Python is not to be had everywhere; vermin reads the code for what it lacks.
runs_on_python310() { "$VENV/bin/vermin" --quiet --no-tips --target=3.10- --violations entrypoint sagemaker_tf_data; }

# Fails on a dead link, a missing anchor, a page outside of the navigation, a picture older than its source.
site() { NO_MKDOCS_2_WARNING=1 "$VENV/bin/mkdocs" build --strict; } # --quiet would count no warning

# ring NAME PYTEST-ARGUMENT...: what has left nothing out and passed is noted under the name.
ring() {
    local name=$1 fewer=(-m 'not more')
    shift
    if [[ $all == yes || $name == line-* || $name == zoo-* ]]; then fewer=(); fi
    "$VENV/bin/python" -m pytest "$@" ${fewer[@]+"${fewer[@]}"} ${pytest_arguments[@]+"${pytest_arguments[@]}"} || return
    if ((${#fewer[@]} == 0)); then printf '%s\n' "$name" >>"$scratch/passed"; fi
}

lines() { find container/lines -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort; }

other_lines() { lines | sed 'p; s/$/-gpu/' | grep -vx "$DEFAULT_LINE" | sort; }

# line_ring LINE or LINE-gpu
line_ring() {
    local options=(--tensorflow "${1%-gpu}") tests=(tests/cluster/test_cluster_matrix.py tests/cluster/test_image.py)
    if [[ $1 == *-gpu ]]; then
        options+=(--gpu) tests+=(tests/cluster/test_cluster_gpu_image.py)
    else
        tests+=(tests/cluster/test_cluster_{pipe,sharding,examples,containers,proxy}.py)
    fi
    ./build.sh "${options[@]}" && TEST_LINE=$1 TEST_IMAGE=${IMAGE%:*}:$1 ring "line-$1" "${tests[@]}" -n 3
}

arm64_ring() {
    local line status=0
    if [[ $(uname -m) != aarch64 ]]; then get_emulator && export TEST_SLOWER=20 || return; fi
    export DOCKER_DEFAULT_PLATFORM=linux/arm64
    for line in $(lines); do
        ./build.sh --platform linux/arm64 --tensorflow "$line" &&
            TEST_LINE=$line-arm64 TEST_IMAGE=${IMAGE%:*}:${line/#$DEFAULT_LINE/latest}-arm64 \
                ring "line-$line-arm64" tests/cluster/test_image.py tests/cluster/test_cluster_arm64.py || status=$?
    done
    return $status
}

# The kernel hands programs for ARM to an emulator, in containers, too.
get_emulator() {
    local formats=/proc/sys/fs/binfmt_misc
    [[ ! -e $formats/qemu-aarch64 ]] || return 0
    if ! may_install || ! apt_install qemu-user-static binfmt-support; then
        say 'images for ARM take an emulator here: as root on Debian, apt-get install qemu-user-static binfmt-support'
        return 1
    fi
    [[ -e $formats/register ]] || mount -t binfmt_misc none "$formats"
    update-binfmts --enable qemu-aarch64
}

zoo_ring() {
    local line image status=0
    for line in $(lines); do
        image=${IMAGE%:*}:${line/#$DEFAULT_LINE/latest}
        ./build.sh --tensorflow "$line" && TEST_LINE=$line TEST_IMAGE=$image ring "zoo-$line" tests/zoo || status=$?
    done
    return $status
}

# What tests/gpu/on_gpu.sh runs on a GPU, on CPUs.
gpu_ring() {
    local line
    if [[ -n $why_no_docker ]]; then
        "$VENV/bin/python" tests/gpu run --cpu
        return
    fi
    for line in $(lines); do
        ./build.sh --tensorflow "$line" --gpu &&
            docker run --rm --init --network none --shm-size 1g --label "$TEST_LABEL" --volume "$HERE:/checkout:ro" \
                "${IMAGE%:*}:$line-gpu" python /checkout/tests/gpu run --cpu --image "$line" || return
    done
}

# covered VARIABLE COMMAND...: runs it; with --all, the processes that hear of this variable count their branches. That
# takes as much time as many of the tests themselves.
covered() {
    if [[ $all == yes ]]; then export "$1=$HERE/pyproject.toml"; fi
    "${@:2}"
}

# Of branches, by the unit ring and a part of the local one: which files are covered least, and all together.
show_coverage() {
    local status=0
    "$VENV/bin/python" -m coverage combine -q
    "$VENV/bin/python" -m coverage report --sort cover >"$scratch/covered" || status=$?
    head -n 12 "$scratch/covered"
    grep -E '^(TOTAL|Coverage failure)' "$scratch/covered"
    return $status
}

build_image() {
    need debootstrap debootstrap || true # only where the base image cannot be pulled; build.sh says if it is missed
    ./build.sh
}

budget() { "$VENV/bin/python" tests/budget.py "$@"; }

# What is printed at the end of a run: its costs, which only a default run is judged by; the lines of each part; and what
# is put on record.
last_words() {
    local is_default=no passed
    if [[ $all == no && -z $why_no_docker ]] && ((${#rings[@]} == 0 && ${#pytest_arguments[@]} == 0)); then is_default=yes; fi
    say 'costs' && budget judge $$ "$containers_before" || [[ $is_default == no ]] || failures=$((failures + 1))
    say 'lines of Python' && budget lines
    if ((failures == 0 && ${#pytest_arguments[@]} == 0)) && [[ -s $scratch/passed ]]; then
        mapfile -t passed <"$scratch/passed"
        budget passed "${passed[@]}"
        echo 'tests/full_run.json has this run on record'
    fi
}

# The rings cluster and sdk, as soon as the image is there.
container_rings() {
    local sdk_is_ready=no
    export TEST_IMAGE=$IMAGE
    if ! finish image; then
        why_no_docker='the image could not be built'
        left_out 'cluster, sdk, benchmarks and lines' "$why_no_docker"
        return
    fi
    if asked_for sdk && finish environments; then sdk_is_ready=yes; fi
    # Both generations of compose: Debian's, and Docker's own.
    need docker-compose docker-compose && step compose tests/get_compose.sh ||
        left_out 'cluster, compose' 'docker-compose 1.29 (Debian) or docker compose v2 could not be had'
    # Beside the others: its jobs come one after the other, and an SDK thinks for long.
    if [[ $sdk_is_ready == yes ]]; then begin sdk ring sdk tests/sdk; fi
    if asked_for cluster; then
        if [[ $all == yes ]]; then
            ((EUID == 0)) && need linux.uml user-mode-linux && need ganesha.nfsd nfs-ganesha nfs-ganesha-vfs &&
                need modprobe kmod && need ip iproute2 ||
                left_out 'cluster, NFS' 'it takes root, User-mode Linux and nfs-ganesha (on Debian they would be installed)'
        fi
        # While the hosts of one job wait, those of another import TensorFlow.
        step cluster ring cluster tests/cluster -n 4 --dist loadfile --no-loadscope-reorder || true
    fi
    if [[ -n ${running[sdk]-} ]]; then finish sdk || true; fi
}

scratch='' line='' why_line='' containers_before=0
main() {
    read_arguments "$@"
    cd "$HERE"
    exec </dev/null
    # With it, each of the thousands of processes that the tests start would compile our modules again.
    unset PYTHONDONTWRITEBYTECODE
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    scratch=$(mktemp -d)
    export TEST_LABEL=sagemaker-tf-entrypoint.tests.${scratch##*.}
    make_venv
    containers_before=$(budget containers)

    # The image is built while what needs no containers runs.
    if ! (asked_for cluster || asked_for sdk || asked_for benchmarks || asked_for lines || by_name arm64 || by_name zoo || by_name gpu); then
        why_no_docker='not asked for'
    elif get_docker; then
        begin image build_image
        # Before the image is there, as it waits for the network and disks.
        if asked_for sdk; then begin environments tests/sdk/make_environments.sh; fi
    else
        left_out 'cluster, sdk, benchmarks, lines and arm64' "$why_no_docker"
    fi
    if ((${#rings[@]} == 0)); then
        begin site site # beside mypy, which takes most of the time, on one processor
        step check check || true
        finish site || true
    fi
    export COVERAGE_FILE=$scratch/coverage
    if asked_for local; then need chromium chromium || true; fi # for the report's page; tests that lack it say so
    if asked_for unit; then
        step unit covered COVERAGE_PROCESS_START ring unit tests/unit -n 2 --dist worksteal || true
    fi
    if asked_for local; then
        need mpirun openmpi-bin && need ssh-keygen openssh-client && need sshd openssh-server ||
            left_out 'local, mpi' 'Open MPI and an ssh daemon are not here (as root on Debian they would be installed)'
        ((EUID == 0)) && need ip iproute2 && need nsenter util-linux ||
            left_out 'local, namespaces' 'these take root, and the commands ip and nsenter'
        # Its tests wait for much of their time, and each process collects them all. A test at a time, those that share
        # something together (xdist_group).
        step local covered TEST_COVERAGE \
            ring local tests/local --ignore "$TABLE" -n 7 --dist loadgroup --no-loadscope-reorder || true
    fi
    if [[ $all == yes ]] && asked_for unit && asked_for local && ((${#pytest_arguments[@]} == 0)); then
        step coverage show_coverage || true
    fi
    if [[ -z $why_no_docker ]]; then container_rings; fi
    # Beside the table, as it waits for most of its time. It has no tests to choose from.
    if asked_for benchmarks && [[ -z $why_no_docker ]] && ((${#pytest_arguments[@]} == 0)); then
        if ((EUID == 0)); then
            begin benchmarks "$VENV/bin/python" -m benchmarks.side_by_side --quick
        else
            left_out benchmarks 'these take root, to read control groups'
        fi
    fi
    # These have bounds of time: nothing that takes much of a core runs beside them.
    if asked_for local; then
        step 'local, outcome table' ring table "$TABLE" || true
        # Random jobs, the same each time: what others find must not refuse a change that is not to blame.
        if ((${#pytest_arguments[@]} == 0)); then
            step chaos "$VENV/bin/python" -m benchmarks.chaos --seed 1 --minutes 2 --jobs 25 --at-once 6 || true
        fi
    fi
    if [[ -n ${running[benchmarks]-} ]]; then finish benchmarks || true; fi

    if asked_for lines && [[ -z $why_no_docker ]]; then
        for line in $(other_lines); do
            if by_name lines; then
                step "line $line" line_ring "$line" || true
            else
                why_line=$(budget line "$line") || true
                summary+=("line $line: not run (${why_line:-it has passed on these pins}); tests/run.sh --ring lines")
            fi
        done
    fi

    if by_name arm64 && [[ -z $why_no_docker ]]; then step arm64 arm64_ring || true; fi
    if by_name zoo && [[ -z $why_no_docker ]]; then step zoo zoo_ring || true; fi
    if by_name gpu; then step gpu gpu_ring || true; fi

    say summary
    printf '%s\n' "${summary[@]}"
    last_words
    ((failures == 0))
}

# Where whoever started us ignores SIGINT, as a shell does for what it runs in the background, so would all that we start.
if [[ $(trap -p INT) == *"''"* ]]; then exec env --default-signal=INT "$0" "$@"; fi
main "$@"
