// Each page with real data; what happens at the edges of a session; markup in everything that somebody else may write.

import { expect, fieldsOf, formOf, link, order, post, signedIn, watch } from "./browser.mjs";
import { sleep, until } from "./world.mjs";

export async function prepare(world) {
  return { ...(await things(world, "seen-")), markup: await markup(world) };
}

/** Operations in every state that stays, and a dead letter. */
export async function things(world, before) {
  const ids = {
    confirmed: await world.ask(`${before}reorder`, 5),
    awaiting: await world.ask(`${before}bulk`, 2, { pieces: 60 }),
    parked: await world.ask(`${before}rush`, 2, { how: { hidden: true } }),
    refused: await world.ask(`${before}oversize`, 1, { how: { refuses: "more than the house holds" } }),
    denied: await world.ask(`${before}blocked`, 1, { tenant: "blocked" }),
  };
  await world.publish("agent.requests", { key: "no-record", value: "this is no Avro" });
  await world.reached(ids.confirmed, "confirmed");
  return ids;
}

// --- each page ------------------------------------------------------------------------------------------------------------------

/** What each page must show of what is there; a page that is not named here must at least be whole. */
const SHOWS = {
  "/": async (page, world) => {
    await has(page, "From stage to stage", "How they ended", "Targets", "orders#create");
    // Operations move on between the two looks.
    const differs = async () => {
      await page.reload();
      const counts = Object.entries((await world.get("/overview")).by_status);
      const shown = await Promise.all(counts.map(async ([status, n]) => [status, n, await shownOf(page, status)]));
      return shown.filter(([, n, said]) => said !== n).map(([status, n, said]) => `${said} instead of ${n} ${status}`);
    };
    let last;
    await until(() => `the overview shows ${last}`, async () => (last = await differs()).length === 0);
  },
  "/unknowns": (page, world, ids) => has(page, ...ids.parked),
  "/approvals": async (page, world, ids) => {
    // The page shows ten; others may be in front.
    await page.goto(`/approvals?q=${ids.awaiting[0]}`);
    await has(page, ids.awaiting[0], "SKU-SEEN-BULK-1", "agent:buyer");
  },
  "/operations": (page) => has(page, "confirmed", "orders#create"),
  "/dead-letters": (page) => has(page, "agent.dead", "to agent.requests", "RB0"),
  "/guarantees": (page) => has(page, "What is promised", "What is not promised", "agent.requests"),
  "/topology": async (page) => expect((await page.locator("svg").textContent()).includes("agent.requests"), "the graph has no topics"),
  "/members": (page) => has(page, "orders.effects", "orders-outbox", "1 member"),
  "/configuration": (page) => has(page, "brokers", "READBACK_BROKERS", "console.tokens"),
};

async function has(page, ...texts) {
  const all = await page.locator("main").innerText();
  for (const text of texts) expect(all.includes(text), `${page.url()} does not show ${text}`);
}

/** How many of a status the overview shows: in a tile, beside how they ended, or at its stage. */
export async function shownOf(page, status) {
  const number = (text) => Number(text.match(/[\d\u202f]+/)?.[0].replaceAll("\u202f", "") ?? NaN);
  const place = status === "awaiting_approval" ? "/approvals" : `/unknowns?status=${status}`;
  const tile = page.locator(`a.tile[href="${place}"] b`);
  if (await tile.count()) return number(await tile.innerText());
  const end = page.locator(`a.chip[href="/operations?status=${status}"]`);
  if (await end.count()) return number(await end.innerText());
  const stage = page.locator(`tr:has(a[href="/operations?status=${status}&order=oldest"]) td.num`);
  return (await stage.count()) ? number(await stage.first().innerText()) : NaN;
}

/** Every page that the menu names. */
export function menu(page) {
  return page.locator("nav a").evaluateAll((all) => all.map((a) => a.getAttribute("href")));
}

