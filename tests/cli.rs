//! What the program prints and how it exits: golden files in `tests/cli/`. To renew them: `READBACK_WRITE_GOLDEN=1 cargo test --test cli`.

#[path = "cli/docs.rs"]
mod docs;
#[path = "cli/tools.rs"]
mod tools;

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs the program as from a fresh shell: no variables of ours, nothing set that a topology names.
fn readback(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_readback"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("READBACK_") || n.ends_with("_URL")) {
        command.env_remove(name);
    }
    command.env_remove("USER").env("COLUMNS", "100").env("NO_COLOR", "1").current_dir(root());
    command.args(args).output().expect("the program starts")
}

/// Compares with the golden file of this name: exit code, stdout, stderr.
fn golden(name: &str, args: &[&str]) {
    let out = readback(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = out.status.code().expect("it exits by itself");
    let stderr = text(&out.stderr);
    let stderr = if stderr.is_empty() { String::new() } else { format!("--- stderr\n{stderr}") };
    let actual = format!("$ readback {}\n{}{stderr}--- exit {code}\n", args.join(" "), text(&out.stdout));
    let path = root().join("tests/cli").join(format!("{name}.txt"));
    if std::env::var_os("READBACK_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &actual).expect("tests/cli/ is writable");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{} differs; see the head of tests/cli.rs", path.display());
}

/// If this broke, a person who asks for help would get none, or one that does not teach.
#[test]
fn help_teaches() {
    golden("help", &["--help"]);
    for command in ["check", "console", "demo", "describe", "dlq", "explain", "ops", "probe", "replay-diff", "run"] {
        golden(&format!("help-{command}"), &[command, "--help"]);
    }
    for command in [
        "list",
        "show",
        "watch",
        "resolve",
        "force",
        "approve",
        "deny",
        "waiting",
        "confirm",
        "cancel",
        "revoke",
        "resolve-all",
        "pause",
        "resume",
        "paused",
        "release-lane",
    ] {
        golden(&format!("help-ops-{command}"), &["ops", command, "--help"]);
    }
    for command in ["list", "show", "replay"] {
        golden(&format!("help-dlq-{command}"), &["dlq", command, "--help"]);
    }
}

/// If this broke, the promise on an edge would be printed other than it holds, or checking would need the target's address.
#[test]
fn check_prints_what_is_promised() {
    golden("check-orders", &["check", "topology/orders"]);
    golden("check-webhook", &["check", "topology/webhook"]);
}

/// If this broke, scripts that read the report would break.
#[test]
fn check_as_json_says_its_schema() {
    let out = readback(&["check", "topology/orders", "--output", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!(report["schema"], "readback.check/1");
    let edges: Vec<&str> = report["edges"].as_array().expect("edges").iter().filter_map(|e| e["edge"].as_str()).collect();
    assert!(edges.contains(&"outbox → orders#create"), "{edges:?}");
}

/// If this broke, a person would fix one error only to be shown the next, or look for it in vain.
#[test]
fn all_errors_are_told_at_once_with_their_place() {
    golden("errors", &["check", "tests/cli/broken"]);
    golden("errors-config", &["check", "topology/webhook", "--config", "tests/cli/broken/readback.yaml"]);
    let first = readback(&["describe", "tests/cli/broken"]);
    assert_eq!(first.status.code(), Some(2));
}

/// If this broke, `readback explain | head` would end with a panic.
#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_readback"));
    let piped = command.args(["check", "topology/orders"]).current_dir(root()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program starts");
    drop(child.stdout.take());
    let out = child.wait_with_output().expect("it ends");
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(0), ""));
}

/// If this broke, the graph that people discuss would not be the one that runs.
#[test]
fn describe_draws_the_graph() {
    golden("describe-text", &["describe", "topology/orders"]);
    golden("describe-mermaid", &["describe", "topology/orders", "--as", "mermaid"]);
    golden("describe-svg", &["describe", "topology/clicks", "--as", "svg"]);
}

/// If this broke, a code would have no page, or scripts could not tell one failure from another.
#[test]
fn codes_and_exit_codes() {
    golden("explain", &["explain", "rb0231"]);
    golden("explain-unknown", &["explain", "RB9999"]);
    golden("usage", &["check"]);
    golden("usage-ops", &["ops", "resolve", "op-1", "--reason", "seen", "--seen", "7"]);
    golden("usage-ops-token", &["ops", "list", "--api", "https://console", "--token", "rbt_5be2"]);
    golden("usage-ops-clear", &["ops", "list", "--api", "http://console.acme.example"]);
    golden("usage-ops-waiting", &["ops", "waiting"]);
    golden("no-topology", &["check", "topology/nowhere"]);
}

/// If this broke, a script could not tell a console that can't be reached from one that refuses; or a token would be printed.
#[test]
fn an_unreachable_console_is_exit_code_three() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound").port();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "rbt_5be2").expect("writes");
    let (api, token) = (format!("http://127.0.0.1:{port}"), format!("file:{}", file.display()));
    let order = ["ops", "cancel", "op-1", "--reason", "r", "--api", &api, "--token", &token];
    for args in [&["ops", "list", "--api", &api, "--token", &token][..], &order] {
        let out = readback(args);
        let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(3), "{args:?}: {said}");
        assert!(said.contains("error[RB0810]") && !said.contains("5be2"), "{said}");
    }
    let out = readback(&["ops", "list", "--api", &api]);
    assert_eq!(out.status.code(), Some(2), "no token: {}", String::from_utf8_lossy(&out.stderr));
}

