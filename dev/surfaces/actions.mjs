// Each order by each role: who may sees a form and it is carried out, who may not sees none, and a forged form is refused.

import { expect, fieldsOf, formOf, formToken, link, order, post, signedIn } from "./browser.mjs";
import { until } from "./world.mjs";

const OPERATOR = ["operator", "admin"];
const APPROVER = ["approver", "admin"];

/** Action, who may, where the operation must stand, and the status after it where it is an end. */
const MATRIX = [
  { name: "resolve-applied", action: "resolve_applied", may: OPERATOR, from: "parked", ends: "resolved_applied" },
  { name: "resolve-not-applied", action: "resolve_not_applied", may: OPERATOR, from: "parked", ends: "resolved_not_applied" },
  { name: "force", action: "force", may: OPERATOR, from: "parked" },
  { name: "cancel", action: "cancel", may: OPERATOR, from: "parked" },
  { name: "release-lane", action: "release_lane", may: OPERATOR, from: "parked" },
  { name: "approve", action: "approve", may: APPROVER, from: "awaiting", ends: "confirmed" },
  { name: "deny", action: "deny", may: APPROVER, from: "awaiting", ends: "denied" },
  { name: "revoke", action: "deny", may: APPROVER, from: "spent" },
];
const HIDDEN = { hidden: true };

export async function prepare(world) {
  const ids = {};
  for (const row of MATRIX) {
    const how = row.from === "awaiting" ? {} : HIDDEN;
    ids[row.name] = await world.ask(row.name, 2, { how, pieces: row.from === "parked" ? 3 : 60 });
  }
  // Behind the lanes that are released there waits somebody.
  for (const [n, id] of ids["release-lane"].entries()) {
    await world.request({ operation_id: `${id}-behind`, resource: `order/release-lane-${n + 1}`, want: "SKU-BEHIND", pieces: 1 });
  }
  const more = {
    twice: await world.ask("twice", 2, { how: HIDDEN }),
    stale: await world.ask("stale", 1, { pieces: 60 }),
    keys: await world.ask("keys", 1, { pieces: 60 }),
  };
  // A request that admission refuses goes to the dead letters, and back from there: its input is of no type that is taken.
  for (const n of [1, 2, 3]) await world.publish("agent.requests", { key: `broken-${n}`, value: `no record ${n}` });
  await world.reached(ids.revoke, "awaiting_approval");
  await Promise.all(ids.revoke.map((id) => approve(world, id)));
  await until("dead letters rest", async () => (await world.get("/dead-letters")).resting >= 3);
  return { ids, ...more };
}

async function approve(world, id) {
  const { version, plan_hash } = await world.operation(id);
  const headers = { authorization: `Bearer ${world.tokens.approver}`, "content-type": "application/json" };
  const body = JSON.stringify({ seen: version, plan_hash, reason: "within the budget" });
  const answer = await fetch(`${world.console}/api/v1/operations/${id}/approve`, { method: "POST", headers, body });
  expect(answer.ok, `approving ${id}: ${answer.status} ${await answer.text()}`);
}

/** The permission matrix; the admin does it all without a script. */
export async function permissions(world, browser, { ids }) {
  const at = {
    viewer: await signedIn(browser, world, "viewer"),
    operator: await signedIn(browser, world, "operator"),
    approver: await signedIn(browser, world, "approver"),
    admin: await signedIn(browser, world, "admin", { javaScriptEnabled: false }),
  };
  const stranger = await browser.newContext({ baseURL: world.console });
  for (const row of MATRIX) {
    const [first] = ids[row.name];
    await world.reached(ids[row.name], ...(row.from === "awaiting" ? ["awaiting_approval"] : ["parked"]));
    const fields = await shown(at.admin.page, row.action, first);
    const before = (await world.operation(first)).version;
    for (const who of Object.keys(at).filter((w) => !row.may.includes(w))) await refused(at[who], row, first, fields);
    const out = await post(stranger, link(first), fields);
    expect(out.status === 303 && out.location.startsWith("/sign-in"), `${row.name}, signed out: ${out.status} ${out.location}`);
    const foreign = await post(at.admin.context, link(first), { ...fields, form: await formToken(at.viewer.page) });
    expect(foreign.status === 403 && foreign.text.includes("not shown to this session"), `${row.name} with another session's form: ${foreign.status}`);
    expect((await world.operation(first)).version === before, `${row.name}: a refused order changed something`);
    for (const [n, who] of row.may.entries()) await taken(world, at[who], row, ids[row.name][n]);
  }
  Object.values(at).forEach((a) => a.watched.quiet(a.who));
}

