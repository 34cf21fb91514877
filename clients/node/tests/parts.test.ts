/** Unit tests, which need no server. */

import assert from "node:assert/strict";
import { it } from "node:test";

import { makeToken } from "redis-lock-client";
import { now, outOfTime, ReplyTimeouts } from "../src/clock.js";
import { List, type Listed } from "../src/list.js";
import { slotOf, tagOf } from "../src/slots.js";
import { eventually } from "./servers.js";

it("a token is short and new", () => {
  const token = makeToken("a-host-with-a-name-that-is-far-too-long.example.org");
  assert.ok(token.length <= 38 && token.startsWith("a-host-wi") && token.split(":")[1] === String(process.pid));
  assert.match(makeToken("hôst"), /^h\?st:/);
  assert.equal(new Set(Array.from({ length: 100 }, () => makeToken())).size, 100);
});

it("slots are those of the cluster specification, and each has a tag", () => {
  const known: [string, number][] = [
    ["123456789", 0x31c3 % 16384],
    ["foo", 12182],
    ["{foo}bar", 12182],
    ["a{foo}{bar}", 12182],
    ["foo{}{bar}", slotOf(Buffer.from("foo{}{bar}"))],
    ["{}", 15257],
  ];
  for (const [key, slot] of known) assert.equal(slotOf(key), slot, key);
  assert.notEqual(slotOf("foo{}{bar}"), slotOf("bar"));
  for (let slot = 0; slot < 16384; slot += 97) assert.equal(slotOf(`redislock:x:{${tagOf(slot)}}`), slot);
});

it("a deadline has passed at its end, and not slightly earlier when a timer may fire", async () => {
  const early = await Promise.all(
    Array.from({ length: 200 }, (_, index) => {
      const ends = now() + 1 + index / 20;
      return new Promise<boolean>((done) => outOfTime(ends - now(), () => done(now() < ends - 1e-6)));
    }),
  );
  assert.equal(early.filter(Boolean).length, 0);
});

it("a list keeps its order and ignores what it does not contain", () => {
  const list = new List<Listed & { name: string }>();
  const [first, second, third, other] = ["first", "second", "third", "other"].map((name) => ({ name })) as [
    { name: string },
    { name: string },
    { name: string },
    { name: string },
  ];
  const names = (): string[] => [...list].map(({ name }) => name);
  for (const each of [first, second, third]) list.add(each);
  assert.deepEqual(names(), ["first", "second", "third"]);
  list.delete(second);
  list.delete(second);
  list.delete(other);
  assert.deepEqual(names(), ["first", "third"]);
  for (const each of list) list.delete(each);
  assert.ok(list.isEmpty);
  list.add(second);
  assert.deepEqual(names(), ["second"]);
});

it("one timer for all requests of a connection ends each of them at its own time", async () => {
  interface Request {
    name: string;
    sent: boolean;
    checkAt: number;
    lateAt: number;
  }
  const began = now();
  const ended = new Map<string, number>();
  let isConnected = true;
  const replyTimeouts = new ReplyTimeouts<Request>(
    50,
    () => isConnected,
    (request) => {
      ended.set(request.name, now() - began);
      replyTimeouts.end(request);
    },
  );
  const begin = (name: string, sent: boolean, withinMs?: number): Request => {
    const request = { name, sent, checkAt: 0, lateAt: 0 };
    replyTimeouts.begin(request, withinMs);
    return request;
  };
  begin("long", true, 60_000);
  begin("endless", true);
  begin("short", true, 20);
  replyTimeouts.end(begin("answered", true, 10));
  begin("unsent", false, 60_000);
  begin("later", true, 120);
  await eventually(() => ended.size === 2, "the short ones");
  assert.ok((ended.get("short") as number) >= 20 && (ended.get("later") as number) >= 120);
  isConnected = false;
  await eventually(() => ended.size === 3, "the request without a connection");
  begin("sent", true, 60_000);
  begin("unsent too", false, 60_000);
  await eventually(() => ended.size === 4, "the next one");
  assert.deepEqual([...ended.keys()].sort(), ["later", "short", "unsent", "unsent too"]);
  assert.deepEqual(
    [...replyTimeouts.requests].map(({ name }) => name),
    ["long", "endless", "sent"],
  );
});
