use super::*;

/// If this broke, the contract that the documents show could not be used.
#[test]
fn a_contract_is_read_and_knows_its_promise() {
    let call = create();
    assert_eq!(call.promise(), Promise::AtMostOneReadback);
    let assumed: Vec<_> = call.assumptions.iter().map(|a| format!("{} {}", a.text, a.at)).collect();
    assert_eq!(
        assumed,
        [
            "a request does not reach the target later than 5 s after it left contracts/orders.yaml:32",
            "the readback shows an effect within 1 s contracts/orders.yaml:30",
            "nothing between us and the target repeats requests by itself; the contract says that none does contracts/orders.yaml:17",
        ]
    );
    assert!(contract(ORDERS).warnings.is_empty());
    assert_eq!(call.look_at(&parameters(), &WireKey::new("k 1")).as_deref(), Some("https://orders.internal/console?a=1&ref=k%201"));
}

/// If this broke, a contract would print a promise that its target can't keep.
#[test]
fn the_promise_follows_from_what_the_target_proves() {
    let keyed = "dedupe: { window: 24h, from: first_use, other_body: 409 }";
    for (from, to, promise) in [
        ("dedupe: none", "dedupe: { window: forever }", Promise::AtMostOneKeyed),
        ("dedupe: none", keyed, Promise::AtMostOneKeyedWhile(std::time::Duration::from_secs(86_400))),
        ("in_flight: { bound: 5s, because: \"one process, no proxy\" }", "in_flight: unbounded", Promise::AtMostOneReadbackPerson),
        ("unprovable: person", "unprovable: duplicates_accepted", Promise::DuplicatesCounted),
    ] {
        assert_eq!(create_with(from, to).promise(), promise, "{to}");
    }
    let nothing = ORDERS.split("    confirm: readback").next().expect("a head").to_owned()
        + "    answers: [{ status: 201, means: applied }]\n";
    let nothing = contract(&nothing);
    assert_eq!(nothing.calls.values().next().map(Call::promise), Some(Promise::AtMostOnePerson));
    assert!(nothing.warnings.render(false).contains("every lost answer goes to a person"));
}

/// If this broke, a contract that cannot carry its own promise would be run. Each line: what is written instead, and the reason.
#[test]
fn contracts_that_lie_are_refused() {
    for (from, to, reason) in [
        ("verified_on: 2026-11-20\n", "", "`verified_on` is missing"),
        ("2026-11-20", "yesterday", "a day, YYYY-MM-DD"),
        ("lag: 1s", "", "`lag` is missing"),
        ("complete: body.next == null\n", "\n", "`complete` is missing"),
        ("o.client_ref == key && o.sku == sku", "o.sku == sku", "`ours` does not compare the key"),
        ("  intermediaries: none\n", "", "a 5xx as proof that nothing happened"),
        ("status: [400, 403, 404, 422]", "status: 400-499", "the range covers 408"),
        ("status: [400, 403, 404, 422]", "status: [400, 409-422]", "the range covers 409"),
        ("status: 201, means", "status: 302, means", "a redirect as proof"),
        ("carrier: body", "carrier: url", "the key does not go where"),
        ("key: { carrier: body, format: uuid }", "key: none", "a readback without a key"),
        ("dedupe: none", "dedupe: { window: 10s }", "keys are forgotten before"),
        ("dedupe: none", "dedupe: { window: 24h, other_body: 422 }", "422 has two meanings"),
        ("pages: 3", "absent: 404", "`absent` under a path without"),
        ("base_url: https://orders.internal", "base_url: https://other.internal", "is not among `hosts`"),
        ("base_url: https://orders.internal", "base_url: https://u:p@orders.internal", "the base URL must be"),
        ("path: /orders\n", "path: /orders/{note}\n", "is optional, but the path needs it"),
        ("\"{sku}\"", "\"{skuu}\"", "did you mean `{sku}`?"),
        ("body.next == null", "boddy.next == null", "reads `boddy`"),
        ("sku:      {", "key:      {", "can't be a parameter's name"),
        ("header: authorization", "header: content-length", "is no header that can be set"),
    ] {
        let text = ORDERS.replace(from, to);
        assert_ne!(text, ORDERS, "{from} is not in the text");
        let shown = parse("orders.yaml", &text).err().unwrap_or_else(|| panic!("accepted: {to}")).render(false);
        assert!(shown.contains(reason), "{to}: {shown}");
    }
    let unbounded = ORDERS
        .replace("dedupe: none", "dedupe: { window: 24h }")
        .replace("in_flight: { bound: 5s, because: \"one process, no proxy\" }", "in_flight: unbounded");
    let shown = parse("orders.yaml", &unbounded).expect_err("refused").render(false);
    assert!(shown.contains("requests may arrive at any time"), "{shown}");
}

