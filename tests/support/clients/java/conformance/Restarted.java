package conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
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
 * A default producer and two consumers at work while somebody restarts the broker. Arguments: bootstrap address, topic, group,
 * records. Prints a line after each tenth of the records is acknowledged, and one line of JSON at the end.
 *
 * Where no broker can be reached, a default consumer forgets what it knew of topics and joins its group again, from where it has
 * committed last: it may read twice. The steady one keeps what it knows, so that it goes on from where it was.
 */
public final class Restarted {
    private static final int PER_S = 400;
    private static final int KEYS = 10;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int records = Integer.parseInt(args[3]);
        List<String> steady = new ArrayList<>();
        List<String> forgetful = new ArrayList<>();
        Thread first = new Thread(() -> read(args[0], topic, args[2] + "-steady", "none", records, steady));
        Thread second = new Thread(() -> read(args[0], topic, args[2] + "-forgetful", "rebootstrap", records, forgetful));
        first.start();
        second.start();
        AtomicInteger acknowledged = new AtomicInteger();
        List<String> failures = java.util.Collections.synchronizedList(new ArrayList<>());
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("request.timeout.ms", "5000");
        properties.put("reconnect.backoff.max.ms", "200");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < records; n++) {
                sent.add(producer.send(new ProducerRecord<>(topic, "key" + n % KEYS, "" + n), (metadata, failure) -> {
                    if (failure != null) failures.add(failure.toString());
                    else if (acknowledged.incrementAndGet() % (records / 10) == 0) say("acknowledged " + acknowledged.get());
                }));
                if (n % (PER_S / 100) == 0) Thread.sleep(10);
            }
        }
        first.join(60_000);
        second.join(60_000);
        say("{\"acknowledged\":" + acknowledged + ",\"failures\":" + Main.quoted(failures.toString()) + ",\"steady\":" + steady.size()
                + ",\"in_order\":" + inOrder(steady) + ",\"forgetful\":" + new HashSet<>(forgetful).size() + "}");
        System.exit(0);
    }

    private static boolean inOrder(List<String> values) {
        int[] next = new int[KEYS];
        for (String value : values) {
            int number = Integer.parseInt(value);
            if (number / KEYS != next[number % KEYS]++) return false;
        }
        return true;
    }

    private static void read(String bootstrap, String topic, String group, String recovery, int records, List<String> read) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("auto.commit.interval.ms", "200");
        properties.put("metadata.recovery.strategy", recovery);
        properties.put("reconnect.backoff.max.ms", "200");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            Set<String> different = new HashSet<>();
            while (different.size() < records) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    read.add(record.value());
                    different.add(record.value());
                }
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
