package conformance;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Topics, their settings and the cluster, through the Admin client. */
final class Topics {
    private Topics() {}

    private static void create(World world, NewTopic topic, CreateTopicsOptions options) throws Exception {
        world.admin.createTopics(List.of(topic), options).all().get();
    }

    private static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private static ConfigEntry entry(World world, String topic, String name) throws Exception {
        return world.admin.describeConfigs(Set.of(resource(topic))).all().get().get(resource(topic)).get(name);
    }

    private static void becomes(World world, String topic, String name, String value) throws Exception {
        Expect.eventually(name + " is " + value, () -> value.equals(entry(world, topic, name).value()));
    }

    private static void alter(World world, String topic, AlterConfigOp... operations) throws Exception {
        world.admin.incrementalAlterConfigs(Map.of(resource(topic), (Collection<AlterConfigOp>) List.of(operations))).all().get();
    }

    private static AlterConfigOp set(String name, String value, OpType how) {
        return new AlterConfigOp(new ConfigEntry(name, value), how);
    }

    @Scenario
    static void aTopicIsCreatedDescribedAndDeletedByName(World world) throws Exception {
        String name = world.fresh("topic");
        var created = world.admin.createTopics(List.of(new NewTopic(name, 5, (short) 1).configs(Map.of("retention.ms", "123456789"))));
        Expect.same(5, created.numPartitions(name).get(), "partitions in the answer");
        Expect.same("123456789", created.config(name).get().get("retention.ms").value(), "setting in the answer");
        Uuid id = created.topicId(name).get();
        TopicDescription described = world.admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Expect.same(id, described.topicId(), "topic id");
        Expect.same(5, described.partitions().size(), "partitions");
        Expect.that(!described.isInternal(), "the topic is not internal");
        described.partitions().forEach(partition -> {
            Expect.that(partition.leader() != null && partition.isr().contains(partition.leader()), "the leader is in sync");
        });
        Expect.that(world.admin.listTopics().names().get().contains(name), "the topic is listed");
        Expect.same(id, world.admin.listTopics().namesToListings().get().get(name).topicId(), "topic id in the list");
        world.admin.deleteTopics(List.of(name)).all().get();
        Expect.eventually("the topic is listed no more", () -> !world.admin.listTopics().names().get().contains(name));
        Expect.refused(UnknownTopicOrPartitionException.class, () -> world.admin.describeTopics(List.of(name)).allTopicNames().get());
        Expect.refused(UnknownTopicOrPartitionException.class, () -> world.admin.deleteTopics(List.of(name)).all().get());
    }

