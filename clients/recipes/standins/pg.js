// Replaces pg: what docs/recipes.md calls of it, on SQLite.
const { execFileSync } = require("node:child_process");
const { join } = require("node:path");

class Client {
  async connect() {}

  async query(statement, values = []) {
    const words = [join(__dirname, "sql.py"), statement, ...values.map(String)];
    return JSON.parse(execFileSync(process.env.STANDIN_PYTHON, words, { encoding: "utf8" }));
  }

  async end() {}
}

module.exports = { Client };
