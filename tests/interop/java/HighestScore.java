package interop;

import org.apache.avro.Schema;

import org.apache.hudi.HoodieSparkRecordMerger;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.model.HoodieSparkRecord;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.spark.sql.HoodieInternalRowUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.types.StructType;

/** The newer record with the highest score that its key ever had; a delete that it is asked about deletes. */
public class HighestScore extends HoodieSparkRecordMerger {
    public static int merged = 0;
    public static int deletes = 0;

    public String getMergingStrategy() {
        return "3f0a1d52-7f6e-4a53-9a52-5d1b7c0e9a10";
    }

    public Option merge(HoodieRecord older, Schema oldSchema, HoodieRecord newer, Schema newSchema, TypedProperties props) {
        if (newer.getData() == null) {
            deletes += 1;
            return Option.empty();
        }
        StructType columns = HoodieInternalRowUtils.getCachedSchema(newSchema);
        InternalRow row = (InternalRow) newer.getData();
        int marker = columns.getFieldIndex("_hoodie_is_deleted").isEmpty() ? -1 : columns.fieldIndex("_hoodie_is_deleted");
        if (marker >= 0 && !row.isNullAt(marker) && row.getBoolean(marker)) {
            deletes += 1;
            return Option.empty();
        }
        if (older.getData() == null) {
            return Option.of(Pair.of(newer, newSchema));
        }
        merged += 1;
        int place = columns.fieldIndex("score");
        int olderPlace = HoodieInternalRowUtils.getCachedSchema(oldSchema).fieldIndex("score");
        long score = ((InternalRow) older.getData()).getLong(olderPlace);
        if (score <= row.getLong(place)) {
            return Option.of(Pair.of(newer, newSchema));
        }
        Object[] values = new Object[columns.size()];
        for (int n = 0; n < values.length; n += 1) {
            values[n] = row.get(n, columns.fields()[n].dataType());
        }
        values[place] = Long.valueOf(score);
        InternalRow made = UnsafeProjection.create(columns).apply(new GenericInternalRow(values)).copy();
        return Option.of(Pair.of(new HoodieSparkRecord(newer.getKey(), made, columns, false), newSchema));
    }
}
