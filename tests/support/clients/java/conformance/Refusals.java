package conformance;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

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
    static void partitionsAreAdded(World world) throws Exception {
        String topic = world.topic(1);
        world.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        Expect.eventually("it has grown", () -> world.admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 3);
        Throwable again = Expect.refused(InvalidPartitionsException.class,
                () -> world.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get());
        Expect.same("Topic already has 3 partition(s).", again.getMessage(), "message");
    }

    @Scenario
    static void transactionsAreRefused(World world) throws Exception {
        onlyHere(world, "transactions");
        try (var producer = world.producer("transactional.id", world.fresh("transactions"), "max.block.ms", "15000")) {
            Throwable refusal = refusedSoon(() -> {
                producer.initTransactions();
                return null;
            });
            Expect.that(refusal.toString().contains("transactions are not supported"), "the error says so: " + refusal);
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
    static void accessListsAreRefusedWithoutAnAuthorizer(World world) throws Exception {
        Expect.refused(SecurityDisabledException.class, () -> world.admin.describeAcls(AclBindingFilter.ANY).values().get());
        Expect.refused(SecurityDisabledException.class, () -> world.admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
    }

    @Scenario
    static void whatNobodyHasSetIsEmpty(World world) throws Exception {
        Expect.same(Map.of(), world.admin.describeUserScramCredentials().all().get(), "credentials");
        Expect.same(Map.of(), world.admin.listPartitionReassignments().reassignments().get(), "reassignments");
        if (!world.isApacheKafka()) Expect.same(List.of(), List.copyOf(world.admin.listTransactions().all().get()), "transactions");
    }

    @Scenario
    static void quotasAreSetDescribedAndRemoved(World world) throws Exception {
        var somebody = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, world.fresh("client")));
        var limits = Map.of("producer_byte_rate", 1_000_000.0, "consumer_byte_rate", 2_000_000.0, "request_percentage", 50.0);
        var set = limits.entrySet().stream().map(each -> new ClientQuotaAlteration.Op(each.getKey(), each.getValue())).toList();
        world.admin.alterClientQuotas(List.of(new ClientQuotaAlteration(somebody, set))).all().get();
        Expect.same(limits, world.admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(somebody), "quotas");
        var gone = limits.keySet().stream().map(each -> new ClientQuotaAlteration.Op(each, null)).toList();
        world.admin.alterClientQuotas(List.of(new ClientQuotaAlteration(somebody, gone))).all().get();
        Expect.same(null, world.admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().get(somebody), "quotas");
        var wrong = new ClientQuotaAlteration(somebody, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", -1.0)));
        Throwable refusal = refusedSoon(() -> world.admin.alterClientQuotas(List.of(wrong)).all().get());
        Expect.that(!refusal.getMessage().isEmpty(), "the error says so: " + refusal);
    }

    @Scenario
    static void leadersNeedNoElection(World world) throws Exception {
        var partition = new TopicPartition(world.topic(1), 0);
        var elected = world.admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
        Expect.that(elected.get(partition).orElseThrow() instanceof ElectionNotNeededException, "the error says so: " + elected);
    }

    @Scenario
    static void topicsAndBrokersAreListedAsResources(World world) throws Exception {
        String topic = world.topic(1);
        var listed = world.admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions()).all().get();
        Expect.that(listed.contains(new ConfigResource(ConfigResource.Type.TOPIC, topic)), topic + " is one of " + listed);
    }

    @Scenario
    static void whatCannotBeSetIsRefusedWithTheReason(World world) throws Exception {
        onlyHere(world, "replicas and a quorum");
        var partition = new TopicPartition(world.topic(1), 0);
        var moved = Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(4711))));
        Throwable refusal = refusedSoon(() -> world.admin.alterPartitionReassignments(moved).all().get());
        Expect.that(refusal.getMessage().contains("includes broker 4711, but no such broker is registered"), "the error says so: " + refusal);
        refusal = refusedSoon(() -> world.admin.describeMetadataQuorum().quorumInfo().get());
        Expect.that(refusal instanceof UnsupportedVersionException, "the error says so: " + refusal);
    }
}
