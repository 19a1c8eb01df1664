import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

/** MiniHdfs DIR NAMENODE_PORT HTTP_PORT: one NameNode and one DataNode in this JVM, until it is killed. */
public class MiniHdfs {
  public static void main(String[] words) throws Exception {
    Configuration conf = new Configuration();
    conf.set("dfs.namenode.http-bind-host", "127.0.0.1");
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, new File(words[0]))
            .nnTopology(
                new MiniDFSNNTopology()
                    .addNameservice(
                        new MiniDFSNNTopology.NSConf(null)
                            .addNN(
                                new MiniDFSNNTopology.NNConf(null)
                                    .setIpcPort(Integer.parseInt(words[1]))
                                    .setHttpPort(Integer.parseInt(words[2])))))
            .numDataNodes(1)
            .build();
    cluster.waitActive();
    System.out.println("READY");
    Thread.sleep(Long.MAX_VALUE);
  }
}
