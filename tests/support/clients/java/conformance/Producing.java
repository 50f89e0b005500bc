package conformance;

import static conformance.World.bytes;
import static conformance.World.numbers;
import static conformance.World.values;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;

/** What is written comes back as it was sent; what is too large or malformed is refused with the error that says so. */
final class Producing {
    private Producing() {}

    private static void sameShape(ProducerRecord<byte[], byte[]> sent, ConsumerRecord<byte[], byte[]> found) {
        Expect.same(sent.key(), found.key(), "key");
        Expect.same(sent.value(), found.value(), "value");
        if (sent.timestamp() != null) Expect.same(sent.timestamp(), found.timestamp(), "timestamp");
        Expect.same(TimestampType.CREATE_TIME, found.timestampType(), "timestamp type");
        Header[] headers = sent.headers().toArray();
        Expect.same(headers.length, found.headers().toArray().length, "number of headers");
        for (int at = 0; at < headers.length; at++) {
            Expect.same(headers[at].key(), found.headers().toArray()[at].key(), "header name");
            Expect.same(headers[at].value(), found.headers().toArray()[at].value(), "header value");
        }
    }

    @Scenario({"none", "gzip", "snappy", "lz4", "zstd"})
    static void recordsOfEveryShapeComeBackAsSent(World world, String compression) throws Exception {
        String[] anyTime = world.isApacheKafka() ? new String[] {"message.timestamp.after.max.ms", "" + Long.MAX_VALUE} : new String[0];
        String topic = world.topic(1, anyTime);
        List<ProducerRecord<byte[], byte[]>> shapes = Shapes.ofTopic(world.shapes, topic);
        try (var producer = world.producer("compression.type", compression, "linger.ms", "100", "max.request.size", "1100000")) {
            world.send(producer, shapes);
        }
        var found = world.readAll(topic, shapes.size());
        for (int at = 0; at < shapes.size(); at++) {
            Expect.same((long) at, found.get(at).offset(), "offset");
            sameShape(shapes.get(at), found.get(at));
        }
    }

    @Scenario({"0", "1", "all"})
    static void everyKindOfAcknowledgementKeepsOrder(World world, String acks) throws Exception {
        String topic = world.topic(1);
        List<RecordMetadata> answers;
        try (var producer = world.producer("acks", acks, "enable.idempotence", "false", "max.in.flight.requests.per.connection", "1",
                "batch.size", "200")) {
            answers = world.send(producer, IntStream.range(0, 300)
                    .mapToObj(n -> new ProducerRecord<byte[], byte[]>(topic, 0, null, bytes("" + n))).toList());
        }
        Expect.same(numbers(0, 300), values(world.readAll(topic, 300)), "values");
        for (int at = 0; at < answers.size(); at++) {
            Expect.same(acks.equals("0") ? -1L : at, answers.get(at).offset(), "acknowledged offset");
        }
    }

    @Scenario
    static void aDefaultProducerIsIdempotentWithFiveInFlight(World world) throws Exception {
        String topic = world.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (var producer = world.producer("batch.size", "1", "linger.ms", "0")) {
            var answers = world.send(producer, IntStream.range(0, 500)
                    .mapToObj(n -> new ProducerRecord<byte[], byte[]>(topic, 0, null, bytes("" + n))).toList());
            for (int at = 0; at < answers.size(); at++) Expect.same((long) at, answers.get(at).offset(), "acknowledged offset");
            var active = world.admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers();
            Expect.same(1, active.size(), "producers known to the partition");
            Expect.that(active.get(0).producerId() >= 0, "the producer has an id");
            Expect.same(499, active.get(0).lastSequence(), "last sequence number");
        }
        Expect.same(numbers(0, 500), values(world.readAll(topic, 500)), "values");
    }

    @Scenario
    static void keyedRecordsOverManyPartitionsKeepTheirOrderPerKey(World world) throws Exception {
        String topic = world.topic(12);
        try (var producer = world.producer("linger.ms", "20", "compression.type", "lz4")) {
            world.send(producer, IntStream.range(0, 2_000)
                    .mapToObj(n -> new ProducerRecord<>(topic, bytes("key" + n % 40), bytes("" + n))).toList());
        }
        int[] last = new int[40];
        java.util.Arrays.fill(last, -1);
        for (var record : world.readAll(topic, 2_000)) {
            int number = Integer.parseInt(World.text(record.value()));
            Expect.that(number > last[number % 40], "records of a key are in order");
            last[number % 40] = number;
        }
    }

