//! Templates with `{name}` placeholders. Values go in by where they stand: encoded in a path or query, refused in a header, by
//! value in JSON; so no value can become another path, header or member.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Longest header value.
const MAX_HEADER: usize = 4 * 1024;

/// A text with placeholders; `{{` and `}}` are braces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Hole(String),
}

/// Where a template stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In a path.
    Path,
    /// In the value of a query parameter.
    Query,
    /// In a header's value.
    Header,
    /// Inside a text of a JSON body.
    Json,
    /// In a link that is shown to people.
    Link,
}

/// What a placeholder gets; `None` where an optional parameter was left out.
pub(super) trait Values {
    fn value(&self, name: &str) -> Option<&Value>;
}

impl Template {
    /// Reads a template.
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '{' | '}' if rest.peek() == Some(&c) => {
                    rest.next();
                    plain.push(c);
                }
                '}' => return Err(format!("`{text}` has a `}}` without its `{{`")),
                '{' => {
                    let name: String = rest.by_ref().take_while(|c| *c != '}').collect();
                    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                        return Err(format!("`{{{name}}}` names no parameter"));
                    }
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Hole(name));
                }
                c => plain.push(c),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Template { pieces })
    }

    /// The placeholders.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|p| match p {
            Piece::Hole(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// As its author wrote it: `/orders/{id}`.
    pub(super) fn pattern(&self) -> String {
        let piece = |p: &Piece| match p {
            Piece::Text(text) => text.clone(),
            Piece::Hole(name) => format!("{{{name}}}"),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// Whether `text` could be this template filled.
    pub(super) fn could_be(&self, text: &str) -> bool {
        let mut rest = text;
        let mut behind_hole = false;
        for piece in &self.pieces {
            let Piece::Text(plain) = piece else {
                behind_hole = true;
                continue;
            };
            let Some(at) = rest.find(plain.as_str()).filter(|at| behind_hole || *at == 0) else { return false };
            rest = &rest[at + plain.len()..];
            behind_hole = false;
        }
        behind_hole || rest.is_empty()
    }

    /// The template that is exactly one placeholder.
    pub(super) fn only(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Hole(name)] => Some(name),
            _ => None,
        }
    }

    /// Filled; `None` where a value is missing, an error where a value can't stand there.
    pub(super) fn fill(&self, values: &dyn Values, place: Place) -> Result<Option<String>, String> {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) if place == Place::Path || place == Place::Query => encode(text, place, &mut out),
                Piece::Text(text) => out.push_str(text),
                Piece::Hole(name) => match values.value(name).map(text_of) {
                    None => return Ok(None),
                    Some(value) => put(name, &value, place, &mut out)?,
                },
            }
        }
        if place == Place::Path && out.split('/').any(|s| s == "." || s == "..") {
            return Err("the path would climb".to_owned());
        }
        Ok(Some(out))
    }
}

/// A value as text: strings as they are, anything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

fn put(name: &str, value: &str, place: Place, out: &mut String) -> Result<(), String> {
    match place {
        Place::Json => out.push_str(value),
        Place::Query | Place::Link => percent(value, out),
        Place::Path if value.is_empty() => return Err(format!("`{name}` is empty, which a path can't hold")),
        Place::Path if value.contains(|c: char| c.is_control() || "/\\?#%".contains(c)) => {
            return Err(format!("`{name}` holds a character that a path can't: a control, / \\ ? # or %"));
        }
        Place::Path => percent(value, out),
        Place::Header if !value.bytes().all(|b| (0x20..0x7f).contains(&b)) => {
            return Err(format!("`{name}` holds a character that a header can't: only visible ASCII and spaces may stand there"));
        }
        Place::Header if value.trim() != value || value.len() > MAX_HEADER => {
            return Err(format!(
                "`{name}` begins or ends with a space, or is longer than {MAX_HEADER} bytes, which a header can't hold"
            ));
        }
        Place::Header => out.push_str(value),
    }
    Ok(())
}

/// The author's own text: what has a meaning in a path keeps it.
fn encode(text: &str, place: Place, out: &mut String) {
    for c in text.chars() {
        let keep = c.is_ascii_graphic()
            && !"\"<>\\^`{|}#".contains(c)
            && !(c == '?' && place == Place::Path)
            && !(c == '&' && place == Place::Query);
        match keep {
            true => out.push(c),
            false => percent(c.encode_utf8(&mut [0; 4]), out),
        }
    }
}

