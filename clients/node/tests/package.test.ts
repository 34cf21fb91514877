/** The tests import the installed archive. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve, sep } from "node:path";
import { it } from "node:test";

const PROJECT = resolve(__dirname, "..");

it("the client under test is that of the archive, with its types", () => {
  const main = require.resolve("redis-lock-client");
  const folder = resolve(PROJECT, "node_modules/redis-lock-client");
  assert.ok(main.startsWith(folder + sep), main);
  const { main: named, types } = JSON.parse(readFileSync(resolve(folder, "package.json"), "utf8"));
  assert.equal(resolve(folder, named), main);
  assert.match(readFileSync(resolve(folder, types), "utf8"), /export .*Lock/);
});
