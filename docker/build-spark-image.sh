#!/usr/bin/env bash
# Builds the image of Spark with this library and its jobs from docker/spark/Dockerfile and prints its name. Its base is
# the official Python image; where that cannot be had, a stand-in made of this machine's own Python, Java and packages.
#
#   docker/build-spark-image.sh      LVQ_PYTHON_IMAGE=... chooses the base, PYTHON=... the Python of the project
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh
. docker/rootfs.sh

PYTHON=${PYTHON:-.venv/bin/python}
OFFICIAL=$(sed -n 's/^ARG BASE=//p' docker/spark/Dockerfile)

# The top folders and files of the packages that the extra `spark` needs, as they are installed here.
packages() {
  "$PYTHON" - <<'PROGRAM'
import re
from importlib.metadata import distribution

seen, waiting = set(), ["pyspark", "pyarrow", "pandas", "confluent-kafka"]
while waiting:
    name = waiting.pop()
    if name in seen:
        continue
    seen.add(name)
    there = distribution(name)
    for top in sorted({file.parts[0] for file in there.files or [] if ".." not in file.parts}):
        if top != "__pycache__":
            print(there.locate_file(top))
    for line in there.requires or []:
        if ";" not in line or re.search(r"python_version|sys_platform *!=", line) and "extra" not in line:
            required = re.match(r"[\w.-]+", line)[0]
            try:
                distribution(required)
            except ModuleNotFoundError:  # for another Python or system
                continue
            waiting.append(required)
PROGRAM
}

# The library by which docker/spark/entrypoint gives a user a name.
nss_wrapper() { find /usr/lib/ /usr/lib64/ -name libnss_wrapper.so -print -quit 2>/dev/null; }

build_base() { # build_base NAME
  local context inputs java java_home library prefix stdlib
  java=$("$PYTHON" -c 'import os; from lvq_spark.session.local_session import _choose_java; _choose_java(); print(os.environ["JAVA_HOME"])') ||
    die "no Java that Spark can use (the reason is above)"
  java_home=$("$java/bin/java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p')
  prefix=$("$PYTHON" -c 'import sys; print(sys.base_prefix)')
  stdlib=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
  inputs=$({ cat docker/build-spark-image.sh docker/rootfs.sh docker/spark/base/Dockerfile requirements.lock "$java_home/release"
    "$PYTHON" -VV; } | cksum | tr ' ' -)
  if [ "$(docker image inspect -f '{{index .Config.Labels "lvq-kafka.inputs"}}' "$1" 2>/dev/null)" = "$inputs" ]; then
    return
  fi
  say "$OFFICIAL cannot be pulled here; building a base from $prefix and $java_home"
  context=$(mktemp -d)
  # shellcheck disable=SC2064  # this directory, not a later one
  trap "rm -rf '$context'" EXIT
  rootfs_begin "$context/rootfs"
  local lib=$context/rootfs/usr/local/lib/${stdlib##*/} package
  mkdir -p "$lib/site-packages" "$context/rootfs/opt/java/openjdk"
  tar -C "$stdlib" -c --exclude=./site-packages --exclude=./dist-packages --exclude=./test --exclude=./idlelib \
    --exclude=./tkinter --exclude=./turtledemo --exclude=./lib2to3 --exclude='./config-*' --exclude='_tkinter*' \
    --exclude=__pycache__ . | tar -C "$lib" -x
  cp -L "$prefix/bin/${stdlib##*/}" "$context/rootfs/usr/local/bin/"
  ln -s "${stdlib##*/}" "$context/rootfs/usr/local/bin/python3"
  packages >"$context/packages"
  while read -r package; do
    tar -C "${package%/*}" -ch --exclude=__pycache__ --exclude='pyspark/examples' "${package##*/}" | tar -C "$lib/site-packages" -x
  done <"$context/packages"
  tar -C "$java_home" -ch --exclude='./jmods' --exclude='./include' --exclude='./man' --exclude='./docs' --exclude='./demo' \
    --exclude='./lib/src.zip' --exclude='./lib/ct.sym' --exclude='./lib/lib*awt*.so' --exclude='./lib/libsplashscreen.so' \
    --exclude='./lib/libjsound.so' --exclude='./lib/libatk-wrapper.so' --exclude='./lib/libfontmanager.so' . |
    tar -C "$context/rootfs/opt/java/openjdk" -x
  [ -n "$(nss_wrapper)" ] || apt_install libnss-wrapper
  library=$(nss_wrapper)
  mkdir -p "$context/rootfs${library%/*}"
  cp -L "$library" "$context/rootfs$library"
  rootfs_end "$context/rootfs"
  # Times stay as they are: Java checks its class-data archive against the time of its modules file.
  tar -C "$context/rootfs" --owner=0 --group=0 -cf "$context/rootfs.tar" .
  rm -rf "$context/rootfs"
  cp docker/spark/base/Dockerfile "$context"
  build_image "$1" --build-arg "INPUTS=$inputs" "$context"
  rm -rf "$context"
}

require_engine
base=${LVQ_PYTHON_IMAGE:-$OFFICIAL}
if ! have_image "$base"; then
  [ -z "${LVQ_PYTHON_IMAGE-}" ] || die "the image $base (LVQ_PYTHON_IMAGE) is missing and cannot be pulled"
  base=lvq-kafka/spark-base:$("$PYTHON" -c 'import pyspark; print(pyspark.__version__)')
  build_base "$base"
fi
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' lvq_kafka/_version.py)
image=lvq-kafka/spark:$version
build_image "$image" --tag lvq-kafka/spark:latest --build-arg "BASE=$base" -f docker/spark/Dockerfile .
echo "$image"
