//! Orders on the command line, by the topics and over a console that is served, with a member that answers by the real rules.
#![allow(clippy::unwrap_used)]

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::console::tests::served::{APP, Served, awaiting, parked};
use crate::kafka::Class;
use crate::kafka::memory::Call;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    ops: OpsArgs,
}

#[derive(Debug, Parser)]
struct Letters {
    #[command(flatten)]
    dlq: crate::cli::dlq::DlqArgs,
}

/// By the topics, as whoever is named.
fn typed(s: &Served, words: &[&str]) -> Result<ExitCode> {
    let line = Line::try_parse_from([&["ops", "--app", APP], words].concat()).unwrap_or_else(|e| panic!("{e}"));
    run(&line.ops, &s.cluster, Format::Json)
}

/// Over the console, by somebody's token.
fn signed(s: &Served, who: &str, words: &[&str]) -> Result<ExitCode> {
    let file = s.dir.path().join(format!("token-{who}"));
    std::fs::write(&file, format!("{}\n", s.tokens[who])).unwrap();
    let (api, token) = (format!("http://{}", s.address), format!("file:{}", file.display()));
    let line = Line::try_parse_from([&["ops", "--api", &api, "--token", &token], words].concat()).unwrap_or_else(|e| panic!("{e}"));
    main(&line.ops, Format::Json)
}

fn resolve<'a>(operation: &'a str, seen: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["resolve", operation, "--applied", "--reason", "it is in the books", "--seen", seen], more].concat()
}

/// If this broke, what people order on the command line would stand nowhere, or would look as if they had proved who they are.
#[test]
fn what_is_ordered_on_the_command_line_stands_on_the_audit_topic() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    s.ledger(&parked("op-2"));
    assert_eq!(typed(&s, &resolve("op-1", "7", &["--by", "kim", "--evidence", "order 8812"])).unwrap(), ExitCode::SUCCESS);
    let told = s.audited();
    let came: Vec<&str> = told.iter().filter_map(|a| a["came"].as_str()).collect();
    assert_eq!(came, ["ordered", "answered"], "{told:?}");
    for record in &told {
        for (name, value) in [
            ("who", json!("kim")),
            ("via", json!("cli")),
            ("verified", json!(false)),
            ("action", json!("resolve_applied")),
            ("operation", json!("op-1")),
            ("tenant", json!("acme")),
            ("step", json!("place-order")),
            ("seen", json!(7)),
            ("reason", json!("it is in the books")),
            ("evidence", json!("order 8812")),
            ("command", json!(s.commands()[0].command_id)),
        ] {
            assert_eq!(record[name], value, "{name} of {record}");
        }
    }
    assert_eq!(told[1]["detail"], "resolved_applied");
    // Answered with a refusal; refused before it is given.
    assert_eq!(typed(&s, &resolve("op-2", "6", &["--by", "kim"])).unwrap(), ExitCode::from(4));
    assert_eq!(s.audited().pop().map(|a| (a["came"].clone(), a["code"].clone())), Some((json!("answered"), json!("RB0709"))));
    assert_eq!(typed(&s, &resolve("op-9", "7", &["--by", "kim"])).unwrap_err().code, codes::UNKNOWN_OPERATION);
    let last = s.audited().pop().unwrap();
    assert_eq!((&last["came"], &last["code"], &last["operation"]), (&json!("refused"), &json!("RB0708"), &json!("op-9")));
    s.record(&awaiting("op-a"));
    assert_eq!(
        typed(&s, &["deny", "op-a", "--reason", "above the budget", "--seen", "4", "--by", "kim"]).unwrap(),
        ExitCode::SUCCESS
    );
    let denied = s.commands().pop().unwrap();
    assert!(denied.approval.unwrap().expires_at > denied.issued_at, "it would have run out before anybody looks");
    let last = s.audited().pop().unwrap();
    assert_eq!((&last["action"], &last["came"], &last["plan_hash"]), (&json!("deny"), &json!("answered"), &json!("plan-9")));
    assert_eq!(typed(&s, &["resume", "--everything", "--reason", "INC-42 is over", "--by", "kim"]).unwrap(), ExitCode::SUCCESS);
    let last = s.audited().pop().unwrap();
    assert_eq!((&last["action"], &last["came"], &last["scope"]), (&json!("resume"), &json!("answered"), &json!("everything")));
}

/// If this broke, something would be ordered that stands on no audit topic.
#[test]
fn what_can_not_be_written_down_is_not_ordered() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let letter = s.letter("it can't be read");
    s.cluster.fail_next(Call::Publish, None, Class::Config);
    typed(&s, &resolve("op-1", "7", &["--by", "kim"])).unwrap_err();
    let words = ["dlq", "--app", APP, "replay", &letter, "--reason", "it is mended", "--by", "kim"];
    let replay = || crate::cli::dlq::run(&Letters::try_parse_from(words).unwrap().dlq, &s.cluster, Format::Json);
    s.cluster.fail_next(Call::Publish, None, Class::Config);
    replay().unwrap_err();
    assert_eq!((s.commands().len(), s.records("shipments").len(), s.audited().len()), (0, 0, 0));
    assert_eq!(replay().unwrap(), ExitCode::SUCCESS);
    assert_eq!(replay().unwrap(), ExitCode::from(1), "it went back");
    let told: Vec<Value> = s.audited().iter().map(|a| json!([a["action"], a["letter"], a["came"], a["verified"]])).collect();
    let of = |came: &str| json!(["replay", letter, came, false]);
    assert_eq!(told, [of("ordered"), of("answered"), of("ordered"), of("refused")]);
}

