# Sourced by docker-entrypoint, in images that bring a libcuda for drivers that are older than their CUDA: where the host's
# is older, the image's is found first. (What AWS's own ENTRYPOINT does, in whose place ours is.)
compat=${CUDA_COMPAT:-/usr/local/cuda/compat} driver=${CUDA_DRIVER:-/proc/driver/nvidia/version}
if [ -r "$driver" ] && library=$(readlink "$compat/libcuda.so.1"); then
    driver=$(sed -n 's/.*Kernel Module[^0-9]*\([0-9][0-9.]*\).*/\1/p' "$driver")
    newest=$(printf '%s\n' "$driver" "${library##*libcuda.so.}" | sort -V | tail -n 1)
    if [ -n "$driver" ] && [ "$newest" != "$driver" ]; then
        export LD_LIBRARY_PATH="$compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
fi
unset compat driver library newest
