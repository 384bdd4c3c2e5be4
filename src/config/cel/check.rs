//! What is wrong with an expression, found before a record comes: its size, its grammar, variables and functions that nobody knows,
//! loops inside loops, texts that are no duration, time or pattern.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};
use cel::{Context, IdedExpr, ParseErrors, Program};

use crate::config::yaml::{Diagnostic, Diagnostics, Node, Site, nearest};
use crate::error::codes;

use super::extent::Extent;
use super::{LIBRARY, MAX_DEPTH, MAX_LOOPS, MAX_SOURCE, MAX_TOKENS};

/// Names that are types of the language and no variables.
const TYPE_NAMES: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "list",
    "map",
    "null_type",
    "optional",
    "string",
    "timestamp",
    "type",
    "uint",
];

/// The engine's functions, which it looks for only when it evaluates. Signs (`_+_`) are no names.
const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "hasValue",
    "int",
    "matches",
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "size",
    "startsWith",
    "string",
    "timestamp",
    "type",
    "uint",
    "value",
];

/// Loops and `has`, which the parser turns into something else; one that is left was called with too few or too many arguments.
const MACROS: &[&str] = &["all", "exists", "existsOne", "exists_one", "filter", "has", "map"];

/// Why an expression is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadExpression {
    /// In one line, to be read after *this expression*.
    pub why: String,
    /// Written under the place: `did you mean …?`; may be empty.
    pub label: String,
    /// What else helps; may be empty.
    pub note: String,
    /// Where in the source, in bytes.
    pub at: Range<usize>,
}

impl fmt::Display for BadExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl BadExpression {
    fn whole(source: &str, why: impl Into<String>) -> Self {
        Self { why: why.into(), label: String::new(), note: String::new(), at: 0..source.len() }
    }

    /// At the first place where `word` stands by itself.
    fn word(source: &str, word: &str, why: String) -> Self {
        let of_word = |c: char| c.is_alphanumeric() || c == '_';
        let alone = |at: &usize| !source[..*at].ends_with(of_word) && !source[at + word.len()..].starts_with(of_word);
        let found = source.match_indices(word).map(|(at, _)| at).find(alone);
        let at = found.map_or(0..source.len(), |at| at..at + word.len());
        Self { at, ..Self::whole(source, why) }
    }

    fn meant(mut self, near: Option<&str>) -> Self {
        self.label = near.map_or_else(String::new, |near| format!("did you mean `{near}`?"));
        self
    }

    /// Reports it at the node that holds the source: at the very place where the file shows the source as it is.
    pub fn report<'d>(&self, node: &Node, d: &'d mut Diagnostics) -> &'d mut Diagnostic {
        let shown = node.at.file.text.get(node.at.span.clone()).unwrap_or_default();
        let source = node.scalar().unwrap_or_default();
        let site = match shown.find(source) {
            Some(from) if !source.is_empty() => {
                let from = node.at.span.start + from;
                Site { file: node.at.file.clone(), span: from + self.at.start..from + self.at.end }
            }
            _ => node.at.clone(),
        };
        let what = d.error(codes::BAD_EXPRESSION, &site, format!("this expression {self}")).label(&self.label);
        if !self.note.is_empty() {
            what.note(&self.note);
        }
        what
    }
}

/// An expression that can be run.
pub(super) struct Checked {
    pub(super) program: Program,
    /// The variables that it reads, and how much of each.
    pub(super) reads: BTreeMap<String, Extent>,
    /// How deep its loops nest.
    pub(super) loops: u32,
}

/// Checks everything that can be known without a record.
pub(super) fn check(source: &str, known: &[&str]) -> Result<Checked, BadExpression> {
    check_size(source).map_err(|why| BadExpression::whole(source, why))?;
    let program = Program::compile(source).map_err(|e| grammar(source, &e))?;
    let mut found = Found::default();
    let loops = found.walk(program.expression(), &mut Vec::new());
    if loops > MAX_LOOPS {
        return Err(BadExpression::whole(source, format!("has {loops} loops inside each other; at most {MAX_LOOPS} are taken")));
    }
    check_functions(source, &found)?;
    if let Some(unknown) = found.free.keys().find(|v| !known.contains(&v.as_str())) {
        let why = format!("reads `{unknown}`, which is not known here");
        let note = format!("known here: {}", known.join(", "));
        let near = nearest(unknown, known.iter().copied());
        return Err(BadExpression { note, ..BadExpression::word(source, unknown, why).meant(near) });
    }
    if let Some((call, text)) = found.literals.iter().find(|(call, text)| !takes(call, text)) {
        let why = format!("calls `{call}` with a text that it does not take");
        let example = match call.as_str() {
            "duration" => "durations are written `90s`, `15m` or `2h`; a day is `24h`",
            "timestamp" => "times are written `2026-11-20T10:00:00Z`",
            _ => "the text must be a regular expression",
        };
        return Err(BadExpression { label: example.to_owned(), ..BadExpression::word(source, text, why) });
    }
    Ok(Checked { program, reads: found.free, loops })
}

