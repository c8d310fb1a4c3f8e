#!/usr/bin/env bash
# The console tools: every other kafka-*.sh is a link to this file and chooses the class by its name.
case $(basename "$0" .sh) in
kafka-topics) class=org.apache.kafka.tools.TopicCommand ;;
kafka-configs) class=kafka.admin.ConfigCommand ;;
kafka-acls) class=org.apache.kafka.tools.AclCommand ;;
kafka-consumer-groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
kafka-console-producer) class=org.apache.kafka.tools.ConsoleProducer ;;
kafka-console-consumer) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
kafka-metadata-quorum) class=org.apache.kafka.tools.MetadataQuorumCommand ;;
kafka-broker-api-versions) class=org.apache.kafka.tools.BrokerApiVersionsCommand ;;
kafka-storage) class=kafka.tools.StorageTool ;;
*) echo "${0##*/}: call it by the name of a tool, such as kafka-topics.sh" >&2; exit 2 ;;
esac
exec /opt/kafka/bin/kafka-run-class.sh "$class" "$@"
