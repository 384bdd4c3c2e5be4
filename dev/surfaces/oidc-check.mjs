// Signing in by a real issuer: oidc.mjs, on this world's broker.

import { spawn } from "node:child_process";
import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "./browser.mjs";
import { ROOT, WORK } from "./world.mjs";

export async function oidc(world) {
  const log = join(WORK, "oidc.log");
  const out = openSync(log, "w");
  const env = { ...process.env, SURFACES_BROKERS: world.brokers };
  const run = spawn(process.execPath, [join(ROOT, "dev/surfaces/oidc.mjs")], { env, stdio: ["ignore", out, out] });
  const code = await new Promise((resolve) => run.on("exit", resolve));
  const said = readFileSync(log, "utf8").trim();
  expect(code === 0, `exit code ${code}, see ${log}:\n${said.split("\n").slice(-30).join("\n")}`);
  return `${said.split("\n").length} lines in ${log.slice(ROOT.length + 1)}`;
}
