// schemathesis on the console's own OpenAPI document: what is sent is made from it, and what is answered must be what it says.

import { spawn } from "node:child_process";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "./browser.mjs";
import { WORK } from "./world.mjs";

const CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance", "ignored_auth"];

/** Some operations that are there, so that more than "nobody knows it" is answered. */
export async function prepare(world) {
  return { ids: await world.ask("known", 2, { pieces: 60 }) };
}

export async function api(world, browser, { ids }) {
  await world.reached(ids, "awaiting_approval");
  const log = join(WORK, "api.log");
  // Where an operation is named it is one that is there; what others are answered the tests in src/console know.
  const config = join(WORK, "schemathesis.toml");
  writeFileSync(config, `[parameters]\n"path.operation" = "${ids[0]}"\n`);
  const args = ["--config-file", config, "run", `${world.console}/api/v1/openapi.json`, "--header", `Authorization: Bearer ${world.tokens.admin}`,
    "--checks", CHECKS.join(","), "--phases", "examples,coverage,fuzzing", "--max-examples", "12", "--seed", "7", "--workers", "4", "--generation-database", "none", "--no-color"];
  const code = await new Promise((resolve) => {
    const out = openSync(log, "w");
    spawn(join(WORK, "venv/bin/schemathesis"), args, { cwd: WORK, stdio: ["ignore", out, out] }).on("exit", resolve);
  });
  const said = readFileSync(log, "utf8");
  expect(code === 0, () => `exit code ${code}, see ${log}:\n${said.split("\n").slice(-60).join("\n")}`);
  return said.match(/\d+ (?:generated|test cases)[^\n]*/)?.[0] ?? "";
}
