// A real OpenID Connect issuer on loopback: `oidc-provider`, which is certified, with a few accounts and a `groups` claim. Whoever is
// set as `account` is signed in without a question; without one it shows a page to choose from.
// Alone: `SURFACES_WORK=DIR node issuer.mjs CONSOLE_URL [PORT]`, with `oidc-provider` installed under DIR/npm.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const CLIENT = "readback-console";
export const SECRET = "only for checks on this machine";
export const ROBOT = { id: "robot", secret: "only for checks on this machine, too" };
export const AUDIENCE = "readback-api";
/** What a program names to get a token for that audience. */
export const RESOURCE = "urn:readback:api";

/** Accounts: who they are, and their groups. */
export const ACCOUNTS = {
  vera: { preferred_username: "vera@acme", groups: ["guests"] },
  olga: { preferred_username: "olga@acme", groups: ["sre"] },
  otto: { preferred_username: "otto@acme", groups: ["sre", "everybody"] },
  anna: { preferred_username: "anna@acme", groups: ["leads"] },
  adam: { preferred_username: "adam@acme", groups: ["boss"] },
  nora: { preferred_username: "nora@acme", groups: ["sales"] },
};

/** What console.oidc.roles must say for them. */
export const ROLES = { guests: "viewer", sre: "operator", leads: "approver", boss: "admin" };

async function library() {
  const need = createRequire(join(process.env.SURFACES_WORK, "npm/"));
  return (await import(pathToFileURL(need.resolve("oidc-provider")))).default;
}

const key = () => ({ ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }), use: "sig" });

/** An issuer for the console at this address. */
export class Issuer {
  constructor(consoleUrl) {
    this.consoleUrl = consoleUrl;
    /** Who is signed in next. */
    this.account = null;
    this.cookies = [randomBytes(16).toString("hex")];
    this.errors = [];
  }

  async start(port = 0) {
    this.Provider = await library();
    this.server = createServer((request, response) => this.answer(request, response));
    await new Promise((resolve, refuse) => this.server.on("error", refuse).listen(port, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
    this.rotate();
    return this;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  /** Signs with a new key from now on, and publishes no other. */
  rotate() {
    const claims = (account) => ({ sub: account, ...ACCOUNTS[account] });
    this.provider = new this.Provider(this.url, {
      clients: [
        {
          client_id: CLIENT,
          client_secret: SECRET,
          redirect_uris: [`${this.consoleUrl}/sign-in/callback`],
          post_logout_redirect_uris: [`${this.consoleUrl}/sign-in`],
          grant_types: ["authorization_code"],
          response_types: ["code"],
        },
        { client_id: ROBOT.id, client_secret: ROBOT.secret, redirect_uris: [], response_types: [], grant_types: ["client_credentials"] },
      ],
      jwks: { keys: [key()] },
      cookies: { keys: this.cookies },
      claims: { profile: ["preferred_username"], groups: ["groups"] },
      // The console reads claims in the ID token, not at the userinfo endpoint.
      conformIdTokenClaims: false,
      ttl: { IdToken: 600, AccessToken: 600, Session: 3600, Interaction: 600, Grant: 3600, ClientCredentials: 600 },
      pkce: { required: () => true },
      findAccount: (_, id) => (ACCOUNTS[id] ? { accountId: id, claims: () => claims(id) } : undefined),
      loadExistingGrant: (context) => this.grant(context),
      interactions: { url: (_, interaction) => `/choose/${interaction.uid}` },
      extraTokenClaims: (_, token) => (token.kind === "ClientCredentials" ? { preferred_username: "robot@acme", groups: ["sre"] } : {}),
      features: {
        devInteractions: { enabled: false },
        clientCredentials: { enabled: true },
        resourceIndicators: {
          enabled: true,
          getResourceServerInfo: () => ({ scope: "", audience: AUDIENCE, accessTokenFormat: "jwt", jwt: { sign: { alg: "RS256" } } }),
        },
      },
    });
    this.provider.on("server_error", (_, error) => this.errors.push(error));
    this.callback = this.provider.callback();
  }

  /** Nobody is asked whether the console may know their name. */
  async grant({ oidc }) {
    const grant = new this.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
    grant.addOIDCScope("openid profile groups");
    await grant.save();
    return grant;
  }

  async answer(request, response) {
    const [, where, , account] = new URL(request.url, this.url).pathname.split("/");
    if (where !== "choose") return this.callback(request, response);
    const who = account ?? this.account;
    if (ACCOUNTS[who]) {
      return this.provider.interactionFinished(request, response, { login: { accountId: who, remember: false } });
    }
    const links = Object.keys(ACCOUNTS).map((id) => `<li><a href="${request.url}/${id}">${id}</a></li>`);
    response.writeHead(200, { "content-type": "text/html" }).end(`<h1>Who are you?</h1><ul>${links.join("")}</ul>`);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [consoleUrl, port] = process.argv.slice(2);
  if (!consoleUrl) throw new Error("usage: issuer.mjs CONSOLE_URL [PORT]");
  const issuer = await new Issuer(consoleUrl).start(Number(port ?? 0));
  issuer.account = process.env.ISSUER_ACCOUNT ?? null;
  console.log(issuer.url);
}
