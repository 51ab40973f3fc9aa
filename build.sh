#!/usr/bin/env bash
# Builds the image, and pushes it where asked to. `main`, at the end, is the story; `./build.sh --help` is the manual.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
readonly NAME=sagemaker-tf-entrypoint
readonly PREFERRED_BASE=debian:bookworm-slim
readonly PULL_SECONDS=60
readonly LINES=container/lines
readonly DEFAULT_LINE=2.14
readonly PYTHON=py311 SYSTEM=debian12 # what the Dockerfile's base brings
# Where the Dockerfile looks for it; git ignores it there.
readonly CA_IN_CONTEXT=ca-bundle.pem
readonly CA_VARIABLES='PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE'

base='' builder=auto ca_bundle='' device=cpu dry_run=no jax=no kind=cpu line='' mirror='' no_cache=no on='' push='' python=''
# SageMaker's training instances are amd64; on an ARM machine docker would choose ARM.
platform=linux/amd64 processor='' push_arm64=no own_base=$NAME-base:bookworm
more_tags=()

usage() {
    cat <<EOF
Usage: ./build.sh [OPTION...]
       ./build.sh --on IMAGE [--python PATH] [OPTION...]

Builds $NAME:latest and $NAME:TENSORFLOW-cpu-$PYTHON-$SYSTEM-VERSION,
TENSORFLOW from $LINES, VERSION from pyproject.toml.
The last line printed has the image's tags and its sizes: on disk, and in a registry (estimated from a sample).

With --on, puts the entrypoint onto an image of yours, or onto one of AWS's Deep Learning Containers, and prints what
it has for each mode. Its Python, TensorFlow, CUDA and Open MPI stay as they are. The new image is called
$NAME:VERSION-on-IMAGE, and any --tag. It is built by container/onto.Dockerfile.

  --tensorflow LINE   one of $(lines | sed 's/ /, /g'), the folders of $LINES; default: $DEFAULT_LINE. Others are tagged LINE
                      instead of latest
  --gpu               with CUDA, cuDNN and NCCL, and Horovod compiled for them; 5 GB and more. It is called LINE-gpu and
                      TENSORFLOW-gpu-$PYTHON-CUDA-$SYSTEM-VERSION, CUDA like cu129
  --platform WHICH    linux/amd64 (the default), which SageMaker's training instances are, whatever this machine is; or
                      linux/arm64, for ARM laptops and servers. That is for CPUs, is called latest-arm64 or LINE-arm64 and
                      TENSORFLOW-cpu-...-arm64, and lacks SageMaker's operator for Pipe mode, which has no build for ARM.
                      A machine with the other processor needs emulation, and takes an hour
  --jax               with jax, for mode jax. The image of TensorFlow 2.21 for CPUs has it anyway; that for GPUs gets jax's
                      plugin for CUDA 12, 0.5 GB more, and is called LINE-gpu-jax and TENSORFLOW-gpu-jax-$PYTHON-CUDA-...
  --on IMAGE          an image of the platform with Python 3.10 or later; it is pulled if it is not on this machine
  --python PATH       its Python that trains. Without it, the first that has TensorFlow of: python, python3, /opt/venv's
                      and /opt/conda's, ...; else the first
  --tag NAME[:TAG]    one more tag for the image; may be repeated
  --push ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME[:TAG]
                      push to this ECR repository after the build: create the repository if it does not exist, log
                      in, tag, push. Without :TAG, the longer one of ours. Needs the aws command, or python3 with boto3.
  --push-arm64        let --push push an image for linux/arm64, which no training instance for CPUs runs
  --base IMAGE        build on this image: Debian 12 (bookworm), with apt. Without it, the first of these that exists:
                      $PREFERRED_BASE on this machine; $own_base, made before;
                      $PREFERRED_BASE pulled (given up after ${PULL_SECONDS} s);
                      $own_base, made now with debootstrap (needs root).
  --mirror URL        the Debian mirror for debootstrap; without it, debootstrap's own choice
  --ca-bundle FILE    trust these certificates (PEM) while building, for archives behind a private CA. Nothing of it is in
                      the finished image. Without it: ./$CA_IN_CONTEXT, else the first of these variables that names a file:
                      $CA_VARIABLES
  --builder WHICH     legacy or buildkit; auto (the default) leaves the choice to docker
  --no-cache          repeat every step, to get Debian's latest security updates
  --dry-run           print the commands and run none that changes anything
  --help              print this

HTTP_PROXY, HTTPS_PROXY, NO_PROXY (or in small letters) and PIP_INDEX_URL are handed to the build where they are set; they
are not in the finished image. The base that debootstrap made stays: docker rmi $own_base (for ARM
$own_base-arm64) to make it again.
A first build takes about ten minutes, most of it for compiling Horovod; after a change in entrypoint/, seconds.
EOF
}

