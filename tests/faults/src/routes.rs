//! Routes that change: the address that clients use, and the machine from which they connect.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::Client;

use crate::caller::Route;
use crate::network::Network;

/// One address for all keys, which can be changed.
pub struct Switch {
    address: Mutex<SocketAddr>,
    /// The host that the clients are on; None: this machine.
    host: Option<(Arc<Network>, usize)>,
}

impl Switch {
    pub fn to(address: SocketAddr) -> Switch {
        Switch { address: Mutex::new(address), host: None }
    }

    /// The same for clients on a host of a network.
    pub fn from_host(network: Arc<Network>, host: usize, address: SocketAddr) -> Switch {
        Switch { address: Mutex::new(address), host: Some((network, host)) }
    }

    /// Clients use this address from their next request on.
    pub fn set(&self, address: SocketAddr) {
        *self.address.lock().expect("no panic while it is locked") = address;
    }
}

impl Route for Switch {
    fn address(&self, _: &str) -> SocketAddr {
        *self.address.lock().expect("no panic while it is locked")
    }

    fn connect(&self, address: SocketAddr, limit: Duration) -> io::Result<Client> {
        let connect = || Client::try_connect_to(address, limit);
        match &self.host {
            Some((network, host)) => network.host(*host).run(connect),
            None => connect(),
        }
    }
}
