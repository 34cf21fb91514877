/**
 * Compares this lock with redlock and redis-semaphore on one server in one run. Prints a section of Markdown.
 *
 * Counted at the server: requests (commands that a client sent, not the commands within a script) and its CPU time.
 */

import { createRequire } from "node:module";
import { cpus } from "node:os";

import { Redis } from "ioredis";
import { createClient } from "redis";
import { Mutex } from "redis-semaphore";
import { Lock, type RedisClient } from "redis-lock-client";

import { eventually, Server, sleep } from "../tests/servers.js";

const QUICK = process.argv.includes("--quick");
const SECONDS = QUICK ? 1 : 5;
const ROUNDS = 11;
const WAITERS = 48;
const CALLERS = 1000;
/** How long making a cache entry takes. */
const MAKING_MS = 100;
/** The longest that a thousand callers may take. */
const LIMIT_S = QUICK ? 5 : 60;

/** One lock object: acquires it and returns its release function; undefined if the time ran out. */
type Take = () => Promise<() => Promise<unknown>>;

type Call = (...words: string[]) => Promise<unknown>;

interface Contending {
  lock(key: string): Take;
  /** Single-flight, if the lock has it; otherwise a read before the lock and one under it. */
  once?(key: string, read: () => Promise<unknown>, make: () => Promise<unknown>): Promise<unknown>;
  call: Call;
  end(): Promise<void>;
}

interface Contender {
  name: string;
  waiting: string;
  /** The commands that its clients send; the server also counts those within scripts. */
  requests: string[];
  connect(port: number): Promise<Contending>;
}

// Its types are not exported for this kind of import.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
const Redlock: any = createRequire(__filename)("redlock").default;

const callOf =
  (redis: Redis): Call =>
  (command, ...args) =>
    redis.call(command as string, ...args);

type Connect = (port: number) => Promise<[RedisClient, Call, () => Promise<unknown>]>;

const ours = (name: string, connect: Connect): Contender => ({
  name,
  waiting: "in the queue",
  requests: ["lock.acquire", "lock.release", "lock.cancel", "subscribe"],
  async connect(port) {
    const [client, call, end] = await connect(port);
    const lock = (key: string): Take => {
      const lock = new Lock(client, key);
      return async () => {
        const hold = await lock.acquire();
        return () => hold.release();
      };
    };
    const once: Contending["once"] = (key, read, make) => new Lock(client, key).once(read, make);
    return { lock, once, call, end: async () => void (await end()) };
  },
});

/** The commands of a pair with nothing around them: the lower bound for a client. Only for pairs. */
const raw = (name: string, connect: Connect): Contender => ({
  name,
  waiting: "",
  requests: ["lock.acquire", "lock.release"],
  async connect(port) {
    const [, call, end] = await connect(port);
    const token = "bench:1:0123456789abcdef";
    const lock =
      (key: string): Take =>
      async () => {
        await call("LOCK.ACQUIRE", key, token, "PX", "30000");
        return () => call("LOCK.RELEASE", key, token);
      };
    return { lock, call, end: async () => void (await end()) };
  },
});

const redlock = (retryDelay: number, retryJitter: number, waiting: string): Contender => ({
  name: "redlock",
  waiting,
  requests: ["evalsha", "eval"],
  async connect(port) {
    const redis = new Redis(port);
    const lock = (key: string): Take => {
      const locks = new Redlock([redis], { retryCount: -1, retryDelay, retryJitter });
      locks.on("error", () => undefined);
      return async () => {
        const held = await locks.acquire([key], 30_000);
        return () => held.release();
      };
    };
    return { lock, call: callOf(redis), end: async () => redis.disconnect() };
  },
});

const semaphore = (retryInterval: number, waiting: string): Contender => ({
  name: "redis-semaphore Mutex",
  waiting,
  requests: ["set", "evalsha", "eval"],
  async connect(port) {
    const redis = new Redis(port);
    const lock = (key: string): Take => {
      const mutex = new Mutex(redis, key, { lockTimeout: 30_000, acquireTimeout: 3_600_000, retryInterval });
      return async () => {
        await mutex.acquire();
        return () => mutex.release();
      };
    };
    return { lock, call: callOf(redis), end: async () => redis.disconnect() };
  },
});

