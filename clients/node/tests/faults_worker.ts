/**
 * The worker of the Node client: `faults_worker.js LIBRARY PORT SEED`, with a name from libraries.ts.
 * clients/faults/README.md says what it prints. Tasks acquire, hold and release locks until a line arrives on stdin.
 */

import { Lock, LockLostError, NotAcquiredError, type Hold } from "redis-lock-client";

import { libraries } from "./libraries.js";

const LINES = 6;
const KEYS = 4;
let stopping = false;

const report = (event: object): void => void process.stdout.write(`${JSON.stringify(event)}\n`);
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Mulberry32: pseudorandom numbers from 0 to 1. */
function rngOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

async function main(): Promise<void> {
  const [name, port, seed] = process.argv.slice(2);
  const library = libraries.find((each) => each.name === name);
  if (library === undefined) throw new Error(`no library ${name}`);
  const { client, end } = await library.connect(Number(port), { reconnectMs: 50 });

  const line = async (number: number): Promise<void> => {
    const rng = rngOf(Number(seed) * 1000 + number);
    const between = (low: number, high: number): number => low + (high - low) * rng();
    while (!stopping) {
      const key = `k${Math.floor(rng() * KEYS)}`;
      const kind = rng();
      const session = kind < 0.1;
      const autoRenew = !session && kind < 0.3;
      const lease = kind < 0.3 ? 1500 : kind < 0.5 ? 60_000 : 3000;
      const wait = rng() < 0.1 ? 0 : Math.round(between(100, 2000));
      const cancelMs = rng() < 0.25 ? between(0, Math.max(wait, 50)) : undefined;
      const holdMs = autoRenew && rng() < 0.2 ? between(0, 2500) : between(0, 60);

      const lock = new Lock(client, key, { lease, session, autoRenew });
      const giveUp = new AbortController();
      let cancelled = 0;
      const cancel = (): void => {
        cancelled = Date.now();
        giveUp.abort();
      };
      const timer = cancelMs === undefined ? undefined : setTimeout(cancel, cancelMs);
      const began = Date.now();
      const asked = (outcome: string): void =>
        report({ e: "acquire", key, wait, began, ended: Date.now(), outcome, cancelled });
      let hold: Hold;
      try {
        hold = await lock.acquire({ wait, signal: giveUp.signal });
      } catch (error) {
        asked(error instanceof NotAcquiredError ? "refused" : giveUp.signal.aborted ? "cancelled" : "failed");
        continue;
      } finally {
        clearTimeout(timer);
      }
      asked("granted");
      const since = Date.now();
      let until = 0;
      while (!hold.lost) {
        until = Date.now();
        if (until >= since + holdMs) break;
        await sleep(5);
      }
      if (until > 0) report({ e: "held", key, fence: hold.fence, since, until, session });
      for (;;) {
        const releasing = Date.now();
        const outcome = await hold.release().then(
          () => "released",
          (error: unknown) => (error instanceof LockLostError ? "lost" : "failed"),
        );
        report({ e: "release", began: releasing, ended: Date.now(), outcome });
        if (outcome !== "failed" || session) break;
      }
    }
  };

  process.stdin.once("data", () => {
    stopping = true;
    process.stdin.destroy();
  });
  await Promise.all(
    Array.from({ length: LINES }, (_, number) =>
      line(number).catch((error: Error) => report({ e: "unexpected", what: String(error.stack) })),
    ),
  );
  // The background cleanup ends by itself, and then nothing keeps the process alive.
  await sleep(5000);
  report({ e: "end", left: 0 });
  await end();
}

void main();
