/** Each install line of the pages works in a clone in which nothing was built or installed. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { it } from "node:test";

const run = promisify(execFile);
const ROOT = resolve(__dirname, "../../../..");
const PAGES = ["README.md", "docs", "clients/recipes", "clients/node/README.md"];

/** The lines of the pages that install this client, with the pages of each. */
function installLines(): Map<string, string[]> {
  const files = PAGES.flatMap((page) =>
    page.endsWith(".md")
      ? [page]
      : readdirSync(join(ROOT, page), { encoding: "utf8", recursive: true }).map((file) => join(page, file)),
  );
  const lines = new Map<string, string[]>();
  for (const file of files.filter((name) => name.endsWith(".md"))) {
    for (const [line] of readFileSync(join(ROOT, file), "utf8").matchAll(/npm install [^\n`]*clients\/node[^\n`]*/g)) {
      lines.set(line.trim(), [...(lines.get(line.trim()) ?? []), file]);
    }
  }
  return lines;
}

/** This folder as `git clone` creates it: without node_modules and dist. */
function clone(folder: string): string {
  const files = execFileSync("git", ["ls-files", "-z", "clients/node"], { cwd: ROOT, encoding: "utf8" });
  for (const file of files.split("\0").filter((name) => name !== "")) {
    mkdirSync(join(folder, dirname(file)), { recursive: true });
    cpSync(join(ROOT, file), join(folder, file));
  }
  return join(folder, "clients/node");
}

// All lines with the installed npm, and with EVERY_VERSION=yes one of them with each npm.
const [first = "", ...others] = installLines().keys();
const majors = process.env.EVERY_VERSION === "yes" ? ["9", "10", "11"] : [];
const npms: [string, string[]][] = [
  [first, ["npm"]],
  ...majors.map((major): [string, string[]] => [first, ["npx", "--yes", `npm@${major}`]]),
  ...others.map((line): [string, string[]] => [line, ["npm"]]),
];

it("the README and docs/start.md have a line", () => {
  const pages = [...installLines().values()].flat();
  for (const page of ["docs/start.md", "clients/node/README.md"]) assert.ok(pages.includes(page), page);
});

let isOffline = false;
try {
  execFileSync("npm", ["ping"], { stdio: "ignore", timeout: 30_000 });
} catch {
  isOffline = true;
}

/** An empty application next to a clone; `install` runs in it. */
async function installed(install: (packed: string, application: string) => Promise<unknown>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "redis-lock-install-"));
  try {
    const application = join(folder, "application");
    mkdirSync(application);
    await install(clone(join(folder, "clone")), application).catch((error) =>
      assert.fail(`${error.stdout}\n${error.stderr}`),
    );
    writeFileSync(join(application, "a.cjs"), 'console.log(typeof require("redis-lock-client").Lock);');
    writeFileSync(join(application, "b.mjs"), 'import { Lock } from "redis-lock-client"; console.log(typeof Lock);');
    for (const file of ["a.cjs", "b.mjs"]) {
      const { stdout } = await run(process.execPath, [file], { cwd: application });
      assert.equal(stdout, "function\n", file);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const options = { timeout: 300_000, skip: isOffline && "npm's registry cannot be reached" };

for (const [line, [program = "", ...before]] of npms) {
  it(`${[program, ...before].join(" ")}: ${line}`, options, () =>
    installed(async (packed, application) => {
      const words = line.split(/\s+/).slice(1);
      const args = words.map((word) => (word.endsWith("clients/node") ? packed : word));
      // As a server's image does it: development dependencies are left out of the application.
      const env = { ...process.env, NODE_ENV: "production" };
      await run(program, [...before, ...args], { cwd: application, env });
    }),
  );
}

it("the archive of `package`", options, () =>
  installed(async (packed, application) => {
    await run(join(packed, "package"), [application]);
    const readme = readFileSync(join(packed, "README.md"), "utf8");
    const [, archive] = /npm install FOLDER\/(\S+\.tgz)/.exec(readme) ?? [];
    assert.ok(archive, "the README names the archive");
    await run("npm", ["install", `./${archive}`], { cwd: application });
  }),
);
