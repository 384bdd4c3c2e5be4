// Pages that follow: what changes is seen without a load, what somebody has begun to write stays, and it ends with the session.

import { expect, formOf, link, signedIn } from "./browser.mjs";
import { until } from "./world.mjs";

export async function prepare(world) {
  return { ids: await world.ask("follow", 2, { pieces: 60 }) };
}

export async function live(world, browser, { ids: [decided, begun] }) {
  await world.reached([decided, begun], "awaiting_approval");
  const { page, context, watched } = await signedIn(browser, world, "approver");
  await page.goto(link(decided));
  await follows(page);
  const loads = [];
  page.on("load", () => loads.push(page.url()));
  await page.evaluate(() => { window.__before = true; });
  await approve(world, decided);
  await page.locator("main").getByText("confirmed", { exact: false }).first().waitFor();
  await until("the form to approve goes", async () => (await formOf(page, "approve").count()) === 0);
  expect(await page.evaluate(() => window.__before === true) && loads.length === 0, `the page was loaded anew: ${loads}`);
  await page.locator("#said", { hasText: "is confirmed" }).waitFor({ state: "attached" });
  // A list follows, too, and what stands begun in a form survives what comes in around it.
  const other = await context.newPage();
  await other.goto("/operations?q=follow-later&limit=10");
  await follows(other);
  await page.goto(link(begun));
  await follows(page);
  const reason = formOf(page, "approve").locator("input[name=reason]");
  await reason.fill("within the bud");
  const [later] = await world.ask("follow-later", 1);
  await other.locator("td.id").getByRole("link", { name: later, exact: true }).waitFor();
  await world.get("/overview");
  expect((await reason.inputValue()) === "within the bud", "what was begun is gone");
  // Who signs out in one tab is signed out in the others, and told so.
  await other.click('form[action="/sign-out"] button');
  await other.waitForURL(/\/sign-in/);
  await page.locator("#live", { hasText: "Signed out" }).waitFor();
  watched.quiet("following");
}

/** Waits until the page says that it follows. */
async function follows(page) {
  await page.locator('#live[data-state="live"]').waitFor();
}

async function approve(world, id) {
  const { version, plan_hash } = await world.operation(id);
  const headers = { authorization: `Bearer ${world.tokens.admin}`, "content-type": "application/json" };
  const body = JSON.stringify({ seen: version, plan_hash, reason: "within the budget" });
  const answer = await fetch(`${world.console}/api/v1/operations/${id}/approve`, { method: "POST", headers, body });
  expect(answer.ok, `approving ${id}: ${answer.status}`);
}
