//! CEL expressions of topologies and contracts, with bounds of our own: the engine has none on evaluation, and a long chain of
//! operators would overflow its stack. Expressions come from reviewed files only, never from a record.

mod check;
mod extent;
mod lists;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::objects::Key;
use cel::{ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

pub use check::BadExpression;
use extent::{Extent, Path};

/// Longest source in bytes.
pub const MAX_SOURCE: usize = 4 * 1024;
/// Deepest nesting of brackets.
pub const MAX_DEPTH: usize = 32;
/// Most words and signs; the tree is never deeper than this.
pub const MAX_TOKENS: usize = 512;
/// Most comprehensions (`map`, `filter`, `all`, `exists`) inside each other.
pub const MAX_LOOPS: u32 = 2;
/// Most steps that the loops of one evaluation may take: longest list, to the power of the loops' nesting.
const MAX_STEPS: u64 = 4_000_000;

/// The language's functions, made once: the engine's default context makes all of them anew, which takes longer than an evaluation.
static LIBRARY: LazyLock<Arc<cel::Env>> = LazyLock::new(|| Arc::new(cel::Env::stdlib()));

/// A compiled expression over named variables. Cheap to clone.
#[derive(Clone)]
pub struct CelExpr {
    tree: Arc<IdedExpr>,
    source: Arc<str>,
    reads: Arc<BTreeMap<String, Extent>>,
    loops: u32,
    short: Option<Arc<Short>>,
}

/// What needs no engine.
#[derive(Debug)]
enum Short {
    /// It reads nothing, so it is always this.
    Constant(Value),
    /// It is what stands there.
    Path(Path),
}

impl fmt::Debug for CelExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CelExpr({})", self.source)
    }
}

impl CelExpr {
    /// Compiles `source`, which may read the variables named in `known`.
    pub fn compile(source: &str, known: &[&str]) -> Result<CelExpr, BadExpression> {
        let checked = check::check(source, known)?;
        let path = Path::of(&checked.program.expression().expr).filter(|_| !checked.reads.is_empty());
        let mut made = CelExpr {
            tree: Arc::new(checked.program.expression().clone()),
            source: source.into(),
            reads: checked.reads.into(),
            loops: checked.loops,
            short: path.map(|p| Arc::new(Short::Path(p))),
        };
        if made.reads.is_empty() {
            made.short = made.eval(&[]).ok().map(|v| Arc::new(Short::Constant(v)));
        }
        Ok(made)
    }

    /// The same, but a loop (`filter`, `exists`, …) over anything but a list is an error.
    #[must_use]
    pub fn over_lists(mut self) -> Self {
        lists::only(Arc::make_mut(&mut self.tree));
        self
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variables that it reads.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        self.reads.keys().map(String::as_str)
    }

    /// Whether `name` stands in the text as a word of its own.
    pub fn mentions(&self, name: &str) -> bool {
        self.reads.contains_key(name)
    }

    /// The value over `variables`; timestamps come out as RFC 3339 text, durations as nanoseconds. Errors name no values.
    pub fn eval(&self, variables: &[(&str, &Value)]) -> Result<Value, String> {
        let mut value = match self.known(variables) {
            Some(known) => known.clone(),
            None => self.made(variables)?,
        };
        // A map has no order of its own: as it comes, a request would not be the same text, and so not the same intent, twice.
        value.sort_all_objects();
        Ok(value)
    }

