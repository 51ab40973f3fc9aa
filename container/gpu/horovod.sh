# Compile Horovod's kernels, and set where its build finds CUDA and NCCL. The Dockerfile sources this in Horovod's sources.
nvidia=/opt/venv/lib/python3.11/site-packages/nvidia
export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED HOROVOD_NCCL_INCLUDE=/cuda/include HOROVOD_NCCL_LIB=$nvidia/nccl/lib
export HOROVOD_CUDA_INCLUDE=/cuda/include HOROVOD_CUDA_KERNELS=/cuda/kernels.o
export HOROVOD_CUDART="$(echo $nvidia/cuda_runtime/lib/libcudart.so.*)"
# Programs for P100; V100 and T4; A100, A10G and L4; H100. PTX for the GPUs after H100.
clang++-19 -x cuda --cuda-path=/cuda --cuda-gpu-arch=sm_60 --cuda-gpu-arch=sm_70 --cuda-gpu-arch=sm_80 --cuda-gpu-arch=sm_90 \
    --no-cuda-include-ptx=all --cuda-include-ptx=sm_90 -std=c++14 -O3 -fPIC -I. -Wno-unknown-cuda-version \
    -c horovod/common/ops/cuda/cuda_kernels.cu -o $HOROVOD_CUDA_KERNELS
