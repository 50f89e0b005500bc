package conformance;

import static conformance.World.numbers;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;

/** Members that join, share, leave and come back under the classic protocol, with every assignor. */
final class Groups {
    private Groups() {}

    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> NAMED = Map.of(
            "range", ASSIGNORS + "RangeAssignor",
            "roundrobin", ASSIGNORS + "RoundRobinAssignor",
            "sticky", ASSIGNORS + "StickyAssignor",
            "cooperative-sticky", ASSIGNORS + "CooperativeStickyAssignor");

    static Poller member(World world, String group, String topic, String... settings) {
        List<String> all = new ArrayList<>(List.of("group.id", group, "heartbeat.interval.ms", "200"));
        all.addAll(List.of(settings));
        return Poller.of(world.consumer(all.toArray(String[]::new)), topic);
    }

    static void shared(int partitions, Poller... members) throws Exception {
        Expect.eventually(partitions + " partitions are shared by " + members.length, () -> {
            Set<Integer> together = new HashSet<>();
            int held = 0;
            for (Poller member : members) {
                if (member.failure != null) throw new AssertionError("a member failed", member.failure);
                if (member.assigned.isEmpty()) return false;
                together.addAll(member.assigned);
                held += member.assigned.size();
            }
            return together.size() == partitions && held == partitions;
        });
    }

    static void allReadOnce(int records, Poller... members) throws Exception {
        Expect.eventually(records + " records are read", () -> {
            int read = 0;
            for (Poller member : members) {
                if (member.failure != null) throw new AssertionError("a member failed", member.failure);
                read += member.values.size();
            }
            return read >= records;
        });
        List<String> found = new ArrayList<>();
        for (Poller member : members) found.addAll(member.values);
        found.sort(Comparator.comparingInt(Integer::parseInt));
        Expect.same(numbers(0, records), found, "values read by the group");
    }