const overIoredis: Connect = async (port) => {
  const redis = new Redis(port);
  return [redis, callOf(redis), async () => redis.disconnect()];
};
const overNodeRedis: Connect = async (port) => {
  const client = createClient({ socket: { port } });
  await client.connect();
  return [client, (...words) => client.sendCommand(words), async () => client.destroy()];
};

const RAW: Contender[] = [
  raw("ioredis, LOCK.ACQUIRE and LOCK.RELEASE", overIoredis),
  raw("node-redis, LOCK.ACQUIRE and LOCK.RELEASE", overNodeRedis),
];

const CONTENDERS: Contender[] = [
  ours("redis-lock-client, ioredis", overIoredis),
  ours("redis-lock-client, node-redis", overNodeRedis),
  redlock(200, 100, "asks every 200 ± 100 ms (default)"),
  redlock(10, 5, "asks every 10 ± 5 ms"),
  semaphore(10, "asks every 10 ms (default)"),
  semaphore(2, "asks every 2 ms"),
];

interface Spent {
  seconds: number;
  requests: number;
  cpuUs: number;
}

async function measured(server: Server, contender: Contender, work: () => Promise<void>): Promise<Spent> {
  await server.ask("CONFIG", "RESETSTAT");
  const cpuBefore = await cpuUs(server);
  const began = performance.now();
  await work();
  const seconds = (performance.now() - began) / 1000;
  const cpuAfter = await cpuUs(server);
  let requests = 0;
  for (const command of contender.requests) requests += await server.calls(command);
  return { seconds, requests, cpuUs: cpuAfter - cpuBefore };
}

async function cpuUs(server: Server): Promise<number> {
  const info = await server.admin.info("cpu");
  const of = (field: string): number => Number(new RegExp(`^${field}:([\\d.]+)`, "m").exec(info)?.[1]);
  return (of("used_cpu_user") + of("used_cpu_sys")) * 1e6;
}

/** Acquired and released by one caller. */
async function pairs(server: Server, contenders: Contender[]): Promise<string[][]> {
  const connected = contenders.map(async (contender) => {
    const { lock, end } = await contender.connect(server.port);
    return { contender, take: lock("pairs"), end, rounds: [] as number[][] };
  });
  const all = await Promise.all(connected);
  for (const { take } of all) for (let times = 0; times < 200; times++) await (await take())();
  for (let round = 0; round < ROUNDS; round++) {
    for (const { contender, take, rounds } of all) {
      let done = 0;
      const before = process.cpuUsage();
      const spent = await measured(server, contender, async () => {
        const until = performance.now() + (SECONDS * 1000) / ROUNDS;
        for (; performance.now() < until; done++) await (await take())();
      });
      const { user, system } = process.cpuUsage(before);
      rounds.push([done / spent.seconds, (user + system) / done, spent.requests / done, spent.cpuUs / done]);
    }
  }
  await Promise.all(all.map(({ end }) => end()));
  return all.map(({ contender, rounds }) => {
    const median = (column: number): number =>
      rounds.map((round) => round[column] as number).sort((one, other) => one - other)[ROUNDS >> 1] as number;
    return [contender.name, number(median(0)), number(median(1)), number(median(2), 2), number(median(3), 1)];
  });
}

/** Handed off among 48 callers, each with its own lock object, all over one connection. */
async function handoffs(server: Server, contender: Contender): Promise<string[]> {
  const { lock, end } = await contender.connect(server.port);
  const turns = new Array<number>(WAITERS).fill(0);
  let inside = 0;
  let longest = 0;
  let done = false;
  const caller = async (number: number): Promise<void> => {
    const take = lock("handoffs");
    while (!done) {
      const asked = performance.now();
      const release = await take();
      if (++inside > 1) throw new Error(`${contender.name}: two holders`);
      longest = Math.max(longest, performance.now() - asked);
      if (!done) turns[number] = (turns[number] as number) + 1;
      inside -= 1;
      await release();
    }
  };
  let callers: Promise<void>[] = [];
  const spent = await measured(server, contender, async () => {
    callers = turns.map((_, number) => caller(number));
    await sleep(SECONDS * 1000);
  });
  done = true;
  await Promise.all(callers);
  await end();
  const all = turns.reduce((sum, some) => sum + some);
  return [
    contender.name,
    contender.waiting,
    number(all / spent.seconds),
    number(spent.requests / all, 2),
    number(spent.cpuUs / all, 1),
    number(longest),
    `${Math.min(...turns)} to ${Math.max(...turns)}`,
  ];
}

