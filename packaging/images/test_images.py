"""Tests the images, the compose files, the Kubernetes manifest and the systemd unit, with the images built by
scripts/package images. `make test-dist DIST=images` runs it.
"""

import json
import re
import signal
import subprocess
import sys
import unittest

import containers
from containers import ROOT, Compose, Pod, Project, image, wait_until

SERVERS = {"redis": "localhost/redis-lock-redis", "valkey": "localhost/redis-lock-valkey"}
MODULE = "/usr/local/lib/redis/modules/libredis_lock.so"


def modules(server):
    return [module["name"] for module in server.module_list()]


class Images(unittest.TestCase):
    def setUp(self):
        self.project = self.enterContext(Project())

    def server(self, kind, *command, volume=None):
        mounts = [(self.project.volume(volume or kind), "/data", "rw")]
        return self.project.container(kind, SERVERS[kind], command, mounts=mounts)

    def each(self):
        for kind in SERVERS:
            with self.subTest(kind):
                yield kind

    def test_no_image_runs_as_root(self):
        for name in (*SERVERS.values(), "localhost/redis-lock-module", "localhost/redis-lock-cli"):
            self.assertRegex(image(name)["User"], "^[1-9][0-9]*:[1-9][0-9]*$", name)

    def test_the_server_starts_with_the_module_as_that_user_whatever_its_arguments(self):
        for kind in self.each():
            (self.project.volume(f"{kind}-file") / "node.conf").write_text("appendonly yes\n")
            for arguments, volume, appendonly in (
                ([], "none", "no"),
                (["--appendonly", "yes"], "option", "yes"),
                ([f"{kind}-server", "--appendonly", "yes"], "name", "yes"),
                (["/data/node.conf"], "file", "yes"),
                (["--appendonly", "yes", "--save"], "save", "yes"),
            ):
                container = self.server(kind, *arguments, volume=f"{kind}-{volume}").start().wait_healthy()
                server = container.redis()
                self.assertIn("lock", modules(server), arguments)
                self.assertEqual(server.config_get("appendonly"), {"appendonly": appendonly}, arguments)
                status = (containers.Path("/proc") / str(container.main_process()) / "status").read_text()
                self.assertEqual(re.search(r"^Uid:\s+(\d+)", status, re.M)[1], "999")
                self.assertEqual(container.stop(), 0)

    def test_a_setting_of_the_module_is_an_argument(self):
        for kind in self.each():
            server = self.server(kind, "--lock.default-lease", "12345").start().wait_healthy().redis()
            self.assertEqual(server.config_get("lock.*")["lock.default-lease"], "12345")

    def test_another_command_runs_as_it_is_written(self):
        for kind in self.each():
            container = self.server(kind)
            status, output = container.run(*container.argv, "sh", "-c", "echo $0 $#", "one", "two")
            self.assertEqual((status, output), (0, "one 1\n"))

    def test_a_server_that_rewrote_its_configuration_starts_again(self):
        for kind in self.each():
            volume = self.project.volume(kind)
            (volume / "node.conf").write_text("appendonly yes\n")
            subprocess.run(["chown", "-R", "999:999", volume], check=True)
            container = self.server(kind, "node.conf", volume=kind).start().wait_healthy()
            container.redis().config_rewrite()
            self.assertIn(f"loadmodule {MODULE}", (volume / "node.conf").read_text())
            container.stop()
            self.assertIn("lock", modules(container.start().wait_healthy().redis()))

    def test_the_health_check_fails_without_a_server_and_holds_with_a_password(self):
        for kind in self.each():
            container = self.server(kind, "--requirepass", "secret")
            self.assertFalse(container.healthy())
            container.start().wait_healthy()

    def test_the_module_image_carries_the_file_that_the_servers_load(self):
        module = self.project.container("module", "localhost/redis-lock-module")
        expected = module.run("sha256sum", "/libredis_lock.so")[1].split()[0]
        for kind in self.each():
            self.assertEqual(self.server(kind).run("sha256sum", MODULE)[1].split()[0], expected)


