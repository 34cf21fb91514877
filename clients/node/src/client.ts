/** Detects the library of a client, and keeps the state that all locks of one client share. */

import { Connections } from "./connections.js";
import { ioredisRoute, isIoredis, type IoredisClient } from "./ioredis.js";
import type { Observer } from "./observer.js";
import { isNodeRedis, nodeRedisRoute, type NodeRedisClient } from "./node_redis.js";

/**
 * A connected client. Of ioredis: a `Redis` (including one for Sentinel) or a `Cluster`. Of node-redis: the result of
 * `createClient`, `createCluster` or `createSentinel`.
 */
export type RedisClient = IoredisClient | NodeRedisClient;

const known = new WeakMap<object, Connections>();

export function connectionsOf(client: RedisClient): Connections {
  if (typeof client !== "object" || client === null) throw new TypeError("an ioredis or node-redis client is required");
  let connections = known.get(client);
  if (connections === undefined) {
    if (isIoredis(client)) connections = new Connections(ioredisRoute(client));
    else if (isNodeRedis(client)) connections = new Connections(nodeRedisRoute(client));
    else throw new TypeError("an ioredis or node-redis client is required");
    known.set(client, connections);
  }
  return connections;
}

/** Sets the observer of all locks of this client. It replaces an earlier one; undefined removes it. */
export function observe(client: RedisClient, observer: Observer | undefined): void {
  if (observer !== undefined && typeof observer !== "function") throw new TypeError("an observer must be a function");
  connectionsOf(client).observed.observer = observer;
}
