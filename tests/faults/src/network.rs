//! Machines on a separate network, if the system supports that: each host is a network namespace with an address, on a
//! bridge. The network is split by moving hosts to other bridges; packets sent during a split are lost silently. Linux
//! only, and only for root.
//!
//! The namespaces have no names: file descriptors of this process and the servers in them keep them alive, and the
//! kernel removes them, with all their links, when the last one ends, however it ends. So there is nothing to clean up.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::{self, Command, Stdio};
use std::thread;

/// Hosts that can reach each other until they are split. All on this machine, and invisible to others.
pub struct Network {
    /// The namespace with the bridges.
    hub: Namespace,
    hosts: Vec<Host>,
}

/// A machine of the network. Only its network is separate: files and processes are shared.
pub struct Host {
    namespace: Namespace,
    address: Ipv4Addr,
}

/// A network namespace, with separate devices, addresses, routes and ports.
struct Namespace(File);

impl Network {
    /// Creates this many hosts that can reach each other.
    ///
    /// # Errors
    /// If the system has no namespaces, this user may not create them, or there is no `ip` or no bridge.
    pub fn of(hosts: u8) -> io::Result<Network> {
        let hub = Namespace::create()?;
        let hosts = (0..hosts)
            .map(|number| Ok(Host { namespace: Namespace::create()?, address: Ipv4Addr::new(192, 0, 2, 1 + number) }))
            .collect::<io::Result<Vec<Host>>>()?;
        let mut lines = Vec::new();
        for (number, host) in hosts.iter().enumerate() {
            let namespace = host.namespace.path();
            lines.push(format!("link add {} up type bridge", bridge(number)));
            lines.push(format!("link add {} up type veth peer name eth0 netns {namespace}", port(number)));
        }
        hub.ip(&lines)?;
        for Host { namespace, address } in &hosts {
            namespace.ip(&[
                "link set lo up".into(),
                format!("addr add {address}/24 dev eth0"),
                "link set eth0 up".into(),
            ])?;
        }
        let network = Network { hub, hosts };
        network.connect_all()?;
        Ok(network)
    }

    pub fn host(&self, number: usize) -> &Host {
        &self.hosts[number]
    }

    /// From now on hosts can reach only hosts in the same group. A host in no group can reach none.
    #[track_caller]
    pub fn split(&self, groups: &[&[usize]]) {
        let group_of = |host| groups.iter().position(|group| group.contains(&host));
        // Each host in no group gets its own bridge.
        let lines = (0..self.hosts.len()).map(|host| {
            let first = group_of(host).map_or(host, |group| groups[group][0]);
            plug(host, first)
        });
        self.hub.ip(&lines.collect::<Vec<_>>()).expect("ports move between bridges");
    }

    /// All hosts can reach each other again.
    #[track_caller]
    pub fn heal(&self) {
        self.connect_all().expect("ports move between bridges");
    }

    fn connect_all(&self) -> io::Result<()> {
        self.hub.ip(&(0..self.hosts.len()).map(|host| plug(host, 0)).collect::<Vec<_>>())
    }
}

fn bridge(number: usize) -> String {
    format!("bridge{number}")
}

fn port(host: usize) -> String {
    format!("host{host}")
}

fn plug(host: usize, into: usize) -> String {
    format!("link set {} master {}", port(host), bridge(into))
}

impl Host {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Runs this on the host: processes, connections and listeners created during it belong to the host permanently.
    pub fn run<T>(&self, action: impl FnOnce() -> T) -> T {
        let _guard = self.namespace.enter();
        action()
    }
}

/// Returns the thread to its previous namespace.
struct Entered(Namespace);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.set().expect("the thread can return to its namespace");
    }
}

impl Namespace {
    fn create() -> io::Result<Namespace> {
        // On another thread, so that this one stays in its namespace.
        let made = thread::spawn(|| {
            leave_network()?;
            Namespace::current()
        });
        made.join().expect("it does not panic")
    }

    /// The namespace of this thread.
    fn current() -> io::Result<Namespace> {
        File::open("/proc/thread-self/ns/net").map(Namespace)
    }

    fn enter(&self) -> Entered {
        let before = Namespace::current().expect("every thread is in one");
        self.set().expect("the creator may enter it");
        Entered(before)
    }

    /// The path for other processes of the same user, valid while this process lives.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.0.as_raw_fd())
    }

    /// Runs these `ip` commands in the namespace, until the first that fails.
    fn ip(&self, lines: &[String]) -> io::Result<()> {
        let _guard = self.enter();
        let mut ip = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut commands = ip.stdin.take().expect("it is piped");
        let written = commands.write_all((lines.join("\n") + "\n").as_bytes());
        drop(commands);
        let ended = ip.wait_with_output()?;
        written?;
        if ended.status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("ip: {}", String::from_utf8_lossy(&ended.stderr).trim())))
        }
    }

    #[cfg(target_os = "linux")]
    fn set(&self) -> io::Result<()> {
        // SAFETY: the call takes an open descriptor and changes this thread's network namespace; it accesses no memory.
        check(unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) })
    }

    #[cfg(not(target_os = "linux"))]
    fn set(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Moves this thread into a new namespace.
#[cfg(target_os = "linux")]
fn leave_network() -> io::Result<()> {
    // SAFETY: the call changes this thread's network namespace; it accesses no memory.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

#[cfg(not(target_os = "linux"))]
fn leave_network() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    fn sees(network: &Network, from: usize, to: SocketAddr) -> bool {
        network.host(from).run(|| TcpStream::connect_timeout(&to, Duration::from_millis(500))).is_ok()
    }

    #[test]
    fn hosts_reach_each_other_before_and_after_a_split() {
        let network = match Network::of(3) {
            Ok(network) => network,
            Err(error) => return eprintln!("skipped: no network namespaces: {error}"),
        };
        let listener = network.host(0).run(|| TcpListener::bind("0.0.0.0:0")).expect("a port is free");
        let address =
            SocketAddr::new(network.host(0).address().into(), listener.local_addr().expect("it listens").port());
        assert!(TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err(), "this thread is elsewhere");
        assert_eq!([1, 2].map(|host| sees(&network, host, address)), [true, true]);
        network.split(&[&[0, 1]]);
        assert_eq!([1, 2].map(|host| sees(&network, host, address)), [true, false]);
        network.split(&[&[0], &[1, 2]]);
        assert_eq!([1, 2].map(|host| sees(&network, host, address)), [false, false]);
        network.heal();
        assert_eq!([1, 2].map(|host| sees(&network, host, address)), [true, true]);
    }
}
