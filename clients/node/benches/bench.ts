/** Prints the section of results/benchmarks-clients.md about Node. Its introduction (clients/bench) has the terms. */

import { createRequire } from "node:module";

import { Redis } from "ioredis";
import { createClient } from "redis";
import { Mutex } from "redis-semaphore";
import { Lock, type RedisClient } from "redis-lock-client";

import { eventually, Server, sleep } from "../tests/servers.js";

const QUICK = process.argv.includes("--quick");
const WARM_UP = QUICK ? 1 : 4;
const ROUNDS = QUICK ? 3 : 11;
/** How long a round of one row lasts: a lock that polls needs time until another caller gets it. */
const PAIR_MS = QUICK ? 50 : 100;
const HAND_OFF_MS = QUICK ? 100 : 250;
/** The callers that miss one cache entry, and how long it takes to compute. */
const CALLERS = QUICK ? 100 : 1000;
const COMPUTE_MS = 100;

/** Acquires a lock and returns its release function. */
type Take = () => Promise<() => Promise<unknown>>;

type Call = (...words: string[]) => Promise<unknown>;

interface Connection {
  client: RedisClient;
  call: Call;
  end(): unknown;
}

interface Opened {
  call: Call;
  /** A lock object for one of the callers; `waits`: the lock may be held. */
  lock?(waits: boolean): Take | Promise<Take>;
  /** Increments a counter under the lock in another way than with `lock` and `call`. */
  increment?: () => Promise<unknown>;
  /** Single-flight; otherwise the caller reads before it acquires the lock and again when it has it. */
  once?(read: () => Promise<unknown>, compute: () => Promise<unknown>): Promise<unknown>;
}

interface Contender {
  name: string;
  library: string;
  /** The other rows of the library are compared with this one. */
  isBase?: boolean;
  open(connect: () => Promise<Connection>): Promise<Opened>;
}

// Its types are not exported for this kind of import.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
const Redlock: any = createRequire(__filename)("redlock").default;

const LIBRARIES: Record<string, (port: number) => Promise<Connection>> = {
  async ioredis(port) {
    const client = new Redis(port);
    const call: Call = (command, ...words) => client.call(command as string, ...words);
    return { client, call, end: () => client.disconnect() };
  },
  async "node-redis"(port) {
    const client = createClient({ socket: { port } });
    await client.connect();
    return { client, call: (...words) => client.sendCommand(words), end: () => client.destroy() };
  },
};

const KEY = "lock";
const TOKEN = "bench:1:0123456789abcdef";
const RELEASE = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`;
const SCRIPT = `
if not redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", 30000) then return nil end
local n = redis.call("INCR", KEYS[2])
redis.call("DEL", KEYS[1])
return n`;

const rawSet = (library: string): Contender => ({
  name: `${library}, raw \`SET NX PX\` + EVALSHA`,
  library,
  async open(connect) {
    const { call } = await connect();
    const sha = String(await call("SCRIPT", "LOAD", RELEASE));
    const take: Take = async () => {
      await call("SET", KEY, TOKEN, "NX", "PX", "30000");
      return () => call("EVALSHA", sha, "1", KEY, TOKEN);
    };
    return { call, lock: () => take };
  },
});

const rawLock = (library: string): Contender => ({
  name: `${library}, raw \`LOCK.ACQUIRE\` + \`LOCK.RELEASE\``,
  library,
  isBase: true,
  async open(connect) {
    let callers = 0;
    const lock = async (waits: boolean): Promise<Take> => {
      // A blocking command needs a connection of its own.
      const { call } = await connect();
      const token = `${TOKEN}${callers++}`;
      const words = ["LOCK.ACQUIRE", KEY, token, "PX", "30000", ...(waits ? ["BLOCK", "60000"] : [])];
      return async () => {
        await call(...words);
        return () => call("LOCK.RELEASE", KEY, token);
      };
    };
    return { call: async () => undefined, lock };
  },
});

const script = (library: string): Contender => ({
  name: `${library}, raw script: SET NX, INCR, DEL`,
  library,
  isBase: true,
  async open(connect) {
    const { call } = await connect();
    const sha = String(await call("SCRIPT", "LOAD", SCRIPT));
    return { call, increment: () => call("EVALSHA", sha, "2", KEY, "n", TOKEN) };
  },
});

const ours = (library: string): Contender => ({
  name: `**redis-lock-client**, ${library}`,
  library,
  async open(connect) {
    const { client, call } = await connect();
    const shared = new Lock(client, KEY);
    const lock = (): Take => {
      const lock = new Lock(client, KEY);
      return async () => {
        const hold = await lock.acquire();
        return () => hold.release();
      };
    };
    const once: Opened["once"] = (read, compute) => new Lock(client, KEY).once(read, compute);
    return { call, lock, increment: () => shared.run(["INCR", "n"]), once };
  },
});

