use super::*;

/// The orders contract with a call that undoes an order.
fn undoing() -> String {
    let undo = r#"
  cancel:
    parameters:
      order: { type: string, max_length: 64 }
      pieces: { type: integer, optional: true }
    request: { method: POST, path: "/orders/{order}/cancel", json: { cancel_ref: "{key}", pieces: "{pieces}" } }
    key: { carrier: body, format: hex, length: 20 }
    confirm: answer
    answers: [{ status: 200, means: applied }]
"#;
    let compensate = "    compensate: { call: cancel, parameters: { order: evidence, pieces: quantity } }\n    completion: sync\n";
    ORDERS.replace("    completion: sync\n", compensate) + undo
}

fn calls(text: &str) -> (Call, Call) {
    let contract = contract(text);
    let of = |name: &str| contract.call(&CallName::new(name)).expect("declared").clone();
    (of("create"), of("cancel"))
}

/// If this broke, a compensation would undo something else, under the key of another one, or with other bytes at the next try.
#[test]
fn a_compensation_is_made_of_the_evidence() {
    let (create, cancel) = calls(&undoing());
    let undo = |key: &str, reference| create.undone_by(&cancel, &parameters(), &WireKey::new(key), reference);
    let one = undo("k-1", Some("o-7")).expect("it can be filled in");
    assert_eq!((one.request.path.as_str(), one.wire_key.as_str().len()), ("/orders/o-7/cancel", 20));
    let body: Value = serde_json::from_slice(one.request.body.as_deref().expect("a body")).expect("JSON");
    assert_eq!(body, json!({ "cancel_ref": one.wire_key.as_str(), "pieces": 3 }));
    assert_eq!(undo("k-1", Some("o-7")), Ok(one.clone()));
    assert_ne!(undo("k-2", Some("o-7")).expect("it can be filled in").wire_key, one.wire_key);
    assert!(undo("k-1", None).is_err_and(|why| why.contains("order")), "nobody knows which");
    assert!(cancel.undone_by(&create, &parameters(), &WireKey::new("k"), None).is_err());
}

/// If this broke, an approval would stand although what undoes the approved effect has changed.
#[test]
fn an_effects_definition_holds_how_it_is_undone() {
    let (create, cancel) = calls(&undoing());
    let (changed, _) = calls(&undoing().replace("/cancel\"", "/delete\""));
    assert_ne!(create.definition, changed.definition);
    let (same, _) = calls(&undoing());
    assert_eq!((create.definition, cancel.compensate), (same.definition, None));
}

/// If this broke, a contract would promise to undo what it cannot name, or by a call that does not fit.
#[test]
fn compensations_that_cannot_be_made_are_refused() {
    for (from, to, reason) in [
        ("call: cancel,", "call: cancell,", "no call `cancell` in this contract"),
        ("order: evidence, ", "", "`cancel` needs the parameter `order`"),
        ("pieces: quantity", "piece: quantity", "`cancel` takes no parameter `piece`"),
        ("pieces: quantity", "pieces: quantty", "quantty"),
        ("      evidence: item.id\n", "", "the evidence, which may never be known"),
        ("sku:      {", "evidence: {", "can't be a parameter's name"),
        ("    confirm: answer\n", "    confirm: answer\n    compensate: { call: create }\n", "has a compensation itself"),
    ] {
        let text = undoing().replace(from, to);
        assert_ne!(text, undoing(), "{from} is not in the text");
        let shown = parse("orders.yaml", &text).err().unwrap_or_else(|| panic!("accepted: {to}")).render(false);
        assert!(shown.contains(reason), "{to}: {shown}");
    }
}