class ComposeFiles(unittest.TestCase):
    def test_a_lock_is_held_by_the_command_line_over_sigterm_and_a_restart(self):
        for kind, name in SERVERS.items():
            with self.subTest(kind), Compose("compose.yaml", IMAGE=name.removeprefix("localhost/")) as project:
                project.up()
                holder = project.cli("run", "--lease", "120s", "nightly", "--", "sleep", "1000", name="holder")
                server = project.containers["redis"]
                wait_until(lambda: server.redis().exists("nightly"), "the lock is taken")
                before = self.info(project)
                self.assertEqual(server.stop(signal.SIGTERM), 0)
                server.start().wait_healthy()
                self.assertEqual(self.info(project), before)
                self.assertTrue(holder.runs(), holder.output())
                holder.stop(signal.SIGTERM)
                wait_until(lambda: not server.redis().exists("nightly"), "the holder releases the lock")

    def info(self, project):
        cli = project.cli("info", "nightly", "--json")
        self.assertEqual(cli.process.wait(60), 0, cli.output())
        # Its standard error may come first.
        (holder,) = json.loads(cli.output().splitlines()[-1])["holders"]
        return holder["owner"], holder["fence"]

    def test_the_sentinels_replace_a_killed_primary_and_a_lock_is_found_on_the_new_one(self):
        for kind, name in SERVERS.items():
            environment = {"IMAGE": name.removeprefix("localhost/")}
            with self.subTest(kind), Compose("compose.sentinel.yaml", **environment) as project:
                project.up()
                primary, replica = project.containers["primary"], project.containers["replica"]
                sentinels = [project.containers[f"sentinel-{n}"] for n in (1, 2, 3)]
                for sentinel in sentinels:
                    asked = sentinel.redis(26379)
                    wait_until(lambda: self.known(asked) == (1, 3), "each Sentinel knows the replica and the others")
                holder = project.cli("run", "--lease", "300s", "nightly", "--", "sleep", "1000", name="holder")
                wait_until(lambda: replica.redis().exists("nightly"), "the replica has the lock")
                before = self.info(project)
                primary.stop(signal.SIGKILL)
                wait_until(lambda: replica.redis().role()[0] == "master", "the replica is promoted", 120)
                wait_until(lambda: all(self.primary(s) == "replica" for s in sentinels), "all Sentinels agree")
                self.assertEqual(self.info(project), before)
                self.assertTrue(holder.runs(), holder.output())
                # Its name resolves again, and the Sentinels make it a replica.
                primary.start().wait_healthy()
                wait_until(lambda: primary.redis().role()[0] == "slave", "the old primary is a replica", 120)
                wait_until(lambda: primary.redis().exists("nightly"), "it has the lock")
                holder.stop(signal.SIGTERM)
                wait_until(lambda: not replica.redis().exists("nightly"), "the holder releases on the new primary")
                # The configuration that a failover wrote survives a restart.
                replica.stop()
                replica.start().wait_healthy()
                self.assertEqual(replica.redis().role()[0], "master")

    @staticmethod
    def known(sentinel):
        primary = sentinel.info("sentinel")["master0"]
        return primary["slaves"], primary["sentinels"]

    @staticmethod
    def primary(sentinel):
        return sentinel.redis(26379).execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks")[0]


class Kubernetes(unittest.TestCase):
    def test_the_pod_of_the_manifest_keeps_a_lock_over_a_restart(self):
        images = {"redis-lock-module:1.0.0": "localhost/redis-lock-module", "redis:8": "localhost/base-redis"}
        with Pod("packaging/kubernetes/lock-server.yaml", images, {"password": "secret"}) as pod:
            container = pod.up().wait_healthy()
            server = container.redis(password="secret")
            taken = server.execute_command("LOCK.ACQUIRE", "nightly", "worker-1", "PX", 120000)
            self.assertEqual(container.stop(signal.SIGTERM), 0)
            # The init container runs again, as in a new pod.
            server = pod.up().wait_healthy().redis(password="secret")
            self.assertEqual(server.execute_command("LOCK.HELD", "nightly", "worker-1")[0], taken[1])


class Managed(unittest.TestCase):
    def test_the_program_of_the_page_locks_on_one_server_and_writes_on_another(self):
        page = (ROOT / "docs/managed.md").read_text()
        (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
        with Project() as project:
            locks = project.container("locks", SERVERS["redis"]).start().wait_healthy()
            data = project.container("data", "localhost/base-valkey", ["valkey-server", "--protected-mode", "no"],
                                     healthcheck=["CMD", "redis-cli", "PING"]).start().wait_healthy()
            data.redis().hset("stock:42", "left", 2)
            urls = {"LOCKS_URL": f"redis://{locks.address}", "DATA_URL": f"redis://{data.address}"}
            for left in ("1", "0"):
                result = subprocess.run([sys.executable, "-c", program], env=urls, text=True, capture_output=True)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(data.redis().hget("stock:42", "left"), left)
            self.assertEqual(locks.redis().dbsize(), 0)

    def test_the_unit_starts_its_server_with_its_configuration(self):
        unit = (ROOT / "packaging/systemd/redis-lock-server.service").read_text()
        command = re.search(r"^ExecStart=/usr/bin/(.*)$", unit, re.M)[1].split()
        with Project() as project:
            mounts = [
                (ROOT / "packaging/systemd", "/etc/redis-lock", "ro"),
                (project.volume("state"), "/var/lib/redis-lock", "rw"),
                (project.folder / "lib", "/usr/lib/redis/modules", "ro"),
            ]
            project.write("lib/none", "")
            copy = ["cp", "/libredis_lock.so", "/lib-of-host/"]
            module = project.container("module", "localhost/redis-lock-module", copy, user="0:0",
                                       mounts=[(project.folder / "lib", "/lib-of-host", "rw")]).start()
            self.assertEqual(module.process.wait(60), 0, module.output())
            container = project.container("unit", "localhost/base-redis", command, entrypoint=[], mounts=mounts,
                                          user="999:999", healthcheck=["CMD", "redis-cli", "-p", "6390", "LOCK.HELP"])
            container.start().wait_healthy()
            self.assertEqual(container.run("sh", "-c", "redis-cli -p 6390 MODULE LIST | grep -c ^lock$")[1], "1\n")


if __name__ == "__main__":
    containers.isolate()
    unittest.main(verbosity=2)
