// Runs checks of a running console against one world: `main.mjs NAME…`, some side by side. One line a check; the exit code is the
// number that failed.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as actions from "./actions.mjs";
import * as api from "./api.mjs";
import { launch } from "./browser.mjs";
import * as duty from "./duty.mjs";
import * as image from "./image.mjs";
import * as live from "./live.mjs";
import * as look from "./look.mjs";
import * as million from "./million.mjs";
import * as pages from "./pages.mjs";
import * as programs from "./programs.mjs";
import * as second from "./second.mjs";
import { NotTried, reuse, WORK, World } from "./world.mjs";

/** Checks: name, what it does, and what must be asked for before. Those that take long begin first. */
const CHECKS = [
  ["axe", look, look.axe],
  ["million", million, million.million],
  ["permissions", actions, actions.permissions],
  ["xss", pages, pages.xss],
  ["prometheus", programs, programs.prometheus],
  ["sessions", pages, pages.sessions],
  ["oidc", programs, programs.oidc],
  ["pages", pages, pages.all],
  ["image", image, image.image],
  ["second-person", second, second.second],
  ["live", live, live.live],
  ["letters", actions, actions.letters],
  ["double-submit", actions, actions.double],
  ["stale-version", actions, actions.stale],
  ["keyboard", actions, actions.keyboard],
  ["screens", look, look.screens],
  ["duty", duty, duty.duty],
  ["api", api, api.api],
];
/** One after the other at the end: `duty` pauses a target; `api` guesses tokens, so after it whoever guesses is shut out for a minute. */
const ALONE = ["duty", "api"];
/** So many run at once. */
const LANES = Number(process.env.SURFACES_LANES ?? 3);

const asked = process.argv.slice(2);
const wanted = CHECKS.filter(([name]) => asked.includes(name));

let failed = 0;
function say(name, began, error, note) {
  const took = `${((Date.now() - began) / 1000).toFixed(1)} s`;
  const untried = error instanceof NotTried;
  failed += error && !untried ? 1 : 0;
  const word = untried ? "not tried" : error ? "FAIL" : "ok  ";
  const more = untried ? error.message : error ? (error.stack ?? error) : note;
  console.log(`${word} ${name} (${took})${more ? `: ${more}` : ""}`);
}

async function check(world, prepared, [name, module, run]) {
  const began = Date.now();
  const browser = await launch();
  try {
    say(name, began, null, await run(world, browser, prepared.get(module.prepare)));
  } catch (error) {
    say(name, began, error);
  } finally {
    await browser.close();
  }
}

/** Runs all of them, a few at once. */
async function lanes(world, prepared, checks, atOnce) {
  const left = [...checks];
  const lane = async () => { while (left.length) await check(world, prepared, left.shift()); };
  await Promise.all(Array.from({ length: atOnce }, lane));
}

// Whoever ends this, or no longer listens, leaves nothing running.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(130));
process.stdout.on("error", () => process.exit(130));
const began = Date.now();
try {
  reuse();
  mkdirSync(join(WORK, "world"), { recursive: true });
  const world = await World.start();
  const prepares = [...new Set(wanted.map(([, { prepare }]) => prepare).filter(Boolean))];
  const prepared = new Map(await Promise.all(prepares.map(async (prepare) => [prepare, await prepare(world)])));
  console.log(`the world stands (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  await lanes(world, prepared, wanted.filter(([name]) => !ALONE.includes(name)), LANES);
  await lanes(world, prepared, wanted.filter(([name]) => ALONE.includes(name)), 1);
} catch (error) {
  say("world", began, error);
}
process.exit(Math.min(failed, 100));