/// If this broke, people would find the faults of a file one by one.
#[test]
fn all_errors_show_at_once_with_the_nearest_key() {
    let text =
        ORDERS.replace("concurrency", "concurency").replace("means: retry_later", "means: later").replace("lag: 1s", "lag: 1");
    let shown = parse("orders.yaml", &text).expect_err("refused").render(false);
    for part in
        ["unknown key `concurency`", "did you mean `concurrency`?", "`later` is not one of", "a duration with its unit", "3 errors"]
    {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
}

/// C3, C5: the key is the operation's alone, on every send and after a new version of the contract.
#[test]
fn the_wire_key_is_the_operations_and_nobody_elses() {
    let call = create();
    let key = call.wire_key(b"secret", &operation("acme", "op-1", "place"));
    assert_eq!(key, create_with("version: 3", "version: 4").wire_key(b"secret", &operation("acme", "op-1", "place")));
    for other in [operation("acm", "eop-1", "place"), operation("acme", "op-2", "place"), operation("acme", "op-1", "undo")] {
        assert_ne!(key, call.wire_key(b"secret", &other), "{other}");
    }
    assert_ne!(key, call.wire_key(b"other", &operation("acme", "op-1", "place")));
    assert_eq!(key.as_str().len(), 36);
    let hex = create_with("format: uuid", "format: hex, length: 20").wire_key(b"secret", &operation("acme", "op-1", "place"));
    assert_eq!(hex.as_str().len(), 20);
}

/// If this broke, a number could not be typed where a contract takes text.
#[test]
fn what_is_typed_has_the_declared_type() {
    let call = create();
    assert_eq!(call.typed("sku", "4711"), json!("4711"));
    assert_eq!(call.typed("sku", "\"4711\""), json!("4711"));
    assert_eq!(call.typed("quantity", "3"), json!(3));
    assert_eq!(call.typed("quantity", "many"), json!("many"), "refused by its declaration");
}

/// C4: the same parameters and key give the same bytes, typed as declared; nothing undeclared gets through.
#[test]
fn requests_are_rendered_from_declared_parameters_only() {
    let (call, key) = (create(), WireKey::new("k-1"));
    let request = call.render(&parameters(), &key, None).expect("renders");
    let body: Value = serde_json::from_slice(request.body.as_deref().expect("a body")).expect("JSON");
    assert_eq!(body, json!({ "sku": "A-1", "quantity": 3, "client_ref": "k-1" }));
    assert_eq!((request.method.as_str(), request.path.as_str(), request.query.as_str()), ("POST", "/orders", ""));
    assert_eq!(request, call.render(&parameters(), &key, None).expect("renders"));
    let read = call.render_readback(&parameters(), &key, None).expect("renders");
    assert_eq!(
        read,
        RenderedRequest { method: "GET".into(), path: "/orders".into(), query: "ref=k-1".into(), ..Default::default() }
    );
    assert_eq!(call.render_readback(&parameters(), &key, Some("p 2")).expect("renders").query, "ref=k-1&page=p%202");

    for (name, value, why) in [
        ("sku", json!("a b"), "does not match"),
        ("sku", json!("A-1\n"), "does not match"),
        ("sku", json!(7), "is not a string"),
        ("quantity", json!(0), "is not a whole number from 1 to 1000"),
        ("quantity", json!(1.5), "is not a whole number"),
        ("quantity", json!(null), "is missing"),
        ("quantty", json!(1), "did you mean `quantity`?"),
    ] {
        let mut p = parameters();
        p.0.insert(name.into(), value);
        let wrong = call.check(&p).expect_err(why).join("; ");
        assert!(wrong.contains(why), "{wrong}");
        assert!(call.render(&p, &key, None).is_err());
    }
}

/// If this broke, a comment or another order of keys would void approvals that wait, or a changed call would not.
#[test]
fn a_definition_is_its_meaning_and_not_its_layout() {
    let of = |text: &str| {
        crate::contract::parse("c.yaml", text).expect("a good contract").calls[&crate::ids::CallName::new("create")]
            .definition
            .clone()
    };
    let plain =
        include_str!("../../../topology/webhook/contracts/notices.yaml").replace("{ env: NOTICES_URL }", "http://localhost");
    let commented =
        plain.replace("      method: POST\n      path: /notices\n", "      path: /notices   # where\n      method: POST\n");
    assert_ne!(plain, commented);
    assert_eq!(of(&plain), of(&commented));
    assert_ne!(of(&plain), of(&plain.replace("path: /notices\n", "path: /letters\n")));
}
