package org.apache.hudi.client.transaction.lock;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.UUID;
import java.util.function.Supplier;

import org.apache.hudi.client.transaction.lock.metrics.HoodieLockMetrics;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockProviderHeartbeatManager;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.util.Functions;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import org.slf4j.LoggerFactory;

/** Hudi's storage-based lock provider with the lock object in a local file; its own clients are for S3 and GCS. */
public class LocalStorageLock {
    private final StorageBasedLockProvider provider;

    public LocalStorageLock(String basePath, long validitySecs, long renewSecs) {
        TypedProperties options = new TypedProperties();
        options.setProperty("hoodie.base.path", basePath);
        options.setProperty("hoodie.write.lock.storage.validity.timeout.secs", String.valueOf(validitySecs));
        options.setProperty("hoodie.write.lock.storage.renew.interval.secs", String.valueOf(renewSecs));
        provider = new StorageBasedLockProvider(
            UUID.randomUUID().toString(), options, new Heartbeats(), new Clients(),
            LoggerFactory.getLogger(StorageBasedLockProvider.class), null);
    }

    public boolean tryLock() {
        return provider.tryLock();
    }

    public boolean renew() {
        return provider.renewLock();
    }

    public void unlock() {
        provider.unlock();
    }

    public void close() {
        provider.close();
    }

    public static class Heartbeats implements Functions.Function3 {
        public Object apply(Object owner, Object intervalMs, Object renewal) {
            return new LockProviderHeartbeatManager((String) owner, ((Long) intervalMs).longValue(), (Supplier) renewal);
        }
    }

    public static class Clients implements Functions.Function3 {
        public Object apply(Object owner, Object lockFile, Object options) {
            return new Client(Paths.get(new File((String) lockFile).getPath(), new String[0]));
        }
    }

    /** Not atomic: a test uses it while nobody else changes the object. */
    public static class Client implements StorageLockClient {
        private final Path lockFile;

        public Client(Path lockFile) {
            this.lockFile = lockFile;
        }

        public Pair tryUpsertLockFile(StorageLockData data, Option previous) {
            try {
                String stored = Files.exists(lockFile, new java.nio.file.LinkOption[0]) ? text(lockFile) : null;
                String expected = previous.isPresent() ? ((StorageLockFile) previous.get()).getVersionId() : null;
                if (stored == null ? expected != null : !stored.equals(expected)) {
                    return Pair.of(LockUpsertResult.ACQUIRED_BY_OTHERS, Option.empty());
                }
                byte[] written = StorageLockFile.toByteArray(data);
                Files.createDirectories(lockFile.getParent(), new java.nio.file.attribute.FileAttribute[0]);
                Files.write(lockFile, written, new java.nio.file.OpenOption[0]);
                return Pair.of(LockUpsertResult.SUCCESS,
                    Option.of(new StorageLockFile(data, new String(written, StandardCharsets.UTF_8))));
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }

        public Pair readCurrentLockFile() {
            try {
                if (!Files.exists(lockFile, new java.nio.file.LinkOption[0])) {
                    return Pair.of(LockGetResult.NOT_EXISTS, Option.empty());
                }
                String stored = text(lockFile);
                return Pair.of(LockGetResult.SUCCESS, Option.of(StorageLockFile.createFromStream(
                    new java.io.ByteArrayInputStream(stored.getBytes(StandardCharsets.UTF_8)), stored)));
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }

        public Option readObject(String path, boolean checkExistsFirst) {
            try {
                Path file = Paths.get(path, new String[0]);
                return Files.exists(file, new java.nio.file.LinkOption[0]) ? Option.of(text(file)) : Option.empty();
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }

        public boolean writeObject(String path, String content) {
            try {
                Path file = Paths.get(path, new String[0]);
                Files.createDirectories(file.getParent(), new java.nio.file.attribute.FileAttribute[0]);
                Files.write(file, content.getBytes(StandardCharsets.UTF_8), new java.nio.file.OpenOption[0]);
                return true;
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }

        public void close() {
        }

        private static String text(Path file) throws java.io.IOException {
            return new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
        }
    }
}
