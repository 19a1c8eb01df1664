/* What makes a table, of HBase's second Thrift interface. */

struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor { 1: required binary name, 10: optional i32 maxVersions }
struct TTableDescriptor { 1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns }
exception TIOError { 1: optional string message, 2: optional bool canRetry }

service THBaseService {
  void createTable(1: TTableDescriptor desc, 2: list<binary> splitKeys) throws (1: TIOError io)
}