    @Scenario
    static void aTopicIsDescribedAndDeletedById(World world) throws Exception {
        String name = world.topic(2);
        Uuid id = world.admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
        TopicDescription described = world.admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        Expect.same(name, described.name(), "name");
        world.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        Expect.eventually("the topic is listed no more", () -> !world.admin.listTopics().names().get().contains(name));
        Expect.refused(UnknownTopicIdException.class,
                () -> world.admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        Expect.refused(UnknownTopicIdException.class,
                () -> world.admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get());
    }

    @Scenario
    static void aTopicMadeAgainHasAnotherIdAndNoneOfTheOldRecords(World world) throws Exception {
        String name = world.topic(1);
        world.fill(name, 1, 10);
        Uuid before = world.admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
        world.admin.deleteTopics(List.of(name)).all().get();
        Expect.eventually("the name is free again", () -> {
            try {
                world.createTopic(name, 1);
                return true;
            } catch (java.util.concurrent.ExecutionException refused) {
                if (refused.getCause() instanceof TopicExistsException) return false;
                throw refused;
            }
        });
        Uuid after = world.admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
        Expect.that(!before.equals(after), "the new topic has another id");
        world.fill(name, 1, 2);
        Expect.same(List.of("0", "1"), World.values(world.readAll(name, 2)), "values");
    }

    @Scenario
    static void manyPartitionsAreDescribedInPages(World world) throws Exception {
        String name = world.topic(9);
        TopicDescription described = world.admin.describeTopics(TopicCollection.ofTopicNames(List.of(name)),
                new DescribeTopicsOptions().partitionSizeLimitPerResponse(2)).allTopicNames().get().get(name);
        Expect.same(9, described.partitions().size(), "partitions");
    }

    @Scenario
    static void aTopicThatCannotBeIsRefusedWithTheReason(World world) throws Exception {
        CreateTopicsOptions options = new CreateTopicsOptions();
        String there = world.topic(1);
        Expect.refused(TopicExistsException.class, () -> { create(world, new NewTopic(there, 1, (short) 1), options); return null; });
        Expect.refused(InvalidPartitionsException.class,
                () -> { create(world, new NewTopic(world.fresh("topic"), 0, (short) 1), options); return null; });
        Expect.refused(InvalidReplicationFactorException.class,
                () -> { create(world, new NewTopic(world.fresh("topic"), 1, (short) 7), options); return null; });
        Expect.refused(InvalidTopicException.class, () -> { create(world, new NewTopic("no blanks", 1, (short) 1), options); return null; });
        Expect.refused(InvalidConfigurationException.class, () -> {
            create(world, new NewTopic(world.fresh("topic"), 1, (short) 1).configs(Map.of("retention.ms", "soon")), options);
            return null;
        });
    }

    @Scenario
    static void aTopicIsCheckedWithoutBeingMade(World world) throws Exception {
        String name = world.fresh("topic");
        create(world, new NewTopic(name, 3, (short) 1), new CreateTopicsOptions().validateOnly(true));
        Expect.that(!world.admin.listTopics().names().get().contains(name), "nothing was created");
    }

    @Scenario
    static void aTopicMayLeaveItsNumbersToTheBroker(World world) throws Exception {
        String name = world.fresh("topic");
        create(world, new NewTopic(name, Optional.empty(), Optional.empty()), new CreateTopicsOptions());
        Expect.that(!world.admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().isEmpty(), "it has partitions");
    }

    @Scenario
    static void settingsOfATopicAreSetAddedToAndTakenBack(World world) throws Exception {
        String topic = world.topic(1);
        Expect.same(ConfigSource.DEFAULT_CONFIG, entry(world, topic, "max.message.bytes").source(), "source before");
        alter(world, topic, set("max.message.bytes", "20000", OpType.SET), set("cleanup.policy", "compact", OpType.SET));
        becomes(world, topic, "max.message.bytes", "20000");
        Expect.same(ConfigSource.DYNAMIC_TOPIC_CONFIG, entry(world, topic, "max.message.bytes").source(), "source");
        alter(world, topic, set("cleanup.policy", "delete", OpType.APPEND));
        becomes(world, topic, "cleanup.policy", "compact,delete");
        alter(world, topic, set("cleanup.policy", "compact", OpType.SUBTRACT), set("max.message.bytes", null, OpType.DELETE));
        becomes(world, topic, "cleanup.policy", "delete");
        Expect.same(ConfigSource.DEFAULT_CONFIG, entry(world, topic, "max.message.bytes").source(), "source after");
        Expect.refused(InvalidConfigurationException.class, () -> { alter(world, topic, set("retention.ms", "soon", OpType.SET)); return null; });
    }

    @Scenario
    static void settingsOfAnUnknownTopicAreAnError(World world) throws Exception {
        String unknown = world.fresh("unknown");
        Expect.refused(UnknownTopicOrPartitionException.class, () -> entry(world, unknown, "retention.ms"));
        Expect.refused(UnknownTopicOrPartitionException.class, () -> { alter(world, unknown, set("retention.ms", "1000", OpType.SET)); return null; });
    }

    @Scenario
    static void settingsOfABrokerAreDescribed(World world) throws Exception {
        int node = world.admin.describeCluster().nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        Config described = world.admin.describeConfigs(Set.of(broker)).all().get().get(broker);
        Expect.that(!described.entries().isEmpty(), "a broker has settings");
    }

    @Scenario
    static void theClusterNamesItsNodesAndItsController(World world) throws Exception {
        var cluster = world.admin.describeCluster();
        Expect.same(1, cluster.nodes().get().size(), "nodes");
        Expect.that(cluster.clusterId().get() != null && !cluster.clusterId().get().isEmpty(), "the cluster has an id");
        Expect.same(cluster.nodes().get().iterator().next().id(), cluster.controller().get().id(), "controller");
    }

    @Scenario
    static void theSizeOfAPartitionIsToldByItsFolder(World world) throws Exception {
        String topic = world.topic(1);
        world.fill(topic, 1, 500);
        int node = world.admin.describeCluster().nodes().get().iterator().next().id();
        var folders = world.admin.describeLogDirs(Set.of(node)).allDescriptions().get().get(node);
        long bytes = folders.values().stream().flatMap(folder -> folder.replicaInfos().entrySet().stream())
                .filter(replica -> replica.getKey().topic().equals(topic))
                .mapToLong(replica -> replica.getValue().size()).sum();
        Expect.that(bytes > 500, "500 records take more than 500 bytes, found " + bytes);
    }
}