/// The first error of the grammar, in fewer words than the parser's.
fn grammar(source: &str, errors: &ParseErrors) -> BadExpression {
    let Some(first) = errors.errors.first() else { return BadExpression::whole(source, "does not parse") };
    let said = first.msg.replace('\n', " ");
    let said = said.trim_start_matches("Syntax error: ");
    let (line, column) = (first.pos.0.max(1) as usize, first.pos.1.max(1) as usize);
    let before: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let start = source[before..].char_indices().nth(column - 1).map_or(source.len(), |(i, _)| before + i);
    let end = source[start..].chars().next().map_or(start, |c| start + c.len_utf8());
    let (why, label) = match said.contains("token recognition error at: '=") {
        true => ("does not parse: a single `=`".to_owned(), "equality is `==`".to_owned()),
        false => (format!("does not parse: {said}"), String::new()),
    };
    BadExpression { label, at: start..end, ..BadExpression::whole(source, why) }
}

fn check_functions(source: &str, found: &Found) -> Result<(), BadExpression> {
    for name in &found.functions {
        if MACROS.contains(&name.as_str()) {
            let why = format!("calls `{name}` with too few or too many arguments");
            let label = match name.as_str() {
                "has" => "has(value.member)".to_owned(),
                _ => format!("list.{name}(x, expression of x)"),
            };
            return Err(BadExpression { label, ..BadExpression::word(source, name, why) });
        }
        if !FUNCTIONS.contains(&name.as_str()) {
            let near = nearest(name, FUNCTIONS.iter().chain(MACROS).copied());
            return Err(BadExpression::word(source, name, format!("calls `{name}`, which is no function")).meant(near));
        }
    }
    Ok(())
}

/// Whether a function of one text takes this one, as the engine has it.
fn takes(call: &str, text: &str) -> bool {
    let source = if call == "matches" { "''.matches(t)".to_owned() } else { format!("{call}(t)") };
    let mut context = Context::with_env(LIBRARY.clone());
    context.add_variable_from_value("t", text);
    Program::compile(&source).is_ok_and(|p| p.execute(&context).is_ok())
}

/// Counted before parsing, since the parser and the tree it gives recurse.
fn check_size(source: &str) -> Result<(), String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("is {} bytes long; at most {MAX_SOURCE} are taken", source.len()));
    }
    let (mut depth, mut tokens, mut in_word, mut quote, mut escaped) = (0usize, 0usize, false, None, false);
    for c in source.chars() {
        if let Some(q) = quote {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                c if c == q => quote = None,
                _ => {}
            }
            continue;
        }
        let word = c.is_alphanumeric() || c == '_';
        let goes_on = word && in_word;
        if !c.is_whitespace() && !goes_on {
            tokens += 1;
        }
        in_word = word;
        match c {
            '"' | '\'' => quote = Some(c),
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("nests brackets deeper than {MAX_DEPTH}"));
        }
        if tokens > MAX_TOKENS {
            return Err(format!("has more than {MAX_TOKENS} words and signs"));
        }
    }
    Ok(())
}

/// What an expression reads from outside.
#[derive(Default)]
struct Found {
    free: BTreeMap<String, Extent>,
    functions: Vec<String>,
    /// Functions of one text, with the text where it is written out.
    literals: Vec<(String, String)>,
}