    static ConsumerGroupDescription described(World world, String group) throws Exception {
        return world.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    @Scenario({"range", "roundrobin", "sticky", "cooperative-sticky"})
    static void twoMembersShareTheirTopicAndOneTakesOverWhenTheOtherLeaves(World world, String assignor) throws Exception {
        String topic = world.topic(4);
        String group = world.fresh("group");
        String[] settings = {"partition.assignment.strategy", NAMED.get(assignor)};
        try (Poller first = member(world, group, topic, settings)) {
            shared(4, first);
            Poller second = member(world, group, topic, settings);
            try (second) {
                shared(4, first, second);
                Expect.same(2, first.assigned.size(), "partitions of the first");
                world.fill(topic, 4, 400);
                allReadOnce(400, first, second);
                Expect.same(assignor, described(world, group).partitionAssignor(), "assignor chosen");
            }
            shared(4, first);
            int before = second.values.size();
            world.fill(topic, 4, 40);
            Expect.eventually("the first reads on alone", () -> first.values.size() >= 440 - before);
            Expect.same(440 - before, first.values.size(), "records of the first");
        }
    }

    @Scenario
    static void cooperativeMembersKeepWhatTheyNeedNotGive(World world) throws Exception {
        String topic = world.topic(6);
        String group = world.fresh("group");
        String[] settings = {"partition.assignment.strategy", NAMED.get("cooperative-sticky")};
        try (Poller first = member(world, group, topic, settings)) {
            shared(6, first);
            try (Poller second = member(world, group, topic, settings)) {
                shared(6, first, second);
                Expect.same(3, first.assigned.size(), "partitions kept");
                int given = first.revocations.stream().mapToInt(Set::size).sum();
                Expect.same(3, given, "partitions revoked from the first");
            }
        }
    }

    @Scenario
    static void theAssignorIsOneThatEveryMemberKnows(World world) throws Exception {
        String topic = world.topic(4);
        String group = world.fresh("group");
        String both = NAMED.get("range") + "," + NAMED.get("roundrobin");
        try (Poller first = member(world, group, topic, "partition.assignment.strategy", both)) {
            shared(4, first);
            Expect.same("range", described(world, group).partitionAssignor(), "assignor of the first alone");
            try (Poller second = member(world, group, topic, "partition.assignment.strategy", NAMED.get("roundrobin"))) {
                shared(4, first, second);
                Expect.same("roundrobin", described(world, group).partitionAssignor(), "assignor of both");
            }
        }
    }

    @Scenario
    static void aMemberWithoutACommonAssignorIsRefused(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        try (Poller first = member(world, group, topic, "partition.assignment.strategy", NAMED.get("range"));
                Poller stranger = lateStranger(world, group, topic, first)) {
            Expect.eventually("the stranger is refused", () -> stranger.failure != null);
            Expect.that(stranger.failure instanceof InconsistentGroupProtocolException, "the error says so: " + stranger.failure);
            shared(2, first);
        }
    }

    private static Poller lateStranger(World world, String group, String topic, Poller first) throws Exception {
        shared(2, first);
        return member(world, group, topic, "partition.assignment.strategy", NAMED.get("sticky"));
    }

    @Scenario
    static void aStaticMemberComesBackToItsPartitionsWithoutARebalance(World world) throws Exception {
        String topic = world.topic(4);
        String group = world.fresh("group");
        String[] other = {"group.instance.id", "two", "session.timeout.ms", "10000"};
        try (Poller first = member(world, group, topic, "group.instance.id", "one", "session.timeout.ms", "10000")) {
            Set<Integer> before;
            int revocations;
            Poller second = member(world, group, topic, other);
            try (second) {
                shared(4, first, second);
                before = second.assigned;
                revocations = first.revocations.size();
            }
            try (Poller again = member(world, group, topic, other)) {
                Expect.eventually("the second is back", () -> !again.assigned.isEmpty());
                Expect.same(before, again.assigned, "partitions of the second");
                Expect.same(revocations, first.revocations.size(), "revocations of the first");
            }
        }
    }

    @Scenario
    static void aStaticMemberIsFencedByItsDouble(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        try (Poller first = member(world, group, topic, "group.instance.id", "one")) {
            shared(2, first);
            try (Poller copy = member(world, group, topic, "group.instance.id", "one")) {
                Expect.eventually("the first is fenced", () -> first.failure != null);
                Expect.that(first.failure instanceof FencedInstanceIdException, "the error says so: " + first.failure);
                shared(2, copy);
            }
        }
    }

    @Scenario
    static void aClosedMemberIsGoneAtOnce(World world) throws Exception {
        String topic = world.topic(1);
        String group = world.fresh("group");
        world.fill(topic, 1, 1); // an empty group without offsets may be forgotten at any time
        try (Poller member = member(world, group, topic)) {
            allReadOnce(1, member);
            Expect.same(GroupState.STABLE, described(world, group).groupState(), "state");
        }
        ConsumerGroupDescription after = described(world, group);
        Expect.same(GroupState.EMPTY, after.groupState(), "state after the last has left");
        Expect.same(0, after.members().size(), "members");
    }

    @Scenario
    static void aPatternTakesInATopicThatIsCreatedLater(World world) throws Exception {
        String prefix = world.fresh("pattern");
        world.createTopic(prefix + "-a", 1);
        var consumer = world.consumer("group.id", world.fresh("group"), "metadata.max.age.ms", "300", "heartbeat.interval.ms", "200");
        try (Poller member = Poller.of(consumer, Pattern.compile(prefix + "-.*"))) {
            Expect.eventually("the first topic is assigned", () -> member.topics.contains(prefix + "-a"));
            world.createTopic(prefix + "-b", 1);
            Expect.eventually("the second topic is assigned", () -> member.topics.contains(prefix + "-b"));
            world.fill(prefix + "-b", 1, 5);
            Expect.eventually("the second topic is read", () -> member.values.size() == 5);
        }
    }

    @Scenario
    static void aMemberThatStopsPollingLosesItsPartitionsAndItsCommit(World world) throws Exception {
        String topic = world.topic(2);
        String group = world.fresh("group");
        try (Poller slow = member(world, group, topic, "max.poll.interval.ms", "1500")) {
            shared(2, slow);
            CountDownLatch hold = new CountDownLatch(1);
            slow.hold = hold;
            world.fill(topic, 2, 10);
            try (Poller other = member(world, group, topic)) {
                Expect.eventually("the other reads everything", () -> other.values.size() == 10);
                hold.countDown();
                Expect.eventually("the slow one's commit is refused", () -> slow.failure != null);
                Expect.that(slow.failure instanceof CommitFailedException, "the error says so: " + slow.failure);
                Expect.same(List.of(), slow.values, "values of the slow one");
            }
        }
    }

    @Scenario
    static void fiveMembersComeAndGoAndEveryRecordIsReadOnce(World world) throws Exception {
        String topic = world.topic(8);
        String group = world.fresh("group");
        String[] settings = {"partition.assignment.strategy", NAMED.get("cooperative-sticky"), "session.timeout.ms", "6000"};
        List<Poller> members = new ArrayList<>();
        List<Exception> failures = new ArrayList<>();
        Thread writer = new Thread(() -> {
            try {
                world.fill(topic, 8, 4_000);
            } catch (Exception failure) {
                failures.add(failure);
            }
        });
        try {
            for (int n = 0; n < 3; n++) members.add(member(world, group, topic, settings));
            shared(8, members.toArray(Poller[]::new));
            writer.start();
            members.get(0).close();
            for (int n = 0; n < 2; n++) members.add(member(world, group, topic, settings));
            members.get(1).close();
            allReadOnce(4_000, members.toArray(Poller[]::new));
        } finally {
            writer.join();
            Expect.same(List.of(), failures, "failures to write");
            for (Poller member : members) member.close();
        }
    }
}
