// Runs checks of a running console against one world: `main.mjs NAME…`. One line a check; the exit code is the number that failed.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as actions from "./actions.mjs";
import * as api from "./api.mjs";
import { launch } from "./browser.mjs";
import * as image from "./image.mjs";
import * as look from "./look.mjs";
import * as million from "./million.mjs";
import * as oidc from "./oidc-check.mjs";
import * as pages from "./pages.mjs";
import { reuse, WORK, World } from "./world.mjs";

/** Checks in their order: name, what it does, and what must be asked for before. */
const CHECKS = [
  ["pages", pages, pages.all],
  ["sessions", pages, pages.sessions],
  ["xss", pages, pages.xss],
  ["axe", look, look.axe],
  ["screens", look, look.screens],
  ["permissions", actions, actions.permissions],
  ["letters", actions, actions.letters],
  ["double-submit", actions, actions.double],
  ["stale-version", actions, actions.stale],
  ["keyboard", actions, actions.keyboard],
  ["api", api, api.api],
  ["oidc", oidc, oidc.oidc],
  ["million", million, million.million],
  ["image", image, image.image],
];

const asked = process.argv.slice(2);
const wanted = CHECKS.filter(([name]) => asked.includes(name));

let failed = 0;
const say = (name, began, error, note) => {
  const took = `${((Date.now() - began) / 1000).toFixed(1)} s`;
  console.log(error ? `FAIL ${name} (${took}): ${error.stack ?? error}` : `ok   ${name} (${took})${note ? `: ${note}` : ""}`);
  failed += error ? 1 : 0;
};

let world, browser, began = Date.now();
// Whoever ends this, or no longer listens, leaves nothing running.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(130));
process.stdout.on("error", () => process.exit(130));
try {
  reuse();
  mkdirSync(join(WORK, "world"), { recursive: true });
  [world, browser] = await Promise.all([World.start(), launch()]);
  const prepared = new Map();
  for (const [, { prepare }] of wanted) if (prepare && !prepared.has(prepare)) prepared.set(prepare, await prepare(world));
  say("world", began);
  for (const [name, module, run] of wanted) {
    began = Date.now();
    try {
      say(name, began, null, await run(world, browser, prepared.get(module.prepare)));
    } catch (error) {
      say(name, began, error);
    } finally {
      for (const context of browser.contexts()) await context.close();
    }
  }
} catch (error) {
  say("world", began, error);
} finally {
  await browser?.close();
}
process.exit(Math.min(failed, 100));
