// Signs in at a real console by a real issuer, as a browser does, without one: redirects, cookies and forms by `fetch`.
// `SURFACES_WORK=DIR SURFACES_PROGRAM=target/debug/readback SURFACES_BROKERS=HOST:PORT node dev/surfaces/oidc.mjs`, with
// `oidc-provider` installed under DIR/npm. Prints a line for each check; the exit code is the number that failed.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { AUDIENCE, CLIENT, Issuer, RESOURCE, ROBOT, ROLES, SECRET } from "./issuer.mjs";

/** Longest wait for anything; no check depends on how long it takes. */
const PATIENCE = 60_000;
const { SURFACES_WORK: WORK, SURFACES_PROGRAM: PROGRAM, SURFACES_BROKERS: BROKERS } = process.env;

async function until(what, f) {
  for (const end = Date.now() + PATIENCE; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100))) {
    const found = await f().catch(() => null);
    if (found) return found;
  }
  throw new Error(`waited in vain: ${what}`);
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** What a browser keeps and does: cookies by host, redirects one by one, and pages that lead on by themselves. */
class Browser {
  constructor() {
    this.jar = new Map();
  }

  cookies(url) {
    return this.jar.get(url.host) ?? this.jar.set(url.host, new Map()).get(url.host);
  }

  async ask(at, options = {}) {
    const url = new URL(at);
    const cookie = [...this.cookies(url)].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { redirect: "manual", ...options, headers: { cookie, ...options.headers } });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
      if (value === "" || /max-age=0/i.test(line)) this.cookies(url).delete(name);
      else this.cookies(url).set(name, value);
    }
    return response;
  }

  /** Goes there and wherever that leads; the last answer, its address and its text. */
  async go(at, options) {
    for (let steps = 0; steps < 12; steps++) {
      const response = await this.ask(at, options);
      const refresh = response.headers.get("refresh")?.match(/url=(.*)$/)?.[1];
      const next = response.headers.get("location") ?? refresh;
      if (!next) return { status: response.status, url: at, text: await response.text() };
      await response.arrayBuffer();
      [at, options] = [new URL(next, at).href, undefined];
    }
    throw new Error(`it leads nowhere: ${at}`);
  }

  async post(at, fields) {
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    return this.go(at, { method: "POST", headers, body: new URLSearchParams(fields).toString() });
  }
}

const form = (text) => text.match(/name="form" value="([^"]+)"/)?.[1];

/** A console that takes its people from the issuer. */
async function consoleOf(issuer, at) {
  const dir = mkdtempSync(join(WORK, "oidc-"));
  writeFileSync(join(dir, "client"), SECRET);
  writeFileSync(join(dir, "session"), randomBytes(32).toString("hex"));
  const config = {
    brokers: BROKERS,
    console: {
      session_secret: { file: join(dir, "session") },
      oidc: {
        issuer: issuer.url,
        client_id: CLIENT,
        client_secret: { file: join(dir, "client") },
        roles: ROLES,
        scopes: "openid profile groups",
        audience: AUDIENCE,
      },
    },
  };
  writeFileSync(join(dir, "readback.yaml"), JSON.stringify(config));
  const app = `oidc-${randomBytes(3).toString("hex")}`;
  const args = ["console", "--app", app, "--config", join(dir, "readback.yaml"), "--listen", new URL(at).host];
  const child = spawn(PROGRAM, args, { stdio: ["ignore", "inherit", "inherit"] });
  await until("the console answers", async () => (await fetch(`${at}/health/live`)).ok);
  return child;
}

async function signIn(issuer, at, account, to = "/") {
  issuer.account = account;
  const browser = new Browser();
  const page = await browser.go(`${at}/sign-in?to=${encodeURIComponent(to)}`);
  assert.match(page.text, /Sign in with 127\.0\.0\.1/);
  const href = page.text.match(/href="(\/sign-in\/oidc[^"]*)"/)[1].replaceAll("&amp;", "&");
  return { browser, landed: await browser.go(at + href) };
}

const api = async (at, token) => {
  const response = await fetch(`${at}/api/v1/session`, { headers: { authorization: `Bearer ${token}` } });
  return { status: response.status, body: await response.json() };
};

