// deploy/Dockerfile by a container engine: its last stage is built around the program of `cargo test`, which stands for what the stage
// before would build. A member runs in it as nobody in particular, on a root that can't be written, without a capability, and is stopped.

import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "./browser.mjs";
import { NotTried, ROOT, until, WORK } from "./world.mjs";

const FILE = join(ROOT, "deploy/Dockerfile");
/** What the last stage begins from. */
const BASE = readFileSync(FILE, "utf8").match(/^ARG RUNTIME=(\S+)$/m)[1];
const [STAND_IN, IMAGE, VOLUME] = ["readback-base:check", "readback:check", "readback-check"];
/** Where topics of the topology are one another's, the member is an application of its own. */
const APP = "imaged";

/** Docker where its daemon answers, else podman with a store of our own: command and first arguments. */
function engine() {
  if (spawnSync("docker", ["info"]).status === 0) return ["docker"];
  if (spawnSync("podman", ["--version"]).error) throw new NotTried("there is no container engine");
  const store = ["--root", join(WORK, "images"), "--runroot", join(WORK, "images-run"), "--storage-driver", "vfs"];
  return process.getuid() === 0 ? ["podman", ...store, "--runtime", "runc", "--cgroup-manager", "cgroupfs"] : ["podman"];
}

/** Asks the engine for something; what it printed. */
function ask([command, ...before], args, options = {}) {
  try {
    return execFileSync(command, [...before, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], ...options }).trim();
  } catch (error) {
    throw new Error(`${command} ${args[0]}: ${error.stderr ?? error.message}`);
  }
}

/** The image that the last stage begins from, or what stands for it where no registry of images answers. */
function base(by) {
  if (spawnSync(by[0], [...by.slice(1), "pull", BASE], { timeout: 120_000 }).status === 0) return { name: BASE, is: BASE };
  const dir = join(WORK, "image-base");
  if (spawnSync("apt-get", ["--version"]).error) throw new NotTried(`${BASE} can't be fetched, and Debian's packages neither`);
  execFileSync(join(ROOT, "dev/surfaces/base"), [join(dir, "root")], { stdio: ["ignore", "ignore", "pipe"] });
  writeFileSync(join(dir, "Dockerfile"), "FROM scratch\nCOPY root /\n");
  ask(by, ["build", "-t", STAND_IN, dir]);
  return { name: STAND_IN, is: `Debian's packages in place of ${BASE}, which can't be fetched` };
}

/** Builds the last stage of deploy/Dockerfile as it stands. */
function build(by, from) {
  const built = join(WORK, "image-built");
  rmSync(built, { recursive: true, force: true });
  mkdirSync(join(built, "src/target/release"), { recursive: true });
  mkdirSync(join(built, "state"));
  const program = join(built, "src/target/release/readback");
  execFileSync("strip", ["-o", program, process.env.SURFACES_PROGRAM]);
  ask(by, ["build", "-f", FILE, "--build-arg", `RUNTIME=${from}`, "--build-context", `build=${built}`, "-t", IMAGE, join(ROOT, "deploy")]);
  return Number(ask(by, ["image", "inspect", "--format", "{{.Size}}", IMAGE]));
}

/** The image's program has zlib linked in (LIBZ_SYS_STATIC); where that of `cargo test` has not, this machine's is mounted beside it. */
function zlib() {
  const found = execFileSync("ldd", [process.env.SURFACES_PROGRAM], { encoding: "utf8" }).match(/(\/\S+\/libz\.so\S*) \(/)?.[1];
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
  const by = engine();
  const from = base(by);
  const size = build(by, from.name);
  spawnSync(by[0], [...by.slice(1), "rm", "-f", IMAGE.replace(":", "-")]);
  spawnSync(by[0], [...by.slice(1), "volume", "rm", VOLUME]);
  const env = { READBACK_ADMIN__LISTEN: "127.0.0.1:0", READBACK_LOG: "info", READBACK_SLOTS__ORDINAL: "0", READBACK_REGISTRY__REGISTER: "true", READBACK_TOPICS__CREATE: "true" };
  const names = [...Object.keys(env), "READBACK_BROKERS", "READBACK_REGISTRY", "ORDERS_URL", "MODEL_URL", "NO_COLOR"].flatMap((name) => ["--env", name]);
  // Podman would raise limits that a container's root may not raise; Docker takes the same.
  const harden = ["--network", "host", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"];
  const run = (name, more) => [...by.slice(1), "run", "--rm", "--name", name, ...harden, ...names, ...zlib(), "--volume", `${topology(world)}:/topology:ro`, ...more];
  const name = IMAGE.replace(":", "-");
  const member = world.run("image", run(name, ["--volume", `${VOLUME}:/var/lib/readback`, IMAGE]), env, by[0]);
  await member.says(/state=Running/);
  const pid = ask(by, ["inspect", "--format", "{{.State.Pid}}", name]);
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  for (const line of [/^Uid:\s+65532\s+65532\s/m, /^Gid:\s+65532\s+65532\s/m, /^CapEff:\s+0+$/m, /^CapBnd:\s+0+$/m, /^NoNewPrivs:\s+1$/m])
    expect(line.test(status), `the member in the container has not ${line}:\n${status}`);
  member.stop();
  await until("the member in the container stops", () => member.ended() !== null);
  expect(member.ended() === 0, `it stops with exit code ${member.ended()}:\n${member.log()}`);
  // The same without a volume: there is no other place that it could write.
  const nowhere = world.run("image-nowhere", run(`${name}-nowhere`, [IMAGE]), env, by[0]);
  await until("a member without a volume ends", () => nowhere.ended() !== null);
  expect(nowhere.ended() !== 0 && /Read-only file system/.test(nowhere.log()), `without a volume it ends with ${nowhere.ended()}:\n${nowhere.log()}`);
  ask(by, ["volume", "rm", VOLUME]);
  return `${by[0]}, last stage of deploy/Dockerfile on ${from.is}, ${Math.round(size / 1e6)} MB with the program of cargo test${zlib().length ? " and zlib beside it" : ""}; user 65532, read-only root, no capabilities, state on a volume`;
}