/// If this broke, one person could be both on the command line, by typing another's name.
#[test]
fn over_the_console_a_second_person_confirms_by_a_token_of_their_own() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    let force = ["force", "op-1", "--reason", "restored from a backup", "--seen", "7"];
    let named = [&force[..], &["--second", "otto"]].concat();
    assert_eq!(signed(&s, "olga", &named).unwrap_err().code, codes::USAGE, "a name proves nothing");
    let asked = [&force[..], &["--ask-second"]].concat();
    assert_eq!(typed(&s, &[&asked[..], &["--by", "olga"]].concat()).unwrap_err().code, codes::USAGE, "the topics ask nobody");
    assert_eq!(signed(&s, "olga", &asked).unwrap(), ExitCode::SUCCESS);
    assert_eq!(s.commands().len(), 0, "nothing is ordered yet");
    let waits = s.console.waiters.list(s.console.now(), |_| true);
    let confirm = ["confirm", waits[0].command.as_str(), "--reason", "looked myself"];
    assert_eq!(signed(&s, "vera", &["waiting"]).unwrap(), ExitCode::SUCCESS);
    for who in ["olga", "vera"] {
        let e = signed(&s, who, &confirm).unwrap_err();
        assert_eq!((e.code, e.fault.exit_code()), (codes::NOT_PERMITTED, 1), "{who}: {e}");
    }
    assert_eq!(signed(&s, "otto", &confirm).unwrap(), ExitCode::SUCCESS);
    let given = s.commands().pop().unwrap();
    assert_eq!((given.by.as_str(), given.second.as_deref(), given.seen), ("olga", Some("otto"), Some(7)));
    let e = signed(&s, "otto", &confirm).unwrap_err();
    assert_eq!((e.code, e.fault.exit_code()), (codes::NOT_WAITING, 4), "{e}");
    let last = s.audited().into_iter().rfind(|a| a["came"] == "ordered").unwrap();
    assert_eq!((&last["who"], &last["via"], &last["verified"]), (&json!("olga"), &json!("console"), &json!(true)));
}

/// If this broke, a script over the console would not be told what it is told by the topics, or a viewer would decide.
#[test]
fn over_the_console_roles_versions_and_plans_hold() {
    let s = Served::new();
    s.ledger(&parked("op-1"));
    s.record(&awaiting("op-a"));
    s.record(&awaiting("op-b"));
    for words in [&["list", "--status", "parked", "--limit", "1"][..], &["show", "op-1"]] {
        assert_eq!(signed(&s, "vera", words).unwrap(), ExitCode::SUCCESS);
    }
    let code = |who: &str, words: &[&str]| signed(&s, who, words).map_err(|e| (e.code, e.fault.exit_code())).unwrap_err();
    assert_eq!(code("vera", &resolve("op-1", "7", &[])), (codes::NOT_PERMITTED, 1));
    assert_eq!(code("olga", &resolve("op-1", "6", &[])), (codes::STALE_VERSION, 4));
    assert_eq!(code("olga", &resolve("op-9", "6", &[])), (codes::UNKNOWN_OPERATION, 1));
    assert_eq!(code("olga", &["pause", "--everything", "--reason", "r", "--by", "olga"]), (codes::USAGE, 2));
    let decide = |what: &'static str, on: &'static str, seen: &'static str| [what, on, "--reason", "r", "--seen", seen];
    assert_eq!(code("olga", &decide("approve", "op-a", "4")), (codes::NOT_PERMITTED, 1));
    assert_eq!(code("anna", &decide("approve", "op-a", "3")), (codes::STALE_VERSION, 4));
    assert_eq!(signed(&s, "anna", &decide("approve", "op-a", "4")).unwrap(), ExitCode::SUCCESS);
    assert_eq!(signed(&s, "anna", &decide("deny", "op-b", "4")).unwrap(), ExitCode::SUCCESS);
    let hashes: Vec<_> = s.commands().into_iter().map(|c| c.approval.unwrap().plan_hash.to_string()).collect();
    assert_eq!(hashes, ["plan-9", "plan-9"]);
    assert_eq!(signed(&s, "olga", &resolve("op-1", "7", &[])).unwrap(), ExitCode::SUCCESS);
    let e = {
        let line = ["ops", "--api", "http://127.0.0.1:1", "--token", "env:PATH", "list"];
        main(&Line::try_parse_from(line).unwrap().ops, Format::Json).unwrap_err()
    };
    assert_eq!((e.code, e.fault.exit_code()), (codes::CONSOLE_UNREACHABLE, 3), "{e}");
}
