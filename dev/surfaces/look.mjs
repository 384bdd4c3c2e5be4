// How the pages look: axe-core on each in both schemes and on a phone, and pictures of them for the docs.

import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, formOf, link, signedIn } from "./browser.mjs";
import { menu, things } from "./pages.mjs";
import { need, ROOT } from "./world.mjs";

const AXE = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");
const ALL = { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] };
/** What may differ in the other scheme: the pages are the same but for their colours. */
const COLOURS = { type: "rule", values: ["color-contrast", "link-in-text-block"] };

/** As one would see it on duty: nothing that only a test writes. */
export const prepare = (world) => things(world, "");

/** The page of a dead letter: the oldest. */
async function letterPage(world) {
  const { letters } = await world.get("/dead-letters");
  return `/dead-letters/${encodeURIComponent(letters[0].letter)}`;
}

/** Every page, with operations in each state, values shown, errors and empty lists. */
async function places(world, page, ids) {
  const states = [ids.confirmed, ids.awaiting, ids.parked, ids.refused, ids.denied].map(([id]) => link(id));
  const letter = await letterPage(world);
  return [...(await menu(page)), ...states, `${states[0]}?show=values`, letter, `${letter}?show=values`, "/dead-letters/agent.dead-0-999999", "/operations?status=unknown,parked&tenant=nobody&older=90m", "/operations?limit=2", "/operations?status=wrong", "/operations/nobody-knows-it"];
}

/** No violation of WCAG A or AA that a machine can see. */
export async function axe(world, browser, ids) {
  await world.reached(ids.parked, "parked");
  let looked = 0;
  const wrong = [];
  for (const [scheme, width, only] of [["light", 1280, ALL], ["dark", 1280, COLOURS], ["light", 390, ALL]]) {
    // The policy would refuse the checker's script, not ours: the pages have none that it needs.
    const options = { colorScheme: scheme, viewport: { width, height: 900 }, bypassCSP: true };
    const { page, context } = await signedIn(browser, world, "admin", options);
    const check = async (path) => {
      looked += 1;
      await page.addScriptTag({ content: AXE });
      const { violations } = await page.evaluate((runOnly) => window.axe.run(document, { runOnly, resultTypes: ["violations"] }), only);
      for (const v of violations) wrong.push(`${path} (${scheme}, ${width}): ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.target).join(", ")}`);
    };
    for (const path of await places(world, page, ids)) {
      await page.goto(path);
      await page.locator("details").evaluateAll((all) => all.forEach((d) => { d.open = true; }));
      await check(path);
    }
    await page.goto(link(ids.parked[0]));
    await formOf(page, "resolve_applied").locator("input[name=reason]").fill("x");
    await context.clearCookies();
    await page.goto("/sign-in");
    await check("/sign-in");
    await page.fill("#token", "rb_wrong");
    await page.click("main button");
    await check("/sign-in, refused");
  }
  expect(wrong.length === 0, () => `${wrong.length} violations:\n  ${wrong.join("\n  ")}`);
  return `${looked} pages`;
}

// --- pictures -------------------------------------------------------------------------------------------------------------------

const DIR = join(ROOT, "src/docs/screens");
const MOST = 1_500_000;

/** With --write: a picture of each page, in both schemes for the first. Without: that the pictures are there, small, and named. */
export async function screens(world, browser, ids) {
  const names = [];
  if (process.env.SURFACES_WRITE) {
    mkdirSync(DIR, { recursive: true });
    await world.reached(ids.parked, "parked");
    for (const scheme of ["light", "dark"]) {
      const { page } = await signedIn(browser, world, "admin", { colorScheme: scheme, viewport: { width: 1120, height: 760 } });
      const pages = Object.fromEntries((await menu(page)).map((path) => [path.slice(1) || "overview", path]));
      const shots = scheme === "dark" ? { "overview-dark": "/" } : { ...pages, letter: await letterPage(world), operation: link(ids.parked[0]), approval: link(ids.awaiting[0]), "sign-in": "/sign-in" };
      for (const [name, path] of Object.entries(shots)) {
        await page.goto(path);
        writeFileSync(join(DIR, `${name}.png`), small(await page.screenshot({ fullPage: true, clip: await frame(page) })));
        names.push(name);
      }
    }
  }
  const files = readdirSync(DIR);
  const total = files.reduce((sum, f) => sum + statSync(join(DIR, f)).size, 0);
  expect(total < MOST, `the pictures take ${total} bytes`);
  const docs = readFileSync(join(ROOT, "src/docs/console.md"), "utf8");
  for (const path of [...files]) expect(docs.includes(`screens/${path}`), `src/docs/console.md does not show ${path}`);
  for (const [, file] of docs.matchAll(/screens\/([\w-]+\.png)/g)) expect(files.includes(file), `${file} is not there: dev/check-surfaces screens --write`);
  return `${files.length} pictures, ${Math.round(total / 1024)} KB${names.length ? ", written" : ""}`;
}

/** As long as the page, at most two screens. */
async function frame(page) {
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  return { x: 0, y: 0, width: 1120, height: Math.min(height, 1_500) };
}

/** The same picture with a palette of 64 colours: flat pages need no more. */
function small(png) {
  const UPNG = need("upng-js");
  const image = UPNG.decode(png);
  return Buffer.from(UPNG.encode([UPNG.toRGBA8(image)[0]], image.width, image.height, 64));
}
