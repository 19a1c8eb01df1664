package interop;

import java.io.IOException;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hudi.common.model.OverwriteWithLatestAvroPayload;
import org.apache.hudi.common.util.Option;

/** The newer record with the highest score that its key ever had. */
public class HighestScorePayload extends OverwriteWithLatestAvroPayload {
    public HighestScorePayload(GenericRecord record, Comparable ordering) {
        super(record, ordering);
    }

    public HighestScorePayload(Option record) {
        super(record);
    }

    public Option combineAndGetUpdateValue(IndexedRecord stored, Schema schema, Properties properties) throws IOException {
        Option mine = getInsertValue(schema, properties);
        return mine.isPresent() ? Option.of(merged((GenericRecord) stored, (GenericRecord) mine.get())) : mine;
    }

    public OverwriteWithLatestAvroPayload preCombine(
        OverwriteWithLatestAvroPayload older, Schema schema, Properties properties) {
        try {
            Option mine = getInsertValue(schema, properties);
            Option other = older.getInsertValue(schema, properties);
            if (!mine.isPresent() || !other.isPresent()) {
                return this;
            }
            return new HighestScorePayload(merged((GenericRecord) other.get(), (GenericRecord) mine.get()), orderingVal);
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    private static GenericRecord merged(GenericRecord older, GenericRecord newer) {
        if (((Long) older.get("score")).longValue() > ((Long) newer.get("score")).longValue()) {
            newer.put("score", older.get("score"));
        }
        return newer;
    }
}
