#!/usr/bin/env bash
# kafka-run-class.sh CLASS ARGUMENT...: a main class of the jars, with the variables that Kafka's own script honours.
# shellcheck disable=SC2086  # each variable holds several words
exec java ${KAFKA_HEAP_OPTS:--Xmx256M} ${KAFKA_JVM_PERFORMANCE_OPTS-} \
  ${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=/etc/kafka/docker/tools-log4j2.yaml} ${KAFKA_OPTS-} \
  -cp '/opt/kafka/libs/*' "$@"
