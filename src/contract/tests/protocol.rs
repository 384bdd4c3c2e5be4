//! Which version of HTTP a contract may ask for.

use super::*;

const HOSTS: &str = "  hosts: [orders.internal]\n";

fn asking(protocol: &str, dedupe: &str) -> String {
    ORDERS.replace(HOSTS, &format!("{HOSTS}  protocol: {protocol}\n")).replace("dedupe: none", dedupe)
}

/// If this broke, effects whose outcome rests on when a request has left would go as streams among others.
#[test]
fn http2_is_for_calls_whose_copies_are_harmless() {
    let keyed = "dedupe: { window: 24h }";
    let shown = parse("orders.yaml", &asking("http2", "dedupe: none")).expect_err("refused").render(false);
    assert!(shown.contains("RB0120") && shown.contains("nothing makes a copy of `create` harmless"), "{shown}");
    assert!(shown.contains("orders.yaml:7") && shown.contains("`auto` keeps such calls on HTTP/1.1"), "{shown}");
    for (protocol, dedupe, told) in
        [("http2", keyed, true), ("auto", keyed, true), ("http1", keyed, false), ("auto", "dedupe: none", false)]
    {
        let contract = contract(&asking(protocol, dedupe));
        let call = contract.calls.values().next().expect("a call");
        let said = call.assumptions.iter().find(|a| a.text.contains("refuses an HTTP/2 stream"));
        assert_eq!(said.map(|a| a.at.as_str()), told.then_some("contracts/orders.yaml:7"), "{protocol}, {dedupe}");
    }
    assert_eq!(contract(ORDERS).target.protocol, Protocol::Http1, "where nothing is said");
    let shown = parse("orders.yaml", &asking("h2", keyed)).expect_err("refused").render(false);
    assert!(shown.contains("http1") && shown.contains("auto"), "{shown}");
}

/// If this broke, a promise would be taken for one that the target carries by itself, or the reverse.
#[test]
fn the_target_itself_must_see_to_copies() {
    let hour = std::time::Duration::from_secs(3_600);
    for (promise, harmless) in [
        (Promise::AtMostOneKeyed, true),
        (Promise::AtMostOneKeyedWhile(hour), true),
        (Promise::AtMostOneConditional, true),
        (Promise::AtMostOneCreated, true),
        (Promise::AtMostOneFenced(hour), true),
        (Promise::AtMostOneReadback, false),
        (Promise::AtMostOneReadbackPerson, false),
        (Promise::AtMostOnePerson, false),
        (Promise::DuplicatesCounted, false),
    ] {
        assert_eq!(promise.may_share_streams(), harmless, "{promise:?}");
        assert!(!harmless || promise.resolves_itself(), "an unknown on a stream must never wait for a person: {promise:?}");
    }
}
