# The package on Python's own image: `docker build -t ipu-keras .`, then
# `docker run --rm -it -v "$PWD":/work ipu-keras ipu-keras run script.py`.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN pip wheel --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
COPY --from=build /wheels /wheels
# The wheel of TensorFlow without parts for GPUs is for x86_64 only.
RUN extra=$([ "$(uname -m)" = x86_64 ] && echo tensorflow-cpu || echo tensorflow) \
    && pip install --no-cache-dir "$(echo /wheels/*.whl)[$extra,popart,report]" pytest
WORKDIR /work
