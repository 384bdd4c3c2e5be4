//! Text to [`Node`]. One document, bounded in size and depth, no anchors, no tags: a file says what it means where it says it.

use std::path::Path;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::error::codes;

use super::{Diagnostics, Kind, Name, Node, Site, SourceFile};

/// Largest file that is read.
const MAX_BYTES: u64 = 1024 * 1024;
/// Deepest nesting.
const MAX_DEPTH: usize = 32;

/// Reads and parses a file; its path is shown as given.
pub fn load(path: &Path) -> Result<Node, Diagnostics> {
    let mut d = Diagnostics::new();
    let shown = path.display().to_string();
    match std::fs::metadata(path) {
        Ok(m) if m.len() > MAX_BYTES => {
            d.general(codes::FILE_UNREADABLE, format!("{shown} is larger than {MAX_BYTES} bytes"));
            return Err(d);
        }
        _ => {}
    }
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&shown, &text),
        Err(e) => {
            d.general(codes::FILE_UNREADABLE, format!("can't read {shown}: {e}"));
            Err(d)
        }
    }
}

/// Parses one document.
pub fn parse(path: &str, text: &str) -> Result<Node, Diagnostics> {
    document(path, text).map_err(|mut d| {
        d.hide_what_may_be_secret();
        d
    })
}

fn document(path: &str, text: &str) -> Result<Node, Diagnostics> {
    let file = Arc::new(SourceFile { path: path.to_owned(), text: text.to_owned() });
    let mut builder = Builder { file, d: Diagnostics::new(), open: Vec::new(), root: None, documents: 0 };
    for next in Parser::new_from_str(text) {
        match next {
            Ok((event, span)) => builder.take(event, &span),
            Err(e) => {
                let at = e.marker().byte_offset().unwrap_or(text.len()).min(text.len());
                let site = builder.site(at..at);
                builder.d.error(codes::YAML_SYNTAX, &site, format!("not valid YAML: {}", e.info()));
            }
        }
        if builder.d.has_errors() {
            return Err(builder.d);
        }
    }
    match builder.root {
        Some(root) => builder.d.or(Some(root)),
        None => {
            builder.d.general(codes::YAML_SYNTAX, format!("{path} is empty"));
            Err(builder.d)
        }
    }
}

/// A list or map that is not closed yet.
enum Open {
    List(usize, Vec<Node>),
    Map(usize, Vec<(Name, Node)>, Option<Name>),
}

struct Builder {
    file: Arc<SourceFile>,
    d: Diagnostics,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span) {
        let range = span.byte_range().unwrap_or(0..0);
        if event.tag().is_some() {
            self.refuse(&range, "tags (`!name`) are not used here");
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.refuse(&range, "a second document: one file holds one");
                }
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.refuse(&range, "aliases (`*name`) are not used here: write the value")
            }
            Event::Scalar(text, style, ..) => {
                let kind = Kind::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.value(kind, range);
            }
            Event::SequenceStart(..) => self.open(Open::List(range.start, Vec::new()), &range),
            Event::MappingStart(..) => self.open(Open::Map(range.start, Vec::new(), None), &range),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(start, elements)) => self.value(Kind::List(elements), start..range.end.max(start)),
                Some(Open::Map(start, entries, _)) => self.value(Kind::Map(entries), start..range.end.max(start)),
                None => {}
            },
            _ => {}
        }
    }

    fn open(&mut self, what: Open, range: &std::ops::Range<usize>) {
        if self.open.len() >= MAX_DEPTH {
            self.refuse(range, &format!("nested deeper than {MAX_DEPTH} levels"));
        }
        self.open.push(what);
    }

    /// A finished value: the root, an element, a key, or the value of the last key.
    fn value(&mut self, kind: Kind, range: std::ops::Range<usize>) {
        let node = Node { kind, at: self.site(range) };
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, elements)) => elements.push(node),
            Some(Open::Map(_, entries, key)) => match key.take() {
                Some(name) => entries.push((name, node)),
                None => match node.kind {
                    Kind::Scalar { text, .. } => {
                        if let Some((first, _)) = entries.iter().find(|(n, _)| n.text == text) {
                            let line = first.at.line();
                            self.d
                                .error(codes::DUPLICATE_NAME, &node.at, format!("`{text}` stands here twice"))
                                .label(format!("first on line {line}"));
                        }
                        *key = Some(Name { text, at: node.at });
                    }
                    _ => {
                        self.d.error(codes::YAML_SYNTAX, &node.at, "a key must be a plain word");
                    }
                },
            },
        }
    }

    fn refuse(&mut self, range: &std::ops::Range<usize>, why: &str) {
        let site = self.site(range.clone());
        self.d.error(codes::YAML_SYNTAX, &site, why);
    }

    /// A place; a block collection ends where the next token begins, so trailing space is cut off.
    fn site(&self, range: std::ops::Range<usize>) -> Site {
        let inside = self.file.text.get(range.clone()).unwrap_or_default();
        let end = range.start + inside.trim_end().len();
        Site { file: self.file.clone(), span: range.start..end.max(range.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, errors would point at the wrong line of a file.
    #[test]
    fn nodes_know_their_place() {
        let root = parse("x.yaml", "a: 1\nlist:\n  - é: \"two\"\n  - three\n").expect("valid");
        let entries = root.map(&mut Diagnostics::new()).expect("a map").to_vec();
        let two = &entries[1].1.list()[0];
        assert_eq!((two.at.line(), two.at.column()), (3, 5));
        let Kind::Map(inner) = &two.kind else { panic!("a map") };
        assert_eq!((inner[0].1.at.line(), inner[0].1.at.column()), (3, 8));
        assert_eq!(inner[0].1.scalar(), Some("two"));
    }

    /// If this broke, a password that somebody wrote into a broken file would stand in a terminal, and in the log of a deploy.
    #[test]
    fn a_broken_line_that_may_hold_a_secret_is_not_drawn() {
        for text in [
            "a: 1\npassword: \"hunter2\" x",
            "client_secret: [hunter2",
            "kafka: {\"sasl.password\": hunter2, }}",
            "token: hunter2\ntoken: hunter2",
        ] {
            let told = parse("x.yaml", text).expect_err("broken").render(false);
            assert!(told.contains("x.yaml:") && !told.contains("hunter2"), "{told}");
        }
        let told = parse("x.yaml", "a: [1, 2").expect_err("broken").render(false);
        assert!(told.contains("a: [1, 2"), "others are drawn: {told}");
    }

    /// If this broke, a small file could take all memory, or mean something other than it says.
    #[test]
    fn what_hides_meaning_is_refused() {
        let deep = "[".repeat(40) + &"]".repeat(40);
        for (text, why) in [
            ("a: &x 1\nb: *x", "aliases"),
            ("a: !!python/object x", "tags"),
            ("a: 1\n---\nb: 2", "second document"),
            ("a: 1\na: 2", "twice"),
            ("a: [1, 2", "not valid YAML"),
            (deep.as_str(), "deeper"),
            ("", "empty"),
        ] {
            let d = parse("x.yaml", text).expect_err(why);
            assert!(d.iter().any(|d| d.message.contains(why)), "{text}: {d}");
        }
    }
}