/// If this broke, a script could not tell a cluster that can't be reached from one that contradicts.
#[test]
fn an_unreachable_broker_is_exit_code_three() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound").port();
    let brokers = format!("127.0.0.1:{port}");
    for args in [&["check", "topology/orders", "--live"][..], &["ops", "list", "--app", "orders"]] {
        let out = readback(&[args, &["--brokers", &brokers]].concat());
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(3), "{args:?}: {stderr}");
        assert!(stderr.contains("error[RB0301]"), "{stderr}");
    }
}

/// If this broke, a probe would make effects that nobody agreed to, or send them to a host that the contract does not name.
#[test]
fn a_probe_calls_nothing_that_was_not_agreed_to() {
    let call = "topology/orders/contracts/orders.yaml#create";
    let with = |more: &[&'static str]| [&["probe", call, "--set", "sku=A-1", "--set", "quantity=2"], more].concat();
    golden("probe-not-agreed", &with(&["--base-url", "http://127.0.0.1:9"]));
    golden("probe-other-host", &with(&["--base-url", "http://evil.example", "--yes-this-makes-effects"]));
    golden("probe-no-parameter", &["probe", call, "--set", "quantity=2", "--base-url", "http://127.0.0.1:9"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound").port();
    let nobody = format!("http://127.0.0.1:{port}");
    let out = readback(&[with(&["--yes-this-makes-effects", "--base-url"]), vec![&nobody, "--output", "json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!((out.status.code(), &report["verdict"]), (Some(3), &"unreachable".into()), "{report}");
}

/// If this broke, a deploy that changes what approved or waiting operations mean would look like any other.
#[test]
fn replay_diff_shows_what_would_mean_something_else() {
    golden("replay-diff", &["replay-diff", "topology/orders", "tests/cli/orders-next"]);
    golden("replay-diff-same", &["replay-diff", "topology/orders", "topology/orders"]);
    let out = readback(&["replay-diff", "topology/orders", "tests/cli/orders-next", "--output", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!((out.status.code(), &report["schema"]), (Some(1), &"readback.replay-diff/1".into()));
    let kinds: Vec<&str> = report["differences"].as_array().expect("a list").iter().filter_map(|d| d["kind"].as_str()).collect();
    assert!(kinds.contains(&"request") && kinds.contains(&"approval"), "{kinds:?}");
}

/// C130: a locale with a dotless i or a decimal comma must change nothing: same keys found, same bytes out.
#[test]
fn c130_the_locale_changes_nothing() {
    let under = |locale: &str| {
        let mut all = Vec::new();
        for args in [&["check", "topology/orders"][..], &["check", "tests/cli/broken"], &["test", "topology/orders"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_readback"));
            command.env("LC_ALL", locale).env("LANG", locale).env("NO_COLOR", "1").current_dir(root());
            let out = command.args(args).output().expect("the program starts");
            all.push((out.status.code(), out.stdout, out.stderr));
        }
        all
    };
    let plain = under("C");
    assert_eq!(plain[2].0, Some(0));
    for locale in ["tr_TR.UTF-8", "de_DE.UTF-8", ""] {
        assert_eq!(under(locale), plain, "{locale}");
    }
}