async function shown(page, action, id) {
  await page.goto(link(id));
  return { ...(await fieldsOf(formOf(page, action))), reason: "forged" };
}

async function refused({ page, context, who }, row, id, fields) {
  await page.goto(link(id));
  expect((await formOf(page, row.action).count()) === 0, `${who} is shown the form to ${row.name}`);
  const answer = await post(context, link(id), { ...fields, form: await formToken(page) });
  expect(answer.status === 403 && answer.text.includes("it takes the role"), `${who} may ${row.name}: ${answer.status}`);
}

async function taken(world, { page, who }, row, id) {
  await page.goto(link(id));
  const command = await order(page, row.action, `${who} has looked at the books`);
  const said = await page.locator("main [role=status], main [role=alert]").allInnerTexts();
  expect(said.some((s) => s.includes("Taken by the member")), `${who} may not ${row.name} ${id}: ${said.join(" / ")}`);
  const { commands } = await world.operation(id);
  expect(commands.some((c) => c.command === command && !c.code), `${row.name} of ${id} is not answered: ${JSON.stringify(commands)}`);
  if (row.ends) await world.reached([id], row.ends);
}

/** A dead letter goes back by who may, once. */
export async function letters(world, browser) {
  const operator = await signedIn(browser, world, "operator", { javaScriptEnabled: false });
  await operator.page.goto("/dead-letters");
  const forms = operator.page.locator('form[action="/dead-letters"]');
  const letter = { ...(await fieldsOf(forms.first())), reason: "forged" };
  for (const who of ["viewer", "approver"]) {
    const { page, context } = await signedIn(browser, world, who);
    await page.goto("/dead-letters");
    expect((await page.locator('main form[action="/dead-letters"]').count()) === 0, `${who} is shown a way back`);
    const answer = await post(context, "/dead-letters", { ...letter, form: await formToken(page) });
    expect(answer.status === 403 && answer.text.includes("it takes the role"), `${who} may send a letter back: ${answer.status}`);
  }
  const stranger = await browser.newContext({ baseURL: world.console });
  const out = await post(stranger, "/dead-letters", letter);
  expect(out.status === 303 && out.location.startsWith("/sign-in"), `signed out: ${out.status}`);
  // By the form itself, without a script.
  await operator.page.locator("summary").first().click();
  await forms.first().locator("input[name=reason]").fill("the sender was repaired");
  await forms.first().locator("button").click();
  await operator.page.getByText("went back to").waitFor();
  // Twice at once: one goes, the other is refused by the mark.
  const twice = { ...(await fieldsOf(forms.first())), reason: "sent twice" };
  const both = await Promise.all([1, 2].map(() => post(operator.context, "/dead-letters", twice)));
  const sent = both.filter((a) => a.status === 200 && a.text.includes("went back to"));
  expect(sent.length === 1, () => `sent back ${sent.length} times: ${both.map((a) => a.status)}`);
  operator.watched.quiet("dead letters");
}