/** Each of a thousand callers gets the lock once, over one connection. */
async function thousand(server: Server, contender: Contender): Promise<string[]> {
  await eventually(async () => (await server.connections()) === 0, "the end of the connections of before");
  const { lock, end } = await contender.connect(server.port);
  let served = 0;
  let over = false;
  const first = await lock("thousand")();
  const callers = Array.from({ length: CALLERS }, async () => {
    const release = await lock("thousand")();
    if (!over) served += 1;
    await release();
  });
  for (const each of callers) each.catch(() => undefined);
  await sleep(QUICK ? 500 : 2000);
  const spent = await measured(server, contender, async () => {
    await first();
    await Promise.race([Promise.all(callers), sleep(LIMIT_S * 1000)]);
    over = true;
  });
  const connections = await server.connections();
  await end();
  return [
    contender.name,
    contender.waiting,
    number(spent.seconds, 2),
    `${served} of ${CALLERS}`,
    number(spent.requests / served, 2),
    number(spent.cpuUs / served, 1),
    String(connections),
  ];
}

/** Locks, increments and unlocks, with no other command between them. */
const SCRIPT = `
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", 30000) then return nil end
local n = redis.call("INCR", KEYS[2])
redis.call("DEL", KEYS[1])
return n`;

/** One INCR under a lock: by one caller, and by 48 over one connection. */
async function sections(server: Server): Promise<string[][]> {
  const redis = new Redis(server.port);
  const client = createClient({ socket: { port: server.port } });
  await client.connect();
  const sha = String(await redis.script("LOAD", SCRIPT));
  const three = (client: RedisClient): (() => Promise<unknown>) => {
    const lock = new Lock(client, "section");
    return () => lock.using((hold) => hold.exec("INCR", "n"));
  };
  const one = (client: RedisClient): (() => Promise<unknown>) => {
    const lock = new Lock(client, "section");
    return () => lock.run(["INCR", "n"]);
  };
  const ways: [string, () => Promise<unknown>][] = [
    ["`run`: one packet, ioredis", one(redis)],
    ["`run`: one packet, node-redis", one(client)],
    ["`using` and `exec`: three round trips, ioredis", three(redis)],
    ["`using` and `exec`: three round trips, node-redis", three(client)],
    [
      "a Lua script: SET NX, INCR, DEL, ioredis",
      () => redis.evalsha(sha, 2, "script", "n", "bench:1:0123456789abcdef"),
    ],
  ];
  const rows: string[][] = [];
  for (const [name, work] of ways) {
    const cells = [name];
    for (const callers of [1, WAITERS]) {
      for (let times = 0; times < 200; times++) await work();
      let done = 0;
      const until = performance.now() + SECONDS * 1000;
      const caller = async (): Promise<void> => {
        for (; performance.now() < until; done++) await work();
      };
      const cpuBefore = await cpuUs(server);
      const began = performance.now();
      await Promise.all(Array.from({ length: callers }, caller));
      const seconds = (performance.now() - began) / 1000;
      cells.push(number(done / seconds), number(((await cpuUs(server)) - cpuBefore) / done, 1));
    }
    rows.push(cells);
  }
  redis.disconnect();
  client.destroy();
  return rows;
}