    @Scenario
    static void producersSideBySideGetOneUnbrokenRowOfOffsets(World world) throws Exception {
        String topic = world.topic(1);
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = java.util.Collections.synchronizedList(new ArrayList<>());
        for (int writer = 0; writer < 4; writer++) {
            Thread thread = new Thread(() -> {
                try {
                    world.fill(topic, 1, 250);
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) thread.join();
        Expect.same(List.of(), failures, "failures");
        var found = world.readAll(topic, 1_000);
        for (int at = 0; at < found.size(); at++) Expect.same((long) at, found.get(at).offset(), "offset");
    }

    @Scenario
    static void aRecordOfFourMegabytesFitsWhereTheTopicAllowsIt(World world) throws Exception {
        String topic = world.topic(1, "max.message.bytes", "5000000");
        byte[] large = new byte[4_000_000];
        new Random(2).nextBytes(large);
        try (var producer = world.producer("max.request.size", "5000000")) {
            producer.send(new ProducerRecord<>(topic, 0, bytes("large"), large)).get();
            producer.send(new ProducerRecord<>(topic, 0, null, bytes("small"))).get();
        }
        var found = world.readAll(topic, 2);
        Expect.same(large, found.get(0).value(), "large value");
    }

    @Scenario
    static void aRecordBeyondTheTopicsLimitIsRefusedAndTheProducerGoesOn(World world) throws Exception {
        String topic = world.topic(1, "max.message.bytes", "10000");
        try (var producer = world.producer()) {
            Expect.refused(RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, 0, null, new byte[20_000])).get());
            Expect.same(0L, producer.send(new ProducerRecord<>(topic, 0, null, bytes("small"))).get().offset(), "offset of the next");
        }
        world.readAll(topic, 1);
    }

    @Scenario
    static void aBatchBeyondTheLimitIsSplitByTheProducerAndNothingIsLost(World world) throws Exception {
        String topic = world.topic(1, "max.message.bytes", "10000");
        try (var producer = world.producer("batch.size", "100000", "linger.ms", "200")) {
            world.send(producer, IntStream.range(0, 20)
                    .mapToObj(n -> new ProducerRecord<>(topic, 0, bytes("" + n), new byte[3_000])).toList());
        }
        var found = world.readAll(topic, 20);
        Expect.same(numbers(0, 20), found.stream().map(record -> World.text(record.key())).toList(), "keys");
    }

    @Scenario
    static void appendTimeReplacesTheProducersTimestamp(World world) throws Exception {
        String topic = world.topic(1, "message.timestamp.type", "LogAppendTime");
        long before = System.currentTimeMillis();
        RecordMetadata answer;
        try (var producer = world.producer()) {
            answer = producer.send(new ProducerRecord<>(topic, 0, 1_000L, null, bytes("late"))).get();
        }
        Expect.that(answer.timestamp() >= before && answer.timestamp() <= System.currentTimeMillis(), "the answer names the append time");
        var found = world.readAll(topic, 1).get(0);
        Expect.same(TimestampType.LOG_APPEND_TIME, found.timestampType(), "timestamp type");
        Expect.same(answer.timestamp(), found.timestamp(), "append time");
    }

    @Scenario
    static void aCompactedTopicRefusesRecordsWithoutAKey(World world) throws Exception {
        String topic = world.topic(1, "cleanup.policy", "compact");
        try (var producer = world.producer()) {
            Expect.refused(InvalidRecordException.class, () -> producer.send(new ProducerRecord<>(topic, 0, null, bytes("no key"))).get());
            Expect.same(0L, producer.send(new ProducerRecord<>(topic, 0, bytes("key"), bytes("value"))).get().offset(), "offset");
        }
    }

    @Scenario({"true", "false"})
    static void ofABatchOnlyTheRecordWithoutAKeyIsToBlame(World world, String idempotent) throws Exception {
        String topic = world.topic(1, "cleanup.policy", "compact");
        try (var producer = world.producer("linger.ms", "500", "enable.idempotence", idempotent)) {
            var answers = new ArrayList<java.util.concurrent.Future<RecordMetadata>>();
            for (int n = 0; n < 10; n++) {
                answers.add(producer.send(new ProducerRecord<>(topic, 0, n == 4 ? null : bytes("k" + n), bytes("" + n))));
            }
            for (int n = 0; n < 10; n++) {
                int at = n;
                KafkaException refusal = Expect.refused(KafkaException.class, () -> answers.get(at).get());
                Expect.same(n == 4, refusal instanceof InvalidRecordException, "record " + n + " is to blame: " + refusal);
                if (n != 4) Expect.that(refusal.getMessage().contains("part of a batch"), "the others say why: " + refusal);
            }
            Expect.same(0L, producer.send(new ProducerRecord<>(topic, 0, bytes("key"), bytes("value"))).get().offset(), "offset");
        }
    }

    @Scenario
    static void aPartitionThatIsNotThereIsNotFoundInTime(World world) throws Exception {
        String topic = world.topic(2);
        try (var producer = world.producer("max.block.ms", "1500")) {
            Expect.refused(TimeoutException.class, () -> producer.send(new ProducerRecord<>(topic, 7, null, bytes("nowhere"))).get());
            Expect.same(2, producer.partitionsFor(topic).size(), "partitions");
            Expect.that(producer.partitionsFor(topic).stream().allMatch(info -> info.leader() != null), "every partition has a leader");
        }
    }
}