# die WHAT [WHAT TO DO...]: an error and the way out, one line each, on stderr.
die() {
    printf 'build.sh: %s\n' "$1" >&2
    shift
    (($# == 0)) || printf '          %s\n' "$@" >&2
    exit 1
}

say() { printf '== %s\n' "$*"; }

# run COMMAND...: the command, or its text in a dry run.
run() {
    if [[ $dry_run == yes ]]; then
        printf '+'
        printf ' %q' "$@"
        printf '\n'
    else
        "$@"
    fi
}

# ---- what is asked for ------------------------------------------------------------------------------------------------

read_arguments() {
    local option
    while (($# > 0)); do
        option=$1
        case $option in
            --no-cache) no_cache=yes && shift && continue ;;
            --gpu) device=gpu && shift && continue ;;
            --push-arm64) push_arm64=yes && shift && continue ;;
            --jax) jax=yes && shift && continue ;;
            --dry-run) dry_run=yes && shift && continue ;;
            -h | --help) usage && exit 0 ;;
            --tag | --push | --base | --mirror | --ca-bundle | --builder | --on | --platform | --python | --tensorflow) ;;
            *) die "Unknown argument '$option'." "./build.sh --help lists them all." ;;
        esac
        [[ -n ${2-} ]] || die "$option lacks its value." "./build.sh --help shows what it takes."
        case $option in
            --tag) more_tags+=("$2") ;;
            --push) push=$2 ;;
            --base) base=$2 ;;
            --mirror) mirror=$2 ;;
            # Relative to where the caller stands, and main leaves there.
            --ca-bundle) ca_bundle=$(cd "$(dirname "$2")" 2>/dev/null && pwd)/$(basename "$2") ;;
            --builder) builder=$2 ;;
            --on) on=$2 ;;
            --platform) platform=$2 ;;
            --tensorflow) line=$2 ;;
            --python) python=$2 ;;
        esac
        shift 2
    done
    [[ -z $on || -z $base$mirror$line${device#cpu}${jax#no} ]] ||
        die "--on takes the image as it is; --base, --mirror, --tensorflow, --gpu and --jax are for our own image."
    [[ -n $on || -z $python ]] || die "--python is for --on IMAGE only: it is that image's Python."
    case $platform in
        linux/amd64) ;;
        linux/arm64) own_base+=-arm64 ;;
        *) die "Found --platform '$platform'; wanted linux/amd64 or linux/arm64." ;;
    esac
    [[ $platform$device != linux/arm64gpu ]] || die "--platform linux/arm64 is for CPUs; --gpu has no TensorFlow for it."
    [[ -z $push || $platform != linux/arm64 || $push_arm64 == yes ]] ||
        die "--push: SageMaker's training instances are linux/amd64; a job with an image for linux/arm64 ends with 'exec format error'." \
            "Leave out --platform to build and push the image for SageMaker." \
            "If the image is for other machines, add --push-arm64."
    export DOCKER_DEFAULT_PLATFORM=$platform
    case $builder in
        auto) ;;
        legacy) export DOCKER_BUILDKIT=0 ;;
        buildkit) export DOCKER_BUILDKIT=1 ;;
        *) die "Found --builder '$builder'; wanted legacy, buildkit or auto." ;;
    esac
}

lines() { ls "$HERE/$LINES" | grep '^[0-9]' | paste -sd ' ' -; }

