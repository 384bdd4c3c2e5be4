//! The decoders against hostile bytes, evolution and the cases that others were hit by.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apache_avro::Schema;
use apache_avro::schema_compatibility::SchemaCompatibility;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::avro::{decode_bare, encode_bare, unframe};
use super::internal::frame;
use super::*;
use crate::error::Result;
use crate::ids::TopicName;
use crate::record::Headers;

fn reader(text: &str) -> ParsedSchema {
    ParsedSchema::parse(text).expect("a schema")
}
fn writer(text: &str) -> ParsedSchema {
    ParsedSchema::parse_writer(text).expect("a schema")
}
fn decode(bytes: &[u8], w: &ParsedSchema, r: &ParsedSchema) -> Result<Value> {
    decode_bare(bytes, w, r, &Limits::default())
}
fn code(result: Result<Value>) -> Option<crate::error::Code> {
    result.err().map(|e| e.code)
}
fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|b| u8::from_str_radix(b, 16).expect("hex")).collect()
}

/// C001: if this broke, a field that the writer never had would be required, or become the word "null".
#[test]
fn a_nullable_field_that_the_writer_never_had_is_null() {
    let old = writer(r#"{"type":"record","name":"Op","fields":[{"name":"id","type":"string"}]}"#);
    let text = r#"{"type":"record","name":"Op","fields":[{"name":"id","type":"string"},
        {"name":"note","type":["null","string"],"default":null}]}"#;
    let new = reader(text);
    let bytes = hex("08 6f 70 2d 31");
    assert_eq!(decode(&bytes, &old, &new).expect("decodes"), json!({"id": "op-1", "note": null}));
    let with = |tail: &str| [&bytes[..], &hex(tail)].concat();
    assert_eq!(decode(&with("00"), &new, &new).expect("decodes"), json!({"id": "op-1", "note": null}));
    assert_eq!(decode(&with("02 02 78"), &new, &new).expect("decodes"), json!({"id": "op-1", "note": "x"}));
}

/// C002: if this broke, a writer's odd default would stop its records, or ours would break at first use instead of at start.
#[test]
fn a_default_beside_the_first_branch_is_refused_in_a_reader_only() {
    let text = r#"{"type":"record","name":"Op","fields":[{"name":"tag","type":["string","null"],"default":null}]}"#;
    let w = writer(text);
    assert_eq!(decode(&hex("02"), &w, &w).expect("decodes"), json!({"tag": null}));
    let refused = ParsedSchema::parse(text).expect_err("our own schema").to_string();
    assert!(refused.contains("tag"), "{refused}");
}

