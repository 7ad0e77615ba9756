# syntax=docker/dockerfile:1
# docker build --tag acceptance-consumer:0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .
# For a reproducible build, name the base image by digest: --build-arg PYTHON=python:3.13-slim@sha256:...

ARG PYTHON=python:3.13-slim-trixie

FROM ${PYTHON} AS build
WORKDIR /build
# Install the locked dependencies first: they change least often.
COPY requirements.lock ./
RUN python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --no-cache-dir --only-binary=:all: --requirement requirements.lock
COPY pyproject.toml requirements-dev.lock README.md LICENSE ./
COPY consumer consumer
COPY schemas schemas
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --constraint requirements-dev.lock hatchling \
    && pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/venv/bin/python install --no-cache-dir --no-deps --no-index dist/*.whl \
    && pip --python /opt/venv/bin/python check

FROM ${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="acceptance-consumer" \
      org.opencontainers.image.description="Reads the response events of an LLM serving fleet from Kafka and publishes acceptance records" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The root file system may be read-only: pip compiled the bytecode above, and the service writes no files.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
COPY --from=build /opt/venv /opt/venv
# Any user works. A number lets Kubernetes verify that it is not root.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["acceptance-consumer"]
CMD ["run"]