# Sets: line, version, tensorflow, tag, kind.
read_versions() {
    local pins cuda
    line=${line:-$DEFAULT_LINE} pins=$LINES/$line/requirements.txt
    [[ -f $pins ]] || die "--tensorflow: found '$line'; wanted one of $(lines)."
    version=$(sed -n 's/^version = "\([^"]*\)".*/\1/p' pyproject.toml | head -n 1)
    [[ -n $version ]] || die "Found no line  version = \"...\"  in $HERE/pyproject.toml." "The image's tag is made from it."
    tensorflow=$(sed -nE 's/^tensorflow-cpu==([^;]*).*/\1/p' "$pins")
    [[ -n $tensorflow ]] || die "Found no line  tensorflow-cpu==...  in $HERE/$pins." "The image's tag is made from it."
    [[ $jax == no ]] || grep -q '^jax==' "$pins" || die "--jax: TensorFlow $line has no jax; wanted --tensorflow 2.21."
    tag=$tensorflow-cpu-$PYTHON-$SYSTEM-$version # in the shape of AWS's
    if [[ $device == gpu ]]; then
        [[ -f ${pins%/*}/gpu.txt ]] || die "--gpu: TensorFlow $line has no image for GPUs: there is no $HERE/${pins%/*}/gpu.txt."
        cuda=$(sed -nE 's/^nvidia-cuda-runtime-cu[0-9]+==([0-9]+)\.([0-9]+)\..*/cu\1\2/p' "${pins%/*}/gpu.txt")
        [[ -n $cuda ]] || die "Found no line  nvidia-cuda-runtime-cu...==...  in $HERE/${pins%/*}/gpu.txt." "The image's tag is made from it."
        kind=gpu
        if [[ $jax == yes ]]; then kind=gpu-jax; fi
        tag=$tensorflow-$kind-$PYTHON-$cuda-$SYSTEM-$version
    fi
    if [[ -n $on ]]; then
        tag=${on%@*}
        tag=$version-on-$(printf '%s' "${tag##*/}" | tr -c 'A-Za-z0-9_.-' '-')
        tag=${tag:0:122}
    fi
    [[ $platform == linux/amd64 ]] || tag+=-arm64
}

# Sets, from --push: account, region, repository, push_tag. Strict, since a name that is nearly right is pushed elsewhere.
read_push_name() {
    local part='[a-z0-9]+([._-][a-z0-9]+)*'
    local registry='([0-9]{12})\.dkr\.ecr\.([a-z]{2}(-[a-z]+)+-[0-9]+)\.amazonaws\.com(\.cn)?'
    [[ $push =~ ^($registry)/($part(/$part)*)(:([A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?$ ]] ||
        die "--push: found '$push'." \
            "Wanted ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME[:TAG]: an account of 12 digits, a region like eu-west-1," \
            "a name of small letters, digits and single . _ - between them, parts parted by /." \
            "For example 123456789012.dkr.ecr.eu-west-1.amazonaws.com/$NAME:$tag"
    registry=${BASH_REMATCH[1]} account=${BASH_REMATCH[2]} region=${BASH_REMATCH[3]} repository=${BASH_REMATCH[6]}
    push_tag=${BASH_REMATCH[11]:-$tag}
    ((${#repository} >= 2 && ${#repository} <= 256)) ||
        die "--push: found the repository name '$repository' of ${#repository} characters; ECR wants 2 to 256."
    push_to=$registry/$repository:$push_tag
}

# ---- what is here -----------------------------------------------------------------------------------------------------

# Sets: processor, of the machine that builds.
need_docker() {
    local problem solution
    if ! command -v docker >/dev/null; then
        problem='There is no docker command on the PATH.'
        solution='Install Docker (on Debian: apt-get install docker.io).'
    elif ! processor=$(docker version --format '{{.Server.Arch}}' 2>&1); then
        problem="docker is here, but its daemon (${DOCKER_HOST:-the usual one}) does not answer: ${processor##*$'\n'}"
        processor=''
        solution='Start it (systemctl start docker, or dockerd as root), and see that you may use it (group docker, or root).'
    else
        return 0
    fi
    [[ $dry_run == yes ]] || die "$problem" "$solution"
    printf '# %s The build would stop here. %s\n' "$problem" "$solution"
}

# On this machine, and for the platform. A tag holds one platform, unless docker stores images with containerd.
is_local() { [[ $(platform_of "$1") == "$platform" ]]; }

platform_of() {
    docker image inspect --platform "$platform" --format '{{.Os}}/{{.Architecture}}' "$1" 2>/dev/null ||
        docker image inspect --format '{{.Os}}/{{.Architecture}}' "$1" 2>/dev/null
}

# timeout is not on every system (macOS).
pull() {
    if command -v timeout >/dev/null; then
        run timeout "$PULL_SECONDS" docker pull "$1"
    else
        run docker pull "$1"
    fi
}

# Sets: base.
choose_base() {
    if [[ -n $base ]]; then
        say "base: $base, as asked"
    elif is_local "$PREFERRED_BASE"; then
        base=$PREFERRED_BASE
        say "base: $base, on this machine"
    elif is_local "$own_base"; then
        base=$own_base
        say "base: $base, made before"
    elif pull "$PREFERRED_BASE" && [[ $dry_run == no ]]; then
        base=$PREFERRED_BASE
        say "base: $base, pulled"
    else
        [[ $dry_run == no ]] || printf '# and if that fails:\n'
        say "base: $PREFERRED_BASE is not here and cannot be pulled; making $own_base with debootstrap"
        make_base
        base=$own_base
    fi
}

# An image of the user's: here or pulled, and one that it can be put onto.
check_on() {
    local found user entry
    if ! docker image inspect "$on" >/dev/null 2>&1; then
        run docker pull "$on" || die "--on: found no image '$on' on this machine, and it could not be pulled; the reason is above." \
            "See that the name is right (docker image ls), and that you are logged in where it lies. For AWS's images:" \
            "aws ecr get-login-password --region REGION | docker login --username AWS --password-stdin ${on%%/*}"
        [[ $dry_run == no ]] || return 0
    fi
    found=$(platform_of "$on")
    [[ $found == "$platform" ]] ||
        die "--on: found '$on' to be for $found; wanted $platform. SageMaker's training instances are linux/amd64." \
            "Pull or build it for that: docker pull --platform $platform $on"
    entry=$(docker image inspect --format '{{json .Config.Entrypoint}}' "$on")
    user=$(docker image inspect --format '{{.Config.User}}' "$on")
    say "on: $on; our entrypoint takes the place of its own (${entry/#null/none})"
    [[ -z $user || $user == root || $user == 0 || $user == 0:* || $user == root:* ]] ||
        say "note: '$on' runs as user $user, and so will the job. SageMaker's folders belong to root: does $user write to them?"
}

# Docker runs programs of another processor only where the kernel hands them to an emulator.
check_emulation() {
    local reply
    [[ $dry_run == no && linux/$processor != "$platform" ]] || return 0
    reply=$(docker run --rm --network none --entrypoint true "$1" 2>&1) && return 0
    die "Docker cannot run $1 for $platform on this machine: $reply" \
        "If that says 'exec format error', install an emulator: on Debian, apt-get install qemu-user-static binfmt-support;" \
        "Docker Desktop brings one."
}

make_base() {
    local scratch=/tmp/base main_mirror rootfs
    if [[ $dry_run == no ]]; then
        command -v debootstrap >/dev/null ||
            die "There is no base image: $PREFERRED_BASE cannot be pulled, and debootstrap, which would make one, is not here." \
                "Install debootstrap, or name an image of Debian 12 with --base IMAGE."
        ((EUID == 0)) ||
            die "There is no base image: $PREFERRED_BASE cannot be pulled, and debootstrap must be root to make one; this is uid $EUID." \
                "Run build.sh as root once (later runs use $own_base again), or name an image of Debian 12 with --base IMAGE."
        [[ $platform == linux/amd64 || $(uname -m) == aarch64 || -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]] ||
            die "There is no base image: $PREFERRED_BASE cannot be pulled, and to make one for $platform here takes an emulator." \
                "Install it: on Debian, apt-get install qemu-user-static binfmt-support. Or name an image with --base IMAGE."
        scratch=$(mktemp -d)
        leftovers+=("$scratch")
    fi
    rootfs=$scratch/rootfs
    run debootstrap --arch="${platform#linux/}" --variant=minbase bookworm "$rootfs" ${mirror:+"$mirror"}
    if [[ $dry_run == yes ]]; then
        printf '+ (bookworm-updates and bookworm-security added to its sources.list)\n'
        printf '+ tar -C %q -cf %q .\n' "$rootfs" "$scratch/context/rootfs.tar"
        printf '+ docker build --tag %q %q\n' "$own_base" "$scratch/context"
        return
    fi
    # debootstrap knows the release only; the updates lie beside it on every full mirror.
    main_mirror=$(awk '$1 == "deb" {print $2; exit}' "$rootfs/etc/apt/sources.list")
    main_mirror=${main_mirror%/}
    {
        printf 'deb %s bookworm main\n' "$main_mirror"
        printf 'deb %s bookworm-updates main\n' "$main_mirror"
        printf 'deb %s-security bookworm-security main\n' "$main_mirror"
    } >"$rootfs/etc/apt/sources.list"
    # debootstrap copies the resolver and the name of this machine; docker gives every container its own.
    mkdir "$scratch/context"
    tar -C "$rootfs" --numeric-owner -cf "$scratch/context/rootfs.tar" \
        --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' --exclude='./tmp/*' \
        --exclude='./etc/resolv.conf' --exclude='./etc/hostname' --exclude='./etc/machine-id' \
        --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' .
    # By a build, as `docker import` of older daemons calls each image amd64.
    printf '%s\n' 'FROM scratch' 'ADD rootfs.tar /' 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
        'CMD ["bash"]' >"$scratch/context/Dockerfile"
    docker build --quiet --tag "$own_base" "$scratch/context"
}

# The bundle must lie in the build context while docker reads it.
lay_out_ca_bundle() {
    local variable from=--ca-bundle
    if [[ -z $ca_bundle && -e $CA_IN_CONTEXT ]]; then
        ca_bundle=$HERE/$CA_IN_CONTEXT from="it lies here"
    fi
    if [[ -z $ca_bundle ]]; then
        for variable in $CA_VARIABLES; do
            if [[ -f ${!variable-} ]]; then
                ca_bundle=${!variable} from=$variable
                break
            fi
        done
    fi
    [[ -n $ca_bundle ]] || return 0
    grep -q -e '-----BEGIN CERTIFICATE-----' "$ca_bundle" 2>/dev/null ||
        die "The CA bundle '$ca_bundle' ($from) is not a readable file with certificates in PEM form." \
            "Name another with --ca-bundle FILE."
    say "CA bundle, for the build only: $ca_bundle ($from)"
    if [[ ! -e $CA_IN_CONTEXT ]]; then
        [[ $dry_run == yes ]] || leftovers+=("$HERE/$CA_IN_CONTEXT")
        run cp "$ca_bundle" "$CA_IN_CONTEXT"
    elif ! cmp -s "$ca_bundle" "$CA_IN_CONTEXT"; then
        die "Found another bundle in $HERE/$CA_IN_CONTEXT than the wanted $ca_bundle." \
            "Remove it, if neither a build that is still running nor you laid it there."
    fi
}

leftovers=()
remove_leftovers() {
    local options=-rf
    ((${#leftovers[@]} == 0)) && return
    if [[ $(uname) == Linux ]]; then options+=' --one-file-system'; fi # which macOS lacks
    rm $options "${leftovers[@]}"
}

# ---- what is done -----------------------------------------------------------------------------------------------------

build() {
    # The older builder keeps the container of a step that failed; BuildKit, which keeps none, accepts the option.
    local command=(docker build --force-rm) variable each
    if [[ -n $on ]]; then
        command+=(--file container/onto.Dockerfile --build-arg "IMAGE=$on" ${python:+--build-arg "PYTHON=$python"})
    else
        command+=(--build-arg "BASE_IMAGE=$base" --build-arg "TENSORFLOW=$line" --build-arg "DEVICE=$device")
        [[ $kind != gpu-jax ]] || command+=(--build-arg JAX=yes)
        command+=(--build-arg "VERSION=$version" --build-arg "REVISION=$(revision)")
        [[ linux/$processor == "$platform" || -z $processor ]] || command+=(--build-arg "BUILDARCH=$processor")
    fi
    # A name without a value: docker takes the value from the environment, and it is not on the screen.
    for variable in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy PIP_INDEX_URL; do
        [[ -z ${!variable-} ]] || command+=(--build-arg "$variable")
    done
    [[ $no_cache == no ]] || command+=(--no-cache)
    for each in $(tags); do
        command+=(--tag "$each")
    done
    say "building $NAME:$tag"
    run "${command[@]}" .
}

# Of a user's image, there is no latest: it is not ours. Nor is one of those that not everybody wants.
tags() {
    local short=$line
    if [[ $device == gpu ]]; then short+=-$kind; elif [[ $line == "$DEFAULT_LINE" ]]; then short=latest; fi
    [[ $platform == linux/amd64 ]] || short+=-arm64
    if [[ -z $on ]]; then printf '%s\n' "$NAME:$short"; fi
    printf '%s\n' "$NAME:$tag" ${more_tags[@]+"${more_tags[@]}"}
}

# What the image has for each mode: a job that lacks something ends with 78 at its start, and that is known now.
say_what_it_has() {
    say "what $NAME:$tag has for each mode"
    run docker run --rm --network none "$NAME:$tag" entrypoint doctor
}

# The commit, and whether a file that decides what the image does differs from it. Changed pages do not count.
revision() {
    local commit files=(Dockerfile build.sh container entrypoint sagemaker_tf_data pyproject.toml)
    if commit=$(git rev-parse --verify --quiet HEAD 2>/dev/null); then
        [[ -z $(git status --porcelain -- "${files[@]}" 2>/dev/null) ]] || commit+=-modified
        printf '%s' "$commit"
    else
        printf unknown
    fi
}

# Sets: cloud (aws or boto3).
choose_cloud_tool() {
    if command -v aws >/dev/null; then
        cloud=aws
    elif command -v python3 >/dev/null && python3 -c 'import boto3' 2>/dev/null; then
        cloud=boto3
    elif [[ $dry_run == yes ]]; then
        cloud=aws
        printf '# Neither the aws command nor python3 with boto3 is here. The push would stop before the build.\n'
    else
        die "--push: wanted the aws command, or python3 with boto3; neither is here." \
            "Install one (python3 -m pip install boto3), and give it credentials that may push to $repository."
    fi
}

# with_boto3 make-repository|password: for machines without the aws command.
with_boto3() {
    python3 - "$@" "$region" "$account" "$repository" <<'EOF'
import base64, sys
import boto3
what, region, account, repository = sys.argv[1:]
ecr = boto3.client("ecr", region_name=region)
if what == "password":
    token = ecr.get_authorization_token(registryIds=[account])["authorizationData"][0]["authorizationToken"]
    print(base64.b64decode(token).decode().partition(":")[2])
else:
    try:
        ecr.describe_repositories(registryId=account, repositoryNames=[repository])
    except ecr.exceptions.RepositoryNotFoundException:
        ecr.create_repository(registryId=account, repositoryName=repository)
EOF
}

with_aws() {
    local answer where=(--region "$region" --registry-id "$account")
    if [[ $1 == password ]]; then
        aws ecr get-login-password --region "$region"
    elif ! answer=$(aws ecr describe-repositories "${where[@]}" --repository-names "$repository" 2>&1); then
        [[ $answer == *RepositoryNotFoundException* ]] || die "--push: ECR does not show whether the repository $repository exists: $answer"
        aws ecr create-repository "${where[@]}" --repository-name "$repository" >/dev/null
    fi
}

push() {
    local where
    say "pushing $push_to"
    if [[ $dry_run == yes ]]; then
        if [[ $cloud == aws ]]; then
            where="--region $region --registry-id $account"
            printf '+ aws ecr describe-repositories %s --repository-names %s\n' "$where" "$repository"
            printf '# and if it is not there:\n'
            printf '+ aws ecr create-repository %s --repository-name %s\n' "$where" "$repository"
            printf '+ aws ecr get-login-password --region %s' "$region"
        else
            printf '+ python3 (boto3): ecr.describe_repositories, and if %s is not there: ecr.create_repository\n' "$repository"
            printf '+ python3 (boto3): ecr.get_authorization_token'
        fi
        printf ' | docker login --username AWS --password-stdin %s\n' "${push_to%%/*}"
    else
        "with_$cloud" make-repository ||
            die "--push: the repository $repository could not be found or made; the reason is above." \
                "See that the credentials may use ECR of account $account in $region."
        "with_$cloud" password | docker login --username AWS --password-stdin "${push_to%%/*}" ||
            die "--push: no login at ${push_to%%/*}; the reason is above." \
                "See that the credentials may use ECR of account $account in $region."
    fi
    run docker tag "$NAME:$tag" "$push_to"
    run docker push "$push_to"
}

# By the image's Python, which our program `entrypoint` names in its first line: this machine needs none.
compressed() {
    docker run --rm --interactive --network none "$NAME:$tag" \
        sh -c 'exec $(sed -n "1s/^#!//p" "$(command -v entrypoint)") -' <container/compressed.py
}

report() {
    local size each
    if [[ $dry_run == yes ]]; then
        size='nothing was built'
    else
        size=$(docker image inspect --format '{{.Size}}' "$NAME:$tag" | awk '{printf "%.2f GB", $1 / 1e9}')
        size+=$(compressed | awk '{printf ", some %.2f GB compressed", $1 / 1e9}') ||
            say "its compressed size could not be estimated; the reason is above"
    fi
    for each in $(tags) ${push:+"$push_to"}; do
        printf '%s ' "$each"
    done
    printf '(%s)\n' "$size"
}

main() {
    read_arguments "$@"
    cd "$HERE"
    trap remove_leftovers EXIT
    read_versions
    if [[ -n $push ]]; then
        read_push_name
        choose_cloud_tool
    fi
    need_docker
    if [[ -n $on ]]; then check_on; else choose_base; fi
    check_emulation "${on:-$base}"
    lay_out_ca_bundle
    build
    [[ -z $on ]] || say_what_it_has
    [[ -z $push ]] || push
    report
}

main "$@"
