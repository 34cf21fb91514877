"""Containers without a daemon, for test_images.py: buildah runs the images, each in a separate network namespace on one
bridge, as described by compose.yaml, compose.sentinel.yaml or a Kubernetes manifest. It supports only what those files
use, and rejects the rest.

It must run in separate namespaces (`isolate`), so that everything it starts and mounts ends with it.
"""

import functools
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis
import yaml

ROOT = Path(__file__).resolve().parents[2]
BUILDAH = os.environ.get("BUILDAH", "buildah").split()
NETWORK = "10.90.0."
NUMBERS = itertools.count(2)  # never reused, because a network namespace outlives its last process for a while
SERVER_USER = 999


def isolate():
    """Re-executes this program in new namespaces, whose end removes every process, mount and network created there."""
    if "IMAGES_ISOLATED" not in os.environ:
        os.environ["IMAGES_ISOLATED"] = "1"
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp("unshare", ["unshare", *namespaces, sys.executable, *sys.argv])
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "locks", "type", "bridge")
    run("ip", "addr", "add", NETWORK + "1/24", "dev", "locks")
    run("ip", "link", "set", "locks", "up")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, capture_output=True, **options).stdout


def wait_until(condition, what, seconds=60):
    """Waits for a state, never for a duration under test. A Sentinel that promotes or demotes a server closes its
    connections, so a broken connection is ignored."""

    def holds():
        try:
            return condition()
        except redis.exceptions.ConnectionError:
            return False

    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def image(name):
    """The image's runtime configuration."""
    config = json.loads(run(*BUILDAH, "inspect", "--type", "image", name))["Docker"]["config"]
    return {key: config.get(key) for key in ("User", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Healthcheck")}


@functools.lru_cache(None)
def files(name):
    """The image's files, unpacked once for all of its containers, which write only to volumes. The image's volumes are
    removed from its configuration, because buildah 1.28 mounts them sometimes over and sometimes below ours."""
    container = run(*BUILDAH, "from", "--pull-never", name).strip()
    for volume in image(name)["Volumes"] or ():
        run(*BUILDAH, "config", "--volume", volume + "-", container)
    return container


class Project:
    """Containers that resolve each other by name, and their volumes; as a context manager, it removes everything."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="redis-lock-images-"))
        self.folder.chmod(0o755)
        self.containers = {}
        self.hosts = self.folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for container in list(self.containers.values()):
            container.remove()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def container(self, name, image_name, command=(), **options):
        if name in self.containers:
            self.containers[name].remove()
        self.containers[name] = Container(self, name, image_name, list(command), **options)
        return self.containers[name]

    def volume(self, name):
        """A folder with the owner of /data, as engines create a new volume for these images."""
        folder = self.folder / "volumes" / name
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, SERVER_USER, SERVER_USER)
        return folder

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def name_hosts(self):
        """A name resolves while its container runs, as with an engine's DNS server."""
        lines = [f"{c.address} {c.name}\n" for c in self.containers.values() if c.runs()]
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))


