package interop;

import org.apache.avro.Schema;

import org.apache.hudi.HoodieSparkRecordMerger;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.spark.sql.HoodieInternalRowUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/** The record with the higher score, the newer one where both have the same; a delete that it is asked about deletes. */
public class KeepHigher extends HoodieSparkRecordMerger {
    public String getMergingStrategy() {
        return "3f0a1d52-7f6e-4a53-9a52-5d1b7c0e9a11";
    }

    public Option merge(HoodieRecord older, Schema oldSchema, HoodieRecord newer, Schema newSchema, TypedProperties props) {
        if (newer.getData() == null) {
            return Option.empty();
        }
        StructType columns = HoodieInternalRowUtils.getCachedSchema(newSchema);
        InternalRow row = (InternalRow) newer.getData();
        int marker = columns.getFieldIndex("_hoodie_is_deleted").isEmpty() ? -1 : columns.fieldIndex("_hoodie_is_deleted");
        if (marker >= 0 && !row.isNullAt(marker) && row.getBoolean(marker)) {
            return Option.empty();
        }
        if (older.getData() == null) {
            return Option.of(Pair.of(newer, newSchema));
        }
        int place = columns.fieldIndex("score");
        int olderPlace = HoodieInternalRowUtils.getCachedSchema(oldSchema).fieldIndex("score");
        long score = ((InternalRow) older.getData()).getLong(olderPlace);
        if (score <= row.getLong(place)) {
            return Option.of(Pair.of(newer, newSchema));
        }
        return Option.of(Pair.of(older, oldSchema));
    }
}
