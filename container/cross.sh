#!/bin/sh
# Let an emulated build compile by a compiler of the machine's own processor, some ten times as fast: GCC of the same version,
# for the processor of the image. Programs for both run in one container, since the kernel asks the emulator for some only.
# It takes the place of the compiler that is here, so that whatever calls gcc, g++, as or ld finds it.
#
#     cross.sh amd64       # the processor of the machine that builds, as Debian calls it; nothing is done for the image's own
set -eu

own=${1:-}
if [ -z "$own" ] || [ "$own" = "$(dpkg --print-architecture)" ]; then exit 0; fi

compiler=g++-$(gcc -dumpversion)-$(gcc -dumpmachine | tr _ -)
scratch=$(mktemp -d)
# An apt that knows the other processor only, and of no package that is installed.
cat >"$scratch/apt.conf" <<CONF
APT::Architecture "$own";
APT::Architectures "$own";
Dir::State "$scratch/state";
Dir::State::status "/dev/null";
Dir::Cache "$scratch/cache";
CONF
export APT_CONFIG="$scratch/apt.conf"
mkdir -p "$scratch/state/lists/partial" "$scratch/cache/archives/partial"
apt-get update -q
apt-get install -q -y --no-install-recommends --download-only "$compiler"
# dpkg would refuse it beside the other.
for each in "$scratch"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$each" | tar -x --keep-directory-symlink -C /
done
rm -rf "$scratch"
