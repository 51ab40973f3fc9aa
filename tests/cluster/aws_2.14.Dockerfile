# A stand-in for AWS's image of TensorFlow 2.14 on CPUs (aws/deep-learning-containers, tensorflow/training/docker/2.14/py3 until
# July 2024): Python 3.10 without a venv, Open MPI in /usr/local behind a wrapper, one key for all, no ENTRYPOINT. Ubuntu 20.04
# with a Python of its own is Ubuntu 22.04 here, with Open MPI 4.1.2 for 4.1.6. make_aws.sh builds it.
ARG BASE
FROM ${BASE}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        ca-certificates gcc libc6-dev openmpi-bin openssh-client openssh-server python3 python3-dev python3-pip && \
    rm -rf /var/lib/apt/lists/*

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONIOENCODING=UTF-8 LANG=C.UTF-8 LC_ALL=C.UTF-8 \
    KMP_AFFINITY=granularity=fine,compact,1,0 KMP_BLOCKTIME=1 KMP_SETTINGS=0 PYTHON=python3.10 PIP=pip3 \
    LD_LIBRARY_PATH=/usr/local/openmpi/lib::/usr/local/lib PATH=/usr/local/openmpi/bin/:${PATH}
COPY ca.pem /build/
RUN if [ -s /build/ca.pem ]; then export PIP_CERT=/build/ca.pem; fi && ln -s /usr/bin/python3.10 /usr/local/bin/python && \
    python -m pip install -q --no-cache-dir --upgrade pip 'setuptools<81' && \
    python -m pip install -q --no-cache-dir tensorflow-cpu==2.14.1 'protobuf<4' 'numpy<2' mpi4py==4.1.1 \
        sagemaker-training==4.7.4 sagemaker-tensorflow-training==20.4.1 sagemaker-tensorflow==2.14.0.1.20.0

# Called by its path, Open MPI tells orted where it lies, as AWS's is built to do always.
RUN mkdir -p /usr/local/bin && cd /usr/local/bin && \
    printf '#!/bin/sh\nexec /usr/bin/orterun "$@"\n' > mpirun.real && \
    printf '#!/bin/bash\nmpirun.real --allow-run-as-root "$@"\n' > mpirun && chmod 755 mpirun mpirun.real && \
    printf 'hwloc_base_binding_policy = none\nrmaps_base_mapping_policy = slot\n' >> /etc/openmpi/openmpi-mca-params.conf
RUN mkdir -p /run/sshd /root/.ssh && ssh-keygen -q -t rsa -N '' -f /root/.ssh/id_rsa && \
    cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys && printf 'Host *\n  StrictHostKeyChecking no\n' >> /root/.ssh/config

ENV SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main
CMD ["/bin/bash"]
