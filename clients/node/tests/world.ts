/** The resources that a test may start and that end with it. */

import { after, describe, it } from "node:test";

import { tested, type Connected, type ConnectOptions, type Library } from "./libraries.js";
import { Cluster, Proxy, Server } from "./servers.js";

export class World {
  private readonly ends: (() => Promise<unknown>)[] = [];

  constructor(readonly library: Library) {}

  async server(options: string[] = [], how: Parameters<typeof Server.start>[1] = {}): Promise<Server> {
    const server = await Server.start(options, how);
    this.ends.push(() => server.stop());
    return server;
  }

  async cluster(): Promise<Cluster> {
    const cluster = await Cluster.start();
    this.ends.push(() => cluster.stop());
    return cluster;
  }

  async proxy(to: Server): Promise<Proxy> {
    const proxy = await Proxy.start(to.port);
    this.ends.push(() => proxy.stop());
    return proxy;
  }

  async connect(to: { port: number }, options?: ConnectOptions): Promise<Connected> {
    return this.ending(await this.library.connect(to.port, options));
  }

  ending(connected: Connected): Connected {
    this.ends.push(() => connected.end());
    return connected;
  }

  atEnd(end: () => Promise<unknown>): void {
    this.ends.push(end);
  }

  async end(): Promise<void> {
    for (const end of this.ends.reverse()) await end();
  }
}

type Case = (name: string, body: (world: World) => Promise<void>) => void;

/** What keeps the process alive; the types of Node 18 do not know the function. */
const open = (): string[] => (process as unknown as { getActiveResourcesInfo(): string[] }).getActiveResourcesInfo();

/** Tests that run in parallel, each for every library. */
export function suite(title: string, cases: (each: Case) => void): void {
  describe(title, { concurrency: Number(process.env["JOBS"] ?? 6) }, () => {
    after(() => {
      // Anything left open would keep the process alive: it counts as a failure.
      const leave = (): void => {
        console.error(`${title}: something was left open: ${open().join(", ")}`);
        process.exit(1);
      };
      setTimeout(leave, 10_000).unref();
    });
    cases((name, body) => {
      for (const library of tested) {
        it(`${name}: ${library.name}`, { timeout: 90_000 }, async () => {
          const world = new World(library);
          try {
            await body(world);
          } finally {
            await world.end();
          }
        });
      }
    });
  });
}

/** Whether a promise is still pending. */
export async function isPending(promise: Promise<unknown>): Promise<boolean> {
  const open = Symbol("open");
  return (await Promise.race([promise, Promise.resolve(open)])) === open;
}
