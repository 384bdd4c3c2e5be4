// What README and src/docs tell people on duty to type, typed on an application that runs: its operations have the names that the pages
// use. Of what a page shows only the version of an operation, the place of a letter and addresses are those of this world.

import { cpSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";
import { expect } from "./browser.mjs";
import { ROOT, until, WORK } from "./world.mjs";

const { blocks, Shell } = createRequire(import.meta.url)("./blocks.cjs");
const DOCS = join(ROOT, "src/docs");

/** What is to become of the operations that the pages name; a parked one where nothing is said. */
const AWAITING = ["op-0140", "op-0142"];
const APPROVED = "op-0142";

/** The commands of all pages that are for here, page by page. */
function pages() {
  const wrong = [];
  const files = [join(ROOT, "README.md"), ...readdirSync(DOCS, { recursive: true }).filter((f) => f.endsWith(".md")).map((f) => join(DOCS, f))];
  const found = files.map((file) => blocks(file, relative(ROOT, file), (at, why) => wrong.push(`${at}: ${why}`)).filter((b) => b.mark === "run=duty"));
  expect(wrong.length === 0, () => wrong.join("\n"));
  return found.filter((of) => of.length);
}

/** The operations that they name. */
function named(all) {
  return [...new Set(all.flat().flatMap((b) => b.text.join("\n").match(/\bop-\d+\b(?=[ /?])/g) ?? []))].sort();
}

export async function prepare(world) {
  // Letters to look at and to send back, whatever other checks leave of theirs.
  for (const n of [1, 2, 3, 4]) await world.publish("agent.requests", { key: `on-duty-${n}`, value: `no record ${n}` });
  const ids = named(pages());
  for (const id of ids) {
    const awaiting = AWAITING.includes(id);
    await world.ask(id, 1, { operation_id: id, how: { hidden: !awaiting || id === APPROVED }, pieces: awaiting ? 60 : 3 });
  }
  return { ids };
}

export async function duty(world, browser, { ids }) {
  for (const id of ids) await world.reached([id], AWAITING.includes(id) ? "awaiting_approval" : "parked");
  const { dir, env } = place(world);
  const shell = new Shell(dir, env);
  let count = 0;
  try {
    await said(shell, `readback ops approve ${APPROVED} --reason "within the budget" --seen ${(await world.operation(APPROVED)).version}`, "the approval of what is revoked");
    await world.reached([APPROVED], "parked", "unknown", "in_flight", "accepted");
    for (const b of pages().flat()) {
      for (const command of commands(b.text)) {
        count += 1;
        await said(shell, await here(world, command), b.at);
      }
    }
  } finally {
    shell.close();
  }
  return `${count} commands of ${pages().flat().length} blocks`;
}

async function said(shell, command, at) {
  const { code, said } = await shell.run(command);
  expect(code === 0, () => `${at}: exit code ${code} of\n${command}\n${said.slice(-2_000)}`);
}

/** A line each, with those that it goes on in. */
function commands(text) {
  const found = [];
  let open = false;
  for (const line of text) {
    if (open) found.push(`${found.pop()}\n${line}`);
    else if (line.trim()) found.push(line);
    const command = found.at(-1) ?? "";
    open = command.endsWith("\\") || (command.match(/'/g) ?? []).length % 2 === 1;
  }
  return found;
}

/** With what is another one here than on the page. */
async function here(world, command) {
  const id = command.match(/\bop-\d+\b/)?.[0];
  const version = /--seen \d+|"seen":\d+/.test(command) ? (await world.operation(id)).version : 0;
  const letter = /agent\.dead-2-17/.test(command) ? await aLetter(world) : "";
  const address = world.console.replace("http://", "");
  return command
    .replace(/--seen \d+/, `--seen ${version}`)
    .replace(/"seen":\d+/, `"seen":${version}`)
    .replace("agent.dead-2-17", letter)
    .replace(/kafka-1:9092/, world.brokers)
    .replace(/127\.0\.0\.1:946[45]/, address);
}

/** One that may go back. */
async function aLetter(world) {
  const found = () => world.get("/dead-letters").then(({ letters }) => letters.find((l) => !l.replayed)?.letter);
  return until("a letter rests", found);
}

/** A folder as somebody on duty has it, and what their shell knows. */
function place(world) {
  const dir = join(world.dir, "duty");
  const bin = join(dir, "bin");
  mkdirSync(bin, { recursive: true });
  mkdirSync(join(dir, "topology"));
  cpSync(world.topology, join(dir, "topology/orders"), { recursive: true });
  symlinkSync(process.env.SURFACES_PROGRAM, join(bin, "readback"));
  // Kafka's own script is a line around this class.
  const java = `#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp '${join(WORK, "stack/lib")}/*' org.apache.kafka.tools.TransactionsCommand "$@"\n`;
  writeFileSync(join(bin, "kafka-transactions.sh"), java, { mode: 0o755 });
  writeFileSync(join(dir, "readback.yaml"), `brokers: ${world.brokers}\nregistry: { url: "${world.registry}" }\n`);
  const known = {
    READBACK_APP: "orders", READBACK_BROKERS: world.brokers, READBACK_REGISTRY: world.registry,
    ORDERS_URL: world.target.url, MODEL_URL: world.target.url, TOKEN: world.tokens.admin, USER: "operator@acme", NO_COLOR: "1",
  };
  return { dir, env: { ...process.env, PATH: `${bin}:${process.env.PATH}`, ...known } };
}