/// Everything but the unreserved characters of RFC 3986, percent-encoded.
pub(super) fn percent(text: &str, out: &mut String) {
    for b in text.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(b as char),
            _ => {
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
}

/// A JSON value whose texts are templates. A text that is exactly one placeholder keeps the value's type.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum JsonTemplate {
    /// As it is.
    Literal(Value),
    /// A text.
    Text(Template),
    /// A list.
    List(Vec<JsonTemplate>),
    /// An object, members in the author's order.
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    /// The placeholders, in order.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            JsonTemplate::Literal(_) => Vec::new(),
            JsonTemplate::Text(t) => t.names().collect(),
            JsonTemplate::List(all) => all.iter().flat_map(JsonTemplate::names).collect(),
            JsonTemplate::Object(all) => all.iter().flat_map(|(_, t)| t.names()).collect(),
        }
    }

    /// Filled; members and elements whose value is missing are left out.
    pub(super) fn fill(&self, values: &dyn Values) -> Result<Option<Value>, String> {
        Ok(match self {
            JsonTemplate::Literal(v) => Some(v.clone()),
            JsonTemplate::Text(t) => match t.only() {
                Some(name) => values.value(name).cloned(),
                None => t.fill(values, Place::Json)?.map(Value::String),
            },
            JsonTemplate::List(all) => {
                let filled = all.iter().filter_map(|t| t.fill(values).transpose());
                Some(Value::Array(filled.collect::<Result<_, _>>()?))
            }
            JsonTemplate::Object(all) => {
                let filled = all.iter().filter_map(|(k, t)| Some(t.fill(values).transpose()?.map(|v| (k.clone(), v))));
                Some(Value::Object(filled.collect::<Result<Map<_, _>, _>>()?))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct One(Value);
    impl Values for One {
        fn value(&self, name: &str) -> Option<&Value> {
            self.0.get(name)
        }
    }

    fn fill(text: &str, place: Place, value: &str) -> Result<Option<String>, String> {
        Template::parse(text).expect("a template").fill(&One(json!({ "ref": value })), place)
    }

    /// C085: a value from a message must not end the header line or change the path.
    #[test]
    fn values_stay_where_they_are_put() {
        for bad in ["a\r\nX-Admin: 1", "a\nb", "a\rb", "a\0b", "a\u{2028}b"] {
            assert!(fill("id-{ref}", Place::Header, bad).is_err(), "{bad:?} in a header");
        }
        for bad in ["../admin", "..", ".", "a?x=1", "a#b", "%0d%0a", "a/b", "a\\b", "a\nb", ""] {
            assert!(fill("/orders/{ref}", Place::Path, bad).is_err(), "{bad:?} in a path");
        }
        assert_eq!(fill("/orders/{ref}", Place::Path, "é 1"), Ok(Some("/orders/%C3%A9%201".into())));
        assert_eq!(fill("{ref}", Place::Query, "a&b=c\r\n#?"), Ok(Some("a%26b%3Dc%0D%0A%23%3F".into())));
        let json = JsonTemplate::Object(vec![("note".into(), JsonTemplate::Text(Template::parse("n: {ref}").expect("t")))]);
        let filled = json.fill(&One(json!({ "ref": "\", \"admin\": true" }))).expect("fills").expect("there");
        assert_eq!(filled.as_object().map(Map::len), Some(1));
    }

    /// C086: a value that a header can't hold must be refused, never panic the client.
    #[test]
    fn headers_take_visible_ascii_only() {
        for bad in ["Müller", "🦀", " leading", "trailing ", &"x".repeat(9 * 1024)] {
            assert!(fill("{ref}", Place::Header, bad).is_err(), "{bad:.20}");
        }
        assert_eq!(fill("{ref}", Place::Header, "a b"), Ok(Some("a b".into())));
    }

    /// If this broke, a quantity would reach the target as text, or an absent note as `null`.
    #[test]
    fn one_placeholder_keeps_its_type() {
        let hole = |t: &str| JsonTemplate::Text(Template::parse(t).expect("a template"));
        let json = JsonTemplate::Object(vec![
            ("n".into(), hole("{n}")),
            ("text".into(), hole("{n} items")),
            ("note".into(), hole("{note}")),
            ("braces".into(), hole("{{n}}")),
        ]);
        let filled = json.fill(&One(json!({ "n": 3 }))).expect("fills");
        assert_eq!(filled, Some(json!({ "n": 3, "text": "3 items", "braces": "{n}" })));
    }
}
