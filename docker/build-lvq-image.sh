#!/usr/bin/env bash
# Builds the image of the lvq command line from docker/Dockerfile and prints its name. Its base is the official Python
# image; where that cannot be had, a stand-in made of this machine's own Python and the locked wheels.
#
#   docker/build-lvq-image.sh        LVQ_PYTHON_IMAGE=... chooses the base, PYTHON=... the Python of the project
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh
. docker/rootfs.sh

PYTHON=${PYTHON:-.venv/bin/python}
OFFICIAL=$(sed -n 's/^ARG BASE=//p' docker/Dockerfile)

# Fills DIR/wheels with what docker/Dockerfile installs: uv, the build backend, and the extras, with all dependencies.
collect_wheels() {
  local uv_version
  uv_version=$(sed -n 's/^ARG UV_VERSION=//p' docker/Dockerfile)
  "$PYTHON" -m uv pip compile --quiet --no-header --no-annotate --generate-hashes --constraint requirements.lock \
    --extra cli --extra store pyproject.toml - <<<hatchling >"$1/requirements.txt"
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$1/wheels" \
    --require-hashes -r "$1/requirements.txt"
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$1/wheels" \
    "uv==$uv_version"
}

build_python() { # build_python NAME
  local context inputs prefix stdlib
  prefix=$("$PYTHON" -c 'import sys; print(sys.base_prefix)')
  stdlib=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
  inputs=$({ find docker/python -type f -exec cat {} +
    cat docker/build-lvq-image.sh docker/rootfs.sh docker/Dockerfile requirements.lock
    "$PYTHON" -VV; } | cksum | tr ' ' -)
  if [ "$(docker image inspect -f '{{index .Config.Labels "lvq-kafka.inputs"}}' "$1" 2>/dev/null)" = "$inputs" ]; then
    return
  fi
  say "$OFFICIAL cannot be pulled here; building a base from $prefix"
  context=$(mktemp -d)
  # shellcheck disable=SC2064  # this directory, not a later one
  trap "rm -rf '$context'" EXIT
  collect_wheels "$context"
  rootfs_begin "$context/rootfs"
  local lib=$context/rootfs/usr/local/lib/${stdlib##*/}
  mkdir -p "$lib/site-packages"
  tar -C "$stdlib" -c --exclude=./site-packages --exclude=./dist-packages --exclude=./test --exclude=./idlelib \
    --exclude=./tkinter --exclude=./turtledemo --exclude=./lib2to3 --exclude='./config-*' --exclude='_tkinter*' \
    --exclude=__pycache__ . | tar -C "$lib" -x
  cp -L "$prefix/bin/${stdlib##*/}" "$context/rootfs/usr/local/bin/"
  ln -s "${stdlib##*/}" "$context/rootfs/usr/local/bin/python3"
  cp -r "$("$PYTHON" -c 'import os, pip; print(os.path.dirname(pip.__file__))')" "$lib/site-packages/pip"
  rootfs_end "$context/rootfs"
  tar -C "$context/rootfs" --owner=0 --group=0 -cf "$context/rootfs.tar" .
  rm -rf "$context/rootfs"
  cp -r docker/python/. "$context"
  build_image "$1" --build-arg "INPUTS=$inputs" "$context"
}

require_engine
base=${LVQ_PYTHON_IMAGE:-$OFFICIAL}
if ! have_image "$base"; then
  [ -z "${LVQ_PYTHON_IMAGE-}" ] || die "the image $base (LVQ_PYTHON_IMAGE) is missing and cannot be pulled"
  base=lvq-kafka/python:$("$PYTHON" -c 'import platform; print(platform.python_version())')
  build_python "$base"
fi
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' lvq_kafka/_version.py)
image=lvq-kafka/lvq:$version
# Docker's older builder keeps the first stage as an image without a name. The next build is quick thanks to it, so it
# has a name, and those of earlier builds go.
build_image lvq-kafka/lvq-build --target build --build-arg "BASE=$base" -f docker/Dockerfile .
docker image prune --force --filter label=lvq-kafka.stage=build >/dev/null
build_image "$image" --tag lvq-kafka/lvq:latest --build-arg "BASE=$base" -f docker/Dockerfile .
echo "$image"
