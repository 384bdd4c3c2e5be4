// A real Chromium, people who sign in, and what every page is watched for.

import { need, PATIENCE } from "./world.mjs";

const { chromium } = need("playwright-core");

const FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking " +
  "--disable-component-update --disable-sync --force-color-profile=srgb --font-render-hinting=none";

/** Starts a browser with a profile of its own; nothing on its pages is waited for in a hurry. */
export async function launch() {
  const browser = await chromium.launch({ executablePath: process.env.SURFACES_CHROMIUM, args: FLAGS.split(" "), timeout: PATIENCE });
  for (const make of ["newContext", "newPage"]) {
    const made = browser[make].bind(browser);
    browser[make] = async (options) => {
      const one = await made(options);
      one.setDefaultTimeout(PATIENCE);
      return one;
    };
  }
  return browser;
}

export function expect(holds, what) {
  if (!holds) throw new Error(typeof what === "function" ? what() : what);
}

/** Everything that must not happen on any page: script from data, an error, something that the policy had to refuse. */
export function watch(page) {
  const seen = [];
  page.on("dialog", (dialog) => { seen.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("pageerror", (error) => seen.push(`a script failed: ${error.message}`));
  page.on("console", (m) => {
    // A page that says 403 or 409 is an answer, not a fault of the page.
    if (m.type() === "error" && !/status of 4\d\d/.test(m.text())) seen.push(`the browser's console: ${m.text()}`);
  });
  return { seen, quiet: (where) => expect(seen.length === 0, () => `${where}: ${seen.join("; ")}`) };
}

/** A tab of somebody who has signed in by the form. */
export async function signedIn(browser, world, who, { base = world.console, ...options } = {}) {
  const context = await browser.newContext({ baseURL: base, viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const watched = watch(page);
  await page.goto("/sign-in");
  await page.fill("#token", world.tokens[who]);
  await page.click("main button");
  await page.waitForURL((url) => url.pathname !== "/sign-in");
  return { context, page, watched, who };
}

/** Where an operation's page is. */
export const link = (id) => `/operations/${encodeURIComponent(id)}`;

/** The form of an action on the page that is shown. */
export const formOf = (page, action) => page.locator(`form:has(input[name=action][value="${action}"])`);

/** Fills a form's reason and sends it; the command that it sent. A form that nobody has begun is renewed now and then. */
export async function order(page, action, reason = "looked at the books") {
  const form = formOf(page, action);
  await form.locator("input[name=reason]").fill(reason);
  const command = await form.locator("input[name=command]").inputValue();
  // The page that answers, not the one that is loaded already.
  await Promise.all([page.waitForEvent("load"), form.locator("button").click()]);
  return command;
}

/** What a form would send. */
export async function fieldsOf(form) {
  const inputs = await form.locator("input").all();
  const pairs = await Promise.all(inputs.map(async (i) => [await i.getAttribute("name"), await i.inputValue()]));
  return Object.fromEntries(pairs);
}

/** The token of forms of a session: it stands in each page's form for signing out. */
export function formToken(page) {
  return page.locator('form[action="/sign-out"] input[name=form]').getAttribute("value");
}

/** A form that is sent without the page: by a script, a second time, or by somebody who was not shown it. */
export async function post(context, path, form) {
  const answer = await context.request.post(path, { form, maxRedirects: 0, failOnStatusCode: false });
  return { status: answer.status(), location: answer.headers().location ?? "", text: await answer.text() };
}
