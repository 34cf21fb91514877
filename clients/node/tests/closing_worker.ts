/**
 * Closes its client, and prints for how many milliseconds the process lasts after that:
 * `closing_worker.js ioredis|node-redis PORT waited|waiting|session`.
 */

import { Lock } from "redis-lock-client";

import { libraries } from "./libraries.js";

async function main(): Promise<void> {
  const [name, port, what] = process.argv.slice(2);
  const library = libraries.find((each) => each.name === name);
  if (library === undefined) throw new Error(`no library ${name}`);
  const { client, close } = await library.connect(Number(port));
  const hold = await new Lock(client, "k", { session: what === "session" }).acquire();
  if (what === "waited") {
    const waiting = new Lock(client, "k").acquire({ wait: 100 });
    await waiting.catch(() => undefined);
    await hold.release();
  }
  const options = [{}, { session: true }, { replicas: 1 }];
  const waiting = what === "waiting" ? options.map((each) => new Lock(client, "k", each).acquire()) : [];
  const rejected = Promise.allSettled(waiting);
  await new Promise((asked) => setTimeout(asked, 200));
  await close();
  const closed = performance.now();
  await rejected;
  process.on("exit", () => process.stdout.write(String(Math.round(performance.now() - closed))));
}

void main();
