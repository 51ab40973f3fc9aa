# An image of yours, led by our entrypoint: `./build.sh --on IMAGE` builds this file, and so does
#
#     docker build -f container/onto.Dockerfile --build-arg IMAGE=your-image --tag your-training .
#
# What comes to the image is one folder, /opt/sagemaker-tf-entrypoint, for the Python that it has. Nothing of what is there is
# changed: no package is installed, upgraded or removed. The lines from the last FROM on may stand in a Dockerfile of yours.
ARG IMAGE

# ---- ours: the folder, made by the image's own Python ---------------------------------------------------------------------
FROM ${IMAGE} AS ours

USER root
WORKDIR /build
# ca-bundle.pem as in ./Dockerfile: where build.sh lays it there, for this stage only.
COPY .dockerignore ca-bundle.pe[m] pyproject.toml /build/
COPY container/lines/2.14/requirements.txt container/usr/local/bin/docker-entrypoint container/onto /build/
COPY entrypoint /build/entrypoint/
COPY sagemaker_tf_data /build/sagemaker_tf_data/
# For an index of your company. Like all of this stage, it is not in the image's history.
ARG PIP_INDEX_URL
# The Python that trains, where the right one is not found.
ARG PYTHON=
RUN ["/bin/sh", "/build/install.sh"]

# ---- the image ------------------------------------------------------------------------------------------------------------
FROM ${IMAGE}

COPY --from=ours /opt/sagemaker-tf-entrypoint /opt/sagemaker-tf-entrypoint
# PATH: before a `train` that sagemaker-training has brought. PIP_BREAK_SYSTEM_PACKAGES: a job's requirements.txt is installed
# into Debian's own Python, too; the container goes with the job.
ENV PATH=/opt/sagemaker-tf-entrypoint/bin:${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin} \
    PYTHONUNBUFFERED=1 \
    PIP_BREAK_SYSTEM_PACKAGES=1
# In place of an ENTRYPOINT that is a shell: PID 1 is to hear SIGTERM.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/sagemaker-tf-entrypoint/bin/docker-entrypoint"]
CMD ["train"]
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true
