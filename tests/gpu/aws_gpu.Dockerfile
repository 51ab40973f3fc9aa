# The stand-in for AWS's image of TensorFlow 2.21 (../cluster/aws_2.21.Dockerfile), with a TensorFlow for GPUs, and CUDA where
# AWS's has it: in a folder that LD_LIBRARY_PATH names. CUDA's libraries are those of PyPI, AWS's are NVIDIA's base image's.
# scikit-learn is for examples/digits.
ARG BASE
FROM ${BASE}
RUN if [ -s /build/ca.pem ]; then export PIP_CERT=/build/ca.pem; fi && \
    pip uninstall -q -y tensorflow-cpu && pip install -q --no-cache-dir 'tensorflow[and-cuda]==2.21.0' scikit-learn && \
    mkdir -p /usr/local/cuda/lib64 && ln -s /opt/venv/lib/python3.12/site-packages/nvidia/*/lib/*.so* /usr/local/cuda/lib64/
ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64:${LD_LIBRARY_PATH}
