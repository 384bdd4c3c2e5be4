// A world to look at: a real broker and registry, a target and a model server with a mind of their own, a real member of
// topology/orders with its console, and people with tokens. Everything that is asked for here goes through Kafka.

import { execFileSync, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { createRequire } from "node:module";

export const ROOT = process.env.SURFACES_ROOT;
export const WORK = process.env.SURFACES_WORK;
const PROGRAM = process.env.SURFACES_PROGRAM;
export const need = createRequire(join(WORK, "npm/"));
const avro = need("avsc");
const { Kafka, Partitioners, logLevel } = need("kafkajs");

/** Longest wait for anything; no check depends on how long it takes. */
export const PATIENCE = 300_000;
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Tries until `f` gives something. */
export async function until(what, f) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await f();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain: ${typeof what === "function" ? what() : what}`);
    await sleep(100);
  }
}

/** What can't be tried here, and why: no verdict. */
export class NotTried extends Error {}

/** The people, one a role. */
export const PEOPLE = ["viewer", "operator", "approver", "admin"];

// --- the target ---------------------------------------------------------------------------------------------------------------

/** What the target does with an article: answers, says no, or says nothing and hides whether the order exists. */
class Target {
  constructor() {
    this.how = new Map();
    this.orders = [];
  }

  async start() {
    this.server = createServer((request, response) => this.answer(request, response));
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  async answer(request, response) {
    let text = "";
    for await (const part of request) text += part;
    const say = (status, body) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    const url = new URL(request.url, this.url);
    if (url.pathname === "/v1/chat/completions") return say(200, this.proposal(JSON.parse(text)));
    if (request.method === "GET") return this.list(url.searchParams, say);
    const order = JSON.parse(text);
    const how = this.how.get(order.sku) ?? {};
    this.orders.push({ ...order, id: how.id ?? `A-${String(this.orders.length + 1).padStart(5, "0")}`, hidden: how.hidden });
    if (how.hidden) return; // Silence: the connection stays open until the client leaves.
    if (how.refuses) return say(422, { error: how.refuses });
    say(201, { id: this.orders.at(-1).id });
  }

  /** The page that would show or rule out a hidden order never comes. */
  list(query, say) {
    const mine = this.orders.filter((o) => o.client_ref === query.get("ref"));
    if (mine.some((o) => o.hidden)) return query.get("page") ? say(503, {}) : say(200, { items: [], next: 2 });
    say(200, { items: mine, next: null });
  }

  /** The model: what is wanted stands in the last message, for this one as JSON; of words it makes two bolts. */
  proposal(ask) {
    const { want, pieces } = JSON.parse(ask.messages.at(-1).content.match(/\{.*\}/s)?.[0] ?? '{"want":"BOLT","pieces":2}');
    const plan = { sku: want, quantity: pieces, total: pieces * 10 };
    const message = { role: "assistant", content: JSON.stringify(plan) };
    return { id: "chat-1", model: "m-2", choices: [{ index: 0, finish_reason: "stop", message }], usage: { total_tokens: 812 } };
  }
}

// --- the world ----------------------------------------------------------------------------------------------------------------

export class World {
  /** Starts all of it; it ends with this process. */
  static async start() {
    const world = new World();
    process.on("exit", () => world.stop());
    await world.ground();
    await world.member();
    return world;
  }

  constructor() {
    this.children = [];
    this.dir = join(WORK, "world");
    rmSync(this.dir, { recursive: true, force: true });
    mkdirSync(this.dir, { recursive: true });
  }

  stack(...args) {
    const env = { ...process.env, READBACK_STACK_DIR: join(WORK, "stack") };
    return execFileSync(join(ROOT, "dev/stack"), args, { env, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  }

  /** Broker, registry, topics, schemas, target. A stack of its own: what `cargo test` left there is not looked at. */
  async ground() {
    this.stack("up", "--lease", String(process.pid));
    const env = Object.fromEntries(this.stack("env").trim().split("\n").map((line) => line.split(/=(.*)/s)));
    this.brokers = env.READBACK_BROKERS;
    this.registry = env.READBACK_REGISTRY;
    this.target = new Target();
    await this.target.start();
    const kafka = new Kafka({ brokers: [this.brokers], clientId: "outside", logLevel: logLevel.NOTHING });
    this.kafka = kafka;
    const admin = kafka.admin();
    await admin.connect();
    const topics = ["requests", "approvals", "results", "dead"].map((t) => ({ topic: `agent.${t}`, numPartitions: 2 }));
    await admin.createTopics({ topics, waitForLeaders: true });
    await admin.disconnect();
    this.schema = {};
    for (const [topic, file] of [["requests", "work-request"], ["approvals", "approval"], ["results", "result"]]) {
      this.schema[topic] = await this.register(`agent.${topic}-value`, readFileSync(join(ROOT, `schemas/${file}.avsc`), "utf8"));
    }
    this.producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
    await this.producer.connect();
  }

  async register(subject, avsc) {
    const headers = { "content-type": "application/vnd.schemaregistry.v1+json" };
    const url = `${this.registry}/subjects/${encodeURIComponent(subject)}/versions`;
    const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify({ schema: avsc }) });
    if (!answer.ok) throw new Error(`registering ${subject}: ${answer.status} ${await answer.text()}`);
    return { id: (await answer.json()).id, type: avro.Type.forSchema(JSON.parse(avsc)) };
  }

  /** One member of topology/orders with its console. Only what a plan may hold is wider: so that markup gets into one. */
  async member() {
    this.topology = join(this.dir, "orders");
    cpSync(join(ROOT, "topology/orders"), this.topology, { recursive: true });
    for (const name of ["schemas/order-plan.schema.json", "contracts/orders.yaml"]) {
      const file = join(this.topology, name);
      writeFileSync(file, readFileSync(file, "utf8").replace("[A-Z0-9-]{1,32}", ".{1,200}"));
    }
    this.tokens = {};
    this.lines = {};
    for (const role of PEOPLE) this.person(role, [role]);
    this.person("second", ["operator"]);
    this.file = join(this.dir, "tokens");
    this.write();
    this.console = await this.serve("member", this.topology);
  }

  /** A member of the topology in `dir` with its console; where that is. */
  async serve(name, dir) {
    const args = ["run", dir, "--ordinal", "0", "--log", "info", "--state-dir", join(this.dir, `${name}-state`)];
    const started = this.run(name, args, {
      READBACK_ADMIN__LISTEN: "127.0.0.1:0",
      READBACK_ADMIN__CONSOLE: "true",
      READBACK_CONSOLE__TOKENS: this.file,
      READBACK_REGISTRY__REGISTER: "true",
      READBACK_TOPICS__CREATE: "true",
      READBACK_GROUP__SESSION_TIMEOUT: "12s",
      READBACK_GROUP__TRANSACTION_TIMEOUT: "10s",
    });
    const base = `http://${await started.says(/address=(127\.0\.0\.1:\d+)/)}`;
    await started.says(/state=Running/);
    await until(`the console of ${name} has read everything`, async () => (await this.get("/overview", base)).reading?.whole);
    return base;
  }

  /** Somebody with a token. */
  person(name, roles) {
    const args = ["console", "token", "--name", `${name}@acme`, ...roles.flatMap((r) => ["--role", r])];
    const log = join(this.dir, "token");
    const line = execFileSync(PROGRAM, args, { encoding: "utf8", stdio: ["ignore", "pipe", openSync(log, "w")] });
    this.lines[name] = line;
    this.tokens[name] = readFileSync(log, "utf8").trim().split(" ").at(-1);
  }

  write() {
    writeFileSync(this.file, Object.values(this.lines).join(""));
  }

  /** Another console of the same application, without a member. */
  async other(name, env, app = "orders") {
    const args = ["console", "--app", app, "--listen", "127.0.0.1:0"];
    const started = this.run(name, args, { READBACK_CONSOLE__TOKENS: this.file, ...env });
    const url = (await started.says(/is at (http:\/\/\S+)/)).replace(/\/$/, "");
    await until("the other console has read everything", async () => (await fetch(`${url}/health/ready`)).ok);
    return { url, stop: started.stop };
  }

  run(name, args, env, program = PROGRAM) {
    const log = join(this.dir, `${name}.log`);
    const all = { ...process.env, READBACK_BROKERS: this.brokers, READBACK_REGISTRY: this.registry, ORDERS_URL: this.target.url, MODEL_URL: this.target.url, NO_COLOR: "1", ...env };
    const child = spawn(program, args, { env: all, stdio: ["ignore", "ignore", openSync(log, "w")] });
    this.children.push(child);
    const plain = () => readFileSync(log, "utf8").replace(/\x1b\[[0-9;]*m/g, "");
    const says = (what) =>
      until(`${name} says ${what}`, () => {
        if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}:\n${plain()}`);
        return plain().match(what)?.at(-1);
      });
    return { says, stop: () => child.kill("SIGTERM"), ended: () => child.exitCode ?? child.signalCode, pid: child.pid, log: plain };
  }

  // --- what comes from outside ---

  /** Asks for orders on a topic of requests; answers their IDs. `how` is what the target does with them. */
  async ask(name, count = 1, { how = {}, pieces = 3, ...fields } = {}) {
    const ids = [];
    for (let n = 1; n <= count; n++) {
      const id = count === 1 && fields.operation_id ? fields.operation_id : `${name}-${String(n).padStart(2, "0")}`;
      const sku = fields.sku ?? `SKU-${name.toUpperCase().replace(/[^A-Z0-9-]/g, "").slice(0, 20)}-${n}`;
      this.target.how.set(sku, how);
      ids.push(id);
      await this.request({ ...fields, operation_id: id, resource: fields.resource ?? `order/${name}-${n}`, want: sku, pieces });
    }
    return ids;
  }

  async request({ want, pieces, sku, patience = 600_000, topic = "agent.requests", ...fields }) {
    const { id, type } = this.schema.requests;
    const record = {
      message_id: randomUUID(),
      attempt_id: null,
      tenant: "acme",
      requester: "agent:buyer",
      resource_version: "1",
      action: "order.create",
      input: { media_type: "application/json", inline: JSON.stringify({ want, pieces }), locator: null, sha256: null },
      deadline: Date.now() + patience,
      required_permissions: ["orders:create"],
      approval_ref: null,
      cost_estimate: { tokens: 800, bytes: 2048, tool_calls: 1 },
      written_for: { topology: "3", prompt: "buyer.v7", tools: null },
      traceparent: null,
      ...fields,
    };
    const head = Buffer.alloc(5);
    head.writeInt32BE(id, 1);
    await this.publish(topic, { key: record.operation_id, value: Buffer.concat([head, type.toBuffer(record)]) });
  }

  publish(topic, ...messages) {
    return this.producer.send({ topic, messages });
  }

  // --- what the API says ---

  async get(path, base = this.console) {
    const answer = await fetch(`${base}/api/v1${path}`, { headers: { authorization: `Bearer ${this.tokens.admin}` } });
    return answer.json();
  }

  operation(id, base) {
    return this.get(`/operations/${encodeURIComponent(id)}`, base);
  }

  /** Waits until all of them stand there. */
  async reached(ids, ...statuses) {
    for (const id of ids) {
      let last;
      const there = async () => statuses.includes((last = await this.operation(id)).status);
      await until(() => `${id} is ${statuses}; it is ${last.status}: ${last.detail}`, there);
    }
  }

  stop() {
    for (const child of this.children) child.kill("SIGTERM");
    this.producer?.disconnect().catch(() => {});
    this.target?.server?.closeAllConnections();
    this.target?.server?.close();
    try {
      this.stack("down", "--lease", String(process.pid));
    } catch (e) {
      console.error(`the stack was not stopped: ${e.message}`);
    }
  }
}

/** The artifacts of a stack that was started before are not fetched again. */
export function reuse() {
  for (const part of ["lib", "registry"]) {
    const [from, to] = [join(ROOT, "target/stack", part), join(WORK, "stack", part)];
    if (existsSync(join(from, ".complete")) && !existsSync(to)) cpSync(from, to, { recursive: true });
  }
}
