// What deploy/Dockerfile promises of its last stage, tried without a container engine: the program runs as user 65532 in a root that
// holds itself, the libraries and certificates of distroless/cc and a topology, and in which only the state directory can be written.

import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect } from "./browser.mjs";
import { NotTried, ROOT, until } from "./world.mjs";

/** What distroless/cc-debian12 has; zlib is linked into the image's program (LIBZ_SYS_STATIC), and may not be into that of `cargo test`. */
const LIBRARIES = /^(ld-linux|libc|libm|libgcc_s|libstdc\+\+|libssl|libcrypto|libdl|libpthread|librt|libz)[.-]/;

/** Mounts what may not change read-only, then runs the program as the image does. */
const RUN = `set -e
mount --bind "$1" "$1"; mount -t tmpfs -o uid=65532,gid=65532,mode=700 state "$1/var/lib/readback"; mount -o remount,ro,bind "$1"
cd /; exec chroot --userspec=65532:65532 "$1" /usr/local/bin/readback run /topology --log info`;

/** Whether this may mount in a namespace of its own: a container's root may not. */
const mayMount = () => spawnSync("unshare", ["--mount", "true"]).status === 0;

export async function image(world) {
  if (process.getuid() !== 0) throw new NotTried("it takes root to mount and to change the user");
  if (!mayMount()) throw new NotTried("no mounts may be made here");
  const file = readFileSync(join(ROOT, "deploy/Dockerfile"), "utf8").split(/^FROM /m).at(-1);
  for (const line of ["USER 65532:65532", "STOPSIGNAL SIGTERM", 'ENTRYPOINT ["/usr/local/bin/readback"]', 'CMD ["run", "/topology"]'])
    expect(file.includes(line), `the image's last stage has no ${line}`);
  const root = join(world.dir, "root");
  const put = (from, to) => {
    mkdirSync(join(root, dirname(to)), { recursive: true });
    cpSync(from, join(root, to), { dereference: true, recursive: true });
  };
  put(process.env.SURFACES_PROGRAM, "usr/local/bin/readback");
  put(world.topology, "topology");
  mkdirSync(join(root, "var/lib/readback"), { recursive: true });
  put("/etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/ca-certificates.crt");
  writeFileSync(join(root, "etc/passwd"), "nonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n");
  for (const [, path] of execFileSync("ldd", [process.env.SURFACES_PROGRAM], { encoding: "utf8" }).matchAll(/(\/\S+) \(/g)) {
    expect(LIBRARIES.test(path.split("/").at(-1)), `${path} is not in the image`);
    put(path, path);
  }
  const env = { READBACK_STATE__DIR: "/var/lib/readback", READBACK_ADMIN__LISTEN: "127.0.0.1:0", READBACK_SLOTS__ORDINAL: "1", READBACK_REGISTRY__REGISTER: "true", READBACK_TOPICS__CREATE: "true" };
  const member = world.run("image", ["--mount", "bash", "-c", RUN, "image", root], env, "unshare");
  await member.says(/state=Running/);
  const status = readFileSync(`/proc/${member.pid}/status`, "utf8");
  expect(/^Uid:\s+65532\s/m.test(status), "it does not run as user 65532");
  member.stop();
  await until("the member in the image's root stops", () => member.ended() !== null);
  expect(member.ended() === 0, `it stops with exit code ${member.ended()}:\n${member.log()}`);
  return "user 65532, read-only root, state on a volume";
}
