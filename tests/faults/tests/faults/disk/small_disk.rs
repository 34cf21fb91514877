//! A disk of a few megabytes that can be filled: a tmpfs in a separate mount namespace, which only the servers started
//! in it see. Namespace and disk are gone when the last of its processes ends, however the test ends.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use support::{skip, until, Builder, Server};
use tempfile::TempDir;

/// A file next to the server's files, which fills the disk.
const FILLER: &str = "filler";

pub struct SmallDisk {
    /// Its mount point inside the namespace.
    mount: TempDir,
    /// Keeps the namespace alive. It ends with its standard input, so even if the test is killed.
    keeper: Child,
    /// The command by which a process enters the namespace.
    enter: Vec<String>,
}

impl SmallDisk {
    /// A disk of that many bytes; skips the test if mounting one is not permitted.
    pub fn new(bytes: usize) -> Option<SmallDisk> {
        let attempts = [["--mount", "--propagation=private"].as_slice(), &["--mount", "--user", "--map-root-user"]];
        for unshare in attempts {
            match SmallDisk::mount(bytes, unshare) {
                Ok(disk) => return Some(disk),
                Err(error) => eprintln!("unshare {}: {error}", unshare.join(" ")),
            }
        }
        skip("no mount namespace can be made here: neither by root nor in a user namespace");
        None
    }

    fn mount(bytes: usize, unshare: &[&str]) -> io::Result<SmallDisk> {
        let mount = tempfile::Builder::new().prefix("redis-lock-disk-").tempdir()?;
        let script = format!("mount -t tmpfs -o size={bytes} tmpfs \"$0\" && echo mounted && exec cat");
        let mut keeper = Command::new("unshare")
            .args(unshare)
            .args(["sh", "-c", &script])
            .arg(mount.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut first_line = String::new();
        BufReader::new(keeper.stdout.take().expect("it is piped")).read_line(&mut first_line)?;
        if first_line.trim() != "mounted" {
            return Err(io::Error::other(format!("{}", keeper.wait()?)));
        }
        let mut enter: Vec<String> = ["nsenter", "--mount", "--target"].map(String::from).into();
        enter.push(keeper.id().to_string());
        if unshare.contains(&"--user") {
            enter.extend(["--user", "--preserve-credentials"].map(String::from));
            // A process that gains capabilities is no longer killed with its parent unless it requests that again.
            enter.extend(["setpriv", "--pdeathsig", "KILL"].map(String::from));
        }
        Ok(SmallDisk { mount, keeper, enter })
    }

    /// A server with all files except the log on this disk.
    pub fn server(&self) -> Builder {
        let enter: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        Server::builder().run_by(&enter).config(format!("dir {}", self.mount.path().display()))
    }

    /// Uses up every remaining byte.
    pub fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.filler()).expect("the disk has a folder");
        // Including the rest of the last page.
        for chunk in [&[0; 4096][..], &[0]] {
            while filler.write_all(chunk).is_ok() {}
        }
    }

    /// Frees what [`SmallDisk::fill`] used up, and waits until it is usable: once, a server started right after this
    /// found no room.
    pub fn free(&self) {
        let some = vec![0; 1 << 20];
        fs::remove_file(self.filler()).expect("the disk was filled");
        until("the disk has room", || {
            let has_room = fs::write(self.filler(), &some).is_ok();
            fs::remove_file(self.filler()).expect("it was just created");
            has_room
        });
    }

    /// The path of the file as seen by this process, outside the namespace.
    fn filler(&self) -> PathBuf {
        let mount = self.mount.path().strip_prefix("/").expect("a folder for temporary files has an absolute path");
        PathBuf::from(format!("/proc/{}/root", self.keeper.id())).join(mount).join(FILLER)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