    /// What it is without the engine.
    fn known<'v>(&'v self, variables: &[(&str, &'v Value)]) -> Option<&'v Value> {
        match self.short.as_deref()? {
            Short::Constant(value) => Some(value),
            Short::Path(path) => path.find(variables),
        }
    }

    fn made(&self, variables: &[(&str, &Value)]) -> Result<Value, String> {
        let out = self.run(variables)?;
        out.json().map_err(|_| "gives a value that JSON has no form for".to_owned())
    }

    /// The value as a truth; anything but `true` or `false` is an error.
    pub fn eval_bool(&self, variables: &[(&str, &Value)]) -> Result<bool, String> {
        if let Some(Value::Bool(known)) = self.known(variables) {
            return Ok(*known);
        }
        match self.run(variables)? {
            Cel::Bool(b) => Ok(b),
            other => Err(format!("gives {}, not true or false", other.type_of())),
        }
    }

    fn run(&self, variables: &[(&str, &Value)]) -> Result<Cel, String> {
        let mut context = cel::Context::with_env(LIBRARY.clone());
        let mut longest = 1u64;
        for (name, value) in variables {
            if let Some(extent) = self.reads.get(*name) {
                context.add_variable_from_value(*name, in_part(value, extent, &mut longest));
            }
        }
        if self.loops > 0 && longest.saturating_pow(self.loops) > MAX_STEPS {
            return Err(format!("would loop over {longest} elements, {} deep", self.loops));
        }
        Cel::resolve(&self.tree, &context).map_err(|e| plain(&e))
    }
}

/// As much of a variable as is read.
fn in_part(value: &Value, extent: &Extent, longest: &mut u64) -> Cel {
    match value {
        Value::Object(members) => to_map(members.iter().filter(|(name, _)| extent.has(name)), longest),
        other => to_cel(other, longest),
    }
}

fn to_map<'v>(members: impl Iterator<Item = (&'v String, &'v Value)>, longest: &mut u64) -> Cel {
    let map: HashMap<Key, Cel> = members.map(|(k, v)| (Key::String(Arc::new(k.clone())), to_cel(v, longest))).collect();
    *longest = (*longest).max(map.len() as u64);
    Cel::from(map)
}

/// JSON as CEL has it: whole numbers are `int` where they fit, so that `value.n == 3` and `value.n + 1` mean what they say.
fn to_cel(value: &Value, longest: &mut u64) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Cel::Int(i),
            (None, Some(u)) => Cel::UInt(u),
            (None, None) => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(s) => Cel::String(Arc::new(s.clone())),
        Value::Array(items) => {
            *longest = (*longest).max(items.len() as u64);
            Cel::List(Arc::new(items.iter().map(|v| to_cel(v, longest)).collect()))
        }
        Value::Object(members) => to_map(members.iter(), longest),
    }
}

