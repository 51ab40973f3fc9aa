# The image SageMaker starts with the word `train` on every host of a job. `./build.sh` builds it; `docker build .` does,
# too, where the base image can be pulled.
#
# Three stages do the work (system, build, package), and the last one is made of nothing but copies out of them. So what
# the work needs (compilers, caches, a CA bundle of your company) cannot reach the image or its history, and a change of
# our own code changes the last layer only: a push sends 3 MB.
#
# No syntax line, no `RUN --mount`, no here-documents: the legacy builder of an old Docker builds this file as BuildKit does.

# Debian 12 for its Python 3.11 and Open MPI 4.1. By tag, not by digest: a rebuild is meant to take Debian's security updates.
ARG BASE_IMAGE=debian:bookworm-slim

# A folder of container/lines. Each stage that wants it has to ask for it.
ARG TENSORFLOW=2.14

# cpu or gpu. What is for GPUs only lies in container/gpu and in gpu.txt of the line; `pins` hands it on, or nothing.
ARG DEVICE=cpu


# ---- debian: the base, and how to reach the archives ----------------------------------------------------------------------
FROM ${BASE_IMAGE} AS debian

# ca-bundle.pem is optional, hence the pattern, beside a file that is always there and seldom changes; build.sh lays it there
# where the archives are behind a private CA. apt and pip are told by their configuration files, since a variable that names a
# missing file would break them.
COPY .dockerignore ca-bundle.pe[m] /build/
RUN if [ -f /build/ca-bundle.pem ]; then \
        echo 'Acquire::https::CAInfo "/build/ca-bundle.pem";' > /etc/apt/apt.conf.d/99build-ca && \
        printf '[global]\ncert = /build/ca-bundle.pem\n' > /etc/pip.conf; \
    fi
# An answer to debconf's questions; of no use to the finished image, and not in it.
ENV DEBIAN_FRONTEND=noninteractive


# ---- system: the root file system of the image ----------------------------------------------------------------------------
FROM debian AS system

