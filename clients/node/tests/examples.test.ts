/** The examples, and the first one of the README, run unchanged. */

import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { it } from "node:test";

import { eventually, Server } from "./servers.js";

const run = promisify(execFile);
const PACKAGE = resolve(__dirname, "../..");
const SAYS: Record<string, RegExp> = {
  mutex: /^held, with fence \d+\n$/,
  leader: /^leading\n$/,
  many_callers: /^counted 1000\n$/,
  fill_cache: /^a thousand callers have one value; made: 1\n$/,
};

it("the examples and the README's first one run", { timeout: 90_000 }, async () => {
  const server = await Server.start();
  const env = { ...process.env, REDIS_PORT: String(server.port) };
  try {
    for (const [name, says] of Object.entries(SAYS)) {
      const { stdout } = await run(process.execPath, [join(PACKAGE, `build/examples/${name}.js`)], { env });
      assert.match(stdout, says, name);
    }
    const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
    const first = /```js\n([^]*?)```/.exec(readme)?.[1]?.replace("new Redis()", `new Redis(${server.port})`);
    const folder = mkdtempSync(join(PACKAGE, "build/readme-"));
    try {
      writeFileSync(join(folder, "first.js"), first ?? "");
      const { stdout } = await run(process.execPath, [join(folder, "first.js")]);
      assert.match(stdout, /^held, fence \d+\n$/);
    } finally {
      rmSync(folder, { recursive: true });
    }
    assert.equal(await server.ask("DBSIZE"), 0);
  } finally {
    await server.stop();
  }
});

it("the example's worker ends cleanly on SIGTERM, while working and in the queue", { timeout: 90_000 }, async () => {
  const server = await Server.start();
  const env = { ...process.env, REDIS_PORT: String(server.port) };
  const start = (): { worker: ChildProcess; printed: () => string; ended: Promise<unknown[]> } => {
    const worker = spawn(process.execPath, [join(PACKAGE, "build/examples/shutdown.js")], { env });
    let text = "";
    worker.stdout.on("data", (data) => (text += data));
    worker.stderr.on("data", (data) => (text += data));
    return { worker, printed: () => text, ended: once(worker, "close") };
  };
  try {
    const first = start();
    await eventually(() => first.printed().includes("working"), "the first at work");
    const second = start();
    await eventually(async () => (await server.waiters("report")).length === 1, "the second in the queue");
    second.worker.kill("SIGTERM");
    assert.deepEqual(await second.ended, [0, null], second.printed());
    assert.equal(second.printed(), "stopped\n");
    assert.deepEqual(await server.waiters("report"), []);
    first.worker.kill("SIGTERM");
    assert.deepEqual(await first.ended, [0, null], first.printed());
    assert.match(first.printed(), /^working, with fence \d+\nstopped\n$/);
    assert.equal(await server.info("report"), null);
  } finally {
    await server.stop();
  }
});

// The definitions that the README's later programs assume.
const DECLARED = `
import type { Redis } from "ioredis";
import { Lock, observe, Semaphore } from "redis-lock-client";
import { openTelemetry } from "redis-lock-client/opentelemetry";
declare const redis: Redis;
declare const lock: Lock;
declare const url: string;
declare const token: string;
declare function work(signal: AbortSignal): Promise<void>;
declare function runTheJob(): Promise<void>;
declare function makeTheReport(options: { signal: AbortSignal }): Promise<string>;
declare function train(options: { gpu: number | undefined }): Promise<void>;
`;

it("the README's programs pass the strict type check, as ES module and as CommonJS", { timeout: 90_000 }, async () => {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const commonJs = /```js\n([^]*?)```/.exec(readme)?.[1] ?? "";
  const [esModule = "", ...others] = [...readme.matchAll(/```ts\n([^]*?)```/g)].map((found) => found[1] ?? "");
  const blocks = others.map((text) => `{\n${text}}\n`).join("");
  const [imports, rest] = esModule.split("\n\n");
  const folder = mkdtempSync(join(PACKAGE, "build/typed-"));
  try {
    const files = {
      "first.cjs": commonJs,
      "second.mts": esModule,
      // CommonJS has no await outside of functions.
      "second.cts": `${imports}\n\nvoid (async () => {\n${rest}})();\n`,
      "others.mts": `${DECLARED}\n${blocks}`,
      "others.cts": `${DECLARED}\nvoid (async () => {\n${blocks}})();\n`,
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const options =
      "--noEmit --strict --allowJs --checkJs --skipLibCheck --target es2022 --module nodenext --types node";
    const tsc = join(PACKAGE, "node_modules/typescript/bin/tsc");
    // Fails with tsc's own output.
    await run(process.execPath, [tsc, ...options.split(" "), ...Object.keys(files)], { cwd: folder }).catch((error) =>
      assert.fail(String(error.stdout)),
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it("the leader of the example queues again after a refusal and logs it", { timeout: 90_000 }, async () => {
  const server = await Server.start();
  const env = { ...process.env, REDIS_PORT: String(server.port) };
  await server.ask("LOCK.ACQUIRE", "leader", "other", "PX", 600_000);
  const leader = spawn(process.execPath, [join(PACKAGE, "build/examples/leader.js")], { env });
  const ended = once(leader, "close");
  let printed = "";
  leader.stdout.on("data", (data) => (printed += data));
  leader.stderr.on("data", (data) => (printed += data));
  try {
    const waiter = await eventually(async () => (await server.waiters("leader"))[0], "the waiter");
    assert.equal(await server.ask("LOCK.CANCEL", "leader", waiter), 1);
    await eventually(() => printed.includes("queueing again"), "the line of the log");
    await server.ask("CONFIG", "SET", "maxmemory", "1");
    await eventually(() => printed.includes("OOM"), "a refusal while it asks again");
    await server.ask("CONFIG", "SET", "maxmemory", "0");
    await eventually(async () => (await server.waiters("leader")).length, "the waiter again");
    await server.ask("LOCK.RELEASE", "leader", "other");
    await ended;
    assert.match(printed, /leading\n$/);
  } finally {
    leader.kill("SIGKILL");
    await server.stop();
  }
});
