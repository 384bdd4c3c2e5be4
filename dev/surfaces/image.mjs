// deploy/Dockerfile by a container engine: its last stage is built around the program of `cargo test`, which stands for what the stage
// before would build. A member runs in it as nobody in particular, on a root that can't be written, without a capability, and is stopped.

import { execFile } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect } from "./browser.mjs";
import { NotTried, ROOT, until, WORK } from "./world.mjs";

const FILE = join(ROOT, "deploy/Dockerfile");
/** What the last stage begins from. */
const BASE = readFileSync(FILE, "utf8").match(/^ARG RUNTIME=(\S+)$/m)[1];
const [STAND_IN, IMAGE, VOLUME] = ["readback-base:check", "readback:check", "readback-check"];
/** The member is an application of its own: in the group of another it would take part in what other checks look at. */
const APP = "imaged";

/** What a program prints. Never while everything else waits: the target of other checks lives in this process. */
const run = async (command, args, options) => (await promisify(execFile)(command, args, options)).stdout.trim();
const works = (command, args, options) => run(command, args, options).then(() => true, () => false);

/** Docker where its daemon answers, else podman with a store of our own: command and first arguments. */
async function engine() {
  if (await works("docker", ["info"])) return ["docker"];
  if (!(await works("podman", ["--version"]))) throw new NotTried("there is no container engine");
  const store = ["--root", join(WORK, "images"), "--runroot", join(WORK, "images-run"), "--storage-driver", "vfs"];
  return process.getuid() === 0 ? ["podman", ...store, "--runtime", "runc", "--cgroup-manager", "cgroupfs"] : ["podman"];
}

/** Asks the engine for something; what it printed. */
const ask = ([command, ...before], ...args) => run(command, [...before, ...args]);

/** The image that the last stage begins from, or what stands for it where no registry of images answers. */
async function base([command, ...before]) {
  if (await works(command, [...before, "pull", BASE], { timeout: 120_000 })) return { name: BASE, is: BASE };
  if (!(await works("apt-get", ["--version"]))) throw new NotTried(`${BASE} can't be fetched, and Debian's packages neither`);
  const dir = join(WORK, "image-base");
  await run(join(ROOT, "dev/surfaces/base"), [join(dir, "root")]);
  writeFileSync(join(dir, "Dockerfile"), "FROM scratch\nCOPY root /\n");
  await ask([command, ...before], "build", "-t", STAND_IN, dir);
  return { name: STAND_IN, is: `Debian's packages in place of ${BASE}, which can't be fetched` };
}

/** Builds the last stage of deploy/Dockerfile as it stands; its size. */
async function build(by, from) {
  const built = join(WORK, "image-built");
  rmSync(built, { recursive: true, force: true });
  mkdirSync(join(built, "src/target/release"), { recursive: true });
  mkdirSync(join(built, "state"));
  await run("strip", ["-o", join(built, "src/target/release/readback"), process.env.SURFACES_PROGRAM]);
  await ask(by, "build", "-f", FILE, "--build-arg", `RUNTIME=${from}`, "--build-context", `build=${built}`, "-t", IMAGE, join(ROOT, "deploy"));
  return Number(await ask(by, "image", "inspect", "--format", "{{.Size}}", IMAGE));
}

/** The image's program has zlib linked in (LIBZ_SYS_STATIC); where that of `cargo test` has not, this machine's is mounted beside it. */
async function zlib() {
  const found = (await run("ldd", [process.env.SURFACES_PROGRAM])).match(/(\/\S+\/libz\.so\S*) \(/)?.[1];
  return found ? ["--volume", `${realpathSync(found)}:${found}:ro`] : [];
}

/** The topology, under a name of its own. */
function topology(world) {
  const dir = join(world.dir, "imaged");
  cpSync(world.topology, dir, { recursive: true });
  const file = join(dir, "topology.yaml");
  writeFileSync(file, readFileSync(file, "utf8").replace(/^application: orders/m, `application: ${APP}`).replaceAll(" agent.", ` ${APP}.agent.`));
  return dir;
}

export async function image(world) {
  const by = await engine();
  const from = await base(by);
  const [size, beside] = [await build(by, from.name), await zlib()];
  const name = IMAGE.replace(":", "-");
  for (const left of [["rm", "-f", name], ["volume", "rm", VOLUME]]) await works(by[0], [...by.slice(1), ...left]);
  const env = { READBACK_ADMIN__LISTEN: "127.0.0.1:0", READBACK_LOG: "info", READBACK_SLOTS__ORDINAL: "0", READBACK_REGISTRY__REGISTER: "true", READBACK_TOPICS__CREATE: "true" };
  const names = [...Object.keys(env), "READBACK_BROKERS", "READBACK_REGISTRY", "ORDERS_URL", "MODEL_URL", "NO_COLOR"].flatMap((n) => ["--env", n]);
  // Podman would raise limits that a container's root may not raise; Docker takes the same.
  const harden = ["--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"];
  const mounted = [...beside, "--volume", `${topology(world)}:/topology:ro`];
  const start = (as, more) => world.run(as, [...by.slice(1), "run", "--rm", "--name", as, ...harden, ...names, ...mounted, ...more, IMAGE], env, by[0]);
  const member = start(name, ["--volume", `${VOLUME}:/var/lib/readback`]);
  await member.says(/state=Running/);
  const pid = await ask(by, "inspect", "--format", "{{.State.Pid}}", name);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  for (const line of [/^Uid:\s+65532\s+65532\s/m, /^Gid:\s+65532\s+65532\s/m, /^CapEff:\s+0+$/m, /^CapBnd:\s+0+$/m, /^NoNewPrivs:\s+1$/m])
    expect(line.test(status), `the member in the container has not ${line}:\n${status}`);
  member.stop();
  await until("the member in the container stops", () => member.ended() !== null);
  expect(member.ended() === 0, `it stops with exit code ${member.ended()}:\n${member.log()}`);
  // The same without a volume: there is no other place that it could write.
  const nowhere = start(`${name}-nowhere`, []);
  await until("a member without a volume ends", () => nowhere.ended() !== null);
  expect(nowhere.ended() !== 0 && /Read-only file system/.test(nowhere.log()), `without a volume it ends with ${nowhere.ended()}:\n${nowhere.log()}`);
  await ask(by, "volume", "rm", VOLUME);
  const program = `the program of cargo test${beside.length ? " and zlib beside it" : ""}`;
  return `${by[0]}, last stage of deploy/Dockerfile on ${from.is}, ${Math.round(size / 1e6)} MB with ${program}; user 65532, read-only root, no capabilities, state on a volume`;
}
