package conformance;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/** What Holdfast does not do is refused at once, by an error that says so and not by a timeout. */
final class Refusals {
    private Refusals() {}

    private static void onlyHere(World world, String what) {
        if (world.isApacheKafka()) throw new Skipped("Apache Kafka has " + what);
    }

    private static Throwable refusedSoon(java.util.concurrent.Callable<?> call) throws Exception {
        long began = System.nanoTime();
        KafkaException refusal = Expect.refused(KafkaException.class, call);
        Expect.that(!(refusal instanceof TimeoutException), "a refusal is not a timeout: " + refusal);
        Expect.that(System.nanoTime() - began < 10_000_000_000L, "a refusal comes soon");
        return refusal;
    }

    @Scenario
    static void partitionsAreNeverFewer(World world) throws Exception {
        String topic = world.topic(3);
        Expect.refused(ApiException.class, () -> world.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
        Expect.same(3, world.admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size(), "partitions");
    }

    @Scenario
    static void transactionsAreRefused(World world) throws Exception {
        onlyHere(world, "transactions");
        try (var producer = world.producer("transactional.id", world.fresh("transactions"), "max.block.ms", "15000")) {
            refusedSoon(() -> {
                producer.initTransactions();
                return null;
            });
        }
    }

    @Scenario
    static void theConsumerProtocolOfKip848IsRefused(World world) throws Exception {
        onlyHere(world, "groups of the consumer protocol");
        String topic = world.topic(1);
        try (var consumer = world.consumer("group.id", world.fresh("group"), "group.protocol", "consumer")) {
            consumer.subscribe(List.of(topic));
            long until = System.nanoTime() + 10_000_000_000L;
            Throwable refusal = refusedSoon(() -> {
                while (System.nanoTime() < until) consumer.poll(Duration.ofMillis(200));
                return "10 s of polls";
            });
            Expect.that(refusal instanceof UnsupportedVersionException || refusal.getCause() instanceof UnsupportedVersionException,
                    "the error says so: " + refusal);
        }
    }

    @Scenario
    static void accessListsAreRefused(World world) throws Exception {
        onlyHere(world, "access lists");
        Expect.refused(UnsupportedVersionException.class, () -> world.admin.describeAcls(AclBindingFilter.ANY).values().get());
    }
}
