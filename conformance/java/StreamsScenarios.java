import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/** What Kafka Streams does for its users, scenario after scenario; each is one line of JSON on stdout. */
public class StreamsScenarios {
    interface Body {
        void run() throws Exception;
    }

    static final Duration WAIT = Duration.ofSeconds(120);
    static String bootstrap;
    static Admin admin;
    static KafkaProducer<String, String> producer;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap));
        producer = new KafkaProducer<>(
                Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap), new StringSerializer(), new StringSerializer());
        scenario("records are mapped and filtered into another topic", StreamsScenarios::stateless);
        scenario("words are counted through a repartition topic and a store", StreamsScenarios::wordCount);
        scenario("internal topics have the settings that Streams asks for", StreamsScenarios::internalTopics);
        scenario("a lost store is restored from its changelog", StreamsScenarios::restore);
        scenario("two instances share the partitions, and one takes over all", StreamsScenarios::twoInstances);
        scenario("windows are counted by record time", StreamsScenarios::windows);
        scenario("streams are joined within a window", StreamsScenarios::streamJoin);
        scenario("a stream is joined with a table and with a global table", StreamsScenarios::tableJoin);
        scenario("tables are joined by a foreign key", StreamsScenarios::foreignKeyJoin);
        scenario("a store is queried", StreamsScenarios::query);
        scenario("standby replicas follow the changelog", StreamsScenarios::standby);
        scenario("an application is reset by deleting its offsets and internal topics", StreamsScenarios::reset);
        scenario("records are processed exactly once", () -> guaranteed(StreamsConfig.EXACTLY_ONCE_V2, null));
        scenario("instances are assigned by the streams group protocol", () -> guaranteed(null, "streams"));
        producer.close();
        admin.close();
    }

    static void scenario(String name, Body body) {
        report(name, "begun", "");
        try {
            body.run();
            report(name, "passed", "");
        } catch (Throwable failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            report(name, "failed", String.valueOf(cause));
            cause.printStackTrace();
        }
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

    // Applications

    static class App implements AutoCloseable {
        final String id;
        final Path state;
        final KafkaStreams streams;
        volatile Throwable failure;

        App(String id, Topology topology, Map<String, Object> more) throws Exception {
            this.id = id;
            this.state = Files.createTempDirectory("streams-");
            Properties settings = new Properties();
            settings.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
            settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
            settings.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
            settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 10_000);
            settings.putAll(more);
            streams = new KafkaStreams(topology, settings);
            streams.setUncaughtExceptionHandler(thrown -> {
                failure = thrown;
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
        }

        App started() throws Exception {
            streams.start();
            await("the application runs", () -> streams.state() == KafkaStreams.State.RUNNING);
            return this;
        }

        void await(String what, BooleanSupplier condition) throws Exception {
            StreamsScenarios.await(() -> what + (failure == null ? "; " + streams.state() : "; " + root(failure)), () -> {
                if (failure != null) throw new IllegalStateException(what + ": " + root(failure));
                return condition.getAsBoolean();
            });
        }

        @Override
        public void close() {
            streams.close(Duration.ofSeconds(30));
            try (Stream<Path> files = Files.walk(state)) {
                files.sorted(Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
            } catch (Exception gone) {
                // what is not there needs no deleting
            }
        }
    }

    static Throwable root(Throwable thrown) {
        return thrown.getCause() == null || thrown.getCause() == thrown ? thrown : root(thrown.getCause());
    }

    static void await(Supplier<String> what, BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + WAIT.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > until) throw new AssertionError("not within " + WAIT + ": " + what.get());
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

    static void send(String topic, String key, String value, long timestamp) throws Exception {
        producer.send(new ProducerRecord<>(topic, null, timestamp, key, value)).get();
    }

    /** The last value of each key, once there are as many and all are as expected. */
    static <V> void expect(App app, String topic, org.apache.kafka.common.serialization.Deserializer<V> values, Map<String, V> expected)
            throws Exception {
        Map<String, V> found = new HashMap<>();
        Map<String, Object> settings = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap, ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        try (KafkaConsumer<String, V> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), values)) {
            List<TopicPartition> all = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(each -> all.add(new TopicPartition(topic, each.partition())));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            app.await(topic + " has " + expected, () -> {
                for (ConsumerRecord<String, V> each : consumer.poll(Duration.ofMillis(200))) found.put(each.key(), each.value());
                return found.equals(expected);
            });
        } catch (AssertionError late) {
            throw new AssertionError("expected " + expected + ", found " + found + ": " + late.getMessage());
        }
    }

    // Scenarios

    static void stateless() throws Exception {
        String in = topic("in", 3), out = topic("out", 3);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(in).filter((key, value) -> !value.isEmpty()).mapValues(value -> value.toUpperCase()).to(out);
        try (App app = new App(unique("stateless"), builder.build(), Map.of()).started()) {
            Map<String, String> expected = new HashMap<>();
            for (int i = 0; i < 100; i++) {
                send(in, "k" + i, i % 10 == 0 ? "" : "value" + i, 1000 + i);
                if (i % 10 != 0) expected.put("k" + i, "VALUE" + i);
            }
            expect(app, out, new StringDeserializer(), expected);
        }
    }

    static Topology counting(String in, String out) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(in)
                .flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .to(out, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    static String countedIn, countedOut, countedId;

    static void wordCount() throws Exception {
        countedIn = topic("lines", 3);
        countedOut = topic("counts", 3);
        countedId = unique("count");
        try (App app = new App(countedId, counting(countedIn, countedOut), Map.of()).started()) {
            for (int i = 0; i < 50; i++) send(countedIn, "line" + i, "to be or not to be", 1000 + i);
            expect(app, countedOut, new LongDeserializer(), Map.of("to", 100L, "be", 100L, "or", 50L, "not", 50L));
        }
    }

    static void internalTopics() throws Exception {
        var changelog = new org.apache.kafka.common.config.ConfigResource(
                org.apache.kafka.common.config.ConfigResource.Type.TOPIC, countedId + "-counts-changelog");
        var described = admin.describeConfigs(List.of(changelog)).all().get().get(changelog);
        if (!described.get("cleanup.policy").value().equals("compact")) throw new AssertionError("the changelog is not compacted");
        var names = admin.listTopics().names().get();
        if (names.stream().noneMatch(each -> each.startsWith(countedId) && each.endsWith("-repartition")))
            throw new AssertionError("there is no repartition topic");
    }

    static void restore() throws Exception {
        // Another state directory: everything it knows comes from the changelog.
        try (App app = new App(countedId, counting(countedIn, countedOut), Map.of()).started()) {
            send(countedIn, "more", "to be", 5000);
            expect(app, countedOut, new LongDeserializer(), Map.of("to", 101L, "be", 101L, "or", 50L, "not", 50L));
        }
    }

    static void twoInstances() throws Exception {
        String in = topic("lines", 6), out = topic("counts", 6), id = unique("two");
        try (App one = new App(id, counting(in, out), Map.of()).started()) {
            for (int i = 0; i < 60; i++) send(in, "line" + i, "a b", 1000 + i);
            try (App two = new App(id, counting(in, out), Map.of()).started()) {
                two.await("both have tasks", () -> tasks(one) > 0 && tasks(two) > 0);
                for (int i = 0; i < 60; i++) send(in, "line" + i, "a b", 2000 + i);
                expect(one, out, new LongDeserializer(), Map.of("a", 120L, "b", 120L));
            }
            one.await("one has every task", () -> tasks(one) == 12);
            for (int i = 0; i < 60; i++) send(in, "line" + i, "a b", 3000 + i);
            expect(one, out, new LongDeserializer(), Map.of("a", 180L, "b", 180L));
        }
    }

    static int tasks(App app) {
        return app.streams.metadataForLocalThreads().stream().mapToInt(each -> each.activeTasks().size()).sum();
    }

    static void windows() throws Exception {
        String in = topic("clicks", 1), out = topic("windows", 1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(in)
                .groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
                .count()
                .toStream()
                .map((key, count) -> KeyValue.pair(key.key() + "@" + key.window().start(), count))
                .to(out, Produced.with(Serdes.String(), Serdes.Long()));
        try (App app = new App(unique("windows"), builder.build(), Map.of()).started()) {
            long start = 1_700_000_000_000L;
            for (int i = 0; i < 30; i++) send(in, "a", "x", start + i * 1000L);
            expect(app, out, new LongDeserializer(), Map.of("a@" + start, 10L, "a@" + (start + 10_000), 10L, "a@" + (start + 20_000), 10L));
        }
    }

    static void streamJoin() throws Exception {
        String left = topic("left", 2), right = topic("right", 2), out = topic("joined", 2);
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lefts = builder.stream(left), rights = builder.stream(right);
        lefts.join(rights, (a, b) -> a + b, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(5)),
                StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String())).to(out);
        try (App app = new App(unique("join"), builder.build(), Map.of()).started()) {
            long start = 1_700_000_000_000L;
            for (int i = 0; i < 20; i++) {
                send(left, "k" + i, "l", start);
                send(right, "k" + i, "r", start + (i % 2 == 0 ? 1000 : 60_000));
            }
            Map<String, String> expected = new HashMap<>();
            for (int i = 0; i < 20; i += 2) expected.put("k" + i, "lr");
            expect(app, out, new StringDeserializer(), expected);
        }
    }

    static void tableJoin() throws Exception {
        String stream = topic("stream", 2), table = topic("table", 2), global = topic("global", 1), out = topic("joined", 2);
        for (int i = 0; i < 10; i++) send(table, "k" + i, "t" + i, 1);
        send(global, "g", "everywhere", 1);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> known = builder.table(table);
        var everywhere = builder.globalTable(global, Consumed.with(Serdes.String(), Serdes.String()));
        builder.<String, String>stream(stream)
                .join(known, (a, b) -> a + b)
                .join(everywhere, (key, value) -> "g", (a, b) -> a + b)
                .to(out);
        try (App app = new App(unique("tables"), builder.build(), Map.of()).started()) {
            Map<String, String> expected = new HashMap<>();
            for (int i = 0; i < 10; i++) {
                send(stream, "k" + i, "s", 10);
                expected.put("k" + i, "st" + i + "everywhere");
            }
            expect(app, out, new StringDeserializer(), expected);
        }
    }

    static void foreignKeyJoin() throws Exception {
        String orders = topic("orders", 2), people = topic("people", 2), out = topic("joined", 2);
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> ordered = builder.table(orders), known = builder.table(people);
        ordered.join(known, value -> value.split(":")[0], (order, person) -> order + "=" + person).toStream().to(out);
        try (App app = new App(unique("foreign"), builder.build(), Map.of()).started()) {
            send(people, "ann", "Ann", 1);
            send(people, "bob", "Bob", 1);
            send(orders, "o1", "ann:1", 2);
            send(orders, "o2", "bob:2", 2);
            expect(app, out, new StringDeserializer(), Map.of("o1", "ann:1=Ann", "o2", "bob:2=Bob"));
        }
    }

    static void query() throws Exception {
        String in = topic("lines", 2), out = topic("counts", 2);
        try (App app = new App(unique("query"), counting(in, out), Map.of()).started()) {
            for (int i = 0; i < 10; i++) send(in, "line" + i, "word", 1000 + i);
            var store = app.streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.<String, Long>keyValueStore()));
            app.await("the store has the count", () -> Long.valueOf(10).equals(store.get("word")));
        }
    }

    static void standby() throws Exception {
        String in = topic("lines", 2), out = topic("counts", 2), id = unique("standby");
        Map<String, Object> more = Map.of(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        try (App one = new App(id, counting(in, out), more).started(); App two = new App(id, counting(in, out), more).started()) {
            for (int i = 0; i < 20; i++) send(in, "line" + i, "word" + i % 4, 1000 + i);
            two.await("both have standby tasks", () -> standbys(one) > 0 && standbys(two) > 0);
            expect(one, out, new LongDeserializer(), Map.of("word0", 5L, "word1", 5L, "word2", 5L, "word3", 5L));
        }
    }

    static int standbys(App app) {
        return app.streams.metadataForLocalThreads().stream().mapToInt(each -> each.standbyTasks().size()).sum();
    }

    static void reset() throws Exception {
        await(() -> countedId + " has no members", () -> {  // Streams does not leave its group, but waits for its session to end
            try {
                admin.deleteConsumerGroups(List.of(countedId)).all().get();
                return true;
            } catch (Exception failed) {
                if (failed.getCause() instanceof GroupNotEmptyException) return false;
                throw new IllegalStateException(failed);
            }
        });
        List<String> internal = new ArrayList<>(admin.listTopics().names().get());
        internal.removeIf(each -> !each.startsWith(countedId));
        if (internal.isEmpty()) throw new AssertionError("no internal topics");
        admin.deleteTopics(internal).all().get();
        await(() -> "the internal topics are gone", () -> {
            try {
                return admin.listTopics().names().get().stream().noneMatch(each -> each.startsWith(countedId));
            } catch (Exception failed) {
                throw new IllegalStateException(failed);
            }
        });
        String out = topic("counts", 3);
        try (App app = new App(countedId, counting(countedIn, out), Map.of()).started()) {
            expect(app, out, new LongDeserializer(), Map.of("to", 101L, "be", 101L, "or", 50L, "not", 50L));
        }
    }

    static void guaranteed(String guarantee, String protocol) throws Exception {
        String in = topic("lines", 2), out = topic("counts", 2);
        Map<String, Object> more = new HashMap<>();
        if (guarantee != null) more.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        if (protocol != null) more.put("group.protocol", protocol);
        try (App app = new App(unique("guaranteed"), counting(in, out), more).started()) {
            for (int i = 0; i < 10; i++) send(in, "line" + i, "word", 1000 + i);
            expect(app, out, new LongDeserializer(), Map.of("word", 10L));
        }
    }
}
