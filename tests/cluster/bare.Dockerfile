# An image that is no framework's: Debian's own Python, which pip may not touch, and no pip, no MPI, no ssh; run by a user.
ARG IMAGE
FROM ${IMAGE}
RUN apt-get update -q && apt-get install -q -y --no-install-recommends python3 ca-certificates && rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 trainer && ! python3 -m pip --version && test ! -e /usr/bin/python
USER trainer
