/* The lock calls of the Hive metastore, with the numbers and names of Hive's own interface. */

enum LockState { ACQUIRED = 1, WAITING = 2, ABORT = 3, NOT_ACQUIRED = 4 }
enum LockType { SHARED_READ = 1, SHARED_WRITE = 2, EXCLUSIVE = 3 }
enum LockLevel { DB = 1, TABLE = 2, PARTITION = 3 }
enum DataOperationType { SELECT = 1, INSERT = 2, UPDATE = 3, DELETE = 4, UNSET = 5, NO_TXN = 6 }

exception MetaException { 1: string message }
exception NoSuchTxnException { 1: string message }
exception NoSuchLockException { 1: string message }
exception TxnOpenException { 1: string message }
exception TxnAbortedException { 1: string message }

struct LockComponent {
  1: required LockType type,
  2: required LockLevel level,
  3: required string dbname,
  4: optional string tablename,
  5: optional string partitionname,
  6: optional DataOperationType operationType = DataOperationType.UNSET,
  7: optional bool isAcid = false
}
struct LockRequest {
  1: required list<LockComponent> component,
  2: optional i64 txnid,
  3: required string user,
  4: required string hostname,
  5: optional string agentInfo
}
struct LockResponse { 1: required i64 lockid, 2: required LockState state }
struct UnlockRequest { 1: required i64 lockid }
struct HeartbeatRequest { 1: optional i64 lockid, 2: optional i64 txnid }
struct ShowLocksRequest { 1: optional string dbname, 2: optional string tablename }
struct ShowLocksResponseElement {
  1: required i64 lockid,
  2: required string dbname,
  3: optional string tablename,
  5: required LockState state,
  10: required string user,
  11: required string hostname,
  13: optional string agentInfo
}
struct ShowLocksResponse { 1: list<ShowLocksResponseElement> locks }

service HiveMetastore {
  LockResponse lock(1: LockRequest rqst) throws (1: NoSuchTxnException o1, 2: TxnAbortedException o2)
  void unlock(1: UnlockRequest rqst) throws (1: NoSuchLockException o1, 2: TxnOpenException o2)
  ShowLocksResponse show_locks(1: ShowLocksRequest rqst)
  void heartbeat(1: HeartbeatRequest ids) throws (1: NoSuchLockException o1, 2: NoSuchTxnException o2, 3: TxnAbortedException o3)
}
