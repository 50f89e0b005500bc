package conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

/** Groups as an operator sees and changes them, through the Admin client. */
final class Members {
    private Members() {}

    private static Map<TopicPartition, OffsetAndMetadata> committed(World world, String group) throws Exception {
        return world.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
    }

    private static void commit(World world, String group, TopicPartition partition, long offset) throws Exception {
        world.admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(offset))).all().get();
    }

    @Scenario
    static void aGroupIsListedWithItsState(World world) throws Exception {
        String topic = world.topic(1);
        String active = world.fresh("group");
        String empty = world.fresh("group");
        commit(world, empty, new TopicPartition(topic, 0), 0);
        try (Poller member = Groups.member(world, active, topic)) {
            Groups.shared(1, member);
            Map<String, GroupListing> all = world.admin.listGroups().all().get().stream()
                    .collect(Collectors.toMap(GroupListing::groupId, listing -> listing));
            Expect.same("consumer", all.get(active).protocol(), "protocol type");
            Expect.same(GroupState.STABLE, all.get(active).groupState().get(), "state of the active group");
            Expect.same(GroupState.EMPTY, all.get(empty).groupState().get(), "state of the empty group");
            Set<String> stable = world.admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))).all().get()
                    .stream().map(GroupListing::groupId).collect(Collectors.toSet());
            Expect.that(stable.contains(active) && !stable.contains(empty), "the list can be restricted to a state");
            Set<String> consumers = world.admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get()
                    .stream().map(GroupListing::groupId).collect(Collectors.toSet());
            Expect.that(consumers.containsAll(Set.of(active, empty)), "both are groups of consumers");
        }
    }

    @Scenario
    static void aGroupIsDescribedWithItsMembers(World world) throws Exception {
        String topic = world.topic(3);
        String group = world.fresh("group");
        try (Poller first = Groups.member(world, group, topic, "client.id", "ann", "group.instance.id", "seat-1");
                Poller second = Groups.member(world, group, topic, "client.id", "bob")) {
            Groups.shared(3, first, second);
            ConsumerGroupDescription described = Groups.described(world, group);
            Expect.same(GroupState.STABLE, described.groupState(), "state");
            Expect.same(2, described.members().size(), "members");
            Expect.that(described.coordinator() != null, "the coordinator is named");
            for (var member : described.members()) {
                boolean ann = member.clientId().equals("ann");
                Expect.same(ann ? "seat-1" : null, member.groupInstanceId().orElse(null), "instance");
                Expect.that(member.host().contains("127.0.0.1"), "the host is known: " + member.host());
                Set<Integer> partitions = member.assignment().topicPartitions().stream().map(TopicPartition::partition)
                        .collect(Collectors.toSet());
                Expect.same(Set.copyOf((ann ? first : second).assigned), partitions, "assignment");
            }
        }
        String unknown = world.fresh("unknown");
        Expect.refused(GroupIdNotFoundException.class, () -> Groups.described(world, unknown));
    }

    @Scenario
    static void offsetsOfSeveralGroupsAreListedInOneCall(World world) throws Exception {
        TopicPartition partition = new TopicPartition(world.topic(1), 0);
        String one = world.fresh("group");
        String two = world.fresh("group");
        commit(world, one, partition, 0);
        commit(world, two, partition, 0);
        var listed = world.admin.listConsumerGroupOffsets(Map.of(one, new ListConsumerGroupOffsetsSpec(),
                two, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(partition)))).all().get();
        Expect.same(0L, listed.get(one).get(partition).offset(), "offset of one");
        Expect.same(0L, listed.get(two).get(partition).offset(), "offset of two");
        Expect.same(Map.of(), committed(world, world.fresh("unknown")), "offsets of an unknown group");
    }

    @Scenario
    static void offsetsAreAlteredOnlyWhileNobodyReads(World world) throws Exception {
        String topic = world.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = world.fresh("group");
        world.fill(topic, 1, 10);
        try (Poller member = Groups.member(world, group, topic)) {
            Groups.allReadOnce(10, member);
            Expect.refused(UnknownMemberIdException.class, () -> { commit(world, group, partition, 3); return null; });
            Expect.same(10L, committed(world, group).get(partition).offset(), "offset of the active group");
        }
        commit(world, group, partition, 7);
        try (Poller member = Groups.member(world, group, topic)) {
            Expect.eventually("the next member reads from there", () -> member.values.size() >= 3);
            Expect.same(List.of("7", "8", "9"), member.values, "values");
        }
    }

    @Scenario
    static void offsetsAreDeletedOnlyOfTopicsThatNobodyReads(World world) throws Exception {
        String read = world.topic(1);
        TopicPartition active = new TopicPartition(read, 0);
        TopicPartition idle = new TopicPartition(world.topic(1), 0);
        String group = world.fresh("group");
        world.admin.alterConsumerGroupOffsets(group, Map.of(active, new OffsetAndMetadata(0), idle, new OffsetAndMetadata(0))).all().get();
        try (Poller member = Groups.member(world, group, read)) {
            Groups.shared(1, member);
            var mixed = world.admin.deleteConsumerGroupOffsets(group, Set.of(active, idle));
            Expect.refused(GroupSubscribedToTopicException.class, () -> mixed.partitionResult(active).get());
            mixed.partitionResult(idle).get();
        }
        Expect.same(Set.of(active), committed(world, group).keySet(), "offsets left");
        world.admin.deleteConsumerGroupOffsets(group, Set.of(active)).all().get();
        String unknown = world.fresh("unknown");
        Expect.refused(GroupIdNotFoundException.class,
                () -> world.admin.deleteConsumerGroupOffsets(unknown, Set.of(active)).all().get());
    }

    @Scenario
    static void aGroupIsDeletedOnceItIsEmpty(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.fresh("group");
        world.fill(topic, 1, 5);
        try (Poller member = Groups.member(world, group, topic)) {
            Groups.allReadOnce(5, member);
            Expect.refused(GroupNotEmptyException.class, () -> world.admin.deleteConsumerGroups(List.of(group)).all().get());
        }
        world.admin.deleteConsumerGroups(List.of(group)).all().get();
        Expect.same(Map.of(), committed(world, group), "offsets after the group");
        Expect.refused(GroupIdNotFoundException.class, () -> world.admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    @Scenario
    static void aStaticMemberIsRemovedByItsInstance(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        try (Poller gone = Groups.member(world, group, topic, "group.instance.id", "gone");
                Poller stays = Groups.member(world, group, topic, "group.instance.id", "stays")) {
            Groups.shared(2, gone, stays);
            gone.close(); // a static member says no farewell
            Expect.same(2, Groups.described(world, group).members().size(), "members");
            world.admin.removeMembersFromConsumerGroup(group,
                    new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("gone")))).all().get();
            Groups.shared(2, stays);
            var unknown = world.admin.removeMembersFromConsumerGroup(group,
                    new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("nobody"))));
            Expect.refused(UnknownMemberIdException.class, () -> unknown.memberResult(new MemberToRemove("nobody")).get());
        }
    }

    @Scenario
    static void everyMemberIsRemovedAtOnceAndTheLivingComeBack(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        try (Poller first = Groups.member(world, group, topic); Poller second = Groups.member(world, group, topic)) {
            Groups.shared(2, first, second);
            Set<String> before = Groups.described(world, group).members().stream().map(member -> member.consumerId()).collect(Collectors.toSet());
            world.admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
            Expect.eventually("both are back under new names", () -> {
                ConsumerGroupDescription now = Groups.described(world, group);
                return now.groupState() == GroupState.STABLE && now.members().size() == 2
                        && now.members().stream().noneMatch(member -> before.contains(member.consumerId()));
            });
            world.fill(topic, 2, 10);
            Groups.allReadOnce(10, first, second);
        }
    }
}
