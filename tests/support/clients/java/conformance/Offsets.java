package conformance;

import static conformance.World.bytes;
import static conformance.World.values;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;

/** What an operator asks and does about offsets: list them by every rule, and delete records before one. */
final class Offsets {
    private Offsets() {}

    private static final long WHEN = 1_700_000_000_000L;

    private static ListOffsetsResultInfo ask(World world, TopicPartition partition, OffsetSpec spec) throws Exception {
        return world.admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    @Scenario
    static void offsetsAreListedByEveryRule(World world) throws Exception {
        String topic = world.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        Expect.same(-1L, ask(world, partition, OffsetSpec.maxTimestamp()).offset(), "greatest time of an empty partition");
        try (var producer = world.producer("linger.ms", "100")) {
            long[] times = {10, 50, 30, 50, 20};
            for (long time : times) producer.send(new ProducerRecord<>(topic, 0, WHEN + time, null, bytes("" + time)));
        }
        Expect.same(0L, ask(world, partition, OffsetSpec.earliest()).offset(), "earliest");
        Expect.same(5L, ask(world, partition, OffsetSpec.latest()).offset(), "latest");
        ListOffsetsResultInfo greatest = ask(world, partition, OffsetSpec.maxTimestamp());
        Expect.same(1L, greatest.offset(), "offset of the greatest time: the first of them");
        Expect.same(WHEN + 50, greatest.timestamp(), "greatest time");
        ListOffsetsResultInfo later = ask(world, partition, OffsetSpec.forTimestamp(WHEN + 11));
        Expect.same(1L, later.offset(), "first at or after a time");
        Expect.same(WHEN + 50, later.timestamp(), "its time");
        Expect.same(-1L, ask(world, partition, OffsetSpec.forTimestamp(WHEN + 51)).offset(), "first after the greatest time");
    }

    @Scenario
    static void manyPartitionsAreListedInOneCall(World world) throws Exception {
        String topic = world.topic(6);
        world.fill(topic, 6, 36);
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int n = 0; n < 6; n++) asked.put(new TopicPartition(topic, n), n % 2 == 0 ? OffsetSpec.latest() : OffsetSpec.earliest());
        world.admin.listOffsets(asked).all().get().forEach((partition, found) ->
                Expect.same(partition.partition() % 2 == 0 ? 6L : 0L, found.offset(), "offset of " + partition));
    }

    @Scenario
    static void deletedRecordsAreGoneAndTheRestStays(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 20);
        TopicPartition partition = new TopicPartition(topic, 0);
        var answer = world.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(12)));
        Expect.same(12L, answer.lowWatermarks().get(partition).get().lowWatermark(), "low watermark");
        Expect.same(12L, ask(world, partition, OffsetSpec.earliest()).offset(), "earliest");
        Expect.same(World.numbers(12, 20), values(world.readAll(topic, 8)), "values left");
        try (var consumer = world.consumer("auto.offset.reset", "none")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 3);
            Expect.refused(org.apache.kafka.clients.consumer.OffsetOutOfRangeException.class, () -> consumer.poll(Duration.ofSeconds(10)));
        }
        var beyond = world.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(21)));
        Expect.refused(OffsetOutOfRangeException.class, () -> beyond.all().get());
        var all = world.admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1)));
        Expect.same(20L, all.lowWatermarks().get(partition).get().lowWatermark(), "low watermark after all");
        world.fill(topic, 1, 1);
        Expect.same(20L, world.readAll(topic, 1).get(0).offset(), "offset of the next record");
    }

    @Scenario
    static void producersOfAPartitionAreDescribed(World world) throws Exception {
        String topic = world.topic(2);
        TopicPartition written = new TopicPartition(topic, 0);
        TopicPartition empty = new TopicPartition(topic, 1);
        try (var one = world.producer(); var two = world.producer(); var plain = world.producer("enable.idempotence", "false")) {
            for (var producer : List.of(one, two, plain)) producer.send(new ProducerRecord<>(topic, 0, null, bytes("x"))).get();
            var described = world.admin.describeProducers(Set.of(written, empty)).all().get();
            Expect.same(2, described.get(written).activeProducers().size(), "idempotent producers");
            Expect.same(0, described.get(empty).activeProducers().size(), "producers of the empty partition");
            Expect.that(described.get(written).activeProducers().stream().allMatch(state -> state.currentTransactionStartOffset().isEmpty()),
                    "no transaction is open");
        }
    }
}
