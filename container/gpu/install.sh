# What the Dockerfile runs in an image for GPUs before TensorFlow is installed: NVIDIA's libraries, and what compiles Horovod.

# The libraries become two layers of the image, which are pulled side by side: /nvidia/1 and /nvidia/2. Until then they are
# seen in /opt/venv by links.
site=/opt/venv/lib/python3.11/site-packages
pip install --no-deps --target /nvidia/2 -r /pins/gpu/libraries.txt
mkdir /nvidia/1/nvidia
for each in cublas nccl; do # these look for no library beside their own folder
    mv "/nvidia/2/nvidia/$each" /nvidia/1/nvidia/
    ln -s "/nvidia/1/nvidia/$each" /nvidia/2/nvidia/
done
# TensorFlow 2.21 opens cuSOLVER from a library that has cuSPARSE's folder in its path and not cuSOLVER's; without it, it uses
# no GPU at all, and trains on.
ln -s ../../cusolver/lib/libcusolver.so.11 /nvidia/2/nvidia/cusparse/lib/
# CUDA 11's cuDNN and cuBLAS open libnvrtc.so, by no other name and beside themselves only; without it, the first convolution
# on an H200 ended the process.
if [[ -e /nvidia/2/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2 ]]; then
    ln -s /nvidia/2/nvidia/cuda_nvrtc /nvidia/1/nvidia/
    for each in /nvidia/2/nvidia/cudnn /nvidia/1/nvidia/cublas; do
        ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 "$each/lib/libnvrtc.so"
        ln -s ../../cuda_nvrtc/lib/libnvrtc-builtins.so.11.8 "$each/lib/"
    done
fi
ln -s /nvidia/2/* "$site/"

# A CUDA in one folder, as Clang wants it, made of the wheels. Clang, since Debian has it in `main`, and CUDA's nvcc for 11.8
# only, not free, with all of CUDA.
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
# By this name CMake looks for it.
ln -s libnccl.so.2 "$site/nvidia/nccl/lib/libnccl.so"
