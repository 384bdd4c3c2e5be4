use super::*;

fn order(id: i64, key: &str, quantity: i64) -> Value {
    json!({ "id": id, "client_ref": key, "sku": "A-1", "quantity": quantity })
}

fn page(items: &[Value], next: Value) -> Answer {
    answer(200, &json!({ "items": items, "next": next }))
}

fn judge(pages: &[Answer]) -> Verdict {
    create().judge(pages, &parameters(), &WireKey::new("k-1"))
}

/// C083, C9: absence comes from a list that provably is whole, and from nothing else.
#[test]
fn absence_is_believed_only_of_a_whole_list() {
    assert_eq!(judge(&[page(&[order(1, "k-2", 3)], Value::Null)]), Verdict::Absent);
    let incomplete = [
        answer(500, &json!({})),
        answer(429, &json!({})),
        answer(404, &json!({})),
        with_headers(200, &[("content-type", "text/html")], "<html>".into()),
        with_headers(200, &[("content-type", "application/json")], "{\"items\": [".into()),
        answer(200, &json!({ "next": null })),
        answer(200, &json!({ "items": "none", "next": null })),
        answer(200, &json!({ "items": {}, "next": null })),
        answer(200, &json!({ "items": { "1": order(1, "k-1", 3) }, "next": null })),
        answer(200, &json!({ "items": [{ "id": 1 }], "next": null })),
    ];
    for one in incomplete {
        assert!(matches!(judge(std::slice::from_ref(&one)), Verdict::Incomplete(_)), "{one:?}");
    }
    assert!(matches!(judge(&[]), Verdict::Incomplete(_)));
}

/// 4.4 (f): page 2 of the listing holds the order.
#[test]
fn a_later_page_may_hold_it() {
    let first = page(&[order(1, "k-2", 3)], json!("p2"));
    assert_eq!(judge(std::slice::from_ref(&first)), Verdict::NextPage("p2".into()));
    let found = judge(&[first.clone(), page(&[order(2, "k-1", 3)], Value::Null)]);
    assert!(matches!(found, Verdict::One { reference: Some(ref r), .. } if r == "2"), "{found:?}");
    assert!(matches!(judge(&[first.clone(), answer(503, &json!({}))]), Verdict::Incomplete(_)), "an error on page 2");
    let endless = [first.clone(), first.clone(), first];
    assert!(matches!(judge(&endless), Verdict::Incomplete(_)), "more pages than are followed");
}

/// C068, C082: what is ours, what is doubled, and what only carries our key are told apart.
#[test]
fn one_two_and_other_content_are_told_apart() {
    assert!(matches!(judge(&[page(&[order(1, "k-1", 3), order(2, "k-2", 3)], Value::Null)]), Verdict::One { .. }));
    assert_eq!(judge(&[page(&[order(1, "k-1", 3), order(2, "k-1", 3)], Value::Null)]), Verdict::Two { count: 2 });
    assert_eq!(judge(&[page(&[order(1, "k-1", 4)], Value::Null)]), Verdict::OtherContent);
    // Two that look alike on one page are two; one that moved between pages while they were read is one.
    let alike = order(1, "k-1", 3);
    assert_eq!(judge(&[page(&[alike.clone(), alike.clone()], Value::Null)]), Verdict::Two { count: 2 });
    let moved = [page(std::slice::from_ref(&alike), json!("p2")), page(std::slice::from_ref(&alike), Value::Null)];
    assert!(matches!(judge(&moved), Verdict::One { .. }));
    // Found once is found, even if the rest can't be read.
    assert!(matches!(judge(&[page(&[alike], json!("p2")), answer(500, &json!({}))]), Verdict::One { .. }));
}

/// If this broke, a target that answers 404 for what it does not hold could not prove absence, or any 404 would.
#[test]
fn a_declared_absent_status_is_a_whole_answer() {
    let by_id = create_with(
        "request: { method: GET, path: /orders, query: { ref: \"{key}\", page: \"{page}\" } }",
        "request: { method: GET, path: \"/orders/{key}\" }\n      absent: [404]",
    );
    let key = WireKey::new("k-1");
    assert_eq!(by_id.judge(&[with_headers(404, &[], String::new())], &parameters(), &key), Verdict::Absent);
    assert!(matches!(by_id.judge(&[with_headers(403, &[], String::new())], &parameters(), &key), Verdict::Incomplete(_)));
    assert_eq!(by_id.render_readback(&parameters(), &key, None).expect("renders").path, "/orders/k-1");
}
