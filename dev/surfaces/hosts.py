"""Deployment without Kubernetes: the compose file and the systemd units, as far as they can be held against the program and their tools:
the program takes every setting and every command line, files that are mounted are there, and systemd finds nothing to complain about."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAM = os.environ["SURFACES_PROGRAM"]
GIVEN = {"KAFKA": "127.0.0.1:9", "REGISTRY": "http://127.0.0.1:9", "TOPOLOGY": str(ROOT / "topology/orders"), "CONSOLE_TOKENS": "/dev/null"}
TARGETS = {"ORDERS_URL": "http://127.0.0.1:9", "MODEL_URL": "http://127.0.0.1:9"}


# What this shell has of settings is none of theirs.
OTHERS = {k: v for k, v in os.environ.items() if not k.startswith("READBACK_")}


def said(args, env):
    return subprocess.run([PROGRAM, *args], env={**OTHERS, **env}, text=True, capture_output=True, timeout=60)


def configured(args, env, where):
    """The program takes the settings."""
    shown = said(["config", "show", *args], env)
    assert shown.returncode == 0, f"{where}: {shown.stderr}"


def filled(text, given):
    """Variables as compose fills them in; one that must be given and is not is an error."""
    def value(match):
        name, otherwise = re.fullmatch(r"(\w+)(?::[-?](.*))?", match[1]).groups()
        if name in given:
            return given[name]
        assert ":-" in match[0], f"{name} is needed, and is not said to be"
        return otherwise
    return re.sub(r"\$\{([^}]+)\}", value, text)


def waits(args, env, where):
    """The program takes this command line: it waits for a cluster that is not there, or says that it is away, and names no fault of ours."""
    with tempfile.TemporaryFile("w+") as log:
        run = subprocess.Popen([PROGRAM, *args], env={**OTHERS, **env, **TARGETS, "READBACK_LOG": "info"}, stderr=log, stdout=log)
        try:
            run.wait(timeout=3)
        except subprocess.TimeoutExpired:
            run.terminate()
            run.wait(timeout=30)
        log.seek(0)
        text = log.read()
    # 2 is a file, setting or argument that is wrong; 3 and what we stopped ourselves is the cluster.
    assert run.returncode in (0, -15, 3), f"{where}: exit code {run.returncode}: {text}"


def compose(work):
    composed = yaml.safe_load(filled((DEPLOY / "compose.yml").read_text(), GIVEN))
    services = composed["services"]
    own = {name: s for name, s in services.items() if s["image"].startswith("readback:")}
    slots = [s["environment"].get("READBACK_SLOTS__ORDINAL") for n, s in own.items() if n.startswith("member")]
    assert slots == [str(n) for n in range(len(slots))], f"slots {slots}"
    for name, service in services.items():
        for volume in service["volumes"]:
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source} is not there"
            elif not source.startswith("/"):
                assert source in composed["volumes"], f"{name}: {volume}"
    for name, service in own.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        args = [str(ROOT / "topology/orders") if a == "/topology" else a for a in service["command"]]
        args = ["127.0.0.1:0" if re.fullmatch(r"0\.0\.0\.0:\d+", a) else a for a in args]
        tokens = work / "tokens"
        tokens.write_text(said(["console", "token", "--name", "mira@acme", "--role", "operator"], {}).stdout)
        env = {**service["environment"], "READBACK_STATE__DIR": str(work / name), "READBACK_ADMIN__LISTEN": "127.0.0.1:0"}
        if "READBACK_CONSOLE__TOKENS" in env:
            env["READBACK_CONSOLE__TOKENS"] = str(tokens)
        configured([], service["environment"], name)
        waits(args, env, f"compose, {name}")
    scraped = yaml.safe_load((DEPLOY / "prometheus-compose.yml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    assert scraped == [f"{n}:9464" for n in own if n.startswith("member")], scraped
    return len(services)


def systemd(work):
    units = sorted((DEPLOY / "systemd").glob("*.service"))
    for unit in units:
        text = unit.read_text()
        for instance in [0, 5, 12, 200] if "@" in unit.name else [0]:
            here = text.replace("%i", str(instance))
            env = dict(pair.split("=", 1) for pair in re.findall(r"^Environment=(.*)$", here, re.M))
            args = shlex.split(re.search(r"^ExecStart=\S+ (.*)$", here, re.M)[1])
            config = work / "readback.yaml"
            config.write_text("brokers: 127.0.0.1:9\n")
            places = {"/etc/readback/topology": str(ROOT / "topology/orders"), "/etc/readback/readback.yaml": str(config),
                      "/var/lib/readback": str(work / "state"), "127.0.0.1:9465": "127.0.0.1:0"}
            configured(["--config", str(config)], env, f"{unit.name}, {instance}")
            if instance in (0, 12):
                waits([places.get(a, a) for a in args], env, f"{unit.name}, {instance}")
        # The program may stand elsewhere here.
        copy = work / unit.name
        copy.write_text(text.replace("/usr/local/bin/readback", PROGRAM))
        checked = subprocess.run(["systemd-analyze", "verify", str(copy)], text=True, capture_output=True)
        complaints = [line for line in checked.stderr.splitlines() if unit.name.split("@")[0] in line]
        assert not complaints, "\n".join(complaints)
    return len(units)


def main():
    with tempfile.TemporaryDirectory() as work:
        try:
            services, units = compose(Path(work)), systemd(Path(work))
        except AssertionError as e:
            sys.exit(str(e))
    print(f"{services} services of the compose file, {units} units of systemd")


main()
