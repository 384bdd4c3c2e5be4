import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Stands in for `kcat -P -b BROKERS -t TOPIC -K SEPARATOR` where there is no kcat: a record for each line of stdin. */
public final class Produce {
    public static void main(String[] args) throws Exception {
        String brokers = null, topic = null, separator = null;
        for (int i = 0; i < args.length; i++) {
            switch (args[i]) {
                case "-P" -> { }
                case "-b" -> brokers = args[++i];
                case "-t" -> topic = args[++i];
                case "-K" -> separator = args[++i];
                default -> throw new IllegalArgumentException("no stand-in for: " + args[i]);
            }
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        StringSerializer text = new StringSerializer();
        try (var producer = new KafkaProducer<>(settings, text, text);
                var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int at = line.indexOf(separator);
                producer.send(new ProducerRecord<>(topic, line.substring(0, at), line.substring(at + separator.length()))).get();
            }
        }
    }
}
