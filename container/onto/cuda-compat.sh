# Put the image's libcuda first if the host's driver is older. docker-entrypoint sources this in images that bring a libcuda
# for drivers older than their CUDA. AWS's own ENTRYPOINT, which ours replaces, does the same.
compat=${CUDA_COMPAT:-/usr/local/cuda/compat} driver=${CUDA_DRIVER:-/proc/driver/nvidia/version}
if [ -r "$driver" ] && library=$(readlink "$compat/libcuda.so.1"); then
    driver=$(sed -n 's/.*Kernel Module[^0-9]*\([0-9][0-9.]*\).*/\1/p' "$driver")
    newest=$(printf '%s\n' "$driver" "${library##*libcuda.so.}" | sort -V | tail -n 1)
    if [ -n "$driver" ] && [ "$newest" != "$driver" ]; then
        export LD_LIBRARY_PATH="$compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
fi
unset compat driver library newest
