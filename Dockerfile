# cachekit in a container. On a CPU, with PyTorch's Inductor:
#
#     docker build -t cachekit .
#     docker run --rm -v cachekit:/cache cachekit warm bert --tiny
#
# On Trainium, on AWS's own image, which has the compiler, the runtime and torch-neuronx already (its tag names the SDK:
# https://github.com/aws-neuron/deep-learning-containers):
#
#     docker build -t cachekit-neuron --build-arg EXTRAS= \
#         --build-arg BASE=public.ecr.aws/neuron/pytorch-training-neuronx:TAG .
#     docker run --rm --device /dev/neuron0 -v cachekit:/cache cachekit-neuron warm bert
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

ARG EXTRAS=[train]
# Inductor's kernels are made by a C++ compiler, and records are signed with ssh-keygen.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends -y g++ openssh-client \
    && rm -rf /var/lib/apt/lists/*

COPY . /src
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# PyTorch's CPU build, unless the image has torch; `/src` says which versions of the rest it takes.
# hadolint ignore=DL3013
RUN if ! python -c 'import torch' 2>/dev/null && [[ -n "$EXTRAS" ]]; then \
        read -r -a index <<< "$(python /src/constraints/torch_index.py)" \
        && python -m pip install --no-cache-dir -c /src/constraints/current.txt "${index[@]}" torch; \
    fi \
    && python -m pip install --no-cache-dir "/src${EXTRAS}"

# The store is a volume that only its user can write to: what a compiler loads must be nobody else's.
RUN useradd --uid 10001 --create-home cachekit && install -d -o cachekit -m 0700 /cache
USER 10001
WORKDIR /home/cachekit
ENV CACHEKIT_HOME=/cache
VOLUME /cache
ENTRYPOINT ["cachekit"]
