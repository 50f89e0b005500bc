package conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** A member of a group on a thread of its own: it polls, commits what it read, and remembers what happened to it. */
final class Poller implements AutoCloseable, ConsumerRebalanceListener {
    final List<String> values = Collections.synchronizedList(new ArrayList<>());
    final List<Set<Integer>> revocations = Collections.synchronizedList(new ArrayList<>());
    final Set<String> topics = Collections.synchronizedSet(new TreeSet<>());
    volatile Set<Integer> assigned = Set.of();
    volatile Throwable failure;
    volatile CountDownLatch hold = new CountDownLatch(0);
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Thread thread = new Thread(this::run);
    private volatile boolean leaving;

    private Poller(KafkaConsumer<byte[], byte[]> consumer, Consumer<Poller> subscribe) {
        this.consumer = consumer;
        subscribe.accept(this);
        thread.start();
    }

    static Poller of(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        return new Poller(consumer, self -> consumer.subscribe(List.of(topic), self));
    }

    static Poller of(KafkaConsumer<byte[], byte[]> consumer, Pattern pattern) {
        return new Poller(consumer, self -> consumer.subscribe(pattern, self));
    }

    private void run() {
        try {
            while (!leaving) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                if (polled.isEmpty()) continue;
                hold.await();
                try {
                    consumer.commitSync(Rewinding.after(polled));
                    polled.forEach(record -> values.add(World.text(record.value())));
                } catch (RebalanceInProgressException refused) {
                    Rewinding.rewind(consumer, polled);
                }
            }
        } catch (Throwable raised) {
            failure = raised;
        } finally {
            consumer.close(CloseOptions.timeout(Duration.ofSeconds(5)));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> added) {
        Set<Integer> now = new TreeSet<>(assigned);
        added.forEach(partition -> {
            now.add(partition.partition());
            topics.add(partition.topic());
        });
        assigned = now;
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> taken) {
        Set<Integer> those = new TreeSet<>();
        taken.forEach(partition -> those.add(partition.partition()));
        revocations.add(those);
        Set<Integer> now = new TreeSet<>(assigned);
        now.removeAll(those);
        assigned = now;
    }

    /** Leave the group and end the thread, after the poll at hand: woken up inside a commit, it could not tell whether that was done. */
    @Override
    public void close() {
        leaving = true;
        hold.countDown();
        try {
            thread.join(20_000);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
