"""The Helm chart: linted, rendered for several sets of values, each object checked against Kubernetes' own schemas, and what the
chart promises looked for in what comes out."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm"
SETTINGS = json.loads((ROOT / "schemas/readback.schema.json").read_text())
# The oldest version that the chart allows, and a new one.
VERSIONS = ["1.27", "1.35"]
# Not Kubernetes' own: only the Prometheus operator knows their schema.
FOREIGN = {"PodMonitor", "PrometheusRule"}

CASES = {
    "as it comes": {},
    "static membership over three replicas": {"replicas": 3, "config": {"threads": {"stream": 2, "effects": 2}}},
    "state that is not kept": {"persistence": {"enabled": False}},
    "state of a class": {"persistence": {"size": "50Gi", "storageClassName": "fast"}},
    "TLS by secrets": {
        "config": {"kafka": {"security.protocol": "SSL", "ssl.ca.location": "/etc/kafka-tls/ca.crt"}},
        "env": [{"name": "ORDERS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "orders", "key": "token"}}}],
        "envFrom": [{"secretRef": {"name": "model"}}],
        "extraVolumes": [{"name": "kafka-tls", "secret": {"secretName": "kafka-tls"}}],
        "extraVolumeMounts": [{"name": "kafka-tls", "mountPath": "/etc/kafka-tls", "readOnly": True}],
    },
    "a topology in files": {"topology": {"files": {"topology.yaml": "application: orders\n", "contracts/orders.yaml": "contract: orders\n"}}},
    "a console, by an ingress": {
        "console": {"enabled": True, "tokensSecret": "console", "ingress": {"enabled": True, "host": "duty.example", "tlsSecret": "duty-tls"}},
        "tls": {"secretName": "tls", "client": True}, "topology": {"files": {"topology.yaml": "application: orders\n"}},
        "env": [{"name": "ORDERS_URL", "value": "http://orders"}],
    },
    "a console of an issuer": {
        "console": {"enabled": True},
        "config": {"console": {"oidc": {"issuer": "https://id.example", "client_id": "duty", "roles": {"sre": "operator"}}}},
    },
    "no disruption budget, no account": {"podDisruptionBudget": {"enabled": False}, "serviceAccount": {"create": False}},
    "everything around it": {
        "monitoring": {"podMonitor": True, "rules": True, "dashboard": True},
        "podLabels": {"team": "orders"}, "podAnnotations": {"note": "x"}, "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "orders", "operator": "Exists"}], "imagePullSecrets": [{"name": "registry"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    },
}


def helm(*args, values):
    done = subprocess.run(["helm", *args, "-f", "-"], input=yaml.safe_dump(values), text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"helm {args[0]} with {values}:\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|min|h)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600}[unit]


def only(objects, kind):
    found = [o for o in objects if o["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of {kind}"
    return found[0]


def holds(name, objects, values):
    """What members need of a pod, whatever the values."""
    members = only(objects, "StatefulSet")  # The ordinal in a pod's name is its slot: never a Deployment.
    pod = members["spec"]["template"]["spec"]
    container = pod["containers"][0]
    config = yaml.safe_load(next(o for o in objects if o["kind"] == "ConfigMap" and "readback.yaml" in o["data"])["data"]["readback.yaml"])
    jsonschema.validate(config, SETTINGS)
    grace, stop = pod["terminationGracePeriodSeconds"], seconds(config["stop_within"])
    assert grace >= stop + 5, f"killed after {grace} s, and a stop takes up to {stop} s"
    services = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "Service"}
    assert services[members["spec"]["serviceName"]]["clusterIP"] == "None"
    console = [o["spec"] for o in objects if o["kind"] == "Deployment"]
    assert len(console) == (1 if values.get("console", {}).get("enabled") else 0)
    for shown in console:
        serves(shown, pod, services, members["spec"])
    assert members["spec"]["replicas"] == values.get("replicas", 2)
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] != 0
    limits = container["securityContext"]
    assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"] and limits["capabilities"]["drop"] == ["ALL"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert mounts["state"] == config["state"]["dir"], "the state directory is no volume, and the root is read-only"
    claims = [c["metadata"]["name"] for c in members["spec"].get("volumeClaimTemplates", [])]
    volumes = [v["name"] for v in pod["volumes"]] + claims
    assert sorted(set(mounts)) == sorted(set(volumes)) and len(volumes) == len(set(volumes)), f"{mounts} of {volumes}"
    kept = values.get("persistence", {}).get("enabled", True)
    assert claims == (["state"] if kept else []), f"claims {claims}"
    budgets = [o for o in objects if o["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == (1 if values.get("podDisruptionBudget", {}).get("enabled", True) else 0)
    for budget in budgets:
        assert budget["spec"]["selector"] == members["spec"]["selector"], "the budget is of other pods"
        assert budget["spec"]["maxUnavailable"] == 1


def serves(console, member, services, members):
    """People reach it, it is no member, and it is given what members are given."""
    labels, pod = console["template"]["metadata"]["labels"], console["template"]["spec"]
    container, own = pod["containers"][0], member["containers"][0]
    assert not members["selector"]["matchLabels"].items() <= labels.items(), "budget and rules count the console as a member"
    reached = [s for s in services.values() if s["selector"].items() <= labels.items()]
    assert len(reached) == 1 and reached[0]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    assert container["args"][0] == "console" and container["image"] == own["image"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    named = lambda c: {e["name"] for e in c.get("env", [])}
    assert named(own) <= named(container), "it lacks settings of the members"
    asked, port = next(e["value"] for e in container["env"] if e["name"] == "READBACK_CONSOLE__MEMBERS").split(":")
    assert services[asked]["clusterIP"] == "None" and port in {str(p["port"]) for p in services[asked]["ports"]}, f"it asks {asked}:{port}"
    assert services[asked]["selector"].items() <= members["selector"]["matchLabels"].items(), f"{asked} are no members"
    assert {m["name"] for m in own["volumeMounts"]} - {"state"} <= {m["name"] for m in container["volumeMounts"]}
    assert sorted(m["name"] for m in container["volumeMounts"]) == sorted(v["name"] for v in pod["volumes"])


def refused(values, why):
    """What would not work does not get as far as a cluster."""
    done = subprocess.run(["helm", "template", "shop", str(CHART), "--kube-version", f"{VERSIONS[-1]}.0", "-f", "-"],
                          input=yaml.safe_dump(values), text=True, capture_output=True)
    assert done.returncode and why in done.stderr, f"{values} is taken: {done.stderr}"


def main():
    count = 0
    for name, values in CASES.items():
        # Helm itself, built from its module, takes the cluster for one of 2020.
        kube = ["--kube-version", f"{VERSIONS[-1]}.0"]
        helm("lint", "--strict", *kube, str(CHART), values=values)
        text = helm("template", "shop", str(CHART), *kube, "--namespace", "orders", values=values)
        objects = [o for o in yaml.safe_load_all(text) if o]
        try:
            for version in VERSIONS:
                for o in (o for o in objects if o["kind"] not in FOREIGN):
                    kubernetes_validate.validate(o, version, strict=True)
                    count += 1
            holds(name, objects, values)
        except (AssertionError, jsonschema.ValidationError, kubernetes_validate.ValidationError) as e:
            sys.exit(f"{name}: {e}")
    refused({"console": {"enabled": True}}, "nobody could sign in")
    refused({"console": {"enabled": True, "tokensSecret": "t", "ingress": {"enabled": True, "host": "h"}}}, "tlsSecret is missing")
    print(f"{len(CASES)} sets of values, {count} objects against Kubernetes {' and '.join(VERSIONS)}")


main()
