/** Acquires that are cancelled while the server restarts leave neither a queued request nor a hold behind. */

import { Lock, LockLostError } from "redis-lock-client";

import { eventually, sleep } from "./servers.js";
import { suite } from "./world.js";

const GIVEN_UP = 2000;
const ACQUIRES = 200;
const KEYS = 10;

suite("restarts", (each) => {
  each("2,000 acquires that are cancelled during restarts leave nothing", async (world) => {
    const server = await world.server(["--appendonly", "yes", "--appendfsync", "always"]);
    const { client } = await world.connect(server, { reconnectMs: 50 });
    let given = 0;
    const acquire = async (name: string): Promise<void> => {
      // Longer than the test, so that no lease expires during it.
      const lock = new Lock(client, name, { lease: 600_000 });
      const ms = Math.random() * 400;
      const giveUp = new AbortController();
      const timer = setTimeout(() => giveUp.abort(), ms);
      const how = Math.random() < 0.5 ? { signal: giveUp.signal } : { wait: ms };
      const hold = await lock.acquire(how).catch(() => undefined);
      clearTimeout(timer);
      if (hold === undefined) {
        given += 1;
        return;
      }
      await sleep(Math.random() * 60);
      // A release that could not reach the server in 10 s has to be repeated by the caller.
      while (
        !(await hold.release().then(
          () => true,
          (error: Error) => error instanceof LockLostError,
        ))
      );
    };
    for (let round = 0; given < GIVEN_UP; round++) {
      const acquiring = Array.from({ length: ACQUIRES }, async (_, index) => {
        await sleep(Math.random() * 300);
        await acquire(`k${index % KEYS}`);
      });
      await sleep(100 + Math.random() * 200);
      // Sometimes it is down for longer than a cancelled caller is delayed.
      await server.restart(round % 5 === 4 ? 3000 : Math.random() * 300);
      await Promise.all(acquiring);
    }
    const left = async (): Promise<string[]> => {
      const keys = (await server.ask("KEYS", "*")) as string[];
      const queued = await Promise.all(keys.map((key) => server.waiters(key)));
      return [...keys, ...queued.flat()];
    };
    await eventually(async () => (await left()).length === 0, "the end of every hold and request");
  });
});
