/** The client libraries under test, so that each case is written once. */

import { Cluster as IoredisCluster, Redis } from "ioredis";
import { createClient, createCluster, createSentinel } from "redis";
import type { RedisClient } from "redis-lock-client";

export interface Connected {
  client: RedisClient;
  /** A command of the library's own. */
  call(...words: string[]): Promise<unknown>;
  end(): Promise<void>;
  /** The library's graceful end: `quit` or `close`. */
  close(): Promise<unknown>;
}

export interface ConnectOptions {
  /** End a connection that brings nothing for so many milliseconds. */
  socketTimeoutMs?: number;
  /** How long until it connects again. */
  reconnectMs?: number;
  /** False: without a connection a command fails at once. */
  offlineQueue?: boolean;
}

export interface Library {
  readonly name: string;
  connect(port: number, options?: ConnectOptions): Promise<Connected>;
  cluster(port: number): Promise<Connected>;
  sentinel(port: number): Promise<Connected>;
}

const quiet = <T extends { on(event: string, listener: () => void): unknown }>(client: T): T => {
  client.on("error", () => undefined);
  return client;
};

const ioredis: Library = {
  name: "ioredis",
  async connect(port, { socketTimeoutMs, reconnectMs = 20, offlineQueue = true } = {}) {
    const timeouts = socketTimeoutMs === undefined ? {} : { socketTimeout: socketTimeoutMs, commandTimeout: 5000 };
    const options = { lazyConnect: true, retryStrategy: () => reconnectMs, enableOfflineQueue: offlineQueue };
    const client = quiet(new Redis({ port, ...options, ...timeouts }));
    await client.connect().catch(() => undefined);
    return {
      client,
      call: (command, ...args) => client.call(command as string, ...args),
      end: async () => client.disconnect(),
      close: () => client.quit(),
    };
  },
  async cluster(port) {
    const client = quiet(new IoredisCluster([{ host: "127.0.0.1", port }]));
    await new Promise((done) => client.once("ready", done));
    return {
      client,
      call: (command, ...args) => client.call(command as string, ...args),
      end: async () => client.disconnect(),
      close: () => client.quit(),
    };
  },
  async sentinel(port) {
    const sentinels = [{ host: "127.0.0.1", port }];
    const client = quiet(new Redis({ sentinels, name: "main", retryStrategy: () => 20 }));
    return {
      client,
      call: (command, ...args) => client.call(command as string, ...args),
      end: async () => client.disconnect(),
      close: () => client.quit(),
    };
  },
};

function nodeRedis(RESP: 2 | 3): Library {
  return {
    name: RESP === 2 ? "node-redis" : "node-redis RESP3",
    async connect(port, { socketTimeoutMs, reconnectMs = 20, offlineQueue = true } = {}) {
      const timeout = socketTimeoutMs === undefined ? {} : { socketTimeout: socketTimeoutMs };
      const client = quiet(
        createClient({
          RESP,
          disableOfflineQueue: !offlineQueue,
          socket: { port, host: "127.0.0.1", reconnectStrategy: () => reconnectMs, ...timeout },
        }),
      );
      client.connect().catch(() => undefined);
      await Promise.race([
        new Promise((done) => client.once("ready", done)),
        new Promise((done) => client.once("error", done)),
      ]);
      return {
        client,
        call: (...words) => client.sendCommand(words),
        end: async () => (client.isOpen ? client.destroy() : undefined),
        close: () => client.close(),
      };
    },
    async cluster(port) {
      const client = quiet(createCluster({ RESP, rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }));
      await client.connect();
      return {
        client,
        call: (...words) => client.sendCommand(words[1], false, words),
        end: async () => (client.isOpen ? client.destroy() : undefined),
        close: () => client.close(),
      };
    },
    async sentinel(port) {
      const sentinelRootNodes = [{ host: "127.0.0.1", port }];
      const client = quiet(createSentinel({ RESP, name: "main", sentinelRootNodes }));
      await client.connect();
      return {
        client,
        call: (...words) => client.sendCommand(false, words),
        end: async () => (client.isOpen ? client.destroy() : undefined),
        close: () => client.close(),
      };
    },
  };
}

export const libraries: Library[] = [ioredis, nodeRedis(2)];
export const nodeRedisResp3 = nodeRedis(3);