# openmpi-bin and the ssh daemon for `mpirun` across hosts; ca-certificates for S3; procps for the person who looks inside;
# libgomp1 for LightGBM and others whose wheels expect it.
RUN apt-get update -q && \
    apt-get install -q -y --no-install-recommends \
        ca-certificates libgomp1 openmpi-bin openssh-client openssh-server procps python3 && \
    # Each host makes its own host key when a job starts. A key in an image is everybody's key.
    rm -f /etc/ssh/ssh_host_* && \
    # For sshd's privilege separation. Debian makes it when the service starts, and no service manager runs here.
    mkdir -p /run/sshd && \
    # Ranks of one host may read each other's memory only where the kernel's ptrace rules let a container do so. Where they do
    # not, each large message writes "Read -1, expected ..., errno = 1" into the log.
    printf '\nbtl_vader_single_copy_mechanism = none\n' >> /etc/openmpi/openmpi-mca-params.conf && \
    # What a container never reads. Copyright files stay: the licences ask for it.
    find /usr/share/doc -type f ! -name copyright -delete && \
    find /usr/share/doc -type l -delete && find /usr/share/doc -type d -empty -delete && \
    rm -rf /usr/share/man /usr/share/info /usr/share/locale /usr/share/lintian /usr/share/openmpi/doc && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* && \
    rm -rf /var/log/* /var/lib/dpkg/*-old && \
    rm -rf /etc/machine-id /var/lib/dbus/machine-id /root/.ssh /root/.cache && \
    rm -rf /build /etc/apt/apt.conf.d/99build-ca /etc/pip.conf && \
    # `train` runs by `python -OO`, and its user may not be able to write bytecode here. 10 MB.
    python3 -OO -m compileall -q -x /test/ /usr/lib/python3.11 && \
    ompi_info --param btl vader --level 3 | grep -q 'single_copy_mechanism.*none' && \
    mpirun --allow-run-as-root --oversubscribe -np 2 true && ssh -V && \
    ssh-keygen -q -t ed25519 -N '' -f /tmp/key && /usr/sbin/sshd -t -h /tmp/key && rm /tmp/key /tmp/key.pub && rm -rf /tmp/*


# ---- pins: locked.txt, cut at its marks, so that each step below is repeated only when its own part changes ---------------
FROM debian AS pins

ARG TENSORFLOW
ARG DEVICE
ARG JAX=no
COPY container/gpu /container/gpu/
COPY container/lines/${TENSORFLOW} /container/line/
# A pin is a line `name==version \\` and, further in, its hashes. Every file is there, an empty one too.
RUN mkdir -p /pins/gpu /pins/horovod /pins/checks /pins/image && cd /container/line && \
    cp check.sh /pins/checks/ && if [ -d patches ]; then cp patches/*.patch /pins/horovod/; fi && \
    if [ "$DEVICE" = gpu ]; then \
        if [ "$JAX" = yes ]; then cat gpu-jax.txt >> gpu.txt && cat gpu-jax-locked.txt >> gpu-locked.txt; fi && \
        cat requirements.txt gpu.txt | sed '/^tensorflow-cpu==/d; /"aarch64"/d' > /pins/image/requirements.txt && \
        cat locked.txt gpu-locked.txt | awk '/^([a-z#]|$)/{out = /^tensorflow-cpu==/} !out' > all.txt && \
        cd /container/gpu && cp install.sh fatbinary /pins/gpu/ && cp horovod.* /pins/horovod/ && cp check.py /pins/checks/; \
    else cp requirements.txt /pins/image/ && cp locked.txt all.txt; fi && \
    cd /pins && touch tools.txt tensorflow.txt horovod.txt mpi4py.txt rest.txt operator.txt && \
    awk '/^# ==== /{part = $4} \
         /^[a-z]/{file = part == "2:" ? "rest" : part == "3:" ? "operator" : part == "4:" ? "tools" : "tensorflow"} \
         /^nvidia-/{file = part == "4:" ? "gpu/tools" : "gpu/libraries"} \
         /^nvidia-ml-py==/{file = "rest"} \
         /^(pip|setuptools|wheel)==/{file = "tools"} /^(horovod|mpi4py)==/{split($1, name, "="); file = name[1]} \
         /^[a-z ]/{print > (file ".txt")}' /container/line/all.txt && \
    # pip leaves out by itself what is marked for another processor; the step of the operator could not.
    if [ "$(uname -m)" != x86_64 ]; then : > operator.txt; fi && \
    grep -c == *.txt; grep -q . horovod.txt


# ---- build: /opt/venv -----------------------------------------------------------------------------------------------------
FROM debian AS build

RUN apt-get update -q && \
    apt-get install -q -y --no-install-recommends \
        binutils ca-certificates cmake g++ libopenmpi-dev make openmpi-bin patch python3-dev python3-venv && \
    mpicxx --version && cmake --version
# The processor of the machine that builds: BuildKit says it, and build.sh where that is another than the image's.
ARG BUILDARCH
COPY container/cross.sh /build/
RUN sh /build/cross.sh "$BUILDARCH"
# For an index of your company. It ends in this stage's history at most, never in the image's.
ARG PIP_INDEX_URL
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

COPY --from=pins /pins/tools.txt /pins/
RUN python3 -m venv /opt/venv && pip install --no-deps -r /pins/tools.txt && pip --version

# Here, it is compiled once for all lines.
COPY --from=pins /pins/mpi4py.txt /pins/
RUN pip install --no-deps --no-build-isolation --no-binary mpi4py -r /pins/mpi4py.txt && \
    mpirun --allow-run-as-root --oversubscribe -np 2 python -m mpi4py -c 'from mpi4py import MPI; assert MPI.COMM_WORLD.size == 2'

# NVIDIA's libraries, in two folders that become layers of their own; in an image for CPUs they are empty.
COPY --from=pins /pins/gpu /pins/gpu/
RUN mkdir -p /nvidia/1 /nvidia/2 && if [ -f /pins/gpu/install.sh ]; then bash -eux /pins/gpu/install.sh; fi

COPY --from=pins /pins/tensorflow.txt /pins/
RUN pip install --no-deps -r /pins/tensorflow.txt && \
    python -c 'import tensorflow; print(tensorflow.__version__)'

# About five minutes on two cores. Gloo is for `horovodrun` without MPI. The patches, if the line has some, say what for.
COPY --from=pins /pins/horovod.txt /pins/
COPY --from=pins /pins/horovod /pins/horovod/
RUN pip download --no-deps --no-build-isolation --no-binary horovod --dest /horovod -r /pins/horovod.txt && \
    cd /horovod && tar -xzf horovod-*.tar.gz --strip-components 1 && \
    for each in /pins/horovod/*.patch; do if [ -f "$each" ]; then patch -p1 < "$each" || exit 1; fi; done && \
    if [ -f /pins/horovod/horovod.sh ]; then . /pins/horovod/horovod.sh; fi && \
    HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
        pip install --no-deps --no-build-isolation . && cd / && rm -rf /horovod && \
    mpirun --allow-run-as-root --oversubscribe -np 2 \
        python -c 'import horovod.tensorflow as hvd; hvd.init(); assert hvd.size() == 2 and hvd.mpi_built() and hvd.gloo_built()'

COPY --from=pins /pins/rest.txt /pins/
RUN pip install --no-deps --no-build-isolation -r /pins/rest.txt && \
    python -c 'import flask, waitress, boto3, sklearn.datasets, sagemaker_training.environment'

# The wheel says Python 3.10 and does not use Python's ABI (requirements.txt, part 3): it is given the tag it deserves.
COPY --from=pins /pins/operator.txt /pins/
RUN if ! grep -q . /pins/operator.txt; then exit 0; fi && \
    pip download --no-deps --python-version 3.10 --only-binary :all: --dest /wheels -r /pins/operator.txt && \
    python -m wheel tags --remove --python-tag py3 --abi-tag none /wheels/*.whl && \
    pip install --no-deps --no-index /wheels/*.whl && \
    python -c 'import sagemaker_tensorflow'

# What training never reads goes. The numbers are megabytes, of the line 2.14.
#   171  tensorflow/include: for compiling operators, and the image has no compiler. KEEP_TF_HEADERS=yes keeps it, for images
#        made FROM this one that bring a compiler.
#   200  symbol tables of TensorFlow's, Horovod's and the operators' libraries; symbols for dynamic linking stay. (NumPy's and
#        SciPy's stay as they are: their wheels are patched after linking, and strip may break such files.)
#    63  libclang.so: TensorFlow's own build uses it; TensorFlow asks for the distribution, and nothing imports it.
#    22  symbol tables of other libraries and programs that were not patched after linking; mpi4py's is half of it.
#    21  the data server of TensorBoard, by which a board reads large folders sooner: nobody looks at a board that runs in a
#        training job, and without the server TensorBoard reads by itself (`--load_fast=auto`, its default).
#    66  tests of NumPy, SciPy, scikit-learn, gevent and others; gevent's bring private keys along.
#     4  Eigen's headers, which lie there because of a mistake in ml_dtypes' wheel; go and stay as TensorFlow's do.
#     2  examples in botocore, which it reads to make its documentation only. Its services stay, all of them.
# Of the last three, it is the number of files that counts, some 1,000 of 25,000: to unpack one costs a host 0.4 ms, whatever
# is in it, and that is a third of the time that a pull takes (measured 2026-11-26).
# Bytecode (.pyc, about 120) stays: without it each start would compile TensorFlow's 2,000 modules again.
ARG KEEP_TF_HEADERS=no
RUN cd /opt/venv/lib/python3.11/site-packages && \
    pip uninstall -q -y cython && \
    if [ "$KEEP_TF_HEADERS" = no ]; then rm -rf tensorflow/include third_party/eigen*; fi && \
    # On ARM, strip breaks libraries that were patched after linking (TensorFlow's "load command address/offset not page-aligned").
    wheels='tensorflow tensorflow_io tensorflow_io_gcs_filesystem sagemaker_tensorflow jaxlib nacl yaml greenlet cryptography' && \
    if [ "$(uname -m)" != x86_64 ]; then wheels=; fi && \
    for each in horovod mpi4py $wheels; do \
        if [ -d $each ]; then find $each -name '*.so*' -type f -exec strip --strip-unneeded {} +; fi; \
    done && \
    strip --strip-unneeded /opt/venv/bin/py-spy && \
    rm -f tensorflow_io/core/libavro_atds_tests.so tensorboard_data_server/bin/server && \
    rm clang/native/libclang.so && \
    find numpy scipy sklearn gevent greenlet h5py pkg_resources setuptools zope -type d -name tests -prune -exec rm -rf {} + && \
    rm -rf joblib/test && \
    find botocore/data -name examples-1.json -delete && \
    find /opt/venv /nvidia -name '*.a' -delete && \
    find /nvidia -type d -name include -prune -exec rm -rf {} + && \
    python -c 'import gevent, greenlet, h5py, joblib, nacl.signing, scipy.stats, setuptools, sklearn.datasets, tensorboard.main, \
yaml._yaml, zope.interface; from cryptography.hazmat.primitives.asymmetric import ed25519; ed25519.Ed25519PrivateKey.generate()' && \
    py-spy --version && pip --version && \
    mpirun --allow-run-as-root --oversubscribe -np 2 python -c 'import horovod.tensorflow as hvd; hvd.init(); assert hvd.size() == 2'


# What the line has to be able to do, after that. Then the links to /nvidia go: there will be the libraries themselves.
COPY --from=pins /pins/checks /pins/checks/
RUN bash -eux /pins/checks/check.sh && \
    if [ -f /pins/checks/check.py ]; then python /pins/checks/check.py; fi && \
    find /nvidia /opt/venv/lib/python3.11/site-packages -type l '(' -lname '/nvidia/*' -o -name libnccl.so ')' -delete


# ---- package: our own code ------------------------------------------------------------------------------------------------
FROM build AS package

COPY pyproject.toml README.m[d] LICENS[E] /src/
COPY entrypoint /src/entrypoint/
COPY sagemaker_tf_data /src/sagemaker_tf_data/
# Nothing is fetched: what the package needs is pinned above. The scripts begin with this Python's path, which is the image's.
RUN python -m pip install --no-deps --no-build-isolation --no-index --prefix /package /src && \
    head -n 1 /package/bin/train /package/bin/entrypoint && test -x /package/bin/train && test -x /package/bin/entrypoint && \
    test -x /package/bin/serve && \
    PYTHONPATH=/package/lib/python3.11/site-packages python -c 'import entrypoint.train, sagemaker_tf_data' && \
    # `train` runs by `python -OO`, without docstrings, which saves 0.9 MB of memory on each host. 2 MB.
    cd /opt/venv/lib/python3.11/site-packages && python -OO -m compileall -q psutil waitress && \
    cp --parents $(find psutil waitress -name '*.opt-2.pyc' ! -path '*/tests/*') /package/lib/python3.11/site-packages && \
    cd /package/lib/python3.11/site-packages/entrypoint && \
    python -OO -m compileall -q __init__.py train.py base launcher observe programs record usercode && cd .. && \
    find entrypoint -name '*.opt-2.pyc' -printf '%p,,\n' | tee -a sagemaker_tf_entrypoint-*.dist-info/RECORD | grep -c .
COPY container/train /package/bin/
# Libraries ask for `tensorflow`, and it is called tensorflow-cpu here, or the other way round: it has both names.
# constraints.txt, which pip and uv obey, is for images made FROM this one; a job makes its own.
RUN python /src/entrypoint/programs/prepare/pins.py /package/lib/python3.11/site-packages > /constraints.txt


# ---- the image ------------------------------------------------------------------------------------------------------------
FROM scratch AS cpu

# First of all, as an image for another processor begins: after ENV, from nothing, the older builder takes this machine's.
COPY --from=system / /
# LANG: Python and the tools it starts read and write UTF-8 whatever host they are on.
# PYTHONUNBUFFERED: a line of the log is in CloudWatch when it is written, and the last one before a crash is not lost.
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1


FROM cpu AS gpu

# What NVIDIA's container runtime is to bring: all GPUs, the driver's libraries for CUDA, and nvidia-smi.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

COPY --from=build /nvidia/1 /opt/venv/lib/python3.11/site-packages
COPY --from=build /nvidia/2 /opt/venv/lib/python3.11/site-packages


FROM ${DEVICE}

COPY --from=build /opt/venv /opt/venv
COPY --from=pins /pins/image /opt/sagemaker-tf-entrypoint/
COPY --from=package /constraints.txt /opt/sagemaker-tf-entrypoint/
COPY container/usr /usr
COPY --from=package /package /opt/venv

# What SageMaker sends when a job is stopped, 120 s before it kills; `docker stop` is to send the same, but kills after 10 s
# unless told otherwise: `docker stop --time 120`.
STOPSIGNAL SIGTERM
WORKDIR /
# In exec form, so that PID 1 is a process that hears the signal, and not a shell.
ENTRYPOINT ["/usr/local/bin/docker-entrypoint"]
CMD ["train"]

# `serve` listens where SAGEMAKER_BIND_TO_PORT says, so it can be one of several containers of an endpoint.
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true

# Last, since they differ from commit to commit.
ARG VERSION=unknown
ARG REVISION=unknown
# A container cannot read the labels of its image; the report of a job names it.
ENV SAGEMAKER_TF_ENTRYPOINT_IMAGE="${VERSION} ${REVISION}"
LABEL org.opencontainers.image.title="sagemaker-tf-entrypoint" \
      org.opencontainers.image.description="Entrypoint for distributed TensorFlow training on Amazon SageMaker" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
