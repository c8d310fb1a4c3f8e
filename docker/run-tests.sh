#!/usr/bin/env bash
# Runs the integration tests on Kafka in Docker:  docker/run-tests.sh PYTEST [ARGUMENT...]
#
# Without an engine it says so and succeeds, except with CI=true: then an engine is prepared, and required.
set -euo pipefail
cd "$(dirname "$0")/.."
. docker/common.sh

pytest=${1:?usage: docker/run-tests.sh PYTEST [ARGUMENT...]}
shift
PYTHON=${pytest%/*}/python
export PYTHON

if [ "${CI-}" = true ]; then
  docker/engine.sh up
  # Compose is a package of its own, and its tests may not be left out here.
  docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || apt_install docker-compose
elif ! reason=$(require_engine 2>&1); then
  echo "Docker tests are left out: ${reason#*: }."
  exit 0
fi
require_engine

official=$("$PYTHON" -c 'from lvq_kafka.testing.docker_engine import OFFICIAL_IMAGE; print(OFFICIAL_IMAGE)')
if have_image "$official"; then
  LVQ_KAFKA_IMAGE=$official
else
  LVQ_KAFKA_IMAGE=$(docker/build-kafka-image.sh)
fi
LVQ_CLI_IMAGE=$(docker/build-lvq-image.sh)
export LVQ_KAFKA_IMAGE LVQ_CLI_IMAGE
LVQ_TEST_BROKER=docker exec "$pytest" tests/integration -q -n 3 --max-worker-restart 0 --dist loadgroup "$@"
