// A console over a million operations: ledger records as a member writes them, in a real topic, read from its start.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, signedIn } from "./browser.mjs";
import { shownOf } from "./pages.mjs";
import { ROOT, sleep, until, WORK } from "./world.mjs";

const MANY = Number(process.env.SURFACES_MANY ?? 1_000_000);
const name = (n) => `many-${String(n).padStart(7, "0")}`;
const ONE = name(Math.floor(MANY * 0.7) + 1);
const LEDGER = ".effects-ledger-changelog";
/** One in so many stands there as parked, the others as confirmed. */
const RARE = 1_000;

export async function prepare(world) {
  const [confirmed] = await world.ask("copied", 1);
  const [parked] = await world.ask("copied-parked", 1, { how: { hidden: true } });
  return { confirmed, parked };
}

export async function million(world, browser, { confirmed, parked }) {
  await world.reached([confirmed], "confirmed");
  await world.reached([parked], "parked");
  const copies = await originals(world, [confirmed, parked]);
  let began = Date.now();
  await write(world, copies);
  const written = ((Date.now() - began) / 1000).toFixed(0);
  began = Date.now();
  const other = await world.other("million", {}, "million");
  const loaded = ((Date.now() - began) / 1000).toFixed(0);
  const { page, watched } = await signedIn(browser, world, "viewer", { base: other.url });
  const rare = MANY / RARE;
  const paths = ["/", "/operations", "/unknowns", "/operations?status=confirmed&tenant=acme", `/operations?q=${ONE}`];
  const slowest = [];
  for (const path of paths) {
    await page.goto(path);
    slowest.push(await median(page, path));
  }
  await page.goto("/");
  expect((await shownOf(page, "confirmed")) === MANY - rare, "the overview counts others");
  await page.goto(`/operations?q=${ONE}`);
  expect((await page.locator("td.id a").first().innerText()) === ONE, "one of a million is not found by its ID");
  await page.goto("/unknowns");
  const first = new Set(await page.locator("td.id a:first-child").allInnerTexts());
  await page.click("a[rel=next]");
  await page.waitForURL(/cursor=/);
  const second = await page.locator("td.id a:first-child").allInnerTexts();
  expect(second.length > 0 && second.every((id) => !first.has(id)), "the second page repeats the first");
  watched.quiet("a million operations");
  other.stop();
  return `written in ${written} s, read in ${loaded} s; first pages within ${Math.max(...slowest).toFixed(1)} ms, asked for by HTTP (${paths.map((p, n) => `${p} ${slowest[n].toFixed(1)}`).join(", ")})`;
}

/** How long the server takes to answer, with the way there and back on this machine: the middle of many. */
async function median(page, path) {
  const url = new URL(path, page.url());
  const cookie = (await page.context().cookies()).map((c) => `${c.name}=${c.value}`).join("; ");
  const times = [];
  for (let n = 0; n < 15; n++) {
    const began = performance.now();
    const answer = await fetch(url, { headers: { cookie }, redirect: "manual" });
    await answer.arrayBuffer();
    expect(answer.status === 200, `${path} answers ${answer.status}`);
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[7];
}

/** The last ledger record of each operation, as its member wrote it. */
async function originals(world, ids) {
  const found = new Map();
  const consumer = world.kafka.consumer({ groupId: "copies" });
  await consumer.connect();
  await consumer.subscribe({ topic: `orders${LEDGER}`, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => {
      const [kind, id, step] = message.key.toString().split("\u001f");
      if (kind === "s/acme" && step === "place-order" && message.value) found.set(id, message.value);
    },
  });
  await until("the records that are copied", () => ids.every((id) => found.has(id)));
  await sleep(1_000);
  await consumer.disconnect();
  return ids.map((id) => split(found.get(id)));
}

/** A record begins with two texts, tenant and operation: all behind the second stays as it is. */
function split(value) {
  const tenant = 1 + value[0] / 2;
  return { head: value.subarray(0, tenant), tail: value.subarray(tenant + 1 + value[tenant] / 2) };
}

async function write(world, [confirmed, parked]) {
  const admin = world.kafka.admin();
  await admin.connect();
  const topics = [`million${LEDGER}`, "million-operations-changelog", "million-outbox"].map((topic) => ({ topic, numPartitions: 1 }));
  await admin.createTopics({ topics, waitForLeaders: true });
  await admin.disconnect();
  // By Kafka's own client, in a process of its own: what is looked at meanwhile is not held up.
  const parts = [confirmed, parked].flatMap(({ head, tail }) => [head.toString("base64"), tail.toString("base64")]);
  const args = ["-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", join(WORK, "stack/lib/*"), join(ROOT, "dev/surfaces/Many.java")];
  await promisify(execFile)("java", [...args, world.brokers, `million${LEDGER}`, MANY, RARE, ...parts].map(String));
}
