# A stand-in for AWS's image of TensorFlow 2.21 on CPUs (aws/deep-learning-containers, docker/tensorflow/2.21/Dockerfile.cpu):
# its versions, folders, variables, wrapper of mpirun, keys and ENTRYPOINT, as far as jobs meet them. Amazon Linux 2023 is
# Ubuntu 24.04 here, with the same Python 3.12, and Open MPI 4.1.6 for 4.1.8. make_aws.sh builds it.
ARG BASE
FROM ${BASE}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        ca-certificates gcc jq libc6-dev openmpi-bin openssh-client openssh-server python3 python3-dev python3-venv && \
    rm -rf /var/lib/apt/lists/*

ENV OPEN_MPI_PATH=/opt/amazon/openmpi \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PYTHONIOENCODING=UTF-8 LANG=C.UTF-8 LC_ALL=C.UTF-8 \
    KMP_AFFINITY="granularity=fine,compact,1,0" KMP_BLOCKTIME=1 KMP_SETTINGS=0 TF_AUTOTUNE_THRESHOLD=2 DLC_CONTAINER_TYPE=training
COPY ca.pem /build/
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:/opt/amazon/openmpi/bin:${PATH} LD_LIBRARY_PATH=/opt/amazon/openmpi/lib:/usr/local/lib:
RUN if [ -s /build/ca.pem ]; then export PIP_CERT=/build/ca.pem; fi && \
    pip install -q --no-cache-dir tensorflow-cpu==2.21.0 keras==3.15.1 numpy==2.4.6 protobuf==6.33.6 h5py==3.14.0 mpi4py==4.1.1 \
        flask==3.1.3 sagemaker-training==5.1.1 sagemaker-tensorflow-training==20.4.1

# Called by its path, Open MPI tells orted where it lies, as AWS's is built to do always.
RUN mkdir -p /opt/amazon/openmpi/bin && cd /opt/amazon/openmpi/bin && \
    printf '#!/bin/sh\nexec /usr/bin/orterun "$@"\n' > mpirun.real && \
    printf '#!/bin/bash\nmpirun.real --allow-run-as-root "$@"\n' > mpirun && chmod 755 mpirun mpirun.real && \
    printf 'hwloc_base_binding_policy = none\nrmaps_base_mapping_policy = slot\n' >> /etc/openmpi/openmpi-mca-params.conf
RUN mkdir -p /run/sshd /root/.ssh && ssh-keygen -A && ssh-keygen -q -t rsa -N '' -f /root/.ssh/id_rsa && \
    cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys && printf 'Host *\n  StrictHostKeyChecking no\n' >> /root/.ssh/config && \
    echo '    StrictHostKeyChecking no' >> /etc/ssh/ssh_config && mkdir -p /opt/ml/input/data /opt/ml/model /opt/ml/output /opt/ml/code && \
    printf '#!/bin/bash\nset -e\nexec "$@"\n' > /usr/local/bin/entrypoint.sh && echo 'sleep 60 # telemetry' >> /root/.bashrc

# What AWS's image does not have: Keras 2. By its name it wants `tensorflow`, beside tensorflow-cpu.
RUN if [ -s /build/ca.pem ]; then export PIP_CERT=/build/ca.pem; fi && pip install -q --no-cache-dir --no-deps tf-keras==2.21.0

ENV SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main
EXPOSE 22
WORKDIR /workspace
ENTRYPOINT ["bash", "-m", "/usr/local/bin/entrypoint.sh"]
CMD ["/bin/bash"]
