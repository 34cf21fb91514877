//! A disk of a few megabytes that can be filled: a tmpfs in a mount namespace of its own, which only the servers that
//! are started in it see. Namespace and disk are gone when the last of its processes is, however the test ends.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use support::{skip, until, Builder, Server};
use tempfile::TempDir;

/// A file beside the files of the server, to fill the disk.
const FILLER: &str = "filler";

pub struct SmallDisk {
    /// Where it is mounted, inside the namespace.
    mount: TempDir,
    /// Keeps the namespace. It ends when its standard input does, so also when the test is killed.
    keeper: Child,
    /// How a process gets into the namespace.
    enter: Vec<String>,
}

impl SmallDisk {
    /// A disk of so many bytes; skips the test where it may not mount one.
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
        let mut told = String::new();
        BufReader::new(keeper.stdout.take().expect("it is piped")).read_line(&mut told)?;
        if told.trim() != "mounted" {
            return Err(io::Error::other(format!("{}", keeper.wait()?)));
        }
        let mut enter: Vec<String> = ["nsenter", "--mount", "--target"].map(String::from).into();
        enter.push(keeper.id().to_string());
        if unshare.contains(&"--user") {
            enter.extend(["--user", "--preserve-credentials"].map(String::from));
            // A process that gets other capabilities is not killed with its parent any more, unless it asks again.
            enter.extend(["setpriv", "--pdeathsig", "KILL"].map(String::from));
        }
        Ok(SmallDisk { mount, keeper, enter })
    }

    /// A server with its files on this disk, except the log.
    pub fn server(&self) -> Builder {
        let enter: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        Server::builder().run_by(&enter).config(format!("dir {}", self.mount.path().display()))
    }

    /// Uses up every byte that is left.
    pub fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.filler()).expect("the disk has a folder");
        // What is left of a page as well.
        for chunk in [&[0; 4096][..], &[0]] {
            while filler.write_all(chunk).is_ok() {}
        }
    }

    /// Gives back what [`SmallDisk::fill`] used up, and waits until it can be used: once a server that was started
    /// right after this found no room.
    pub fn free(&self) {
        let some = vec![0; 1 << 20];
        fs::remove_file(self.filler()).expect("the disk was filled");
        until("the disk has room", || {
            let has_room = fs::write(self.filler(), &some).is_ok();
            fs::remove_file(self.filler()).expect("it was just created");
            has_room
        });
    }

    /// The file as this process sees it, from outside of the namespace.
    fn filler(&self) -> PathBuf {
        let mount = self.mount.path().strip_prefix("/").expect("a folder for temporary files has an absolute path");
        PathBuf::from(format!("/proc/{}/root", self.keeper.id())).join(mount).join(FILLER)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // An error says that it has already ended.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
