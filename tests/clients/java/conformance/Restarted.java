package conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A default producer and a consumer of a group at work while somebody restarts the broker. Arguments: bootstrap address, topic,
 * group, records. Prints a line after each tenth of the records is acknowledged, and one line of JSON at the end.
 */
public final class Restarted {
    private static final int PER_S = 400;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int records = Integer.parseInt(args[3]);
        List<String> read = new ArrayList<>();
        Thread reader = new Thread(() -> read(args[0], topic, args[2], records, read));
        reader.start();
        AtomicInteger acknowledged = new AtomicInteger();
        List<String> failures = java.util.Collections.synchronizedList(new ArrayList<>());
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("request.timeout.ms", "5000");
        properties.put("reconnect.backoff.max.ms", "200");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < records; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "key" + n % 10, "" + n), (metadata, failure) -> {
                    if (failure != null) failures.add(failure.toString());
                    else if (acknowledged.incrementAndGet() % (records / 10) == 0) say("acknowledged " + acknowledged.get());
                }));
                if (n % (PER_S / 100) == 0) Thread.sleep(10);
            }
        }
        reader.join(120_000);
        int[] last = new int[10];
        java.util.Arrays.fill(last, -1);
        int disordered = 0;
        for (String value : read) {
            int number = Integer.parseInt(value);
            if (number <= last[number % 10]) disordered++;
            last[number % 10] = number;
        }
        say("{\"acknowledged\":" + acknowledged + ",\"failed\":" + failures.size() + ",\"read\":" + read.size() + ",\"different\":"
                + new java.util.HashSet<>(read).size() + ",\"disordered\":" + disordered + ",\"failure\":"
                + Main.quoted(failures.isEmpty() ? "" : failures.get(0)) + "}");
        System.exit(0);
    }

    private static void read(String bootstrap, String topic, String group, int records, List<String> read) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("auto.commit.interval.ms", "200");
        properties.put("reconnect.backoff.max.ms", "200");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (read.size() < records) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) read.add(record.value());
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
