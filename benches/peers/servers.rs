//! The servers of one peer: their processes, their hosts, and their costs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use faults::network::Host;

/// A host in one of the run's networks, and a directory.
pub struct Location<'a> {
    pub host: &'a Host,
    pub dir: &'a Path,
}

pub struct Servers {
    pub nodes: Vec<Node>,
}

pub struct Node {
    dir: PathBuf,
    pub endpoint: String,
    program: PathBuf,
    pub args: Vec<String>,
    pub user: Option<(u32, u32)>,
    pub memory: Memory,
    child: Option<Child>,
}

/// What counts as a server's memory.
#[derive(Clone, Copy)]
pub enum Memory {
    /// Resident pages, shared ones by their share.
    Resident,
    /// Memory as reported by Redis, because its allocator retains freed pages.
    Redis,
    /// Live objects on the heap of a JVM after a collection, because a JVM reserves more.
    Java,
}

impl Location<'_> {
    /// Runs a program on the host and requires success.
    pub fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> io::Result<String> {
        self.host.run(|| run(program, args))
    }

    pub fn run_as(&self, (user, group): (u32, u32), program: &Path, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new(program);
        command.args(args).uid(user).gid(group).current_dir(self.dir);
        self.host.run(|| ended(&mut command))
    }

    /// User and group of this name.
    pub fn user(&self, name: &str) -> io::Result<(u32, u32)> {
        let id = |which| run("id", &[which, name])?.trim().parse::<u32>().map_err(io::Error::other);
        Ok((id("-u")?, id("-g")?))
    }

    /// Waits until something listens there.
    pub fn wait_for(&self, endpoint: &str) -> io::Result<()> {
        let address: SocketAddr = endpoint.parse().map_err(io::Error::other)?;
        let started = Instant::now();
        loop {
            match self.host.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(1))) {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > Duration::from_secs(30) => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// Waits for success; returns the output.
pub fn run(program: impl AsRef<Path>, args: &[&str]) -> io::Result<String> {
    ended(Command::new(program.as_ref()).args(args))
}

fn ended(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into()),
        false => Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))),
    }
}

impl Servers {
    pub fn of(nodes: Vec<Node>) -> Servers {
        Servers { nodes }
    }

    /// Of all nodes, or of all but one.
    pub fn endpoints(&self, without: Option<usize>) -> String {
        let nodes = self.nodes.iter().enumerate().filter(|(number, _)| Some(*number) != without);
        nodes.map(|(_, node)| node.endpoint.as_str()).collect::<Vec<_>>().join(",")
    }

    pub fn cost(&self) -> Cost {
        let processes = Processes::read();
        self.pids().into_iter().map(|pid| processes.cost(pid)).fold(Cost::default(), Cost::plus)
    }

    /// Bytes of all nodes.
    pub fn memory(&self, location: &Location) -> io::Result<f64> {
        let mut bytes = 0.0;
        for node in &self.nodes {
            let Some(pid) = node.pid() else { continue };
            bytes += match node.memory {
                Memory::Resident => Processes::read().tree(pid).into_iter().map(proportional_memory).sum::<f64>(),
                Memory::Redis => {
                    let (host, port) = node.endpoint.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
                    number_after(
                        "used_memory:",
                        &location.run("redis-cli", &["-h", host, "-p", port, "INFO", "memory"])?,
                    )
                }
                Memory::Java => {
                    let table = run("jcmd", &[&pid.to_string(), "GC.class_histogram"])?;
                    let total = table.lines().find(|line| line.starts_with("Total"));
                    total.and_then(|line| line.split_whitespace().nth(2)?.parse().ok()).unwrap_or(0.0)
                }
            };
        }
        Ok(bytes)
    }

    fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter_map(Node::pid).collect()
    }
}

impl Node {
    pub fn new(dir: PathBuf, endpoint: String, program: impl Into<PathBuf>) -> Node {
        Node {
            dir,
            endpoint,
            program: program.into(),
            args: Vec::new(),
            user: None,
            memory: Memory::Resident,
            child: None,
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// It dies with the thread that starts it.
    pub fn start(&mut self, location: &Location) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(self.dir.join("log"))?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(&self.dir).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        support::die_with_parent(&mut command);
        self.child = Some(location.host.run(|| command.spawn())?);
        Ok(())
    }

    /// Sends SIGKILL to it and all its descendants.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        for pid in Processes::read().tree(child.id()) {
            // SAFETY: a bare system call. The processes were this one's a moment ago.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        }
        let _ = child.wait();
    }
}

impl Drop for Node {
    /// Stops it cleanly, so that Postgres and Java leave nothing behind in shared memory and temporary directories.
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // SAFETY: a bare system call; the child was not waited for, so the number is still its own.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
            let started = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && started.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(10));
            }
            if matches!(child.try_wait(), Ok(Some(_))) {
                self.child = None;
            }
        }
        self.kill();
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Cost {
    pub cpu: f64,
    pub written: f64,
}

impl Cost {
    fn plus(self, other: Cost) -> Cost {
        Cost { cpu: self.cpu + other.cpu, written: self.written + other.written }
    }

    pub fn since(self, before: Cost) -> Cost {
        Cost { cpu: self.cpu - before.cpu, written: self.written - before.written }
    }
}

/// The process table.
pub struct Processes {
    children: HashMap<u32, Vec<u32>>,
}

impl Processes {
    pub fn read() -> Processes {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse().ok()) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Processes { children }
    }

    /// The process and its descendants.
    pub fn tree(&self, pid: u32) -> Vec<u32> {
        let mut tree = vec![pid];
        let mut next = 0;
        while next < tree.len() {
            tree.extend(self.children.get(&tree[next]).into_iter().flatten());
            next += 1;
        }
        tree
    }

    /// The total of a process and its descendants, including those that have exited.
    pub fn cost(&self, pid: u32) -> Cost {
        self.tree(pid).into_iter().map(cost_of_one).fold(Cost::default(), Cost::plus)
    }
}

/// The fields after the name in /proc/PID/stat.
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(line.rsplit_once(") ")?.1.split(' ').map(String::from).collect())
}

fn cost_of_one(pid: u32) -> Cost {
    let ticks: f64 = stat(pid)
        .map(|fields| fields.iter().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum())
        .unwrap_or(0.0);
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(0.0);
    // The kernel counts in hundredths, on every Linux that this runs on.
    Cost { cpu: ticks / 100.0, written }
}

fn number_after(name: &str, text: &str) -> f64 {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0.0)
}

/// Shared pages count by their share.
fn proportional_memory(pid: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kb = rollup.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<f64>().ok());
    kb.unwrap_or(0.0) * 1024.0
}
