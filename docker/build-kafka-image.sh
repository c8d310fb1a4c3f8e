#!/usr/bin/env bash
# Builds the stand-in for the official Kafka image, without an image registry: Kafka from the jars that the embedded
# broker uses (locked by version and sha256), Java, bash and the C library from this machine. Does nothing when an
# image of the same inputs is there. Prints the image's name.
#
#   docker/build-kafka-image.sh        PYTHON=... chooses the Python with the project installed (default: .venv)
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh
. docker/rootfs.sh

PYTHON=${PYTHON:-.venv/bin/python}
NAME=lvq-kafka/kafka

require_engine
{ read -r java && mapfile -t jars; } < <("$PYTHON" -c '
from lvq_kafka.embedded import ensure_jars, find_java
print(find_java().executable, *ensure_jars(), sep="\n")') ||
  die "no Java or no Kafka jars (the reason is above); $PYTHON must be a Python with lvq-kafka[embedded] installed"
java_home=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p')
version=$(printf '%s\n' "${jars[@]}" | sed -n 's#.*/kafka_[0-9.]*-\([0-9.]*\)\.jar$#\1#p')
[ -n "$version" ] || die "the broker's own jar is not among those of lvq_kafka.embedded"
image=$NAME:$version

# The jars are named by version and checked against their lock: their names are enough.
inputs=$({ cat docker/build-kafka-image.sh docker/rootfs.sh docker/kafka/Dockerfile docker/kafka/*/*
  printf '%s\n' "${jars[@]##*/}"
  cat "$java_home/release"; } | cksum | tr ' ' -)
if [ "$(docker image inspect -f '{{index .Config.Labels "lvq-kafka.inputs"}}' "$image" 2>/dev/null)" = "$inputs" ]; then
  say "$image is up to date"
  echo "$image"
  exit
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
say "building $image from $java_home and ${#jars[@]} jars"
rootfs_begin "$context/rootfs"
mkdir -p "$context"/{libs,rootfs/opt/java/openjdk}
# Not needed by a broker: the compiler's and the linker's data, and what draws or plays (it would ask for X libraries).
tar -C "$java_home" -ch --exclude='./jmods' --exclude='./include' --exclude='./man' --exclude='./docs' --exclude='./demo' \
  --exclude='./lib/src.zip' --exclude='./lib/ct.sym' --exclude='./lib/lib*awt*.so' --exclude='./lib/libsplashscreen.so' \
  --exclude='./lib/libjsound.so' --exclude='./lib/libatk-wrapper.so' --exclude='./lib/libfontmanager.so' . |
  tar -C "$context/rootfs/opt/java/openjdk" -x
rootfs_end "$context/rootfs"
# Times stay as they are: Java checks its class-data archive against the time of its modules file.
tar -C "$context/rootfs" --owner=0 --group=0 -cf "$context/rootfs.tar" .
rm -rf "$context/rootfs"
cp "${jars[@]}" "$context/libs"
cp -r docker/kafka/. "$context"
chmod -R a+rX "$context" # for the broker's user, whatever the modes are in the checkout and in the cache
build_image "$image" --build-arg "INPUTS=$inputs" "$context"
echo "$image"
