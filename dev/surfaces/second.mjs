// What two people must agree on: where nothing bounds when a send may still arrive, one orders and another confirms, each signed in.

import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, formOf, formToken, link, order, post, signedIn } from "./browser.mjs";
import { until } from "./world.mjs";

/** An application of its own: its contract is that of orders, without a bound. */
const APP = "careful";
/** Action, and the status that it ends with; one more send ends with what the target then shows. */
const ORDERS = [["force", null], ["resolve_not_applied", "resolved_not_applied"]];

export async function prepare(world) {
  const dir = join(world.dir, APP);
  cpSync(world.topology, dir, { recursive: true });
  const change = (file, ...changes) => {
    const text = changes.reduce((t, [from, to]) => {
      expect(t.match(from), () => `${file} has no ${from}`);
      return t.replace(from, to);
    }, readFileSync(join(dir, file), "utf8"));
    writeFileSync(join(dir, file), text);
  };
  change("topology.yaml", [/^application: orders/m, `application: ${APP}`], [/ agent\./g, ` ${APP}.agent.`]);
  change("contracts/orders.yaml", [/in_flight: \{[^}]*\}/, "in_flight: unbounded"]);
  const base = await world.serve(APP, dir);
  const ids = await world.ask(APP, ORDERS.length, { how: { hidden: true }, topic: `${APP}.agent.requests` });
  return { base, ids };
}

export async function second(world, browser, { base, ids }) {
  const [first, other, viewer] = await Promise.all(["operator", "second", "viewer"].map((who) => signedIn(browser, world, who, { base })));
  for (const [n, [action, ends]] of ORDERS.entries()) {
    const id = ids[n];
    const now = () => world.operation(id, base);
    await until(`${id} is parked`, async () => (await now()).status === "parked");
    await first.page.goto(link(id));
    const words = await formOf(first.page, action).innerText();
    expect(/second person/i.test(words), () => `the form to ${action} asks for nobody else: ${words}`);
    const command = await order(first.page, action, "the order desk says that it never came");
    await says(first.page, "Nothing is ordered yet");
    await says(first.page, "Somebody else must confirm it");
    expect((await now()).commands.length === 0, `one person alone has ordered to ${action}`);
    // Neither the first person again, by hand, nor one without the role.
    for (const { page, context, who } of [first, viewer]) {
      await page.goto(link(id));
      expect((await formOf(page, "confirm").count()) === 0, `${who} is shown a form to confirm`);
      const answer = await post(context, link(id), { form: await formToken(page), action: "confirm", command, reason: "forged" });
      expect(answer.status === 403 && answer.text.includes("RB0802"), `${who} may confirm ${action}: ${answer.status}`);
    }
    expect((await now()).commands.length === 0, `a refused confirmation has ordered to ${action}`);
    // What is confirmed is what the page shows: who, on which version, why.
    await other.page.goto(link(id));
    for (const text of ["operator@acme orders it on version", "the order desk says that it never came"]) await says(other.page, text);
    const form = formOf(other.page, "confirm");
    await form.locator("input[name=reason]").fill("I have asked there, too");
    await Promise.all([other.page.waitForEvent("load"), form.locator("button").click()]);
    await says(other.page, "Taken by the member");
    const { commands } = await now();
    expect(commands.length === 1 && commands[0].command === command && !commands[0].code, () => `${action}: ${JSON.stringify(commands)}`);
    if (ends) await until(`${id} is ${ends}`, async () => (await now()).status === ends);
    const again = await post(other.context, link(id), { form: await formToken(other.page), action: "confirm", command, reason: "twice" });
    expect(again.status === 409, `a second confirmation is answered with ${again.status}`);
  }
  [first, other, viewer].forEach((a) => a.watched.quiet(a.who));
  return ORDERS.map(([action]) => action).join(", ");
}

async function says(page, text) {
  await page.locator("main").getByText(text).first().waitFor();
}
