package conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a group as a process that tests freeze and kill; it speaks as tests/support/clients/group_members.py says. */
public final class Member implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final KafkaConsumer<String, String> consumer;
    private final int holdAt;
    private int turn;

    private Member(JsonNode settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap").asText());
        properties.put("group.id", settings.get("group").asText());
        if (settings.has("instance")) properties.put("group.instance.id", settings.get("instance").asText());
        properties.put("session.timeout.ms", settings.get("session_ms").asText());
        properties.put("heartbeat.interval.ms", "300");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", "20");
        properties.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + settings.get("assignor").asText());
        holdAt = settings.has("hold_at") ? settings.get("hold_at").asInt() : -1;
        consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(settings.get("topic").asText()), this);
    }

    public static void main(String[] args) throws Exception {
        Member member = new Member(JSON.readTree(args[0]));
        CountDownLatch left = new CountDownLatch(1);
        Thread worker = Thread.currentThread();
        boolean[] leaving = new boolean[1];
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            synchronized (leaving) {
                leaving[0] = true;
            }
            try {
                left.await();
            } catch (InterruptedException ignored) {
                worker.interrupt();
            }
        }));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        try (member.consumer) {
            while (true) {
                synchronized (leaving) {
                    if (leaving[0]) break;
                }
                member.work(orders);
            }
        } finally {
            left.countDown();
        }
    }

    private void work(BufferedReader orders) throws Exception {
        ConsumerRecords<String, String> polled = consumer.poll(Duration.ofMillis(100));
        if (polled.isEmpty()) return;
        ObjectNode committing = event("committing");
        polled.forEach(record -> committing.withArray("values").add(record.value()));
        say(committing);
        if (++turn == holdAt) {
            say(event("holding"));
            orders.readLine();
        }
        try {
            consumer.commitSync(Rewinding.after(polled));
            say(event("committed"));
        } catch (KafkaException refusal) {
            say(event("refused").put("error", refusal.getClass().getSimpleName()));
            Rewinding.rewind(consumer, polled);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> added) {
        changed("assigned", added);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
        changed("revoked", taken);
    }

    private static void changed(String event, Collection<TopicPartition> partitions) {
        ObjectNode told = event(event);
        told.putArray("partitions");
        partitions.forEach(partition -> told.withArray("partitions").add(partition.partition()));
        say(told);
    }

    /** nanoTime is the monotonic clock of the host, the same for every process on it. */
    private static ObjectNode event(String name) {
        return JSON.createObjectNode().put("event", name).put("at", System.nanoTime());
    }

    private static void say(ObjectNode event) {
        System.out.println(event);
        System.out.flush();
    }
}
