// Checks that are programs of their own, on this world's broker: signing in by a real issuer, and a real Prometheus.

import { spawn } from "node:child_process";
import { openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "./browser.mjs";
import { ROOT, WORK } from "./world.mjs";

const PROGRAM = process.env.SURFACES_PROGRAM;

/** Runs it to its end; what it said. */
async function ran(name, command, args, env) {
  const log = join(WORK, `${name}.log`);
  const out = openSync(log, "w");
  const run = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", out, out] });
  const code = await new Promise((resolve) => run.on("exit", resolve));
  const said = readFileSync(log, "utf8").trim().split("\n");
  expect(code === 0, `exit code ${code}, see ${log}:\n${said.slice(-30).join("\n")}`);
  return said;
}

export async function oidc(world) {
  const said = await ran("oidc", process.execPath, [join(ROOT, "dev/surfaces/oidc.mjs")], { SURFACES_BROKERS: world.brokers });
  return said.filter((line) => line.startsWith("ok ")).map((line) => line.split(" ").at(-1)).join(", ");
}

export async function prometheus(world) {
  const env = { READBACK_BROKERS: world.brokers, READBACK_REGISTRY: world.registry };
  const said = await ran("prometheus", join(ROOT, "dev/surfaces/prometheus"), ["--readback", PROGRAM], env);
  return said.at(-1).replace(/^prometheus: ok: /, "");
}