/** A thousand callers miss one cache entry at the same time, over one connection. */
async function stampede(server: Server, contender: Contender): Promise<string[]> {
  const { lock, once, call, end } = await contender.connect(server.port);
  // Not GET and SET, which others send within scripts.
  const read = (): Promise<unknown> => call("HGET", "cache", "entry");
  let made = 0;
  const make = async (): Promise<unknown> => {
    made += 1;
    await sleep(MAKING_MS);
    return call("HSET", "cache", "entry", "value");
  };
  const looking = async (): Promise<unknown> => {
    if ((await read()) !== null) return;
    const release = await lock("stampede")();
    if ((await read()) === null) await make();
    return release();
  };
  let served = 0;
  let over = false;
  const counted = { ...contender, requests: [...contender.requests, "hget", "hset"] };
  const spent = await measured(server, counted, async () => {
    const callers = Array.from({ length: CALLERS }, async () => {
      await (once === undefined ? looking() : once("stampede", read, make));
      if (!over) served += 1;
    });
    for (const each of callers) each.catch(() => undefined);
    await Promise.race([Promise.all(callers), sleep(LIMIT_S * 1000)]);
    over = true;
  });
  await end();
  return [
    contender.name,
    once === undefined ? `${contender.waiting}; looks before and after` : "`once`",
    number(spent.seconds, 2),
    `${served} of ${CALLERS}`,
    String(made),
    number(spent.requests / served, 2),
    number(spent.cpuUs / 1000),
  ];
}

const number = (value: number, digits = 0): string =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]): string => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

async function main(): Promise<void> {
  const server = await Server.start();
  const rows: Record<"pairs" | "handoffs" | "thousand" | "stampede", string[][]> = {
    pairs: [],
    handoffs: [],
    thousand: [],
    stampede: [],
  };
  // In the pairs no request waits: measured once per library, however it waits.
  const names = CONTENDERS.map(({ name }) => name);
  rows.pairs = await pairs(server, [...RAW, ...CONTENDERS.filter(({ name }, at) => names.indexOf(name) === at)]);
  for (const contender of CONTENDERS) {
    console.error(`${contender.name}, ${contender.waiting}`);
    rows.handoffs.push(await handoffs(server, contender));
    rows.thousand.push(await thousand(server, contender));
    await server.ask("FLUSHALL");
    rows.stampede.push(await stampede(server, contender));
    await server.ask("FLUSHALL");
  }
  console.error("one command under a lock");
  const inSections = await sections(server);
  const version = /redis_version:(\S+)/.exec(await server.admin.info("server"))?.[1];
  await server.stop();
  const fair = ["longest wait, ms", "turns of a caller"];
  const perHandoff = ["requests per hand-off", "server CPU µs per hand-off"];
  const cpu = "server CPU µs";
  const sectionColumns = ["lock, INCR, release", "per second", cpu, `${WAITERS} callers: per second`, cpu];
  const eachMade = ["seconds", "have it", "times made", "requests per caller", "server CPU ms"];
  const limit = `(for at most ${LIMIT_S} s)`;
  console.log(`## Node: this lock beside redlock and redis-semaphore

Redis ${version} and Node ${process.version} on one machine (${cpus().length} CPUs), ${SECONDS} s each, one run.
Requests are commands that the clients sent, CPU is the server's own.

One caller, nobody waits; medians of ${ROUNDS} rounds of ${number((SECONDS * 1000) / ROUNDS)} ms, in turns:

${table(["lock", "pairs per second", "client CPU µs", "requests per pair", "server CPU µs per pair"], rows.pairs)}

${WAITERS} callers over one connection, each with a lock object of its own, take turns without a pause:

${table(["lock", "a waiter", "hand-offs per second", ...perHandoff, ...fair], rows.handoffs)}

One INCR under a lock, by one caller and by ${WAITERS} callers over one connection:

${table(sectionColumns, inSections)}

${number(CALLERS)} callers over one connection wait, and each has one turn ${limit}:

${table(["lock", "a waiter", "seconds", "served", ...perHandoff, "connections"], rows.thousand)}

${number(CALLERS)} callers over one connection miss one cache entry, which takes ${MAKING_MS} ms to make ${limit}:

${table(["lock", "a caller", ...eachMade], rows.stampede)}`);
  process.exit(0);
}

void main();
