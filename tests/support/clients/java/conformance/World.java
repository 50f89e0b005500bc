package conformance;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The broker under test and short words for what every scenario does with it. Names are fresh, so scenarios may run side by side. */
final class World implements AutoCloseable {
    final String bootstrap;
    final Admin admin;
    final Path shapes;
    private final String kind;

    World(String bootstrap, String kind, Path shapes) {
        this.bootstrap = bootstrap;
        this.kind = kind;
        this.shapes = shapes;
        admin = Admin.create(properties());
    }

    @Override
    public void close() {
        admin.close(Duration.ofSeconds(1));
    }

    boolean isApacheKafka() {
        return kind.equals("apache");
    }

    /** Settings come as name, value, name, value. */
    Properties properties(String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < settings.length; at += 2) properties.put(settings[at], settings[at + 1]);
        return properties;
    }

    String fresh(String hint) {
        return hint + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    String topic(int partitions, String... configs) throws Exception {
        String name = fresh("topic");
        createTopic(name, partitions, configs);
        return name;
    }

    void createTopic(String name, int partitions, String... configs) throws Exception {
        Map<String, String> chosen = new HashMap<>(Map.of("retention.ms", "-1")); // some records are dated long ago
        for (int at = 0; at < configs.length; at += 2) chosen.put(configs[at], configs[at + 1]);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(chosen))).all().get();
        Expect.eventually(name + " has leaders", () -> led(name, partitions));
    }

    private boolean led(String name, int partitions) throws Exception {
        try {
            var described = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions();
            return described.stream().filter(partition -> partition.leader() != null).count() == partitions;
        } catch (ExecutionException notYet) {
            if (notYet.getCause() instanceof UnknownTopicOrPartitionException) return false;
            throw notYet;
        }
    }

    KafkaProducer<byte[], byte[]> producer(String... settings) {
        Properties properties = properties("delivery.timeout.ms", "60000", "request.timeout.ms", "15000");
        properties.putAll(properties(settings));
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(String... settings) {
        Properties properties = properties("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        properties.putAll(properties(settings));
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Values "0", "1", ... round robin over the topic's partitions, each acknowledged. */
    void fill(String topic, int partitions, int records) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            send(producer, IntStream.range(0, records)
                    .mapToObj(n -> new ProducerRecord<byte[], byte[]>(topic, n % partitions, null, bytes("" + n)))
                    .toList());
        }
    }

    List<RecordMetadata> send(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> record : records) sent.add(producer.send(record));
        List<RecordMetadata> answers = new ArrayList<>();
        for (Future<RecordMetadata> answer : sent) answers.add(answer.get());
        return answers;
    }

    /** Exactly this many records, or a failure; one more short poll shows that there are no more. */
    List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int records) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long until = System.nanoTime() + 60_000_000_000L;
        while (found.size() < records && System.nanoTime() < until) consumer.poll(Duration.ofMillis(100)).forEach(found::add);
        consumer.poll(Duration.ofMillis(50)).forEach(found::add);
        Expect.same(records, found.size(), "records read");
        return found;
    }

    List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int records, String... settings) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            assignAll(consumer, topic);
            return read(consumer, records);
        }
    }

    List<TopicPartition> assignAll(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .toList();
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        return partitions;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static List<String> values(List<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(record -> text(record.value())).collect(Collectors.toList());
    }

    static List<String> numbers(int from, int until) {
        return IntStream.range(from, until).mapToObj(Integer::toString).toList();
    }
}
