//! Debian packages built by `scripts/package deb`: inspected, installed and removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::wait::until;

/// A package in `target/debian`.
pub struct Package {
    name: String,
    path: PathBuf,
}

/// Installs the package while it exists; purges it when dropped.
pub struct Installed<'a>(&'a Package);

impl Package {
    /// The package of this version, or why there is none to test. `program`: what is packaged, as a path in
    /// `target/release`.
    pub fn built(name: &str, version: &str, program: &str) -> Result<Package, String> {
        if output("dpkg-deb", &["--version"]).is_none() {
            return Err("there is no dpkg-deb here".into());
        }
        let target = std::env::current_exe().expect("the path of the program is known");
        let target = target.ancestors().nth(3).expect("cargo puts programs into target/<profile>/deps");
        let packages = fs::read_dir(target.join("debian")).into_iter().flatten().flatten().map(|entry| entry.path());
        let path = packages
            .into_iter()
            .find(|path| as_str(path).contains(&format!("/{name}_{version}-")) && as_str(path).ends_with(".deb"))
            .ok_or("there is no package: `scripts/package deb` builds it")?;
        let written = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        if written(&path) < written(&target.join("release").join(program)) {
            return Err(format!("the package is older than {program}: `scripts/package deb` builds it"));
        }
        Ok(Package { name: name.to_string(), path })
    }

    /// Whether it may be installed and removed here, or why not.
    pub fn may_be_installed(&self) -> Result<(), String> {
        if output("id", &["-u"]).is_none_or(|id| id != "0") {
            return Err("only root can install a package".into());
        }
        if is_installed(&self.name) {
            return Err(format!("{} is installed already, and shall stay", self.name));
        }
        Ok(())
    }

    /// A field of its control file; empty if missing.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        succeed("dpkg-deb", &["-f", as_str(&self.path), name])
    }

    /// The files in it, as paths from the root.
    #[track_caller]
    pub fn files(&self) -> Vec<String> {
        let list = succeed("dpkg-deb", &["-c", as_str(&self.path)]);
        let path =
            |line: &str| line.split_whitespace().last().and_then(|path| path.strip_prefix('.')).map(String::from);
        list.lines().filter_map(path).filter(|path| !path.ends_with('/')).collect()
    }

    /// Extracts its files to a directory without installing it.
    #[track_caller]
    pub fn unpack(&self, folder: &Path) {
        succeed("dpkg-deb", &["-x", as_str(&self.path), as_str(folder)]);
    }

    pub fn install(&self) -> Installed<'_> {
        // Without triggers, because man-db's would read every page of the system for seconds. The next run of dpkg does
        // it.
        dpkg(&["--no-triggers", "--install", as_str(&self.path)]);
        Installed(self)
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        dpkg(&["--no-triggers", "--purge", &self.0.name]);
    }
}

/// Waits until dpkg's lock is free.
fn dpkg(args: &[&str]) {
    until("dpkg is free", || {
        let done = Command::new("dpkg").args(args).stdin(Stdio::null()).output().expect("dpkg");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let is_locked = said.contains("lock");
        assert!(done.status.success() || is_locked, "dpkg {args:?}: {said}");
        done.status.success()
    });
}

pub fn is_installed(package: &str) -> bool {
    let status = output("dpkg-query", &["-W", "-f", "${db:Status-Status}", package]);
    status.is_some_and(|status| status == "installed")
}

/// The program's output; nothing if it failed or does not exist.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let done = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_string())
}

#[track_caller]
fn succeed(program: &str, args: &[&str]) -> String {
    output(program, args).unwrap_or_else(|| panic!("{program} {args:?} failed"))
}

fn as_str(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