export async function all(world, browser, ids) {
  await Promise.all([world.reached(ids.parked, "parked"), world.reached(ids.awaiting, "awaiting_approval")]);
  const { page, watched } = await signedIn(browser, world, "viewer");
  const pages = await menu(page);
  for (const path of Object.keys(SHOWS)) expect(pages.includes(path), `the menu does not name ${path}`);
  for (const path of pages) {
    const answer = await page.goto(path);
    expect(answer.status() === 200, `${path} answers ${answer.status()}`);
    expect((await page.locator("h1").count()) === 1, `${path} has no heading of its own`);
    expect((await page.title()).endsWith("· Readback"), `${path} has no title`);
    await SHOWS[path]?.(page, world, ids);
  }
  await operations(page, ids);
  for (const [status, list] of Object.entries(ids).filter(([s]) => s !== "markup")) {
    await page.goto(link(list[0]));
    await has(page, list[0], status.replace("awaiting", "awaiting approval"));
  }
  await page.goto(link(ids.parked[0]));
  await has(page, "attempt 1", "readback 6", "What proves it at the target", "request bytes, SHA-256");
  await hidden(page, world, ids);
  const none = await page.goto("/operations/nobody-knows-it");
  expect(none.status() === 404, `an operation that nobody knows is answered with ${none.status()}`);
  await has(page, "nobody knows it");
  watched.quiet("the pages");
  return `${pages.length} in the menu`;
}

/** A viewer sees the shape of a request and of a dead letter, not their values, asked for or not. */
async function hidden(page, world, ids) {
  await page.goto(link(ids.parked[0]));
  await has(page, "The exact request", "Values are hidden");
  expect(!(await page.locator("main").innerText()).includes("Show the request itself"), "a viewer is offered the values of a request");
  const { letters } = await world.get("/dead-letters");
  const letter = `/dead-letters/${encodeURIComponent(letters[0].letter)}`;
  await page.goto(letter);
  await has(page, letters[0].letter, "Shape of the payload", "Values are hidden");
  for (const path of [`${link(ids.parked[0])}?show=values`, `${letter}?show=values`]) {
    const answer = await page.goto(path);
    expect(answer.status() === 403, `${path} is answered to a viewer with ${answer.status()}`);
  }
}

/** The search stands in the address; pages of it follow each other without a gap. */
async function operations(page, ids) {
  await page.goto("/operations");
  await page.fill("input[name=q]", ids.refused[0]);
  await page.click("form.search button");
  await page.waitForURL(/q=seen-oversize/);
  await has(page, ids.refused[0], "refused");
  await page.goto("/operations?status=confirmed&limit=2&q=seen-reorder");
  const found = new Set();
  for (;;) {
    for (const id of await page.locator("td.id a").allInnerTexts()) found.add(id);
    const next = page.locator("a[rel=next]");
    if (!(await next.count())) break;
    await Promise.all([page.waitForURL(/cursor=/), next.click()]);
  }
  expect(ids.confirmed.every((id) => found.has(id)), `paging finds ${[...found]}`);
}

// --- sessions -------------------------------------------------------------------------------------------------------------------

export async function sessions(world, browser, ids) {
  const [id] = ids.awaiting;
  const path = link(id);
  await world.reached([id], "awaiting_approval");
  const stranger = await browser.newPage({ baseURL: world.console });
  for (const to of ["/", "/operations", path, "/dead-letters", "/configuration"]) {
    await stranger.goto(to);
    expect(new URL(stranger.url()).pathname === "/sign-in", `${to} is shown to somebody who has not signed in`);
  }
  await stranger.fill("#token", "rb_wrong");
  await stranger.click("main button");
  expect((await stranger.locator("[role=alert]").innerText()).includes("nobody is known by this token"), "a wrong token is not told");
  await expired(world, browser, path);
  await ended(world, browser, path);
  expect((await world.operation(id)).status === "awaiting_approval", "an order without a session was taken");
}

/** A session that is over orders nothing; whoever signs in again is back where they were. Where the form was not ready in time, again. */
async function expired(world, browser, path) {
  for (const seconds of [4, 16, 64]) if (await outlived(world, browser, path, seconds)) return;
  throw new Error("no form was filled within the life of its session");
}

