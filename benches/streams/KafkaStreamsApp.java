import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.*;

/** The same three topologies in Kafka Streams: `KafkaStreamsApp passthrough|count|windowed INPUT OUTPUT name=value…`. */
public class KafkaStreamsApp {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, byte[]> in = builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.ByteArray()));
        KGroupedStream<String, byte[]> grouped = in.groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()));
        switch (args[0]) {
            case "passthrough" -> in.to(args[2], Produced.with(Serdes.String(), Serdes.ByteArray()));
            case "count" -> grouped.count(Materialized.as("counts")).toStream().to(args[2], Produced.with(Serdes.String(), Serdes.Long()));
            case "windowed" -> grouped
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(10)))
                .count(Materialized.as("counts"))
                .toStream()
                .map((key, n) -> KeyValue.pair(key.key() + "@" + key.window().start(), n))
                .to(args[2], Produced.with(Serdes.String(), Serdes.Long()));
            default -> throw new IllegalArgumentException("no such topology: " + args[0]);
        }
        Properties config = new Properties();
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        for (int i = 3; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            config.put(setting[0], setting[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }
}
