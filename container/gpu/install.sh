# Install NVIDIA's libraries and what compiles Horovod. The Dockerfile runs this in an image for GPUs, before TensorFlow.

# The libraries become two layers of the image, /nvidia/1 and /nvidia/2, which hosts pull side by side. During the build,
# links show them in /opt/venv.
site=/opt/venv/lib/python3.11/site-packages
pip install --no-deps --target /nvidia/2 -r /pins/gpu/libraries.txt
mkdir /nvidia/1/nvidia
for each in cublas nccl; do # these two look for no library in a sibling folder
    mv "/nvidia/2/nvidia/$each" /nvidia/1/nvidia/
    ln -s "/nvidia/1/nvidia/$each" /nvidia/2/nvidia/
done
# TensorFlow 2.21 opens cuSOLVER from a library that has cuSPARSE's folder in its path, and not cuSOLVER's. Without this link
# TensorFlow uses no GPU at all, and trains on the CPU.
ln -s ../../cusolver/lib/libcusolver.so.11 /nvidia/2/nvidia/cusparse/lib/
# CUDA 11's cuDNN and cuBLAS open libnvrtc.so, only by this name and only in their own folders. Without it, the first
# convolution on an H200 ended the process.
if [[ -e /nvidia/2/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2 ]]; then
    ln -s /nvidia/2/nvidia/cuda_nvrtc /nvidia/1/nvidia/
    for each in /nvidia/2/nvidia/cudnn /nvidia/1/nvidia/cublas; do
        ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 "$each/lib/libnvrtc.so"
        ln -s ../../cuda_nvrtc/lib/libnvrtc-builtins.so.11.8 "$each/lib/"
    done
fi
ln -s /nvidia/2/* "$site/"

# Make a CUDA in one folder, as Clang expects it, from the wheels. Clang is in Debian's `main`. Debian's nvcc is of CUDA 11.8
# only, is not free, and comes with all of CUDA.
apt-get update -q
apt-get install -q -y --no-install-recommends clang-19
pip install --no-deps --target /cuda/tools -r /pins/gpu/tools.txt
mkdir -p /cuda/bin /cuda/include /cuda/lib64
for each in "$site"/nvidia/{cuda_runtime,cuda_nvcc,curand,nccl} /cuda/tools/nvidia/cuda_cccl; do
    cp -r "$each/include/." /cuda/include/
done
ln -s "$site/nvidia/cuda_nvcc/nvvm" /cuda/nvvm
ln -s "$site/nvidia/cuda_nvcc/bin/ptxas" /cuda/bin/
install -m 755 /pins/gpu/fatbinary /cuda/bin/
# CMake looks for NCCL by this name.
ln -s libnccl.so.2 "$site/nvidia/nccl/lib/libnccl.so"
