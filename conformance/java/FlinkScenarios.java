import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Queue;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** What Flink's Kafka connector does for its users, on a cluster in this process; each scenario is one line of JSON on stdout. */
public class FlinkScenarios {
    interface Body {
        void run() throws Exception;
    }

    static final Duration WAIT = Duration.ofSeconds(120);
    static String bootstrap;
    static Admin admin;
    static KafkaProducer<String, String> producer;

    // What jobs have seen: the cluster runs in this process.
    static final Map<String, Set<String>> seen = new ConcurrentHashMap<>();
    static final Map<String, Queue<String>> collected = new ConcurrentHashMap<>();
    static final AtomicInteger failures = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap));
        producer = new KafkaProducer<>(
                Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap), new StringSerializer(), new StringSerializer());
        scenario("a bounded source reads a topic from beginning to end", FlinkScenarios::bounded);
        scenario("a source starts at a timestamp", FlinkScenarios::byTimestamp);
        scenario("a checkpoint commits the offsets of the group", FlinkScenarios::committed);
        scenario("a source starts at the offsets of the group", FlinkScenarios::fromCommitted);
        scenario("topics that match a pattern later are found", FlinkScenarios::discovery);
        scenario("a sink writes at least once", () -> written(DeliveryGuarantee.AT_LEAST_ONCE));
        scenario("a job that failed goes on from its checkpoint", FlinkScenarios::restarted);
        scenario("a sink writes exactly once", () -> written(DeliveryGuarantee.EXACTLY_ONCE));
        producer.close();
        admin.close();
        System.exit(0);
    }

    static void scenario(String name, Body body) {
        report(name, "begun", "");
        try {
            body.run();
            report(name, "passed", "");
        } catch (Throwable failure) {
            report(name, "failed", String.valueOf(root(failure)));
            failure.printStackTrace();
        }
    }

    static Throwable root(Throwable thrown) {
        return thrown.getCause() == null || thrown.getCause() == thrown ? thrown : root(thrown.getCause());
    }

    static void report(String name, String outcome, String detail) {
        System.out.println("{\"name\": " + quoted(name) + ", \"outcome\": " + quoted(outcome) + ", \"detail\": " + quoted(detail) + "}");
    }

    static String quoted(String text) {
        StringBuilder made = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') made.append('\\').append(each);
            else if (each < ' ') made.append(' ');
            else made.append(each);
        }
        return made.append('"').toString();
    }

    static void await(String what, BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + WAIT.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > until) throw new AssertionError("not within " + WAIT + ": " + what);
            Thread.sleep(100);
        }
    }

    static String unique(String name) {
        return name + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    /** A new topic that keeps its records, whose times are long past: retention would delete them in the midst of a slow run. */
    static String topic(String name, int partitions) throws Exception {
        String topic = unique(name);
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(Map.of("retention.ms", "-1")))).all().get();
        return topic;
    }

    static void fill(String topic, int from, int to) {
        for (int i = from; i < to; i++) producer.send(new ProducerRecord<>(topic, null, 1_700_000_000_000L + i, "k" + i, "v" + i));
        producer.flush();
    }

    static Set<String> values(int from, int to) {
        Set<String> made = ConcurrentHashMap.newKeySet();
        for (int i = from; i < to; i++) made.add("v" + i);
        return made;
    }

    static StreamExecutionEnvironment environment(boolean checkpoints) {
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.network.min", "16m");
        settings.setString("taskmanager.memory.network.max", "16m");
        settings.setString("taskmanager.memory.managed.size", "32m");
        settings.setString("rest.bind-port", "0");
        settings.setString("restart-strategy.type", checkpoints ? "fixed-delay" : "none");
        settings.setString("restart-strategy.fixed-delay.attempts", "3");
        settings.setString("restart-strategy.fixed-delay.delay", "1 s");
        StreamExecutionEnvironment made = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        if (checkpoints) made.enableCheckpointing(1000);
        return made;
    }

    static KafkaSourceBuilder<String> source() {
        return KafkaSource.<String>builder().setBootstrapServers(bootstrap).setValueOnlyDeserializer(new SimpleStringSchema());
    }

    static DataStream<String> from(StreamExecutionEnvironment flink, KafkaSource<String> source) {
        return flink.fromSource(source, WatermarkStrategy.noWatermarks(), "kafka");
    }

    /** What a bounded source reads. `executeAndCollect` may lose what it has not fetched when the local cluster ends with its job. */
    static List<String> collected(KafkaSource<String> source) throws Exception {
        String name = unique("collected");
        collected.put(name, new ConcurrentLinkedQueue<>());
        StreamExecutionEnvironment flink = environment(false);
        from(flink, source).map(value -> {
            collected.get(name).add(value);
            return value;
        }).sinkTo(new DiscardingSink<>());
        flink.execute();
        return List.copyOf(collected.get(name));
    }

    static String record(String name) {
        seen.put(name, ConcurrentHashMap.newKeySet());
        return name;
    }

    static void expect(Object expected, Object found) {
        if (!expected.equals(found)) throw new AssertionError("expected " + expected + ", found " + found);
    }

    static void stop(JobClient job) {
        try {
            job.cancel().get();
        } catch (InterruptedException | ExecutionException ended) {
            // it has ended by itself
        }
    }

    // Scenarios

    static void bounded() throws Exception {
        String topic = topic("bounded", 3);
        fill(topic, 0, 3000);
        List<String> found = collected(source().setTopics(topic).setGroupId(unique("g"))
                .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest()).build());
        expect(3000, found.size());
        expect(values(0, 3000), Set.copyOf(found));
    }

    static void byTimestamp() throws Exception {
        String topic = topic("by-time", 1);
        fill(topic, 0, 100);
        List<String> found = collected(source().setTopics(topic).setGroupId(unique("g"))
                .setStartingOffsets(OffsetsInitializer.timestamp(1_700_000_000_040L)).setBounded(OffsetsInitializer.latest()).build());
        expect(values(40, 100), Set.copyOf(found));
    }

    static String groupTopic, group;

    static void committed() throws Exception {
        groupTopic = topic("group", 2);
        group = unique("group");
        fill(groupTopic, 0, 500);
        StreamExecutionEnvironment flink = environment(true);
        from(flink, source().setTopics(groupTopic).setGroupId(group).setStartingOffsets(OffsetsInitializer.earliest()).build())
                .sinkTo(new DiscardingSink<>());
        JobClient job = flink.executeAsync();
        try {
            await("offsets of 500 records are committed", () -> committedOffsets() == 500);
        } finally {
            stop(job);
        }
    }

    static long committedOffsets() {
        try {
            return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream()
                    .mapToLong(each -> each == null ? 0 : each.offset()).sum();
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    static void fromCommitted() throws Exception {
        fill(groupTopic, 500, 600);
        List<String> found = collected(source().setTopics(groupTopic).setGroupId(group)
                .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
                .setBounded(OffsetsInitializer.latest()).build());
        expect(values(500, 600), Set.copyOf(found));
    }

    static void discovery() throws Exception {
        String prefix = unique("found"), name = record(prefix);
        admin.createTopics(List.of(new NewTopic(prefix + "-a", 1, (short) 1))).all().get();
        fill(prefix + "-a", 0, 50);
        StreamExecutionEnvironment flink = environment(true);
        from(flink, source().setTopicPattern(Pattern.compile(prefix + ".*")).setGroupId(unique("g"))
                        .setProperty("partition.discovery.interval.ms", "1000").setStartingOffsets(OffsetsInitializer.earliest()).build())
                .map(value -> seen.get(name).add(value) ? value : value)
                .sinkTo(new DiscardingSink<>());
        JobClient job = flink.executeAsync();
        try {
            await("the first topic is read", () -> seen.get(name).size() == 50);
            admin.createTopics(List.of(new NewTopic(prefix + "-b", 2, (short) 1))).all().get();
            fill(prefix + "-b", 50, 100);
            await("the second topic is read", () -> seen.get(name).equals(values(0, 100)));
        } finally {
            stop(job);
        }
    }

    static void written(DeliveryGuarantee guarantee) throws Exception {
        String in = topic("in", 2), out = topic("out", 2);
        fill(in, 0, 1000);
        StreamExecutionEnvironment flink = environment(true);
        Properties producing = new Properties();
        producing.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, "60000");
        from(flink, source().setTopics(in).setGroupId(unique("g")).setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest()).build())
                .sinkTo(KafkaSink.<String>builder().setBootstrapServers(bootstrap).setDeliveryGuarantee(guarantee)
                        .setTransactionalIdPrefix(unique("txn")).setKafkaProducerConfig(producing)
                        .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder().setTopic(out)
                                .setValueSerializationSchema(new SimpleStringSchema()).build())
                        .build());
        flink.execute();
        List<String> found = collected(source().setTopics(out).setGroupId(unique("g"))
                .setStartingOffsets(OffsetsInitializer.earliest()).setBounded(OffsetsInitializer.latest()).build());
        expect(values(0, 1000), Set.copyOf(found));
    }

    static void restarted() throws Exception {
        String in = topic("in", 2), name = record(unique("restarted"));
        fill(in, 0, 500);
        StreamExecutionEnvironment flink = environment(true);
        failures.set(0);
        from(flink, source().setTopics(in).setGroupId(unique("g")).setStartingOffsets(OffsetsInitializer.earliest()).build())
                .map(value -> {
                    if (value.equals("v700") && failures.incrementAndGet() == 1) throw new IllegalStateException("once");
                    seen.get(name).add(value);
                    return value;
                })
                .sinkTo(new DiscardingSink<>());
        JobClient job = flink.executeAsync();
        try {
            await("the first records are read", () -> seen.get(name).size() == 500);
            fill(in, 500, 1000);
            await("all are read after the failure", () -> seen.get(name).equals(values(0, 1000)));
            if (failures.get() < 2) throw new AssertionError("it did not fail");
        } finally {
            stop(job);
        }
    }
}