const redlock: Contender = {
  name: "redlock",
  library: "ioredis",
  async open(connect) {
    const { client, call } = await connect();
    const lock = (): Take => {
      const locks = new Redlock([client], { retryCount: -1 });
      locks.on("error", () => undefined);
      return async () => {
        const held = await locks.acquire([KEY], 30_000);
        return () => held.release();
      };
    };
    return { call, lock };
  },
};

const semaphore: Contender = {
  name: "redis-semaphore Mutex",
  library: "ioredis",
  async open(connect) {
    const { client, call } = await connect();
    const lock = (): Take => {
      const mutex = new Mutex(client as Redis, KEY, { acquireTimeout: Infinity });
      return async () => {
        await mutex.acquire();
        return () => mutex.release();
      };
    };
    return { call, lock };
  },
};

const ofEach = (kind: (library: string) => Contender): Contender[] => Object.keys(LIBRARIES).map(kind);
const LOCKS = [...ofEach(ours), redlock, semaphore];

const INCREMENT = "INCR under the lock";

/** Each work, its callers, and its rows. */
const WORKS: [string, number, Contender[]][] = [
  ["pair", 1, [...ofEach(rawSet), ...ofEach(rawLock), ...LOCKS]],
  ["hand-off, 2", 2, [...ofEach(rawLock), ...LOCKS]],
  ["hand-off, 48", 48, [...ofEach(rawLock), ...LOCKS]],
  [INCREMENT, 1, [...ofEach(script), ...LOCKS]],
];

/** What `work` cost the client and the server: the server's counters without those of the queries. */
interface Cost {
  clientUs: number;
  serverUs: number;
  requests: number;
  bytes: number;
}

async function cost(server: Server, work: () => Promise<unknown>): Promise<Cost> {
  const first = await counted(server);
  const before = await counted(server);
  const cpuBefore = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(cpuBefore);
  const after = await counted(server);
  const [serverUs, requests, bytes] = after.map((figure, at) => figure - 2 * before[at]! + first[at]!);
  return { clientUs: user + system, serverUs: serverUs!, requests: requests!, bytes: bytes! };
}

/** The server's CPU time, requests and bytes. */
async function counted(server: Server): Promise<number[]> {
  const info = await server.admin.info();
  const sum = (...fields: string[]): number =>
    fields.reduce((sum, field) => sum + Number(new RegExp(`^${field}:([\\d.]+)`, "m").exec(info)?.[1]), 0);
  return [
    sum("used_cpu_user", "used_cpu_sys") * 1e6,
    sum("total_commands_processed"),
    sum("total_net_input_bytes", "total_net_output_bytes"),
  ];
}

/** The callers work for that long, and until the lock has been handed off. Returns how often the work was done. */
async function working(name: string, takes: Take[], ms: number): Promise<number> {
  let done = 0;
  let holders = 0;
  let last: number | undefined;
  const until = performance.now() + ms;
  const caller = async (take: Take, number: number): Promise<void> => {
    while (performance.now() < until || done === 0) {
      const release = await take();
      if (++holders > 1) throw new Error(`${name}: two holders`);
      if (takes.length === 1 || (last !== undefined && last !== number)) done += 1;
      last = number;
      holders -= 1;
      await release();
    }
  };
  await Promise.all(takes.map(caller));
  return done;
}

/** What a caller of the lock does, except to release it. */
async function taking({ call, lock, increment }: Opened, work: string, callers: number): Promise<Take> {
  if (work !== INCREMENT) return lock!(callers > 1);
  if (increment !== undefined) return () => increment().then(() => async () => undefined);
  const take = await lock!(false);
  return async () => {
    const release = await take();
    await call("INCR", "n");
    return release;
  };
}

