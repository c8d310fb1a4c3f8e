#!/usr/bin/env bash
# kafka-run-class.sh CLASS ARGUMENT...: a main class of the jars, with the variables that Kafka's own script honours.
# shellcheck disable=SC2086  # each variable holds several words
# The class archive is good for the jars in the order in which it was made; without one, or with another one, java does
# what it always does.
printf -v jars '%s:' /opt/kafka/libs/*.jar
archive=/opt/kafka/classes.jsa
[ -e $archive ] && archive=-XX:SharedArchiveFile=$archive || archive=
exec java ${KAFKA_HEAP_OPTS:--Xmx256M} ${KAFKA_JVM_PERFORMANCE_OPTS-} $archive \
  ${KAFKA_LOG4J_OPTS:--Dlog4j2.configurationFile=/etc/kafka/docker/tools-log4j2.yaml} ${KAFKA_OPTS-} \
  -cp "${jars%:}" "$@"
