// Moves every partition's leader to its next replica, coordinators' topics included: the same replicas in another order, then the
// election of the first. Run by `dev/stack leaders` with the broker's own jars.

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;

class Leaders {
    public static void main(String[] args) throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            var moves = new HashMap<TopicPartition, Optional<NewPartitionReassignment>>();
            for (var topic : admin.describeTopics(names).allTopicNames().get().values()) {
                for (var partition : topic.partitions()) {
                    var replicas = new ArrayList<>(partition.replicas().stream().map(Node::id).toList());
                    var leader = partition.leader() == null ? 0 : replicas.indexOf(partition.leader().id());
                    Collections.rotate(replicas, -(leader + 1));
                    moves.put(new TopicPartition(topic.name(), partition.partition()), Optional.of(new NewPartitionReassignment(replicas)));
                }
            }
            admin.alterPartitionReassignments(moves).all().get();
            while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
                Thread.sleep(50);
            }
            var failed = admin.electLeaders(ElectionType.PREFERRED, moves.keySet()).partitions().get();
            failed.values().removeIf(why -> why.isEmpty() || why.get() instanceof org.apache.kafka.common.errors.ElectionNotNeededException);
            System.out.println(moves.size() + " leaders moved, but for " + failed);
        }
    }
}