async function rows([work, callers, contenders]: (typeof WORKS)[number], server: Server): Promise<string[][]> {
  await eventually(async () => (await server.connections()) === 0, "the end of the connections of the last work");
  const all: { contender: Contender; round: () => Promise<Cost>; connections: number; rounds: Cost[] }[] = [];
  const ends: (() => unknown)[] = [];
  for (const contender of contenders) {
    const before = await server.connections();
    const opened = await contender.open(async () => {
      const connection = await LIBRARIES[contender.library]!(server.port);
      ends.push(connection.end);
      return connection;
    });
    const takes: Take[] = [];
    while (takes.length < callers) takes.push(await taking(opened, work, callers));
    const round = async (): Promise<Cost> => {
      let done = 0;
      const spent = await cost(server, async () => {
        done = await working(contender.name, takes, callers === 1 ? PAIR_MS : HAND_OFF_MS);
      });
      for (const figure of Object.keys(spent) as (keyof Cost)[]) spent[figure] /= done;
      return spent;
    };
    await round();
    all.push({ contender, round, connections: (await server.connections()) - before, rounds: [] });
  }
  for (let at = 1; at < WARM_UP + ROUNDS; at++) {
    for (const { round, rounds } of all) {
      const cost = await round();
      if (at >= WARM_UP) rounds.push(cost);
    }
  }
  for (const end of ends) end();
  return all.map(({ contender, connections, rounds }) => {
    const base = all.find((row) => row.contender.isBase && row.contender.library === contender.library)!;
    const of = (figure: keyof Cost): number[] => sorted(rounds.map((round) => round[figure]));
    const cpu = of("clientUs");
    const ratios = sorted(rounds.map(({ clientUs }, at) => clientUs / base.rounds[at]!.clientUs));
    return [
      work,
      contender.name,
      `${number(median(cpu))} (${number(cpu[0]!)} to ${number(cpu.at(-1)!)})`,
      number(median(ratios), 2),
      number(median(of("serverUs"))),
      number(median(of("requests")), 1),
      number(median(of("bytes"))),
      number(connections),
      "–",
    ];
  });
}

/** Many callers miss one cache entry at the same time, over one connection. */
async function stampede(contender: Contender, server: Server): Promise<string[]> {
  await server.ask("FLUSHALL");
  const { client, call, end } = await LIBRARIES[contender.library]!(server.port);
  const { lock, once } = await contender.open(async () => ({ client, call, end }));
  const read = (): Promise<unknown> => call("GET", "entry");
  let computed = 0;
  const compute = async (): Promise<unknown> => {
    computed += 1;
    await sleep(COMPUTE_MS);
    return call("SET", "entry", "value");
  };
  const looking = async (): Promise<unknown> => {
    if ((await read()) !== null) return;
    const release = await (await lock!(true))();
    if ((await read()) === null) await compute();
    return release();
  };
  const began = performance.now();
  const { clientUs, serverUs, requests } = await cost(server, () =>
    Promise.all(Array.from({ length: CALLERS }, () => (once === undefined ? looking() : once(read, compute)))),
  );
  const seconds = (performance.now() - began) / 1000;
  end();
  const cells = [seconds.toFixed(2), number(clientUs / 1000), number(serverUs / 1000), number(requests)];
  return [contender.name, number(computed), ...cells];
}

const sorted = (values: number[]): number[] => values.sort((one, other) => one - other);
const median = (values: number[]): number => values[values.length >> 1]!;
const number = (value: number, digits = 0): string =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function table(text: number, head: string[], rows: string[][]): string {
  const line = (cells: string[]): string => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map((_, at) => (at < text ? "---" : "--:"))), ...rows.map(line)].join("\n");
}

async function main(): Promise<void> {
  const server = await Server.start();
  const costs: string[][] = [];
  for (const work of WORKS) costs.push(...(await rows(work, server)));
  const computed: string[][] = [];
  for (const contender of LOCKS) computed.push(await stampede(contender, server));
  const redis = /redis_version:(\S+)/.exec(await server.admin.info("server"))?.[1];
  await server.stop();
  const require = createRequire(__filename);
  const [ioredis, nodeRedis, semaphore] = ["ioredis", "redis", "redis-semaphore"].map(
    (name): string => require(`${name}/package.json`).version,
  );
  const { redlock } = require("../../package.json").devDependencies;
  const columns = ["client CPU, µs", "to raw commands", "server CPU, µs", "requests", "bytes", "connections"];
  const onceColumns = ["computed", "until all have it, s", "client CPU, ms", "server CPU, ms", "requests"];
  console.log(`## Node

Redis ${redis}, Node ${process.version.slice(1)}, ioredis ${ioredis}, node-redis ${nodeRedis},
redlock ${redlock}, redis-semaphore ${semaphore}, these two over ioredis;
${ROUNDS} rounds of ${PAIR_MS} ms, of ${HAND_OFF_MS} ms for a hand-off.
The callers of one lock share a connection, except with raw commands.

${table(2, ["workload", "lock", ...columns, "allocations"], costs)}

${number(CALLERS)} callers miss one cache entry, which takes ${COMPUTE_MS} ms to compute.
With this client they call \`once\`, with the other locks they read the entry before the lock and under it.

${table(1, ["lock", ...onceColumns], computed)}`);
  process.exit(0);
}

void main();
