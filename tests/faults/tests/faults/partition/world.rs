//! A primary with clients on its side (near), and a replica with clients on the other (far). The cut between the sides
//! is made by proxies or by the network of hosts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use faults::network::Network;
use faults::proxy::{Proxy, BOTH};
use faults::Switch;
use support::{until, Builder, Client, Info, Reply, Server};

pub struct World {
    pub primary: Node,
    pub replica: Node,
    pub near: Arc<Switch>,
    pub far: Arc<Switch>,
    between: Between,
}

/// Lines of redis.conf.
#[derive(Clone, Copy, Default)]
pub struct Config<'a> {
    pub primary: &'a [&'a str],
    pub replica: &'a [&'a str],
}

/// A server, on a host if there are hosts.
pub struct Node {
    server: Server,
    host: Option<(Arc<Network>, usize)>,
}

/// What connects the two sides.
enum Between {
    /// The replica's link to the primary, and the links of the far clients.
    Proxies {
        link: Proxy,
        far: Proxy,
    },
    Hosts(Arc<Network>),
}

/// Indexes of hosts on the network.
const PRIMARY: usize = 0;
const REPLICA: usize = 1;
const NEAR: usize = 2;
const FAR: usize = 3;

impl World {
    /// All on this machine.
    #[track_caller]
    pub fn behind_proxies(config: &Config) -> World {
        let primary = configured(config.primary).start();
        let proxy = || Proxy::to(primary.port()).expect("a port is free");
        let (link, far) = (proxy(), proxy());
        let replica = configured(config.replica).config(format!("replicaof 127.0.0.1 {}", link.port())).start();
        let world = World {
            near: Arc::new(Switch::to(local(primary.port()))),
            far: Arc::new(Switch::to(local(far.port()))),
            primary: Node { server: primary, host: None },
            replica: Node { server: replica, host: None },
            between: Between::Proxies { link, far },
        };
        world.wait_online();
        world
    }

    /// Each server, and the clients of each side, on a separate host.
    ///
    /// # Errors
    /// See [`Network::of`].
    pub fn on_hosts(config: &Config) -> io::Result<World> {
        let network = Arc::new(Network::of(4)?);
        let start = |host_index, builder: Builder| {
            let builder = builder.config("bind 0.0.0.0").config("protected-mode no");
            Node { server: network.host(host_index).run(|| builder.start()), host: Some((network.clone(), host_index)) }
        };
        let primary = start(PRIMARY, configured(config.primary));
        let address = primary.address();
        let replica =
            start(REPLICA, configured(config.replica).config(format!("replicaof {} {}", address.ip(), address.port())));
        let clients = |host_index| Arc::new(Switch::from_host(network.clone(), host_index, address));
        let world = World {
            near: clients(NEAR),
            far: clients(FAR),
            primary,
            replica,
            between: Between::Hosts(network.clone()),
        };
        world.wait_online();
        Ok(world)
    }

    /// Nothing passes between the sides any more, and neither side is notified.
    pub fn split(&self) {
        match &self.between {
            Between::Proxies { link, far } => {
                link.stall(&BOTH);
                far.stall(&BOTH);
            }
            Between::Hosts(network) => network.split(&[&[PRIMARY, NEAR], &[REPLICA, FAR]]),
        }
    }

    /// The sides can reach each other again; packets that were held back arrive.
    pub fn heal(&self) {
        match &self.between {
            Between::Proxies { link, far } => {
                link.heal();
                far.heal();
            }
            Between::Hosts(network) => network.heal(),
        }
    }

    /// The operator of the far side promotes the replica, and the clients there use it.
    #[track_caller]
    pub fn promote_replica(&self) {
        assert_eq!(self.replica.client().run("REPLICAOF NO ONE"), Reply::ok());
        self.far.set(self.replica.address());
    }

    /// The old primary follows the new one, and its clients move to it.
    #[track_caller]
    pub fn demote_primary(&self) {
        let address = self.replica.address();
        let line = format!("REPLICAOF {} {}", address.ip(), address.port());
        assert_eq!(self.primary.client().run(&line), Reply::ok());
        self.near.set(address);
        until("the old primary has what the new one has", || {
            self.primary.replication().find("master_link_status") == Some("up")
        });
    }

    fn wait_online(&self) {
        until("the replica is online", || {
            self.primary.replication().find("slave0").is_some_and(|line| line.contains("state=online"))
        });
    }
}

impl Node {
    /// A connection from its own host.
    #[track_caller]
    pub fn client(&self) -> Client {
        match &self.host {
            Some((network, host_index)) => network.host(*host_index).run(|| self.server.client()),
            None => self.server.client(),
        }
    }

    /// Its address for other hosts.
    pub fn address(&self) -> SocketAddr {
        match &self.host {
            Some((network, host_index)) => (network.host(*host_index).address(), self.server.port()).into(),
            None => local(self.server.port()),
        }
    }

    #[track_caller]
    pub fn info(&self, section: &str) -> Info {
        Info::parse(self.client().cmd(&["INFO", section]).text())
    }

    fn replication(&self) -> Info {
        self.info("replication")
    }
}

fn configured(config: &[&str]) -> Builder {
    config.iter().fold(Server::builder(), |builder, line| builder.config(*line))
}

fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}
