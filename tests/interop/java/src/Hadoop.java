import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/**
 * HDFS and YARN on the loopback address: NameNode and DataNode by Hadoop's mini cluster, ResourceManager and NodeManager
 * as they are, because their mini cluster takes the address of the host's name.
 *
 * <p>java -cp JARS Hadoop.java HOME FIRST_PORT: writes HOME/conf/core-site.xml and yarn-site.xml for clients, prints
 * "ready" and ends when its standard input does. Six ports from FIRST_PORT are used, and free ones for HDFS.
 */
public class Hadoop {
  public static void main(String[] args) {
    try {
      run(args);
      System.exit(0);
    } catch (Exception | LinkageError error) {
      error.printStackTrace();
      System.exit(1); // threads of servers would keep the process
    }
  }

  private static void run(String[] args) throws Exception {
    File home = new File(args[0]);
    int port = Integer.parseInt(args[1]);
    Configuration hdfs = new Configuration();
    hdfs.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(home, "hdfs").getPath());
    hdfs.setInt("dfs.replication", 1);
    MiniDFSCluster files = new MiniDFSCluster.Builder(hdfs).numDataNodes(1).build();
    files.waitActive();

    Configuration yarn = new Configuration(false);
    yarn.set("fs.defaultFS", files.getURI().toString());
    yarn.set("yarn.resourcemanager.hostname", "127.0.0.1");
    String[] ports = {
      "yarn.resourcemanager.address", "yarn.resourcemanager.scheduler.address",
      "yarn.resourcemanager.resource-tracker.address", "yarn.resourcemanager.admin.address",
      "yarn.resourcemanager.webapp.address", "yarn.nodemanager.address",
    };
    for (String name : ports) {
      yarn.set(name, "127.0.0.1:" + port++);
    }
    yarn.set("yarn.nodemanager.localizer.address", "127.0.0.1:0");
    yarn.set("yarn.nodemanager.webapp.address", "127.0.0.1:0");
    yarn.set("yarn.nodemanager.collector-service.address", "127.0.0.1:0");
    yarn.set("yarn.nodemanager.local-dirs", new File(home, "containers").getPath());
    yarn.set("yarn.nodemanager.log-dirs", new File(home, "logs").getPath());
    yarn.setInt("yarn.nodemanager.resource.memory-mb", 4096);
    yarn.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
    yarn.setInt("yarn.scheduler.minimum-allocation-mb", 128);
    yarn.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    yarn.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    yarn.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
    yarn.set("yarn.scheduler.capacity.maximum-am-resource-percent", "0.5");
    yarn.set("yarn.resourcemanager.scheduler.class",
        "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
    ResourceManager manager = new ResourceManager();
    manager.init(configuration(yarn));
    manager.start();
    NodeManager node = new NodeManager();
    node.init(configuration(yarn));
    node.start();
    while (manager.getResourceScheduler().getNumClusterNodes() == 0) {
      Thread.sleep(50);
    }

    File conf = new File(home, "conf");
    conf.mkdirs();
    Configuration core = new Configuration(false);
    core.set("fs.defaultFS", files.getURI().toString());
    core.set("dfs.replication", "1");
    try (OutputStream out = new FileOutputStream(new File(conf, "core-site.xml"))) {
      core.writeXml(out);
    }
    try (OutputStream out = new FileOutputStream(new File(conf, "yarn-site.xml"))) {
      yarn.writeXml(out);
    }
    System.out.println("ready " + files.getURI());
    while (System.in.read() >= 0) {
      // until the test closes it, or ends
    }
    node.stop();
    manager.stop();
    files.shutdown(true);
  }

  private static YarnConfiguration configuration(Configuration own) {
    YarnConfiguration all = new YarnConfiguration();
    all.addResource(own);
    return all;
  }
}