class Container:
    def __init__(self, project, name, image_name, command, entrypoint=None, environment=(), mounts=(), user=None,
                 workdir=None, healthcheck=None):
        config = image(image_name)
        self.project, self.name = project, name
        entrypoint = config["Entrypoint"] or [] if entrypoint is None else entrypoint
        self.argv = entrypoint + (command or config["Cmd"] or [])
        self.check = healthcheck or (config["Healthcheck"] or {}).get("Test")
        self.process, self.holder = None, None
        number = next(NUMBERS)
        self.address, self.link = f"{NETWORK}{number}", f"c{number}"
        self.log = project.folder / f"{name}.{number}.log"
        self.files = files(image_name)
        self.options = ["--no-hosts", f"--volume={project.hosts}:/etc/hosts:ro", f"--hostname={name}"]
        for volume in set(config["Volumes"] or ()) - {target for _, target, _ in mounts}:
            mounts = [*mounts, (project.volume(f"of-{name}"), volume, "rw")]
        self.options += [f"--volume={source}:{target}:{mode}" for source, target, mode in mounts]
        self.options += [f"--env={key}={value}" for key, value in dict(environment).items()]
        self.options += [f"--user={user or config['User'] or 0}"]
        self.options += [f"--workingdir={workdir or config['WorkingDir'] or '/'}"]
        self.connect()

    def connect(self):
        """A network namespace, held open by a process and connected to the bridge."""
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        here = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != here, "a network namespace")
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        run("ip", "link", "set", self.link, "master", "locks", "up")
        run(*self.inside(), "ip", "addr", "add", self.address + "/24", "dev", "eth0")
        run(*self.inside(), "ip", "link", "set", "eth0", "up")
        run(*self.inside(), "ip", "link", "set", "lo", "up")

    def inside(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def command(self, argv, output):
        """The command that runs it. The output goes to a file, because buildah 1.28 loses it about once in a hundred
        short commands."""
        output.touch()
        output.chmod(0o666)
        argv = ["sh", "-c", 'exec "$0" "$@" >>/output 2>&1', *argv]
        options = [*self.options, f"--volume={output}:/output:rw"]
        return [*self.inside(), *BUILDAH, "run", "--isolation", "chroot", *options, self.files, "--", *argv]

    def start(self):
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command(self.argv, self.log), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        self.project.name_hosts()
        return self

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def run(self, *argv):
        """Runs a command in the container; returns status and output."""
        output = self.project.folder / f"{self.name}.command"
        output.unlink(missing_ok=True)
        result = subprocess.run(self.command(argv, output), stdin=subprocess.DEVNULL, capture_output=True)
        return result.returncode, output.read_text()

    def healthy(self):
        """Runs the health check, because there is no engine to do it."""
        kind, *argv = self.check
        if kind == "CMD-SHELL":
            argv = ["sh", "-c", *argv]
        return self.run(*argv)[0] == 0

    def wait_healthy(self):
        def now():
            if not self.runs():
                raise AssertionError(f"{self.name} has ended: {self.output()}")
            return self.healthy()

        wait_until(now, f"{self.name} is healthy; its log: {self.log}")
        return self

    def output(self):
        return self.log.read_text()

    def redis(self, port=6379, **options):
        return redis.Redis(self.address, port, decode_responses=True, **options)

    def main_process(self):
        """The process that an engine would signal: not buildah, but its child in the image's root."""
        pids = [self.process.pid]
        for pid in pids:
            if Path(f"/proc/{pid}/root").stat().st_ino != Path("/").stat().st_ino and not self.is_buildah(pid):
                return pid
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += [int(child) for child in (task / "children").read_text().split()]
        raise AssertionError(f"no process in {self.name}: {self.output()}")

    @staticmethod
    def is_buildah(pid):
        return Path(f"/proc/{pid}/cmdline").read_text().startswith("buildah")

    def stop(self, how=signal.SIGTERM):
        os.kill(self.main_process(), how)
        self.process.wait(60)
        self.project.name_hosts()
        return self.process.returncode

    def remove(self):
        if self.runs():
            self.stop(signal.SIGKILL)
        self.holder.kill()
        self.holder.wait()
        del self.project.containers[self.name]


class Compose(Project):
    """A compose file: `up` starts the services without a profile, each when its dependencies are healthy."""

    KNOWN = {"image", "build", "command", "entrypoint", "ports", "volumes", "configs", "restart", "stop_grace_period",
             "profiles", "depends_on", "healthcheck", "hostname"}

    def __init__(self, file, **environment):
        super().__init__()
        text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: environment.get(m[1], m[2]), (ROOT / file).read_text())
        self.definition = yaml.safe_load(text)
        self.services = self.definition["services"]

    def up(self):
        for name, service in self.services.items():
            if "profiles" not in service:
                self.up_one(name)
        for container in self.containers.values():
            container.wait_healthy()
        return self

    def up_one(self, name):
        if name not in self.containers:
            for other in self.services[name].get("depends_on", ()):
                self.up_one(other)
                self.containers[other].wait_healthy()
            self.service(name).start()

    def service(self, name, container=None):
        service = self.services[name]
        assert set(service) <= self.KNOWN, set(service) - self.KNOWN
        mounts = []
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")
            assert source in self.definition["volumes"]
            mounts.append((self.volume(source), target, "rw"))
        for config in service.get("configs", ()):
            content = self.definition["configs"][config["source"]]["content"]
            mounts.append((self.write(f"configs/{config['source']}", content), config["target"], "ro"))
        return self.container(container or name, f"localhost/{service['image']}", service.get("command", ()),
                              entrypoint=service.get("entrypoint"), mounts=mounts,
                              healthcheck=service.get("healthcheck", {}).get("test"))

    def cli(self, *arguments, name="cli"):
        """`docker compose run --rm --name … cli …`: returns the started container."""
        container = self.service("cli", name)
        container.argv += arguments
        return container.start()


class Pod(Project):
    """The only pod of a StatefulSet: its volumes, init containers and container, started as in the manifest."""

    def __init__(self, file, images, secrets):
        super().__init__()
        documents = {d["kind"]: d for d in yaml.safe_load_all((ROOT / file).read_text())}
        stateful_set = documents["StatefulSet"]["spec"]
        self.spec = stateful_set["template"]["spec"]
        self.images, self.secrets = images, secrets
        self.sources = {claim["metadata"]["name"]: self.volume for claim in stateful_set["volumeClaimTemplates"]}
        for volume in self.spec["volumes"]:
            if "configMap" in volume:
                assert volume["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
                for name, text in documents["ConfigMap"]["data"].items():
                    self.write(f"{volume['name']}/{name}", text)
                self.sources[volume["name"]] = lambda name: self.folder / name
            else:
                assert volume["emptyDir"] == {}
                self.sources[volume["name"]] = self.volume

    def up(self):
        for definition in self.spec["initContainers"]:
            container = self.make(definition).start()
            assert container.process.wait(60) == 0, container.output()
        (definition,) = self.spec["containers"]
        return self.make(definition).start()

    def make(self, definition):
        mounts = [(self.sources[m["name"]](m["name"]), m["mountPath"], "ro" if m.get("readOnly") else "rw")
                  for m in definition["volumeMounts"]]
        environment = {variable["name"]: self.secrets[variable["valueFrom"]["secretKeyRef"]["key"]]
                       for variable in definition.get("env", ())}
        argv = [re.sub(r"\$\((\w+)\)", lambda m: environment[m[1]], a)
                for a in definition["command"] + definition.get("args", [])]
        security = self.spec["securityContext"]
        probe = definition.get("readinessProbe", {}).get("exec", {}).get("command")
        return self.container(definition["name"], self.images[definition["image"]], argv, entrypoint=[], mounts=mounts,
                              environment=environment, user=f"{security['runAsUser']}:{security['runAsGroup']}",
                              workdir=definition.get("workingDir"), healthcheck=probe and ["CMD", *probe])
