//! ZooKeeper, through Curator's InterProcessMutex in `java/Curator.java`: `curator`.
//!
//! zoo.cfg is that of its documentation and of Debian's package: tickTime 2000, initLimit 10, syncLimit 5, the default
//! forceSync (each transaction is synced), and a heap of 1,000 MB as in zkEnv.sh. Added is only what running on one
//! machine needs: no limit of connections per address (60 by default; the clients here share one), no HTTP admin server
//! (all nodes would use the same port), and the commands that report which node is the leader.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;

use crate::servers::{Location, Memory, Node, Servers};

const JARS: &str = "/usr/share/java";

pub fn start(location: &Location, count: u16) -> io::Result<Servers> {
    let host = location.host.address();
    let peers: String =
        (1..=count).map(|number| format!("server.{number}={host}:{}:{}\n", 2880 + number, 3880 + number)).collect();
    let mut nodes = Vec::new();
    for number in 1..=count {
        let dir = location.dir.join(format!("zookeeper-{number}"));
        fs::create_dir_all(&dir)?;
        let config = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n{}",
            dir.display(),
            2180 + number,
            if count > 1 { peers.as_str() } else { "" }
        );
        fs::write(dir.join("zoo.cfg"), config)?;
        fs::write(dir.join("myid"), number.to_string())?;
        let mut node = Node::new(dir.clone(), format!("{host}:{}", 2180 + number), "java");
        node.memory = Memory::Java;
        node.args = [
            "-Xmx1000m",
            // Create no file in the system's temporary directory.
            "-XX:-UsePerfData",
            "-cp",
            &format!("{JARS}/zookeeper.jar:{JARS}/slf4j-nop.jar"),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &dir.join("zoo.cfg").display().to_string(),
        ]
        .map(String::from)
        .into();
        node.start(location)?;
        nodes.push(node);
    }
    Ok(Servers::of(nodes))
}

/// Which node is the leader.
pub fn leader(location: &Location, servers: &Servers) -> io::Result<usize> {
    for (number, node) in servers.nodes.iter().enumerate() {
        let mut connection = location.host.run(|| TcpStream::connect(&node.endpoint))?;
        connection.write_all(b"srvr")?;
        let mut reply = String::new();
        connection.read_to_string(&mut reply)?;
        if reply.contains("Mode: leader") {
            return Ok(number);
        }
    }
    Ok(0)
}

/// Compiles the load once; returns the arguments of `java` that run it.
pub fn client(dir: &Path) -> io::Result<Vec<String>> {
    let jars = ["curator-client", "curator-framework", "curator-recipes", "guava", "zookeeper", "slf4j-nop"];
    let path: Vec<String> = jars.iter().map(|jar| format!("{JARS}/{jar}.jar")).collect();
    let classes = dir.join("classes");
    let path = format!("{}:{}:{JARS}/zookeeper-jute.jar", path.join(":"), classes.display());
    if !classes.exists() {
        let [load, curator] = [
            concat!(env!("CARGO_MANIFEST_DIR"), "/peers/java/Load.java"),
            concat!(env!("CARGO_MANIFEST_DIR"), "/peers/java/Curator.java"),
        ];
        crate::servers::run("javac", &["-d", &classes.display().to_string(), "-cp", &path, load, curator])?;
    }
    // Thousands of threads: one for each owner.
    Ok(["-Xss256k", "-XX:-UsePerfData", "-cp", &path, "Curator"].map(String::from).into())
}