async function outlived(world, browser, path, seconds) {
  const short = await world.other(`sessions-of-${seconds}`, { READBACK_CONSOLE__SESSION: `${seconds}s` });
  const before = Date.now();
  const { page, context } = await signedIn(browser, world, "approver", { base: short.url });
  // The session began somewhere in between: it lives at least until the one, at most until the other.
  const surely = before + seconds * 1_000, ended = Date.now() + seconds * 1_000;
  await page.goto(path);
  // Without its session there is no such form, and none is waited for.
  if (!(await formOf(page, "deny").count()) || Date.now() > surely) return short.stop(), false;
  const fields = { ...(await fieldsOf(formOf(page, "deny"))), reason: "too late" };
  await formOf(page, "deny").locator("input[name=reason]").fill("too late");
  const cookie = (await context.cookies()).map((c) => `${c.name}=${c.value}`).join("; ");
  if (!cookie) return short.stop(), false;
  await sleep(Math.max(ended - Date.now(), 0) + 1_000);
  // The browser forgets the cookie by itself; whoever kept it gets nothing for it.
  const late = await fetch(short.url + path, { method: "POST", headers: { cookie }, body: new URLSearchParams(fields), redirect: "manual" });
  expect(late.status === 303 && late.headers.get("location").startsWith("/sign-in"), `a form of an expired session is answered with ${late.status}`);
  await formOf(page, "deny").locator("button").click();
  await page.waitForURL(/\/sign-in/);
  await page.fill("#token", world.tokens.approver);
  await page.click("main button");
  await page.waitForURL((url) => url.pathname === path);
  short.stop();
  return true;
}

/** A session ends with a sign-out, and with the line of its token. */
async function ended(world, browser, path) {
  const { page, context } = await signedIn(browser, world, "approver");
  await page.goto(path);
  const fields = { ...(await fieldsOf(formOf(page, "deny"))), reason: "after the end" };
  const cookies = await context.cookies();
  expect(cookies.every((c) => c.httpOnly && c.sameSite === "Strict"), "a cookie is within reach of scripts or other sites");
  await page.click('form[action="/sign-out"] button');
  await page.waitForURL(/\/sign-in/);
  await context.addCookies(cookies);
  const out = await post(context, path, fields);
  expect(out.status === 303, `a form after the sign-out is answered with ${out.status}`);
  world.person("leaver", ["approver"]);
  world.write();
  const leaver = await signedIn(browser, world, "leaver");
  await leaver.page.goto(path);
  const theirs = { ...(await fieldsOf(formOf(leaver.page, "deny"))), reason: "after I left" };
  delete world.lines.leaver;
  world.write();
  const gone = await post(leaver.context, path, theirs);
  expect(gone.status === 303, `a form of a token that was taken out is answered with ${gone.status}`);
}

// --- markup ---------------------------------------------------------------------------------------------------------------------

/** What would run, ask or leave a mark, if any page took text for markup. */
const tag = (at) => `${bare(at)}<script>__mark=1</script>`;
/** The same without dots and slashes: an operation's ID has none. */
const bare = (at) => `"'><img src=x data-mark=${at} onerror=__mark=1>`;
const NAME = "<img/src=x/data-mark=name/onerror=__mark=1>";

async function markup(world) {
  const id = `op-${bare("id")}`;
  const common = { tenant: `acme${tag("tenant")}`, requester: `agent:${tag("requester")}` };
  // A lane of its own for each: what is parked holds up what comes behind it.
  let lanes = 0;
  const ask = (fields) => world.ask("", 1, { ...common, resource: `order/${(lanes += 1)}${tag("resource")}`, ...fields });
  const awaiting = `${id}-plan`;
  await ask({ operation_id: awaiting, sku: `SKU${tag("plan")}`.slice(0, 190), pieces: 60 });
  await ask({ operation_id: id, sku: "SKU-MARKUP-1", how: { id: `A-${tag("reference")}` } });
  await ask({ operation_id: `${id}-no`, sku: "SKU-MARKUP-2", how: { refuses: tag("refusal") } });
  await ask({ operation_id: `${id}-act`, sku: "SKU-MARKUP-3", action: `order.${tag("action")}` });
  await ask({ operation_id: `${id}-parked`, sku: "SKU-MARKUP-4", how: { hidden: true } });
  const dead = (name, at) => [`rb_dead_${name}`, tag(at)];
  const headers = Object.fromEntries([dead("code", "code"), dead("reason", "why"), dead("origin", "origin"), dead("step", "step"), ["rb_operation_id", tag("letter")], ["x", tag("header")]]);
  await world.publish("agent.dead", { key: tag("key"), value: tag("payload"), headers });
  await world.publish("agent.requests", { key: tag("key"), value: tag("payload"), headers: { [tag("name")]: tag("header") } });
  return { id, awaiting, parked: `${id}-parked`, all: [id, awaiting, `${id}-no`, `${id}-act`, `${id}-parked`] };
}

