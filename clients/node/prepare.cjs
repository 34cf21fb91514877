/**
 * Compiles `dist`. npm runs this when the folder is installed, `npm install /path/to/clients/node`, but without the
 * development dependencies of the folder: in a fresh clone there is no compiler yet, so they are installed first.
 */

const { execFileSync } = require("node:child_process");
const { existsSync } = require("node:fs");
const { join } = require("node:path");

const compiler = join(__dirname, "node_modules/typescript/bin/tsc");
const run = (program, ...words) => execFileSync(program, words, { cwd: __dirname, stdio: ["ignore", 2, 2] });
// The npm that runs this; another package manager has no `ci`.
const { npm_execpath: manager = "" } = process.env;
const npm = manager.endsWith("npm-cli.js") ? [process.execPath, manager] : ["npm"];

if (!existsSync(compiler)) {
  // The outer npm passes its options by the environment. Here they would name another folder or omit what is needed
  // (--omit=dev, --global).
  const options = "--ignore-scripts --include=dev --no-global --location=project --no-dry-run --no-audit --no-fund";
  run(...npm, "ci", "--prefix", __dirname, ...options.split(" "));
}
run(process.execPath, compiler, "-p", "tsconfig.build.json");
