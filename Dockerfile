# docker build -t plimsoll . && docker run --rm -v "$PWD:/work" plimsoll simulate -t gpt2 -p h200 -s snapshot
# The first stage has compilers and builds the Debian package, the second one only what the package needs to run.
FROM debian:12-slim AS build
RUN apt-get update -q && apt-get install -y -q --no-install-recommends ca-certificates git
COPY . /plimsoll
WORKDIR /plimsoll
RUN ./dev package

FROM debian:12-slim
COPY --from=build /plimsoll/out/package/*.deb /tmp/
RUN apt-get update -q && apt-get install -y -q --no-install-recommends /tmp/*.deb python3-numpy && rm -rf /tmp/*.deb /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["plimsoll"]
