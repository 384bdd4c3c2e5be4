import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.*;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.test.TestRecord;

/** Reads cases (tests/differential), one JSON a line; runs each in Kafka Streams' own test driver; prints what was written, one a line. */
public class KafkaStreams {
    static final Serde<Long> NUMBER = Serdes.serdeFrom(
        (topic, v) -> v == null ? null : Long.toString(v).getBytes(StandardCharsets.UTF_8),
        (topic, b) -> b == null ? null : Long.parseLong(new String(b, StandardCharsets.UTF_8)));
    static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

    final Map<String, KStream<String, Long>> streams = new HashMap<>();
    final Map<String, KTable<String, Long>> tables = new HashMap<>();
    final List<String> outs = new ArrayList<>();
    final StreamsBuilder builder = new StreamsBuilder();

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            System.out.println(json.writeValueAsString(new KafkaStreams().run(json.readTree(lines.nextLine()), json)));
        }
    }

    ArrayNode run(JsonNode c, ObjectMapper json) {
        for (String topic : List.of("a", "b")) streams.put(topic, builder.stream(topic, Consumed.with(Serdes.String(), NUMBER)));
        tables.put("t", builder.table("t", Consumed.with(Serdes.String(), NUMBER), Materialized.as("t")));
        for (JsonNode step : c.get("steps")) step(step);

        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "case");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        config.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        config.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir") + "/differential-" + UUID.randomUUID());
        ArrayNode written = json.createArrayNode();
        JsonNode input = c.get("input");
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config, Instant.ofEpochMilli(input.get(0).get("ts").asLong()))) {
            Map<String, TestInputTopic<String, Long>> in = new HashMap<>();
            for (String topic : List.of("a", "b", "t")) in.put(topic, driver.createInputTopic(topic, new StringSerializer(), NUMBER.serializer()));
            for (JsonNode r : input) {
                Long value = r.get("value").isNull() ? null : r.get("value").asLong();
                String key = r.get("key").isNull() ? null : r.get("key").asText();
                in.get(r.get("topic").asText()).pipeInput(new TestRecord<>(key, value, new RecordHeaders(), r.get("ts").asLong()));
            }
            for (String out : outs) {
                TestOutputTopic<String, Long> topic = driver.createOutputTopic("out-" + out, new StringDeserializer(), NUMBER.deserializer());
                for (TestRecord<String, Long> r : topic.readRecordsToList()) {
                    ObjectNode o = written.addObject();
                    o.put("topic", "out-" + out).put("key", r.key()).put("value", r.value()).put("ts", r.timestamp());
                }
            }
        }
        return written;
    }

    void step(JsonNode s) {
        String name = s.get("name").asText(), from = s.get("from").asText();
        KStream<String, Long> in = tables.containsKey(from) ? tables.get(from).toStream() : streams.get(from);
        KStream<String, Long> out;
        switch (s.get("op").asText()) {
            case "filter" -> { long m = s.get("mod").asLong(); out = in.filter((k, v) -> v % m != 0); }
            case "add" -> { long n = s.get("add").asLong(); out = in.mapValues(v -> v + n); }
            case "rekey" -> { long m = s.get("mod").asLong(); out = in.selectKey((k, v) -> "k" + v % m); }
            case "twice" -> out = in.flatMapValues(v -> List.of(v, v + 1));
            case "merge" -> out = in.merge(streams.get(s.get("with").asText()));
            case "table" -> { tables.put(name, in.toTable(kept(name))); return; }
            case "group" -> {
                KGroupedStream<String, Long> grouped = in.groupByKey(Grouped.with(Serdes.String(), NUMBER));
                tables.put(name, fold(s, grouped, name));
                out = tables.get(name).toStream();
            }
            case "window" -> out = windowed(s, in.groupByKey(Grouped.with(Serdes.String(), NUMBER)), name);
            case "join-table" -> {
                KTable<String, Long> table = tables.get(s.get("with").asText());
                Joined<String, Long, Long> joined = Joined.with(Serdes.String(), NUMBER, NUMBER);
                ValueJoiner<Long, Long, Long> pair = (v, t) -> v * 1000 + (t == null ? 999 : t);
                out = s.get("kind").asText().equals("inner") ? in.join(table, pair, joined) : in.leftJoin(table, pair, joined);
            }
            case "join-stream" -> {
                KStream<String, Long> other = streams.get(s.get("with").asText());
                JoinWindows w = JoinWindows.ofTimeDifferenceAndGrace(ms(s, "within"), ms(s, "grace")).before(ms(s, "before")).after(ms(s, "after"));
                StreamJoined<String, Long, Long> joined = StreamJoined.with(Serdes.String(), NUMBER, NUMBER).withName(name).withStoreName(name);
                ValueJoiner<Long, Long, Long> pair = (v, o) -> (v == null ? 999 : v) * 1000 + (o == null ? 999 : o);
                out = switch (s.get("kind").asText()) {
                    case "inner" -> in.join(other, pair, w, joined);
                    case "left" -> in.leftJoin(other, pair, w, joined);
                    default -> in.outerJoin(other, pair, w, joined);
                };
            }
            default -> throw new IllegalArgumentException(s.toString());
        }
        streams.put(name, out);
        if (s.get("out").asBoolean()) {
            outs.add(name);
            out.to("out-" + name, Produced.with(Serdes.String(), NUMBER));
        }
    }

    static Duration ms(JsonNode s, String field) { return Duration.ofMillis(s.get(field).asLong()); }

    static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, Long, S> kept(String name) {
        return Materialized.<String, Long, S>as(name).withKeySerde(Serdes.String()).withValueSerde(NUMBER);
    }

    /** What is past the default retention is no longer merged with; for telling what has closed it must be longer. */
    static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, Long, S> keptSession(JsonNode s, String name) {
        return s.get("emit").asText().equals("close") ? KafkaStreams.<S>keptLong(name) : KafkaStreams.<S>kept(name);
    }

    /** With the default retention a jump of the stream time takes windows away before they are told as closed. */
    static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, Long, S> keptLong(String name) {
        return KafkaStreams.<S>kept(name).withRetention(Duration.ofDays(1));
    }

    static KTable<String, Long> fold(JsonNode s, KGroupedStream<String, Long> g, String name) {
        return switch (s.get("fold").asText()) {
            case "count" -> g.count(kept(name));
            case "max" -> g.reduce(Math::max, kept(name));
            default -> g.aggregate(() -> 0L, (k, v, a) -> a + v, kept(name));
        };
    }

    static KStream<String, Long> windowed(JsonNode s, KGroupedStream<String, Long> g, String name) {
        EmitStrategy emit = s.get("emit").asText().equals("close") ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        Duration grace = ms(s, "grace");
        String fold = s.get("fold").asText();
        KTable<Windowed<String>, Long> table;
        if (s.get("kind").asText().equals("session")) {
            SessionWindowedKStream<String, Long> w =
                g.windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(s, "size"), grace)).emitStrategy(emit);
            table = switch (fold) {
                case "count" -> w.count(keptSession(s, name));
                case "max" -> w.reduce(Math::max, keptSession(s, name));
                default -> w.aggregate(() -> 0L, (k, v, a) -> a + v, (k, a, b) -> a + b, keptSession(s, name));
            };
        } else {
            TimeWindowedKStream<String, Long> w = switch (s.get("kind").asText()) {
                case "sliding" -> g.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(s, "size"), grace));
                default -> g.windowedBy(TimeWindows.ofSizeAndGrace(ms(s, "size"), grace).advanceBy(ms(s, "advance")));
            };
            w = w.emitStrategy(emit);
            table = switch (fold) {
                case "count" -> w.count(keptLong(name));
                case "max" -> w.reduce(Math::max, keptLong(name));
                default -> w.aggregate(() -> 0L, (k, v, a) -> a + v, keptLong(name));
            };
        }
        return table.toStream().map((k, v) ->
            KeyValue.pair(k.key() + "@" + TIME.format(k.window().startTime()) + "/" + TIME.format(k.window().endTime()), v));
    }
}
