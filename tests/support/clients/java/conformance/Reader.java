package conformance;

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads every partition of a topic from its start, without a group, until it is killed. Arguments: bootstrap address, topic, number
 * of partitions, rack ("" for none). Prints "reading" once, and the value of each record.
 */
public final class Reader {
    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("client.rack", args[3]);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = java.util.stream.IntStream.range(0, Integer.parseInt(args[2]))
                    .mapToObj(number -> new TopicPartition(args[1], number)).toList();
            consumer.assign(partitions);
            System.out.println("reading");
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) System.out.println(record.value());
                System.out.flush();
            }
        }
    }
}
