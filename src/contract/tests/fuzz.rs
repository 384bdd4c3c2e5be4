//! Hostile text: whatever it is, it is refused or read, and never more. `PROPTEST_CASES=100000` plays the long one.

use base64::Engine as _;
use proptest::prelude::*;

use super::*;
use crate::intents::AnswerClass;
use crate::time::WallTime;

/// The contract with a piece of it cut out, doubled, or replaced by something else.
fn mutated() -> impl Strategy<Value = String> {
    let all = ORDERS.len();
    let junk = prop_oneof![
        Just(String::new()),
        "\\PC{0,12}",
        Just("{".to_owned()),
        Just("[[[[[[[[".to_owned()),
        Just("&a *a".to_owned()),
        Just(": !!binary |".to_owned()),
        Just("{{key}}".to_owned()),
        Just("999999999999999999999".to_owned()),
    ];
    (0..all, 0..40usize, junk).prop_map(move |(from, length, junk)| {
        let cut = |at: usize| (0..=at.min(all)).rev().find(|i| ORDERS.is_char_boundary(*i)).unwrap_or(0);
        let (from, to) = (cut(from), cut(from + length));
        format!("{}{junk}{}", &ORDERS[..from], &ORDERS[to..])
    })
}

/// JSON as hostile targets send it: keys and types that a contract asks for, in the wrong places.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,16}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let name = prop_oneof![Just("items"), Just("next"), Just("client_ref"), Just("id"), Just("ok"), Just("sku"), Just("data")];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..6)
                .prop_map(|all| Value::Object(all.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// If this broke, a file that somebody wrote by hand, or sent, would end the process instead of being told what is wrong with it.
    #[test]
    fn a_contract_is_read_or_refused(text in mutated()) {
        if let Ok(contract) = parse("contracts/orders.yaml", &text) {
            // What passes keeps the rules that the promise rests on.
            for call in contract.calls.values().filter(|c| c.readback.is_some()) {
                prop_assert!(call.key.carrier != Carrier::None, "a readback without a key passed");
            }
        }
    }

    /// If this broke, a parameter could add a header, a path segment, a query field or a member of the body.
    #[test]
    fn parameters_stay_inside_their_places(note in "\\PC{0,64}|[\\r\\n\\x00\"\\\\{}&?#/%:]{0,16}", n in 1..1000i64) {
        let call = create();
        let Value::Object(given) = json!({ "sku": "A-1", "quantity": n, "note": note }) else { unreachable!("an object") };
        if let Ok(request) = call.render(&Parameters(given), &WireKey::new("k"), None) {
            prop_assert_eq!((request.path.as_str(), request.query.as_str()), ("/orders", ""));
            prop_assert!(request.headers.iter().all(|h| !h.value.contains(['\r', '\n', '\0'])));
            let body: Value = serde_json::from_slice(request.body.as_deref().unwrap_or_default()).expect("JSON");
            let names: Vec<&str> = body.as_object().expect("an object").keys().map(String::as_str).collect();
            prop_assert!(names.iter().all(|n| ["sku", "quantity", "client_ref", "note"].contains(n)), "{:?}", names);
            prop_assert_eq!((&body["note"], &body["quantity"]), (&json!(note), &json!(n)));
        }
    }

    /// If this broke, an answer that the contract does not describe would be taken for a proof of something, or end the process.
    #[test]
    fn answers_prove_only_what_the_contract_says(status in 100..600u16, body in value(), json_type in any::<bool>()) {
        let media = if json_type { "application/json" } else { "text/html" };
        let answer = with_headers(status, &[("content-type", media)], body.to_string());
        let (class, _, _) = create().classify(&answer);
        let described = [200, 201, 400, 403, 404, 422, 429, 503].contains(&status);
        prop_assert!(described || class == AnswerClass::Unknown, "{} reads as {:?}", status, class);
        if class == AnswerClass::Applied && status == 201 {
            prop_assert!(json_type && !body["id"].is_null(), "applied without its evidence");
        }
    }

    /// If this broke, a list that is no list would be taken for a whole one, and absence be believed.
    #[test]
    fn absence_needs_a_whole_list(body in prop_oneof![value(), value().prop_map(|items| json!({ "items": items, "next": null }))]) {
        let verdict = create().judge(&[answer(200, &body)], &parameters(), &WireKey::new("k"));
        if verdict == Verdict::Absent {
            prop_assert!(body["next"].is_null() && body["items"].is_array(), "{}", body);
        }
    }

    /// If this broke, whoever can post could end a member, or be believed by chance.
    #[test]
    fn posts_of_strangers_are_never_believed(signature in "\\PC{0,120}", time in any::<i64>(), body in proptest::collection::vec(any::<u8>(), 0..256)) {
        for scheme in ["stripe", "github", "standard"] {
            let g = super::webhook::call(scheme);
            let forms = [signature.clone(), format!("t={time},v1={signature}"), format!("sha256={signature}"), format!("v1,{signature}")];
            let encoded = format!("v1,{}", base64::engine::general_purpose::STANDARD.encode(&body));
            for form in forms.iter().chain([&encoded]) {
                let at = time.to_string();
                let header = |name: &str| match name {
                    "webhook-id" => Some("msg_1"),
                    "webhook-timestamp" => Some(at.as_str()),
                    _ => Some(form.as_str()),
                };
                prop_assert!(g.call.signed(header, &body, WallTime(1_790_000_000_000)).expect("the secret is there").is_err());
            }
            let _ = g.call.told(&body);
        }
    }
}
