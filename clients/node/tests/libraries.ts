/** The client libraries under test, so that each case is written once. */

import * as ioredis5 from "ioredis";
import * as redis5 from "redis";
import type { RedisClient } from "redis-lock-client";

type Ioredis = Pick<typeof ioredis5, "Cluster" | "Redis">;
type NodeRedis = Pick<typeof redis5, "createClient" | "createCluster" | "createSentinel">;

export interface Connected {
  client: RedisClient;
  /** A command of the library's own. */
  call(...words: string[]): Promise<unknown>;
  /** The library's own change of the database. */
  select(db: number): Promise<unknown>;
  end(): Promise<void>;
  /** The library's graceful end: `quit` or `close`. */
  close(): Promise<unknown>;
}

export interface ConnectOptions {
  /** End a connection that is idle for this many milliseconds. */
  socketTimeoutMs?: number;
  /** How long until it connects again. */
  reconnectMs?: number;
  /** False: without a connection a command fails immediately. */
  offlineQueue?: boolean;
  /** What the library puts before each key. */
  keyPrefix?: string | Buffer;
  username?: string;
  password?: string;
}

export interface User {
  username?: string;
  password?: string;
}

export interface Library {
  readonly name: string;
  readonly of: "ioredis" | "node-redis";
  readonly major: 5 | 6;
  connect(port: number, options?: ConnectOptions): Promise<Connected>;
  cluster(port: number, keyPrefix?: string, user?: User): Promise<Connected>;
  sentinel(port: number, keyPrefix?: string, user?: User): Promise<Connected>;
}

const quiet = <T extends { on(event: string, listener: () => void): unknown }>(client: T): T => {
  client.on("error", () => undefined);
  return client;
};

function ioredis(major: 5 | 6, { Redis, Cluster }: Ioredis, RESP?: 2): Library {
  const protocol = RESP === undefined ? {} : { protocol: RESP };
  const connected = (client: InstanceType<Ioredis["Redis"]> | InstanceType<Ioredis["Cluster"]>): Connected => ({
    client,
    call: (command, ...args) => client.call(command as string, ...args),
    select: (db) => client.select(db),
    end: async () => client.disconnect(),
    close: () => client.quit(),
  });
  return {
    name: `ioredis${major === 5 ? "" : " 6"}${RESP === undefined ? "" : ` RESP${RESP}`}`,
    of: "ioredis",
    major,
    async connect(port, { socketTimeoutMs, reconnectMs = 20, offlineQueue = true, keyPrefix, ...user } = {}) {
      const timeouts = socketTimeoutMs === undefined ? {} : { socketTimeout: socketTimeoutMs, commandTimeout: 5000 };
      const prefix = keyPrefix === undefined ? {} : { keyPrefix: keyPrefix as string };
      const options = { lazyConnect: true, retryStrategy: () => reconnectMs, enableOfflineQueue: offlineQueue };
      const client = quiet(new Redis({ port, ...protocol, ...options, ...timeouts, ...prefix, ...user }));
      await client.connect().catch(() => undefined);
      return connected(client);
    },
    async cluster(port, keyPrefix, user = {}) {
      const prefix = keyPrefix === undefined ? {} : { keyPrefix };
      const client = quiet(new Cluster([{ host: "127.0.0.1", port }], { ...prefix, redisOptions: user }));
      await new Promise((done) => client.once("ready", done));
      return connected(client);
    },
    async sentinel(port, keyPrefix = "", user = {}) {
      const sentinels = [{ host: "127.0.0.1", port }];
      return connected(quiet(new Redis({ sentinels, name: "main", retryStrategy: () => 20, keyPrefix, ...user })));
    },
  };
}

function nodeRedis(major: 5 | 6, { createClient, createCluster, createSentinel }: NodeRedis, RESP?: 2 | 3): Library {
  const protocol = RESP === undefined ? {} : { RESP };
  const prefixed = (keyPrefix: string | Buffer | undefined): object => (keyPrefix === undefined ? {} : { keyPrefix });
  return {
    name: `node-redis${major === 5 ? "" : " 6"}${RESP === undefined ? "" : ` RESP${RESP}`}`,
    of: "node-redis",
    major,
    async connect(port, { socketTimeoutMs, reconnectMs = 20, offlineQueue = true, keyPrefix, ...user } = {}) {
      const timeout = socketTimeoutMs === undefined ? {} : { socketTimeout: socketTimeoutMs };
      const client = quiet(
        createClient({
          ...protocol,
          ...prefixed(keyPrefix),
          ...user,
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
        select: (db) => client.select(db),
        end: async () => (client.isOpen ? client.destroy() : undefined),
        close: () => client.close(),
      };
    },
    async cluster(port, keyPrefix, user = {}) {
      const rootNodes = [{ url: `redis://127.0.0.1:${port}` }];
      const client = quiet(createCluster({ ...protocol, ...prefixed(keyPrefix), rootNodes, defaults: user }));
      await client.connect();
      return {
        client,
        call: (...words) => client.sendCommand(words[1], false, words),
        select: () => Promise.reject(new Error("a cluster has one database")),
        end: async () => (client.isOpen ? client.destroy() : undefined),
        close: () => client.close(),
      };
    },
    async sentinel(port, keyPrefix, user = {}) {
      const sentinelRootNodes = [{ host: "127.0.0.1", port }];
      const options = { ...protocol, ...prefixed(keyPrefix), name: "main", sentinelRootNodes };
      const client = quiet(createSentinel({ ...options, nodeClientOptions: user }));
      await client.connect();
      return {
        client,
        call: (...words) => client.sendCommand(false, words),
        select: () => Promise.reject(new Error("its connections are the library's")),
        end: async () => (client.isOpen ? client.destroy() : undefined),
        close: () => client.close(),
      };
    },
  };
}

/**
 * Both major versions of both libraries, the older one first, each with its default protocol. The newer need Node 20.
 */
export const libraries: Library[] = [ioredis(5, ioredis5), nodeRedis(5, redis5)];
/** With their other protocol. */
export const otherProtocols: Library[] = [nodeRedis(5, redis5, 3)];
if (Number(process.versions.node.split(".")[0]) >= 20) {
  libraries.push(ioredis(6, require("ioredis-6")), nodeRedis(6, require("redis-6")));
  otherProtocols.push(ioredis(6, require("ioredis-6"), 2), nodeRedis(6, require("redis-6"), 2));
}
/** Those of a test run: the newest of both, or with EVERY_VERSION=yes all. */
export const tested = process.env["EVERY_VERSION"] === "yes" ? libraries : libraries.slice(-2);
