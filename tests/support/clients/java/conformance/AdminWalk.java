package conformance;

import java.io.FileReader;
import java.lang.reflect.Modifier;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Calls every method of Admin once, as an administrator, and prints what became of it: the method, a tab, "answered" or the error. */
final class AdminWalk {
    private static final Set<String> WITHOUT_A_REQUEST =
            Set.of("close", "metrics", "registerMetricForSubscription", "unregisterMetricFromSubscription");

    private AdminWalk() {}

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            properties.load(file);
        }
        try (Admin admin = Admin.create(properties)) {
            Map<String, Callable<?>> calls = calls(admin);
            Set<String> methods = Arrays.stream(Admin.class.getMethods())
                    .filter(method -> !Modifier.isStatic(method.getModifiers()))
                    .map(method -> method.getName())
                    .filter(name -> !WITHOUT_A_REQUEST.contains(name))
                    .collect(Collectors.toCollection(TreeSet::new));
            Set<String> walked = calls.keySet().stream().map(name -> name.split(" ")[0]).collect(Collectors.toCollection(TreeSet::new));
            if (!walked.equals(methods)) throw new AssertionError("walked " + walked + " of " + methods);
            calls.forEach((name, call) -> System.out.println(name + "\t" + outcome(call)));
        }
    }

    private static String outcome(Callable<?> call) {
        try {
            call.call();
            return "answered";
        } catch (ExecutionException refused) {
            return refused.getCause().getClass().getSimpleName() + ": " + refused.getCause().getMessage();
        } catch (Exception refused) {
            return refused.getClass().getSimpleName() + ": " + refused.getMessage();
        }
    }

    @SuppressWarnings({"deprecation", "removal"})
    private static Map<String, Callable<?>> calls(Admin admin) throws Exception {
        String topic = "walk-" + UUID.randomUUID().toString().substring(0, 8), group = topic, user = topic;
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        TopicPartition place = new TopicPartition(topic, 0);
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, node);
        String path = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).keySet().iterator().next();
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(place, new OffsetAndMetadata(0));
        AclBinding acl = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL),
                new AccessControlEntry("User:" + user, "*", AclOperation.READ, AclPermissionType.ALLOW));
        ClientQuotaEntity somebody = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        Map<String, Callable<?>> calls = new LinkedHashMap<>();
        calls.put("createTopics", () -> admin.createTopics(List.of(new NewTopic(topic + "-b", 1, (short) 1))).all().get());
        calls.put("listTopics", () -> admin.listTopics().names().get());
        calls.put("describeTopics", () -> admin.describeTopics(List.of(topic)).allTopicNames().get());
        calls.put("createPartitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get());
        calls.put("listOffsets", () -> admin.listOffsets(Map.of(place, OffsetSpec.latest())).all().get());
        calls.put("deleteRecords", () -> admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(0))).all().get());
        calls.put("describeCluster", () -> {
            var described = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            if (described.authorizedOperations().get().isEmpty()) throw new IllegalStateException("no authorized operations");
            return described.nodes().get();
        });
        for (ConfigResource.Type kind : ConfigResource.Type.values()) {
            if (kind == ConfigResource.Type.UNKNOWN) continue;
            boolean ofNode = kind == ConfigResource.Type.BROKER || kind == ConfigResource.Type.BROKER_LOGGER;
            ConfigResource resource = new ConfigResource(kind, ofNode ? String.valueOf(node) : topic);
            calls.put("describeConfigs (" + kind + ")", () -> admin.describeConfigs(List.of(resource)).all().get());
            String name = kind == ConfigResource.Type.BROKER_LOGGER ? "holdfast" : "retention.ms";
            String value = kind == ConfigResource.Type.BROKER_LOGGER ? "INFO" : "1000000";
            var change = List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET));
            calls.put("incrementalAlterConfigs (" + kind + ")", () -> admin.incrementalAlterConfigs(Map.of(resource, change)).all().get());
        }
        calls.put("listConfigResources", () -> admin.listConfigResources(Set.of(), new ListConfigResourcesOptions()).all().get());
        calls.put("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get());
        calls.put("createAcls", () -> admin.createAcls(List.of(acl)).all().get());
        calls.put("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        calls.put("deleteAcls", () -> admin.deleteAcls(List.of(acl.toFilter())).all().get());
        calls.put("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                user, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), "of-somebody"))).all().get());
        calls.put("describeUserScramCredentials", () -> admin.describeUserScramCredentials(List.of(user)).all().get());
        calls.put("alterClientQuotas", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                somebody, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6))))).all().get());
        calls.put("describeClientQuotas", () -> {
            var found = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
            if (!found.containsKey(somebody)) throw new IllegalStateException("the quota is missing");
            return found;
        });
        calls.put("describeLogDirs", () -> admin.describeLogDirs(List.of(node)).allDescriptions().get());
        calls.put("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get());
        calls.put("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, path)).all().get());
        calls.put("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(group, offsets).all().get());
        calls.put("listConsumerGroupOffsets",
                () -> admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec())).all().get());
        calls.put("listGroups", () -> admin.listGroups().all().get());
        calls.put("listConsumerGroups", () -> admin.listConsumerGroups().all().get());
        calls.put("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(group)).all().get());
        calls.put("describeClassicGroups", () -> admin.describeClassicGroups(List.of(group)).all().get());
        calls.put("removeMembersFromConsumerGroup",
                () -> admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get());
        calls.put("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get());
        calls.put("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        calls.put("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(place)).all().get());
        calls.put("alterPartitionReassignments", () -> admin.alterPartitionReassignments(
                Map.of(place, Optional.of(new NewPartitionReassignment(List.of(node))))).all().get());
        calls.put("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
        calls.put("describeProducers", () -> admin.describeProducers(List.of(place)).all().get());
        calls.put("listTransactions", () -> admin.listTransactions().all().get());
        calls.put("describeTransactions", () -> admin.describeTransactions(List.of("none")).all().get());
        calls.put("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(place, 1, (short) 0, 0)).all().get());
        calls.put("forceTerminateTransaction", () -> admin.forceTerminateTransaction("none").result().get());
        calls.put("fenceProducers", () -> admin.fenceProducers(List.of("none")).all().get());
        calls.put("describeFeatures", () -> admin.describeFeatures().featureMetadata().get());
        calls.put("updateFeatures", () -> admin.updateFeatures(
                Map.of("metadata.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        calls.put("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        calls.put("addRaftVoter", () -> admin.addRaftVoter(9, Uuid.randomUuid(), Set.of()).all().get());
        calls.put("removeRaftVoter", () -> admin.removeRaftVoter(9, Uuid.randomUuid()).all().get());
        calls.put("unregisterBroker", () -> admin.unregisterBroker(9).all().get());
        calls.put("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        calls.put("renewDelegationToken", () -> admin.renewDelegationToken(new byte[1]).expiryTimestamp().get());
        calls.put("expireDelegationToken", () -> admin.expireDelegationToken(new byte[1]).expiryTimestamp().get());
        calls.put("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
        calls.put("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(4)));
        calls.put("describeShareGroups", () -> admin.describeShareGroups(List.of("none")).all().get());
        calls.put("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of("none", new ListShareGroupOffsetsSpec())).all().get());
        calls.put("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("none", Map.of(place, 0L)).all().get());
        calls.put("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("none", Set.of(topic)).all().get());
        calls.put("deleteShareGroups", () -> admin.deleteShareGroups(List.of("none")).all().get());
        calls.put("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("none")).all().get());
        calls.put("listStreamsGroupOffsets",
                () -> admin.listStreamsGroupOffsets(Map.of("none", new ListStreamsGroupOffsetsSpec())).all().get());
        calls.put("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("none", offsets).all().get());
        calls.put("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("none", Set.of(place)).all().get());
        calls.put("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("none")).all().get());
        calls.put("deleteTopics", () -> admin.deleteTopics(List.of(topic, topic + "-b")).all().get());
        return Collections.unmodifiableMap(calls);
    }
}