/// C004: if this broke, small or negative amounts would be written short, or read back as others.
#[test]
fn fixed_decimals_are_sign_extended() {
    let s = reader(r#"{"type":"fixed","name":"Amount","size":16,"logicalType":"decimal","precision":38,"scale":9}"#);
    for (text, first, last) in [("0.000000000", 0, 0), ("0.000000001", 0, 1), ("-0.000000001", 255, 255)] {
        let bytes = encode_bare(&json!(text), &s).expect("encodes");
        assert_eq!((bytes.len(), bytes[0], bytes[15]), (16, first, last), "{text}");
        assert_eq!(decode(&bytes, &s, &s).expect("decodes"), json!(text));
    }
    assert!(encode_bare(&json!("0.0000000001"), &s).is_err(), "a place more than the scale must not be rounded away");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// If this broke, an amount would come out of Avro as another than went in.
    #[test]
    fn decimals_come_back(n in any::<i128>().prop_map(|n| n / 2), scale in 0usize..30) {
        let s = reader(&format!(r#"{{"type":"bytes","logicalType":"decimal","precision":60,"scale":{scale}}}"#));
        let digits = format!("{:0>width$}", n.unsigned_abs(), width = scale + 1);
        let (whole, part) = digits.split_at(digits.len() - scale);
        let text = format!("{}{whole}{}{part}", if n < 0 { "-" } else { "" }, if scale > 0 { "." } else { "" });
        let bytes = encode_bare(&json!(text), &s).expect("encodes");
        prop_assert_eq!(decode(&bytes, &s, &s).expect("decodes"), json!(text));
    }

    /// If this broke, random bytes would take a decoder down.
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let s = reader(EVERYTHING);
        let _ = decode(&bytes, &s, &s);
        let _ = crate::serdes::internal::decode::<crate::intents::Intent>(&bytes);
    }
}

const EVERYTHING: &str = r#"{"type":"record","name":"All","namespace":"t","fields":[
    {"name":"b","type":"boolean"},{"name":"i","type":"int"},{"name":"l","type":"long"},{"name":"f","type":"float"},
    {"name":"d","type":"double"},{"name":"y","type":"bytes"},{"name":"s","type":"string"},
    {"name":"x","type":{"type":"fixed","name":"Two","size":2}},
    {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
    {"name":"a","type":{"type":"array","items":["null","long"]}},
    {"name":"m","type":{"type":"map","values":"E"},"default":{}},
    {"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
    {"name":"day","type":{"type":"int","logicalType":"date"}},
    {"name":"u","type":["null","int",{"type":"record","name":"P","fields":[{"name":"v","type":"int"}]},"Two"]}
]}"#;

/// If this broke, a value would not survive its own schema: each of Avro's types, both ways.
#[test]
fn every_type_comes_back() {
    let s = reader(EVERYTHING);
    let value = json!({
        "b": true, "i": -7, "l": i64::MIN, "f": 0.5, "d": -1e300, "y": "\u{0}\u{ff}", "s": "grün", "x": "\u{1}\u{fe}", "e": "B",
        "a": [null, 1, null, -2], "m": {"k": "A"}, "t": "1969-12-31T23:59:59.999999Z", "day": "1969-12-31", "u": {"t.P": {"v": 3}},
    });
    let bytes = encode_bare(&value, &s).expect("encodes");
    assert_eq!(decode(&bytes, &s, &s).expect("decodes"), value);
    assert_eq!(code(decode(&[&bytes[..], &[0]].concat(), &s, &s)), Some(codes::UNDECODABLE), "a byte left over");
}

/// C005: if this broke, a time before 1970 would be wrong, and one beyond the calendar a panic or "no deadline".
#[test]
fn times_outside_the_usual_are_exact_or_refused() {
    let millis = reader(r#"{"type":"long","logicalType":"timestamp-millis"}"#);
    let micros = reader(r#"{"type":"long","logicalType":"timestamp-micros"}"#);
    assert_eq!(decode(&hex("b1 6d"), &millis, &millis).expect("decodes"), json!("1969-12-31T23:59:52.999Z"));
    for (s, bytes) in [
        (&micros, "94 b7 92 e3 82 c9 9b cf fb 01"),
        (&millis, "fe ff ff ff ff ff ff ff ff 01"),
        (&millis, "ff ff ff ff ff ff ff ff ff 01"),
    ] {
        assert_eq!(code(decode(&hex(bytes), s, s)), Some(codes::UNDECODABLE), "{bytes}");
    }
    assert_eq!(code(decode(&hex("b1 6d"), &millis, &micros)), Some(codes::UNDECODABLE), "millis must not be read as micros");
}

/// C007: if this broke, CANCEL would be read as PAY after a reordering of symbols.
#[test]
fn enums_are_mapped_by_name() {
    let a = reader(r#"{"type":"enum","name":"Do","symbols":["CANCEL","PAY"]}"#);
    let b = reader(r#"{"type":"enum","name":"Do","symbols":["PAY","CANCEL"]}"#);
    for (index, name) in [("00", "CANCEL"), ("02", "PAY")] {
        assert_eq!(decode(&hex(index), &a, &b).expect("decodes"), json!(name));
    }
    let less = reader(r#"{"type":"enum","name":"Do","symbols":["PAY"]}"#);
    assert_eq!(code(decode(&hex("00"), &a, &less)), Some(codes::UNDECODABLE));
}

/// C008: if this broke, one record of a recursive schema would abort the process.
#[test]
fn depth_is_bounded() {
    let node = reader(r#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#);
    let mut bytes = vec![2; 100_000];
    bytes.push(0);
    assert_eq!(code(decode(&bytes, &node, &node)), Some(codes::INPUT_TOO_LARGE));
    assert_eq!(decode(&hex("02 00"), &node, &node).expect("decodes"), json!({"next": {"next": null}}));
    let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(2_000), "}".repeat(2_000));
    assert_eq!(ParsedSchema::parse_writer(&deep).err().map(|e| e.code), Some(codes::SCHEMA_INCOMPATIBLE));
}

/// C010: if this broke, a type that is named again would be "not found".
#[test]
fn names_are_found_again() {
    let s = reader(
        r#"{"type":"record","name":"R","namespace":"test","fields":[
        {"name":"a","type":{"type":"record","name":"Nested","fields":[{"name":"v","type":"int"}]}},{"name":"b","type":"Nested"},
        {"name":"c","type":{"type":"array","items":"Nested"}},{"name":"d","type":{"type":"map","values":"test.Nested"}}]}"#,
    );
    let value = json!({"a": {"v": 1}, "b": {"v": 1}, "c": [{"v": 1}], "d": {"k": {"v": 1}}});
    assert_eq!(decode(&encode_bare(&value, &s).expect("encodes"), &s, &s).expect("decodes"), value);
}

/// C011: if this broke, a renamed field would be defaulted instead of filled, and an alias of one's own name refused.
#[test]
fn aliases_are_followed() {
    let old = writer(r#"{"type":"record","name":"Old","namespace":"demo","fields":[{"name":"k1","type":"string"}]}"#);
    for alias in ["Old", "demo.Old"] {
        let new = reader(&format!(
            r#"{{"type":"record","name":"New","namespace":"demo","aliases":["{alias}","demo.New"],
            "fields":[{{"name":"a","type":"string","aliases":["k1"],"default":"defaulted"}}]}}"#
        ));
        assert_eq!(decode(&hex("02 78"), &old, &new).expect("decodes"), json!({"a": "x"}), "{alias}");
    }
}

/// C013: if this broke, a value without a registry header would stop a task or be read as something.
#[test]
fn a_missing_header_is_named() {
    for (bytes, why) in [
        (&b"hello"[..], "first byte 0x68"),
        (b"\x01\0\0\0\x07rest", "first byte 0x01"),
        (b"\0", "1 bytes"),
        (b"\0\0\0\0", "4 bytes"),
        (b"", "no bytes at all"),
    ] {
        let e = unframe(bytes).expect_err("no header").to_string();
        assert!(e.contains("no registry header") && e.contains(why), "{e}");
    }
    assert_eq!(unframe(b"\0\0\0\x01\x02x").expect("framed"), (258, &b"x"[..]));
}

/// C014: if this broke, a text key beside an Avro value would cost the record.
#[test]
fn a_key_has_a_serde_of_its_own() {
    let (topic, headers) = (TopicName::new("t"), Headers::new());
    let uuid = [0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
    for key in [&b"order-1"[..], b"6ba7b810-9dad-11d1-80b4-00c04fd430c8", &uuid, b"\0key"] {
        let bytes = Bytes::copy_from_slice(key);
        let raw = Raw { topic: &topic, bytes: Some(&bytes), headers: &headers, avro: None };
        let value = Serdes::bytes().decode(raw).expect("any bytes");
        assert_eq!(Serdes::bytes().encode(&value, Target { topic: &topic, avro: None }).expect("back"), Some(bytes));
    }
}

/// C022: if this broke, a length that is only claimed would be reserved, or overflow.
#[test]
fn claimed_lengths_are_not_believed() {
    let text = reader(r#""string""#);
    let bytes = reader(r#""bytes""#);
    let map = reader(r#"{"type":"map","values":"int"}"#);
    let nulls = reader(r#"{"type":"array","items":"null"}"#);
    for (s, input) in [
        (&text, "fe ff ff ff 0f"),
        (&text, "01"),
        (&text, "fe ff ff ff ff ff ff ff ff 01"),
        (&text, "ff ff ff ff ff ff ff ff ff ff 01"),
        (&bytes, "06 61 62"),
        (&map, "ff ff ff ff ff ff ff ff ff 01 02"),
        (&nulls, "80 c8 d0 07"),
        (&nulls, "80 c8 d0 07 00"),
    ] {
        let refused = decode(&hex(input), s, s).expect_err(input);
        assert!([codes::UNDECODABLE, codes::INPUT_TOO_LARGE].contains(&refused.code), "{input}: {refused}");
    }
    let limits = Limits { bytes: 3, ..Limits::default() };
    assert_eq!(code(decode_bare(&hex("06 61 62 63"), &text, &text, &limits)), Some(codes::INPUT_TOO_LARGE));
    assert_eq!(decode(&hex("06 00"), &nulls, &nulls).expect("three nulls"), json!([null, null, null]));
}

/// A source that counts who asks.
#[derive(Default)]
struct Fake(HashMap<u32, Arc<ParsedSchema>>, AtomicUsize);

impl SchemaSource for Fake {
    fn by_id(&self, id: u32) -> Result<Arc<ParsedSchema>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.get(&id).cloned().ok_or_else(|| Error::new(codes::SCHEMA_MISSING, Fault::Data, "asking for a schema"))
    }
}

impl AvroCodec for Fake {
    fn decode(&self, _: &TopicName, framed: &[u8]) -> Result<Value> {
        avro::decode_framed(framed, self, None, &Limits::default())
    }
    fn encode(&self, _: &TopicName, _: &Value) -> Result<Vec<u8>> {
        unreachable!("nothing is written")
    }
}

/// C023: if this broke, a deletion would be a broken record, or ask the registry; and no bytes would be a deletion.
#[test]
fn null_is_a_deletion_and_no_bytes_are_malformed() {
    let source = Fake([(7, Arc::new(reader(r#""string""#)))].into(), AtomicUsize::new(0));
    let (topic, headers, serde) = (TopicName::new("t"), Headers::new(), Serdes::optional(Serdes::avro::<Value>()));
    let decode = |bytes: Option<&Bytes>| serde.decode(Raw { topic: &topic, bytes, headers: &headers, avro: Some(&source) });
    assert_eq!(decode(None).expect("null"), None);
    assert_eq!(decode(Some(&Bytes::new())).err().map(|e| e.code), Some(codes::UNDECODABLE));
    assert_eq!(source.1.load(Ordering::Relaxed), 0, "nobody asked the registry");
    assert_eq!(decode(Some(&frame(7, b"\x02x").into())).expect("decodes"), Some(json!("x")));
}

/// C026: if this broke, a refund would be read as a payment of the same shape.
#[test]
fn a_union_of_records_keeps_its_branch() {
    let record =
        |name: &str, more: &str| format!(r#"{{"type":"record","name":"{name}","fields":[{{"name":"amt","type":"int"}}{more}]}}"#);
    let union = |more: &str| {
        format!(
            r#"{{"type":"record","name":"R","namespace":"demo","fields":[{{"name":"payload","type":["null",{},{}]}}]}}"#,
            record("Pay", ""),
            record("Refund", more)
        )
    };
    let w = writer(&union(""));
    let r = reader(&union(r#",{"name":"reason","type":"string","default":"none"}"#));
    assert_eq!(decode(&hex("02 0a"), &w, &r).expect("decodes"), json!({"payload": {"demo.Pay": {"amt": 5}}}));
    let refund = json!({"payload": {"demo.Refund": {"amt": 5, "reason": "none"}}});
    assert_eq!(decode(&hex("04 0a"), &w, &r).expect("decodes"), refund);
    assert_eq!(encode_bare(&refund, &r).expect("encodes")[..2], hex("04 0a"));
}

/// If this broke, a new build could not read what an old one left on topics and in changelogs: the newest copy in
/// `tests/schemas` must mean the same bytes as the embedded schema, and the embedded one must read every older copy. A changed
/// schema gets a new version and a new copy; copies are never changed.
#[test]
fn released_schemas_stay_readable() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: std::path::PathBuf| Schema::parse_str(&std::fs::read_to_string(path).expect("readable")).expect("a schema");
    let avsc = |f: &std::fs::DirEntry| f.path().extension().is_some_and(|e| e == "avsc");
    for file in std::fs::read_dir(root.join("schemas")).expect("is there").flatten().filter(avsc) {
        let name = file.file_name().to_string_lossy().trim_end_matches(".avsc").to_owned();
        let now = read(file.path());
        let copy = |version: u32| root.join(format!("tests/schemas/{name}-{version}.avsc"));
        let newest =
            (1..).take_while(|v| copy(*v).exists()).last().unwrap_or_else(|| panic!("{name} has no copy in tests/schemas"));
        assert_eq!(now.canonical_form(), read(copy(newest)).canonical_form(), "{name} changed: give it a new version and a copy");
        for version in 1..=newest {
            SchemaCompatibility::can_read(&read(copy(version)), &now)
                .unwrap_or_else(|e| panic!("{name} can't read version {version}: {e}"));
        }
    }
}
