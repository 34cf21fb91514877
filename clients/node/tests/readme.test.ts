/** The program of the repository's docs/start.md runs as it is printed, on a server's port. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { it } from "node:test";

import { eventually, Server } from "./servers.js";

const PAGE = readFileSync(resolve(__dirname, "../../../../docs/start.md"), "utf8");

it("the program of docs/start.md waits for its turn, holds the lock and releases it", { timeout: 90_000 }, async () => {
  const programs = [...PAGE.matchAll(/^```js\n([^]*?)^```$/gm)].map((found) => found[1] ?? "");
  assert.equal(programs.length, 1);
  const server = await Server.start();
  try {
    await server.ask("LOCK.ACQUIRE", "report", "somebody", "PX", 60_000);
    const { fence } = (await server.info("report")) ?? {};
    const here = programs[0]?.replace("new Redis()", `new Redis(${server.port})`) ?? "";
    assert.notEqual(here, programs[0], "it connects to the default port");
    // Inside the package, where its own name and its dependencies resolve.
    const file = resolve(__dirname, "../readme.mjs");
    writeFileSync(file, here);
    const running = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "inherit"], timeout: 60_000 });
    let printed = "";
    running.stdout.setEncoding("utf8").on("data", (text: string) => (printed += text));
    const ended = once(running, "close");
    await eventually(
      async () => running.exitCode !== null || (await server.waiters("report")).length === 1,
      "a waiter",
    );
    assert.equal(printed, "", "it does not run before the grant");
    assert.equal(await server.ask("LOCK.RELEASE", "report", "somebody"), 1);
    assert.deepEqual(await ended, [0, null]);
    const own = /^making the report under fence (\d+)\n$/.exec(printed)?.[1];
    assert.ok(Number(own) > fence, printed);
    assert.equal(await server.info("report"), null);
  } finally {
    await server.stop();
  }
});