/** A form that is sent twice is one order, answered twice. */
export async function double(world, browser, { twice }) {
  const { page, context, watched } = await signedIn(browser, world, "operator");
  await world.reached(twice, "parked");
  const [clicked, posted] = twice;
  await page.goto(link(clicked));
  await formOf(page, "force").locator("input[name=reason]").fill("clicked twice");
  await formOf(page, "force").locator("button").dblclick();
  await page.getByText("Taken by the member").waitFor();
  const commands = async (id) => (await world.operation(id)).commands;
  expect((await commands(clicked)).length === 1, async () => `a double click is several orders: ${JSON.stringify(await commands(clicked))}`);
  await page.goto(link(posted));
  const fields = { ...(await fieldsOf(formOf(page, "force"))), reason: "sent twice" };
  const both = await Promise.all([1, 2].map(() => post(context, link(posted), fields)));
  both.push(await post(context, link(posted), fields));
  both.forEach((a) => expect(a.status === 200 && a.text.includes("Taken by the member"), `a repeat is answered with ${a.status}`));
  const answered = await commands(posted);
  expect(answered.length === 1 && answered[0].command === fields.command, `one form is ${answered.length} orders: ${JSON.stringify(answered)}`);
  const tries = (await world.operation(posted)).attempts.length;
  expect(tries <= 2, `one force is ${tries - 1} sends`);
  watched.quiet("double submit");
}

/** Whoever decides on what is no longer so is told, and decides nothing. */
export async function stale(world, browser, { stale: [id] }) {
  const [one, other] = [await signedIn(browser, world, "approver"), await signedIn(browser, world, "admin")];
  await world.reached([id], "awaiting_approval");
  await one.page.goto(link(id));
  // A page that follows would show what is so by now.
  await one.page.locator("#live").click();
  await other.page.goto(link(id));
  await order(other.page, "approve", "within the budget");
  await world.reached([id], "confirmed");
  await order(one.page, "deny", "too dear");
  const said = (await one.page.locator("main [role=alert]").allInnerTexts()).join(" ");
  expect(said.includes("RB0709") && said.includes("look again"), `a stale order is answered with: ${said}`);
  expect((await world.operation(id)).status === "confirmed", "a stale order changed something");
  one.watched.quiet("stale");
}

/** From signing in to an approval by the keyboard alone, with the focus seen all the way. */
export async function keyboard(world, browser, { keys: [id] }) {
  await world.reached([id], "awaiting_approval");
  const context = await browser.newContext({ baseURL: world.console });
  const page = await context.newPage();
  const focus = () => page.evaluate(() => {
    const e = document.activeElement;
    const style = getComputedStyle(e);
    return { name: e.getAttribute("name"), text: e.textContent.trim(), href: e.getAttribute("href"), seen: e.matches(":focus-visible") && style.outlineStyle !== "none",
      action: e.form?.elements.namedItem("action")?.value };
  });
  const tabTo = async (what, found) => {
    for (let n = 0; n < 80; n++) {
      await page.keyboard.press("Tab");
      const at = await focus();
      if (found(at)) return expect(at.seen, `${what} has the focus and does not show it`);
    }
    throw new Error(`Tab never reaches ${what}`);
  };
  const enter = () => Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  await page.goto("/sign-in");
  await page.waitForFunction(() => document.activeElement?.id === "token");
  await page.keyboard.type(world.tokens.approver);
  await enter();
  expect(new URL(page.url()).pathname === "/", "signing in by the keyboard leads elsewhere");
  await page.keyboard.press("Tab");
  expect((await focus()).href === "#main", "the first stop is not the way past the menu");
  await tabTo("Operations", (at) => at.href === "/operations");
  await enter();
  await tabTo("the search", (at) => at.name === "q");
  await page.keyboard.type(id);
  await enter();
  await tabTo("the operation", (at) => at.text === id);
  await enter();
  await tabTo("the reason", (at) => at.name === "reason" && at.action === "approve");
  await page.keyboard.type("within the budget");
  await enter();
  await page.getByText("Taken by the member").waitFor();
  await world.reached([id], "confirmed");
}
