package conformance;

import static conformance.World.bytes;
import static conformance.World.numbers;
import static conformance.World.values;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Where a consumer stands: seeking by offset and by time, the ends of a partition, and what is committed. */
final class Positions {
    private Positions() {}

    private static final long WHEN = 1_700_000_000_000L;

    @Scenario
    static void aConsumerSeeksToAnyOffset(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 100);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = world.consumer()) {
            consumer.assign(List.of(partition));
            for (int from : new int[] {50, 99, 0, 73}) {
                consumer.seek(partition, from);
                Expect.same(numbers(from, 100), values(world.read(consumer, 100 - from)), "values from " + from);
            }
            consumer.seekToEnd(List.of(partition));
            Expect.same(100L, consumer.position(partition), "the end");
            consumer.seekToBeginning(List.of(partition));
            Expect.same(0L, consumer.position(partition), "the beginning");
        }
    }

    @Scenario
    static void theEndsOfAPartitionAreKnown(World world) throws Exception {
        String topic = world.topic(3);
        world.fill(topic, 2, 10); // the third partition stays empty
        Set<TopicPartition> partitions = Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1), new TopicPartition(topic, 2));
        try (var consumer = world.consumer()) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            Expect.same(List.of(5L, 5L, 0L), IntStream.range(0, 3).mapToObj(n -> ends.get(new TopicPartition(topic, n))).toList(), "ends");
            Expect.same(Set.of(0L), Set.copyOf(consumer.beginningOffsets(partitions).values()), "beginnings");
            consumer.assign(partitions);
            consumer.seek(new TopicPartition(topic, 0), 2);
            Expect.eventually("the lag is known after a fetch", () -> {
                consumer.poll(Duration.ofMillis(50));
                return consumer.currentLag(new TopicPartition(topic, 1)).isPresent();
            });
        }
    }

    @Scenario({"none", "zstd"})
    static void aTimeIsFoundWithinABatch(World world, String compression) throws Exception {
        String topic = world.topic(1);
        try (var producer = world.producer("linger.ms", "100", "compression.type", compression)) {
            world.send(producer, IntStream.range(0, 100)
                    .mapToObj(n -> new ProducerRecord<byte[], byte[]>(topic, 0, WHEN + n * 10L, null, bytes("" + n))).toList());
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = world.consumer()) {
            for (int asked : new int[] {0, 1, 10, 495, 500, 990}) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, WHEN + asked)).get(partition);
                long expected = (asked + 9) / 10;
                Expect.same(expected, found.offset(), "offset at or after " + asked);
                Expect.same(WHEN + expected * 10, found.timestamp(), "its time");
            }
            Expect.same(0L, consumer.offsetsForTimes(Map.of(partition, 0L)).get(partition).offset(), "offset of the distant past");
            Map<TopicPartition, OffsetAndTimestamp> none = consumer.offsetsForTimes(Map.of(partition, WHEN + 991));
            Expect.same(null, none.get(partition), "offset after the last time");
            consumer.assign(List.of(partition));
            consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, WHEN + 600)).get(partition).offset());
            Expect.same(numbers(60, 100), values(world.read(consumer, 40)), "values from that time");
        }
    }

    @Scenario
    static void aTimeIsFoundWhereTimesGoBackAndForth(World world) throws Exception {
        String topic = world.topic(1);
        long[] times = {500, 100, 900, 300, 700};
        try (var producer = world.producer("batch.size", "1")) {
            for (long time : times) producer.send(new ProducerRecord<>(topic, 0, WHEN + time, null, bytes("" + time))).get();
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = world.consumer()) {
            Expect.same(0L, consumer.offsetsForTimes(Map.of(partition, WHEN + 100)).get(partition).offset(), "first at or after 100");
            Expect.same(2L, consumer.offsetsForTimes(Map.of(partition, WHEN + 501)).get(partition).offset(), "first at or after 501");
            Expect.same(null, consumer.offsetsForTimes(Map.of(partition, WHEN + 901)).get(partition), "first at or after 901");
        }
    }

    @Scenario
    static void aCommitKeepsItsMetadata(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        world.fill(topic, 2, 20);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        try (var consumer = world.consumer("group.id", group)) {
            consumer.assign(List.of(first, second));
            world.read(consumer, 20);
            consumer.commitSync(Map.of(first, new OffsetAndMetadata(4, "nöch vier"), second, new OffsetAndMetadata(7)));
        }
        try (var consumer = world.consumer("group.id", group)) {
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(Set.of(first, second));
            Expect.same(new OffsetAndMetadata(4, "nöch vier"), committed.get(first), "first commit");
            Expect.same(new OffsetAndMetadata(7, ""), committed.get(second), "second commit");
            consumer.assign(List.of(first, second));
            Expect.same(6 + 3, world.read(consumer, 9).size(), "records after the committed positions");
        }
    }

    @Scenario
    static void aLaterCommitReplacesAnEarlierEvenBackwards(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var consumer = world.consumer("group.id", world.fresh("group"))) {
            consumer.assign(List.of(partition));
            for (long offset : new long[] {3, 9, 2}) {
                consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
                Expect.same(offset, consumer.committed(Set.of(partition)).get(partition).offset(), "committed");
            }
        }
    }

    @Scenario
    static void nothingIsCommittedForAnUnknownGroup(World world) throws Exception {
        TopicPartition partition = new TopicPartition(world.topic(1), 0);
        try (var consumer = world.consumer("group.id", world.fresh("group"))) {
            Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>(consumer.committed(Set.of(partition)));
            Expect.same(null, committed.get(partition), "committed");
        }
    }

    @Scenario
    static void anAsynchronousCommitCallsBack(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        CompletableFuture<Map<TopicPartition, OffsetAndMetadata>> done = new CompletableFuture<>();
        try (var consumer = world.consumer("group.id", world.fresh("group"))) {
            consumer.assign(List.of(partition));
            world.read(consumer, 10);
            consumer.commitAsync((offsets, failure) -> {
                if (failure != null) done.completeExceptionally(failure);
                else done.complete(offsets);
            });
            Expect.eventually("the commit is answered", () -> {
                consumer.poll(Duration.ofMillis(20));
                return done.isDone();
            });
            Expect.same(10L, done.get(1, TimeUnit.SECONDS).get(partition).offset(), "offset in the answer");
            Expect.same(10L, consumer.committed(Set.of(partition)).get(partition).offset(), "committed");
        }
    }

    @Scenario
    static void aClosingConsumerCommitsByItself(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        world.fill(topic, 2, 20);
        try (var consumer = world.consumer("group.id", group, "enable.auto.commit", "true")) {
            consumer.subscribe(List.of(topic));
            world.read(consumer, 20);
        }
        world.fill(topic, 2, 4);
        try (var consumer = world.consumer("group.id", group, "enable.auto.commit", "true")) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<byte[], byte[]>> found = world.read(consumer, 4);
            Expect.that(found.stream().allMatch(record -> record.offset() >= 10), "nothing is read again");
        }
    }
}
