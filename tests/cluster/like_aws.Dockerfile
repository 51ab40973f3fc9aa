# The image under test without our entrypoint, and with the ways of AWS's Deep Learning Containers: a wrapper before mpirun,
# an Open MPI that says where it lies, one ssh key for everybody, a `train` of sagemaker-training's, a shell as ENTRYPOINT.
ARG IMAGE
FROM ${IMAGE}
RUN cd /opt/venv/bin && rm entrypoint serve && mv /usr/local/bin/docker-entrypoint /tmp/ && rm -r /opt/sagemaker-tf-entrypoint && \
    cd ../lib/python3*/site-packages && rm -r entrypoint sagemaker_tf_data sagemaker_tf_entrypoint-* && \
    # What pip finds must stay as it is: a Flask that our launcher could not use among them.
    rm -r flask waitress boto3 && mkdir flask && echo '__version__ = "2.0.0"' > flask/__init__.py && \
    printf '#!/bin/sh\necho this is the train of the toolkit; exit 3\n' > /opt/venv/bin/train
# Called by its path, Open MPI tells orted where it lies, as AWS's is configured to do always.
RUN rm /usr/bin/mpirun && printf '#!/bin/sh\nexec /usr/bin/orterun "$@"\n' > /usr/bin/mpirun.real && \
    printf '#!/bin/bash\nmpirun.real --mca btl_tcp_if_exclude lo,docker0 --allow-run-as-root "$@"\n' > /usr/bin/mpirun && \
    chmod 755 /usr/bin/mpirun /usr/bin/mpirun.real && \
    printf 'hwloc_base_binding_policy = none\nrmaps_base_mapping_policy = slot\n' >> /etc/openmpi/openmpi-mca-params.conf
RUN mkdir -p /root/.ssh && ssh-keygen -q -t rsa -N '' -f /root/.ssh/id_rsa && ssh-keygen -A && \
    cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys && printf 'Host *\n  StrictHostKeyChecking no\n' >> /root/.ssh/config && \
    echo 'This is no line of sshd_config' >> /etc/ssh/sshd_config && rm -r /run/sshd && passwd -d root && \
    printf '#!/bin/bash\nset -e\neval "$@"\n' > /usr/local/bin/entrypoint.sh && echo 'sleep 60' >> /root/.bashrc
ENV SAGEMAKER_TRAINING_MODULE=sagemaker_tensorflow_container.training:main \
    PIP_USER=1 PIP_CONSTRAINT=/nowhere PYTHONDONTWRITEBYTECODE=1
EXPOSE 22
WORKDIR /workspace
ENTRYPOINT ["bash", "-m", "/usr/local/bin/entrypoint.sh"]
CMD ["/bin/bash"]