/** Escaping alone must hold: once with the policy that forbids scripts, once with a browser that does not heed it. */
export async function xss(world, browser, { markup: m }) {
  world.person(NAME, ["admin"]);
  world.write();
  await world.reached([m.id], "confirmed");
  await world.reached([m.awaiting], "awaiting_approval");
  await world.reached([m.parked], "parked");
  let looked = 0;
  for (const bypassCSP of [false, true]) {
    const { page, watched } = await signedIn(browser, world, NAME, { bypassCSP });
    const clean = async (where, ...shown) => {
      looked += 1;
      const marks = await page.evaluate(() => [...document.querySelectorAll("[data-mark]")].map((e) => e.dataset.mark).concat(window.__mark ? ["ran"] : []));
      expect(marks.length === 0, `${where} takes text for markup: ${marks}`);
      const text = await page.locator("body").innerText();
      for (const at of shown) expect(text.includes(`data-mark=${at}`), `${where} does not show the ${at}`);
      watched.quiet(where);
    };
    const answer = await page.goto("/");
    if (!bypassCSP) expect(/script-src|default-src 'none'/.test(answer.headers()["content-security-policy"]), "no policy forbids scripts");
    for (const path of await menu(page)) {
      // Ten plans stand on a page; others may be in front.
      await page.goto(path === "/approvals" ? `${path}?q=${encodeURIComponent(m.awaiting)}` : path);
      await clean(path, ...({ "/unknowns": ["id", "tenant", "resource"], "/approvals": ["requester", "plan"], "/dead-letters": ["code", "why", "origin", "step", "letter"] }[path] ?? []));
    }
    for (const id of m.all) {
      await page.goto(link(id));
      await clean(link(id), "id", "tenant", "requester", "resource", ...(id === m.id ? ["reference"] : []));
      await page.goto(`${link(id)}?show=values`);
      await clean(`${link(id)}?show=values`);
    }
    for (const { letter, code } of (await world.get("/dead-letters")).letters) {
      for (const show of ["", "?show=values"]) {
        const path = `/dead-letters/${encodeURIComponent(letter)}${show}`;
        await page.goto(path);
        const ours = code.includes("data-mark") ? ["code", "why", "key", "header", ...(show ? ["payload"] : [])] : [];
        await clean(path, ...ours);
      }
    }
    const query = encodeURIComponent(tag("query"));
    for (const path of [`/operations?q=${query}&tenant=${query}&older=1h`, `/operations?status=${query}`, `/operations/${query}?tenant=${query}`, `/operations?${query}=1`, `/nowhere/${query}`]) {
      await page.goto(path);
      await clean(path);
    }
    if (bypassCSP) {
      // What a person writes beside a decision is shown to the next one.
      await page.goto(link(m.parked));
      await formOf(page, "resolve_applied").locator("input[name=evidence]").fill(tag("evidence"));
      await order(page, "resolve_applied", `seen ${tag("reason")}`);
      await page.goto(link(m.parked));
      await clean("a decision", "evidence");
    }
    const stranger = await browser.newContext({ baseURL: world.console, bypassCSP });
    const outside = await stranger.newPage();
    const outer = watch(outside);
    await outside.goto(`/sign-in?to=${encodeURIComponent(`/operations?q=${tag("to")}`)}`);
    await outside.fill("#token", tag("token"));
    await outside.click("main button");
    await outside.locator("[role=alert]").waitFor();
    expect((await outside.locator("[data-mark]").count()) === 0, "signing in takes text for markup");
    outer.quiet("signing in");
  }
  return `${looked} pages`;
}
