//! Commands that people use around an application: `new`, `diff`, `completions`, `man` and the rest.

use std::path::Path;
use std::process::Command;

use super::{golden, readback, root};

/// If this broke, a person who asks for help would get none, or one that does not teach.
#[test]
fn help_teaches_here_too() {
    for command in ["bench", "completions", "config", "diff", "man", "metrics", "new", "reset"] {
        golden(&format!("help-{command}"), &[command, "--help"]);
    }
    golden("help-config-show", &["config", "show", "--help"]);
}

fn code(args: &[&str]) -> (Option<i32>, String, String) {
    let out = readback(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// If this broke, the first thing that a new user makes would not pass the product's own checks.
#[test]
fn what_new_writes_passes_check_and_test() {
    golden("new-list", &["new", "--list"]);
    golden("new-unknown", &["new", "nowhere", "--contract", "resent"]);
    let dir = tempfile::tempdir().expect("a directory");
    let made = dir.path().join("Mails to Customers");
    let made = made.to_str().expect("text");
    let (exit, told, error) = code(&["new", made, "--contract", "resend"]);
    assert_eq!(exit, Some(0), "{error}");
    assert!(told.starts_with("wrote mails-to-customers to ") && told.contains("RESEND_API_KEY"), "{told}");
    assert_eq!(code(&["check", made]).0, Some(0));
    let (exit, told, _) = code(&["test", made]);
    assert!(exit == Some(0) && told.starts_with("ok: "), "{told}");
    let (exit, _, error) = code(&["new", made, "--contract", "resend"]);
    assert!(exit == Some(2) && error.contains("the directory is not empty"), "{error}");
}

/// If this broke, Tab would offer commands that are gone, or a shell would refuse the script at each login.
#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (exit, script, _) = code(&["completions", shell]);
        assert!(exit == Some(0) && script.contains("release-lane") && script.contains("completions"), "{shell}");
    }
    let (_, script, _) = code(&["completions", "bash"]);
    let source = format!("{script}\ncomplete -p readback");
    let out = Command::new("bash").args(["-euc", &source]).output().expect("a shell");
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("_readback"), "{out:?}");
    golden("completions-unknown", &["completions", "tcsh"]);
}

/// If this broke, `man readback-ops-show` would show nothing, or another program's page.
#[test]
fn each_command_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let (exit, _, error) = code(&["man", "--dir", dir.path().to_str().expect("text")]);
    assert_eq!(exit, Some(0), "{error}");
    let help = code(&["--help"]).1;
    let commands = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names: Vec<&str> =
        commands.filter(|l| l.starts_with("  ") && !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next()).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names.iter().filter(|n| **n != "help") {
        let page = std::fs::read_to_string(dir.path().join(format!("readback-{name}.1"))).expect(name);
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    let page = std::fs::read_to_string(dir.path().join("readback-ops-list.1")).expect("a page of a page");
    assert!(page.contains("parked"), "{page}");
    assert!(code(&["man"]).1.contains(".TH readback 1"));
}

/// If this broke, a misspelt status would list nothing, and an operator would go back to bed.
#[test]
fn a_misspelt_status_is_refused() {
    golden("usage-status", &["ops", "list", "--status", "unkown"]);
}

fn copied(from: &str, to: &Path, change: &dyn Fn(&str, String) -> String) {
    for entry in std::fs::read_dir(root().join(from)).expect("is there").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            let inside = to.join(&name);
            std::fs::create_dir_all(&inside).expect("a directory");
            copied(&format!("{from}/{name}"), &inside, change);
        } else {
            std::fs::write(to.join(&name), change(&name, std::fs::read_to_string(&path).expect("text"))).expect("written");
        }
    }
}

/// If this broke, a deploy that loses an application's state or voids approvals would be called harmless.
#[test]
fn diff_tells_what_a_deploy_loses() {
    golden("diff-same", &["diff", "topology/orders", "--from", "topology/orders"]);
    let dir = tempfile::tempdir().expect("a directory");
    copied("topology/orders", dir.path(), &|name, text| match name {
        "topology.yaml" => text.replace("application: orders", "application: buying").replace("name: place-order", "name: order"),
        "orders.yaml" => text.replace("version: 3", "version: 4").replace("/orders\n", "/v2/orders\n"),
        "orders.cedar" => text.replace("blocked", "closed"),
        _ => text,
    });
    let changed = dir.path().to_str().expect("text");
    let (exit, told, error) = code(&["diff", changed, "--from", "topology/orders"]);
    assert_eq!(exit, Some(1), "{told}{error}");
    for part in ["lost    application", "orphan  step", "create  step", "change  contract", "change  policy", "change  call"] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let json = code(&["diff", changed, "--from", "topology/orders", "--output", "json"]).1;
    let json: serde_json::Value = serde_json::from_str(&json).expect("one object");
    assert_eq!((json["schema"].as_str(), json["lost"].as_u64()), (Some("readback.diff/1"), Some(1)));
}

/// If this broke, a person could not find out why a setting is as it is, or would read a secret; or a metric would be listed that
/// is not there.
#[test]
fn settings_and_metrics_are_listed() {
    golden("config-show", &["config", "show", "--brokers", "kafka-1:9092"]);
    golden("config-wrong", &["config", "show", "--config", "tests/cli/broken/readback.yaml"]);
    golden("metrics", &["metrics"]);
}

/// If this broke, a reset would be tried on files that can't be read, or a misspelt time would reset to the beginning.
#[test]
fn reset_refuses_what_it_can_not_read() {
    golden("reset-usage", &["reset", "topology/orders", "--to-datetime", "yesterday"]);
    golden("reset-no-reason", &["reset", "topology/orders", "--forget-operations", "--execute"]);
    let (exit, _, error) = code(&["reset", "topology/orders", "--brokers", "127.0.0.1:1"]);
    assert!(exit == Some(3) && error.contains("RB0301"), "{error}");
    let (exit, _, error) = code(&["diff", "topology/orders", "--brokers", "127.0.0.1:1"]);
    assert!(exit == Some(3) && error.contains("RB0301"), "{error}");
}

/// If this broke, an administrator would not be told what to allow, or a reviewer would get half a page.
#[test]
fn check_prints_permissions_and_writes_a_page() {
    golden("check-permissions", &["check", "topology/webhook", "--permissions"]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("report.html");
    let (exit, told, error) = code(&["check", "topology/webhook", "--html", file.to_str().expect("text"), "--output", "json"]);
    assert!(exit == Some(0) && error.starts_with("wrote "), "{error}");
    let report: serde_json::Value = serde_json::from_str(&told).expect("one JSON object");
    assert!(report["permissions"].as_array().is_some_and(|p| p.len() > 8), "{told}");
    let page = std::fs::read_to_string(file).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>") && page.contains("outbox → notices#create"), "{page}");
}

/// If this broke, nobody could tell what a topology costs before there is a broker.
#[test]
fn bench_measures_a_topology_without_a_broker() {
    let (exit, told, error) = code(&["bench", "topology/webhook", "--output", "json"]);
    assert_eq!(exit, Some(0), "{error}");
    let report: serde_json::Value = serde_json::from_str(&told).expect("one JSON object");
    assert!(report["recorded"]["ratio"]["cpu_us"].as_f64().is_some_and(|r| r > 1.0), "{told}");
    assert_eq!(code(&["bench", "topology/webhook", "--effects"]).0, Some(2));
}