impl Found {
    /// Collects free variables; returns how deep loops nest below `e`.
    fn walk(&mut self, e: &IdedExpr, bound: &mut Vec<String>) -> u32 {
        match &e.expr {
            Expr::Ident(name) => {
                self.reads(name, None, bound);
                0
            }
            Expr::Select(s) => match &s.operand.expr {
                Expr::Ident(name) => {
                    self.reads(name, Some(&s.field), bound);
                    0
                }
                _ => self.walk(&s.operand, bound),
            },
            Expr::Call(c) => {
                self.call(c);
                let target = c.target.as_deref().map_or(0, |t| self.walk(t, bound));
                c.args.iter().fold(target, |most, a| most.max(self.walk(a, bound)))
            }
            Expr::List(l) => l.elements.iter().fold(0, |most, x| most.max(self.walk(x, bound))),
            Expr::Map(m) => m.entries.iter().fold(0, |most, x| most.max(self.entry(&x.expr, bound))),
            Expr::Struct(s) => s.entries.iter().fold(0, |most, x| most.max(self.entry(&x.expr, bound))),
            Expr::Comprehension(c) => {
                let outside = self.walk(&c.iter_range, bound).max(self.walk(&c.accu_init, bound));
                let before = bound.len();
                bound.extend([c.iter_var.clone(), c.accu_var.clone()]);
                bound.extend(c.iter_var2.clone());
                let inside = self.walk(&c.loop_cond, bound).max(self.walk(&c.loop_step, bound)).max(self.walk(&c.result, bound));
                bound.truncate(before);
                outside.max(inside + 1)
            }
            Expr::Literal(_) | Expr::Unspecified => 0,
        }
    }

    /// A name stands there, by itself or with one of its members.
    fn reads(&mut self, name: &str, member: Option<&str>, bound: &[String]) {
        if !bound.iter().any(|b| b == name) && !TYPE_NAMES.contains(&name) {
            self.free.entry(name.to_owned()).or_default().add(member);
        }
    }

    fn call(&mut self, c: &CallExpr) {
        if !c.func_name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return;
        }
        self.functions.push(c.func_name.clone());
        if let ("duration" | "timestamp" | "matches", Some(Expr::Literal(LiteralValue::String(text)))) =
            (c.func_name.as_str(), c.args.last().map(|a| &a.expr))
        {
            self.literals.push((c.func_name.clone(), text.inner().to_owned()));
        }
    }

    fn entry(&mut self, e: &EntryExpr, bound: &mut Vec<String>) -> u32 {
        match e {
            EntryExpr::StructField(f) => self.walk(&f.value, bound),
            EntryExpr::MapEntry(m) => self.walk(&m.key, bound).max(self.walk(&m.value, bound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> BadExpression {
        check(source, &["value"]).err().unwrap_or_else(|| panic!("{source} was taken"))
    }

    /// If this broke, a misspelt function would show only when records come, and send each of them to the dead letters.
    #[test]
    fn what_no_record_could_mend_is_refused_at_its_place() {
        for (source, why, label, at) in [
            ("value.a = 1", "a single `=`", "`==`", "="),
            ("value.a == ", "does not parse", "", ""),
            ("1 < strats(value.a)", "`strats`, which is no function", "", "strats"),
            ("timestmp(value.a)", "`timestmp`, which is no function", "`timestamp`", "timestmp"),
            ("value.a.filtr(n, n.b)", "`filtr`, which is no function", "`filter`", "filtr"),
            ("value.a.filter(n)", "`filter` with too few", "list.filter(", "filter"),
            ("timestamp(value.a) + duration(\"24 hours\")", "`duration` with a text", "`24h`", "24 hours"),
            ("value.a.matches('[a-')", "`matches` with a text", "regular", "[a-"),
        ] {
            let e = refused(source);
            assert!(e.why.contains(why) && e.label.contains(label), "{source}: {e:?}");
            assert_eq!(&source[e.at.clone()], at, "{source}");
        }
        for source in ["has(value.a) ? value.a : 'x'", "value.a.exists_one(x, x > 1) && size(value.b) == 2", "[1] + [int('2')]"] {
            check(source, &["value"]).map(|_| ()).expect(source);
        }
    }

    /// If this broke, an expression that the engine takes would be refused, or one that it can't run accepted.
    #[test]
    fn the_listed_functions_are_the_engines() {
        for name in FUNCTIONS {
            let known = [format!("{name}()"), format!("''.{name}()"), format!("optional.{name}(1)")].iter().any(|source| {
                let program = Program::compile(source).expect(source);
                let done = program.execute(&Context::with_env(LIBRARY.clone()));
                !matches!(done, Err(cel::ExecutionError::UndeclaredReference(_)))
            });
            assert!(known, "{name}");
        }
    }
}
