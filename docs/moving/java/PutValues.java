import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.StringSerializer;

/** Puts values into a queue: PutValues SERVERS TOPIC KEY-HEADER KEY=VALUE... A KEY alone is deleted. */
public class PutValues {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "acks", "all",
            "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> receipts = new ArrayList<>();
            for (String arg : List.of(args).subList(3, args.length)) {
                String[] pair = arg.split("=", 2);
                String key = pair[0];
                String value = pair.length == 2 ? pair[1] : null; // a null value deletes the key
                List<Header> headers = List.of(new RecordHeader(args[2], key.getBytes(UTF_8)));
                receipts.add(producer.send(new ProducerRecord<>(args[1], null, key, value, headers)));
            }
            for (Future<RecordMetadata> receipt : receipts) {
                receipt.get(); // throws, if it is not stored
            }
        }
    }
}
