package conformance;

import static conformance.World.bytes;
import static conformance.World.numbers;
import static conformance.World.values;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.WakeupException;

/** How records are fetched: sizes, waits and limits, and what a consumer does where no position is known. */
final class Consuming {
    private Consuming() {}

    private static final Duration SHORT = Duration.ofMillis(100);

    @Scenario
    static void withoutAPositionEarliestReadsEverything(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 10);
        try (var consumer = world.consumer("group.id", world.fresh("group"), "auto.offset.reset", "earliest")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Expect.same(numbers(0, 10), values(world.read(consumer, 10)), "values");
        }
    }

    @Scenario
    static void withoutAPositionLatestReadsOnlyWhatComes(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 10);
        try (var consumer = world.consumer("group.id", world.fresh("group"), "auto.offset.reset", "latest")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Expect.same(10L, consumer.position(new TopicPartition(topic, 0)), "position");
            world.fill(topic, 1, 3);
            Expect.same(numbers(0, 3), values(world.read(consumer, 3)), "values");
        }
    }

    @Scenario
    static void withoutAPositionADurationReadsFromThatTime(World world) throws Exception {
        String topic = world.topic(1);
        long now = System.currentTimeMillis();
        try (var producer = world.producer()) {
            producer.send(new ProducerRecord<>(topic, 0, now - 7_200_000, null, bytes("old"))).get();
            producer.send(new ProducerRecord<>(topic, 0, now - 60_000, null, bytes("young"))).get();
        }
        try (var consumer = world.consumer("group.id", world.fresh("group"), "auto.offset.reset", "by_duration:PT1H")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Expect.same(List.of("young"), values(world.read(consumer, 1)), "values");
        }
    }

    @Scenario
    static void withoutAPositionNoneIsAnError(World world) throws Exception {
        String topic = world.topic(1);
        try (var consumer = world.consumer("group.id", world.fresh("group"), "auto.offset.reset", "none")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Expect.refused(NoOffsetForPartitionException.class, () -> consumer.poll(Duration.ofSeconds(10)));
        }
    }

    @Scenario
    static void aPositionBeyondTheEndIsOutOfRange(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 5);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = world.consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 100);
            var error = Expect.refused(OffsetOutOfRangeException.class, () -> consumer.poll(Duration.ofSeconds(10)));
            Expect.same(Set.of(partition), error.offsetOutOfRangePartitions().keySet(), "partitions out of range");
        }
        try (var consumer = world.consumer("auto.offset.reset", "earliest")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 100);
            Expect.same(numbers(0, 5), values(world.read(consumer, 5)), "values after the reset");
        }
    }

    @Scenario
    static void onePollReturnsNoMoreRecordsThanAsked(World world) throws Exception {
        String topic = world.topic(2);
        world.fill(topic, 2, 50);
        int found = 0;
        try (var consumer = world.consumer("max.poll.records", "7")) {
            world.assignAll(consumer, topic);
            while (found < 50) {
                int polled = consumer.poll(SHORT).count();
                Expect.that(polled <= 7, "a poll returns at most 7 records");
                found += polled;
            }
        }
        Expect.same(50, found, "records");
    }

    private static void fillBatches(World world, String topic, int partitions, int batches, int bytes) throws Exception {
        try (var producer = world.producer("batch.size", "1", "linger.ms", "0")) {
            world.send(producer, IntStream.range(0, batches)
                    .mapToObj(n -> new ProducerRecord<>(topic, n % partitions, bytes("" + n), new byte[bytes])).toList());
        }
    }

    @Scenario({"fetch.max.bytes", "max.partition.fetch.bytes"})
    static void aLimitBelowOneBatchStillLetsTheConsumerThrough(World world, String limit) throws Exception {
        String topic = world.topic(3);
        fillBatches(world, topic, 3, 30, 20_000);
        Set<String> keys = new HashSet<>();
        for (ConsumerRecord<byte[], byte[]> record : world.readAll(topic, 30, limit, "100")) keys.add(World.text(record.key()));
        Expect.same(30, keys.size(), "different records");
    }

    @Scenario
    static void manyBatchesComeInOneFetch(World world) throws Exception {
        String topic = world.topic(1);
        fillBatches(world, topic, 1, 400, 100);
        try (var consumer = world.consumer("max.poll.records", "1000")) {
            world.assignAll(consumer, topic);
            List<ConsumerRecord<byte[], byte[]>> found = world.read(consumer, 400);
            Expect.same(399L, found.get(399).offset(), "last offset");
            double fetches = consumer.metrics().entrySet().stream()
                    .filter(entry -> entry.getKey().name().equals("fetch-total"))
                    .mapToDouble(entry -> (Double) entry.getValue().metricValue()).sum();
            Expect.that(fetches < 20, "400 batches need few fetches, found " + fetches);
        }
    }

    @Scenario
    static void aWaitingFetchIsAnsweredWhenARecordArrives(World world) throws Exception {
        String topic = world.topic(1);
        try (var consumer = world.consumer("fetch.max.wait.ms", "15000", "request.timeout.ms", "30000")) {
            world.assignAll(consumer, topic);
            Expect.same(0, consumer.poll(Duration.ofMillis(700)).count(), "records in an empty topic");
            world.fill(topic, 1, 1);
            long began = System.nanoTime();
            Expect.same(1, consumer.poll(Duration.ofSeconds(10)).count(), "records");
            Expect.that(System.nanoTime() - began < 5_000_000_000L, "the fetch did not wait for its 15 s");
        }
    }

    @Scenario
    static void aFetchWaitsForItsLeastBytesUntilItsTimeIsUp(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 1);
        try (var consumer = world.consumer("fetch.min.bytes", "1000000", "fetch.max.wait.ms", "1200")) {
            world.assignAll(consumer, topic);
            consumer.position(new TopicPartition(topic, 0)); // looked up before the time is taken
            long began = System.nanoTime();
            Expect.same(1, consumer.poll(Duration.ofSeconds(10)).count(), "records");
            Expect.that(System.nanoTime() - began > 900_000_000L, "one record is not a million bytes: the fetch waits");
        }
    }

    @Scenario
    static void aPausedPartitionRestsWhileTheOtherIsRead(World world) throws Exception {
        String topic = world.topic(2);
        TopicPartition resting = new TopicPartition(topic, 0);
        try (var consumer = world.consumer()) {
            world.assignAll(consumer, topic);
            consumer.pause(List.of(resting));
            world.fill(topic, 2, 20);
            List<ConsumerRecord<byte[], byte[]>> found = world.read(consumer, 10);
            Expect.that(found.stream().allMatch(record -> record.partition() == 1), "only the other partition is read");
            Expect.same(Set.of(resting), consumer.paused(), "paused");
            consumer.resume(List.of(resting));
            Expect.that(world.read(consumer, 10).stream().allMatch(record -> record.partition() == 0), "then the rest");
        }
    }

    @Scenario
    static void readCommittedReadsWhatNoTransactionHolds(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 25);
        Expect.same(numbers(0, 25), values(world.readAll(topic, 25, "isolation.level", "read_committed")), "values");
    }

    @Scenario
    static void aConsumerInARackReadsLikeAnyOther(World world) throws Exception {
        String topic = world.topic(2);
        world.fill(topic, 2, 20);
        world.readAll(topic, 20, "client.rack", "nowhere");
    }

    @Scenario
    static void manyPartitionsAreReadInOneSessionWhileRecordsTrickleIn(World world) throws Exception {
        String topic = world.topic(30);
        List<String> found = new ArrayList<>();
        try (var consumer = world.consumer("fetch.max.wait.ms", "100"); var producer = world.producer()) {
            world.assignAll(consumer, topic);
            for (int n = 0; n < 60; n++) {
                producer.send(new ProducerRecord<>(topic, n % 30, null, bytes("" + n))).get();
                consumer.poll(Duration.ofMillis(5)).forEach(record -> found.add(World.text(record.value())));
            }
            long until = System.nanoTime() + 60_000_000_000L;
            while (found.size() < 60 && System.nanoTime() < until) {
                consumer.poll(SHORT).forEach(record -> found.add(World.text(record.value())));
            }
        }
        found.sort(java.util.Comparator.comparingInt(Integer::parseInt));
        Expect.same(numbers(0, 60), found, "values");
    }

    @Scenario
    static void aPollIsWokenUp(World world) throws Exception {
        String topic = world.topic(1);
        try (var consumer = world.consumer()) {
            world.assignAll(consumer, topic);
            Thread waker = new Thread(() -> {
                try {
                    Thread.sleep(300);
                } catch (InterruptedException ignored) {
                    Thread.currentThread().interrupt();
                }
                consumer.wakeup();
            });
            waker.start();
            Expect.refused(WakeupException.class, () -> consumer.poll(Duration.ofSeconds(20)));
            waker.join();
            world.fill(topic, 1, 1);
            world.read(consumer, 1);
        }
    }

    @Scenario
    static void anUnknownTopicHasNoPartitionsAndAnInvalidOneIsAnError(World world) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = world.consumer("group.id", world.fresh("group"), "allow.auto.create.topics", "false")) {
            var partitions = consumer.partitionsFor(world.fresh("unknown"), Duration.ofSeconds(5));
            Expect.that(partitions == null || partitions.isEmpty(), "an unknown topic has no partitions");
            consumer.subscribe(List.of("no blanks, please"));
            Expect.refused(InvalidTopicException.class, () -> consumer.poll(Duration.ofSeconds(10)));
        }
    }

    @Scenario
    static void aConsumerListsTheTopics(World world) throws Exception {
        String topic = world.topic(3);
        try (var consumer = world.consumer()) {
            Expect.same(3, consumer.listTopics().get(topic).size(), "partitions of the new topic");
        }
    }
}
