/** Computes a value until it is killed: `once_worker.js ioredis|node-redis PORT LEASE_MS`. */

import { Lock } from "redis-lock-client";

import { libraries } from "./libraries.js";

async function main(): Promise<void> {
  const [name, port, lease] = process.argv.slice(2);
  const library = libraries.find((each) => each.name === name);
  if (library === undefined) throw new Error(`no library ${name}`);
  const { client } = await library.connect(Number(port));
  const making = async (): Promise<string> => {
    process.stdout.write("making\n");
    await new Promise((never) => setInterval(never, 3_600_000));
    return "never";
  };
  await new Lock(client, "k", { lease: Number(lease), autoRenew: true }).once(() => null, making);
}

void main();
