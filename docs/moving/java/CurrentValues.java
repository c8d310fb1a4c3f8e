import static java.util.stream.Collectors.toMap;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints the current value of each key of a queue: CurrentValues SERVERS TOPIC */
public class CurrentValues {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "isolation.level", "read_committed", // nothing that was aborted
            "enable.auto.commit", false); // and no group.id: reading changes nothing
        Map<String, String> values = new LinkedHashMap<>();
        try (var admin = Admin.create(Map.of("bootstrap.servers", args[0]));
                var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(args[1]).stream()
                .map(each -> new TopicPartition(each.topic(), each.partition()))
                .toList();
            // The true ends: the consumer's own endOffsets leave out what follows an open transaction.
            var ends = admin.listOffsets(partitions.stream().collect(toMap(each -> each, each -> OffsetSpec.latest())))
                .all().get();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            // By position: compaction and transactions leave offsets without records, so counting would never end.
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each).offset())) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    values.remove(record.key()); // a new value goes to the tail
                    if (record.value() != null) { // null deletes the key; an empty text is a value
                        values.put(record.key(), record.value());
                    }
                }
            }
        }
        values.forEach((key, value) -> System.out.println(key + "=" + value));
    }
}
