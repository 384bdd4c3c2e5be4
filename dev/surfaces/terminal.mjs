// What a terminal shows of long work: a bar while it goes on, none where a program reads what is printed, and none that stays.

import { spawn } from "node:child_process";
import { join } from "node:path";

const { SURFACES_PROGRAM: PROGRAM, SURFACES_ROOT: ROOT } = process.env;
const BAR = /[█░]{8}/;

/** Runs it on a terminal of its own; all that the terminal was sent. */
function onTerminal(...args) {
  // Its width is not 0, as that of a terminal that nobody looks at.
  const line = `stty cols 120; exec '${PROGRAM}' ${args.join(" ")}`;
  const child = spawn("script", ["-qec", line, "/dev/null"], { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, TERM: "xterm" } });
  let seen = "";
  child.stdout.setEncoding("utf8").on("data", (data) => { seen += data; });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code) => (code === 0 ? resolve(seen) : reject(new Error(`${args.join(" ")}: exit code ${code}:\n${seen}`))));
  });
}

const expect = (holds, what) => { if (!holds) throw new Error(what); };

const [people, program] = await Promise.all([onTerminal("bench", "topology/webhook"), onTerminal("bench", "topology/webhook", "--output", "json")]);
expect(BAR.test(people), `no bar:\n${people}`);
const last = people.split("\r").at(-1).split("\x1b[2K").at(-1);
expect(!BAR.test(last), `a bar stays:\n${last}`);
expect(/CPU µs a record/.test(people), `no table:\n${people}`);
expect(!BAR.test(program) && !program.includes("\x1b"), `a program is shown a bar:\n${program}`);
expect(JSON.parse(program).schema === "readback.bench/1", program);
console.log("a bar for people, none for programs");
