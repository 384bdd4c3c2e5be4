import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes ledger records of many operations, each a copy of one of two: `Many BROKERS TOPIC COUNT RARE HEAD TAIL RARE_HEAD RARE_TAIL`.
 * One in RARE is a copy of the second. Heads and tails, in base64, are what stands before and behind the operation's ID.
 */
public final class Many {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]), rare = Integer.parseInt(args[3]);
        byte[][] parts = new byte[4][];
        for (int i = 0; i < 4; i++) parts[i] = Base64.getDecoder().decode(args[4 + i]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("acks", "1");
        settings.put("batch.size", 500_000);
        settings.put("linger.ms", 100);
        settings.put("compression.type", "lz4");
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (int n = 0; n < count; n++) {
                String id = String.format("many-%07d", n);
                int part = n % rare == 0 ? 2 : 0;
                var value = new ByteArrayOutputStream();
                value.write(parts[part]);
                value.write(id.length() * 2);
                value.write(id.getBytes(StandardCharsets.UTF_8));
                value.write(parts[part + 1]);
                byte[] key = ("s/acme\u001f" + id + "\u001fplace-order").getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(args[1], key, value.toByteArray()));
            }
        }
    }
}