async function robotToken(issuer) {
  const body = new URLSearchParams({ grant_type: "client_credentials", resource: RESOURCE });
  // Both parts are encoded as forms are (RFC 6749, 2.3.1).
  const login = Buffer.from(`${ROBOT.id}:${encodeURIComponent(ROBOT.secret)}`).toString("base64");
  const response = await fetch(`${issuer.url}/token`, { method: "POST", headers: { authorization: `Basic ${login}` }, body });
  return (await response.json()).access_token;
}

const CHECKS = {
  /** Everybody gets the roles that their groups stand for, on the page that they wanted. */
  async roles(issuer, at) {
    for (const [account, role] of [["vera", "viewer"], ["olga", "operator"], ["anna", "approver"], ["adam", "admin"]]) {
      const { browser, landed } = await signIn(issuer, at, account, "/unknowns");
      assert.equal(landed.status, 200, landed.text);
      assert.equal(landed.url, `${at}/unknowns`);
      assert.ok(landed.text.includes(`${account}@acme (${role})`), landed.text);
      const replay = await browser.post(`${at}/dead-letters`, { form: form(landed.text), letter: "x-0-0", reason: "r" });
      // Who may not is told so; who may is told that there is no such letter.
      assert.equal(replay.status === 403, !["operator", "admin"].includes(role), `${account}: ${replay.status}`);
    }
  },

  /** Nobody gets in without a mapped group, or with an answer of somebody else's making. */
  async refused(issuer, at) {
    const { browser, landed } = await signIn(issuer, at, "nora");
    assert.equal(landed.status, 403);
    assert.match(landed.text, /RB0802/);
    assert.equal((await browser.ask(`${at}/`)).status, 303);
    const forged = await new Browser().go(`${at}/sign-in/callback?code=c&state=s`);
    assert.equal(forged.status, 401);
    assert.match(forged.text, /RB0808/);
  },

  /** A session ends here and at the issuer. */
  async signOut(issuer, at) {
    const { browser, landed } = await signIn(issuer, at, "otto");
    const session = new Map(browser.cookies(new URL(at)));
    const out = await browser.post(`${at}/sign-out`, { form: form(landed.text) });
    assert.ok(out.url.startsWith(`${issuer.url}/session/end`), out.url);
    assert.equal(out.status, 200, out.text);
    for (const [name, value] of session) browser.cookies(new URL(at)).set(name, value);
    assert.equal((await browser.ask(`${at}/`)).status, 303, "the old cookie is of no use");
  },

  /** Programs show tokens of the issuer for our audience, and no others. */
  async bearer(issuer, at) {
    const token = await robotToken(issuer);
    const { status, body } = await api(at, token);
    assert.equal(status, 200, JSON.stringify(body));
    assert.deepEqual([body.name, body.roles], ["robot@acme", ["operator"]]);
    const [head, claims, signature] = token.split(".");
    const boss = JSON.parse(Buffer.from(claims, "base64url"));
    const forged = Buffer.from(JSON.stringify({ ...boss, groups: ["boss"] })).toString("base64url");
    assert.equal((await api(at, `${head}.${forged}.${signature}`)).status, 401);
    const none = Buffer.from(JSON.stringify({ alg: "none" })).toString("base64url");
    assert.equal((await api(at, `${none}.${forged}.`)).status, 401);
  },

  /** New keys are taken, and old ones no longer. */
  async rotation(issuer, at) {
    const old = await robotToken(issuer);
    issuer.rotate();
    await until("the new key is taken", async () => (await api(at, await robotToken(issuer))).status === 200);
    assert.equal((await api(at, old)).status, 401);
    assert.equal((await signIn(issuer, at, "olga")).landed.status, 200);
  },

  /** Who is signed in stays so while the issuer is away. */
  async away(issuer, at) {
    const { browser } = await signIn(issuer, at, "olga");
    const token = await robotToken(issuer);
    issuer.stop();
    assert.equal((await browser.ask(`${at}/`)).status, 200);
    assert.equal((await api(at, token)).status, 200);
  },
};

const at = `http://127.0.0.1:${await freePort()}`;
const issuer = await new Issuer(at).start();
const child = await consoleOf(issuer, at);
let failed = 0;
for (const [name, check] of Object.entries(CHECKS)) {
  try {
    await check(issuer, at);
    console.log(`ok   oidc ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL oidc ${name}: ${error.stack}`);
  }
}
for (const error of issuer.errors) console.log(`the issuer: ${error.stack}`);
child.kill("SIGTERM");
process.exit(failed);