/// The engine's errors print values; ours say what was wrong without them.
fn plain(e: &ExecutionError) -> String {
    match e {
        ExecutionError::NoSuchKey(name) => format!("finds no member `{name}`"),
        ExecutionError::NoSuchOverload(o) => o.to_string(),
        ExecutionError::UndeclaredReference(name) => format!("refers to `{name}`, which is not known here"),
        ExecutionError::UnexpectedType { got, want } => format!("gets {got} where {want} is wanted"),
        ExecutionError::FunctionError { function, .. } => format!("fails in `{function}`"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "divides by zero".to_owned(),
        ExecutionError::Overflow(..) => "overflows a number".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "reads beyond the end of a list".to_owned(),
        ExecutionError::ValuesNotComparable(a, b) => format!("compares {} with {}", a.type_of(), b.type_of()),
        ExecutionError::UnsupportedBinaryOperator(op, a, b) => format!("applies {op} to {} and {}", a.type_of(), b.type_of()),
        _ => "can't be evaluated on this value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn eval(source: &str, body: &Value) -> Result<Value, String> {
        CelExpr::compile(source, &["body"]).expect("compiles").eval(&[("body", body)])
    }

    /// If this broke, a request whose parameter is a whole record would now and then be a conflict with itself.
    #[test]
    fn a_map_is_the_same_text_each_time() {
        let body: Value = (0..12).map(|n| (format!("k{}", 11 - n), json!({ "b": n, "a": [{ "d": 1, "c": 2 }] }))).collect();
        let first = eval("body", &body).map(|v| v.to_string());
        for _ in 0..20 {
            assert_eq!(eval("body", &body).map(|v| v.to_string()), first);
        }
    }

    /// If this broke, `body.n` would be another value, or another error, than the engine gives for it; or a member that is read
    /// would be missing.
    #[test]
    fn what_needs_no_engine_is_what_the_engine_gives() {
        let body = json!({"n": 3, "u": u64::MAX, "f": 2.0, "t": "a", "b": true, "z": null, "l": [1, {"y": 1, "x": 2}], "o": {"p": {"q": 1}}});
        for path in
            ["body", "body.n", "body.u", "body.f", "body.t", "body.b", "body.z", "body.l", "body.o", "body.o.p", "body.o.p.q"]
        {
            let e = CelExpr::compile(path, &["body"]).expect(path);
            assert!(e.known(&[("body", &body)]).is_some(), "{path}");
            let mut engines = e.made(&[("body", &body)]).expect(path);
            engines.sort_all_objects();
            assert_eq!(e.eval(&[("body", &body)]).map(|v| v.to_string()), Ok(engines.to_string()), "{path}");
        }
        assert_eq!(eval("body.gone", &body), Err("finds no member `gone`".to_owned()));
        assert!(eval("body.n.gone", &body).is_err() && eval("body.o.gone.q", &body).is_err());
        assert_eq!(eval("1 + 1 == 2 ? 'two' : 'more'", &body), Ok(json!("two")));
        for (source, is) in [
            ("has(body.n) && !has(body.gone)", json!(true)),
            ("size(body) == 8 && body.n == 3", json!(true)),
            ("[1, 2].map(body, body + 1)[1] == body.n", json!(true)),
            ("body['t'] + body.t", json!("aa")),
        ] {
            assert_eq!(eval(source, &body), Ok(is), "{source}");
        }
        assert_eq!(CelExpr::compile("body.b", &["body"]).expect("compiles").eval_bool(&[("body", &body)]), Ok(true));
    }

    /// If this broke, an expression of a contract would mean something else than it says.
    #[test]
    fn json_is_read_as_people_write_it() {
        let body = json!({"n": 3, "f": 0.5, "items": [{"k": "a"}, {"k": "b"}], "next": null});
        assert_eq!(eval("body.n == 3 && body.n + 1 == 4", &body), Ok(json!(true)));
        assert_eq!(eval("body.next == null", &body), Ok(json!(true)));
        assert_eq!(eval("body.items.filter(o, o.k == 'b')", &body), Ok(json!([{"k": "b"}])));
        assert_eq!(eval("has(body.gone)", &body), Ok(json!(false)));
        assert_eq!(eval("timestamp('2026-11-20T10:00:00Z') + duration('2h')", &body), Ok(json!("2026-11-20T12:00:00+00:00")));
        assert!(CelExpr::compile("body.n", &["body"]).expect("compiles").eval_bool(&[("body", &body)]).is_err());
    }

    /// If this broke, an answer that is no list would be read as a list in which nothing stands.
    #[test]
    fn loops_over_lists_take_nothing_else() {
        let eval = |source: &str, body: &Value| {
            CelExpr::compile(source, &["body"]).expect("compiles").over_lists().eval(&[("body", body)])
        };
        let (list, other) = (json!({ "l": [{ "l": [1, 2] }], "n": [] }), json!({ "l": [{ "l": { "a": 1 } }], "n": {} }));
        for (source, is) in [
            ("body.n.filter(n, n == 1)", json!([])),
            ("body.n.exists(n, n == 1)", json!(false)),
            ("body.n.map(n, n)", json!([])),
            ("has(body.n) ? [body.n.all(n, n == 1)] : []", json!([true])),
            ("{'a': body.n.filter(n, n == 1)}.a", json!([])),
            ("body.l.filter(a, a.l.exists(b, b == 2)).size()", json!(1)),
        ] {
            assert_eq!(eval(source, &list), Ok(is), "{source}");
            assert!(eval(source, &other).is_err(), "{source}");
        }
    }

    /// If this broke, one expression could overflow the stack or keep a thread busy for ever.
    #[test]
    fn costly_expressions_are_refused_before_they_run() {
        let refused = |source: &str| CelExpr::compile(source, &["body"]).expect_err(&source[..20.min(source.len())]);
        refused(&format!("1{}", "+1".repeat(1_000)));
        refused(&format!("{}1{}", "(".repeat(40), ")".repeat(40)));
        refused(&"-".repeat(2_000));
        refused(&format!("'{}'", "x".repeat(5_000)));
        refused("[1].map(a, [1].map(b, [1].map(c, c)))");
        let long = json!((0..3_000).collect::<Vec<_>>());
        assert!(eval("body.all(a, body.all(b, a + b >= 0))", &long).is_err(), "9 million steps");
        assert!(eval("body.all(a, a >= 0)", &long).is_ok());
    }

    /// If this broke, a misspelt variable would show only when the first record comes.
    #[test]
    fn unknown_variables_are_found_when_compiling() {
        let e = CelExpr::compile("1 == boddy.n", &["body"]).expect_err("unknown");
        assert!(e.why.contains("`boddy`") && e.label.contains("`body`") && e.at == (5..10), "{e:?}");
        assert!(CelExpr::compile("body.items.exists(o, o.k == 'a') && type(body) == map", &["body"]).is_ok());
    }

    /// If this broke, payload would stand in logs and dead letters.
    #[test]
    fn errors_hold_no_values() {
        for source in ["body.s + 1 == 2", "int(body.s) == 1", "body.s < 1", "body.s.x"] {
            let e = eval(source, &json!({"s": "MARK"})).expect_err(source);
            assert!(!e.contains("MARK"), "{source}: {e}");
        }
    }
}
