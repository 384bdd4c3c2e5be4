//! CEL expressions of topologies and contracts, with bounds of our own: the engine has none on evaluation, and a long chain of
//! operators would overflow its stack. Expressions come from reviewed files only, never from a record.

mod check;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::objects::Key;
use cel::{ExecutionError, Program, Value as Cel};
use serde_json::Value;

pub use check::BadExpression;

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
    program: Arc<Program>,
    source: Arc<str>,
    reads: Arc<[String]>,
    loops: u32,
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
        Ok(CelExpr { program: Arc::new(checked.program), source: source.into(), reads: checked.reads.into(), loops: checked.loops })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variables that it reads.
    pub fn reads(&self) -> &[String] {
        &self.reads
    }

    /// Whether `name` stands in the text as a word of its own.
    pub fn mentions(&self, name: &str) -> bool {
        self.reads.iter().any(|v| v == name)
    }

    /// The value over `variables`; timestamps come out as RFC 3339 text, durations as nanoseconds. Errors name no values.
    pub fn eval(&self, variables: &[(&str, &Value)]) -> Result<Value, String> {
        let out = self.run(variables)?;
        let mut value = out.json().map_err(|_| "gives a value that JSON has no form for".to_owned())?;
        // A map has no order of its own: as it comes, a request would not be the same text, and so not the same intent, twice.
        value.sort_all_objects();
        Ok(value)
    }

    /// The value as a truth; anything but `true` or `false` is an error.
    pub fn eval_bool(&self, variables: &[(&str, &Value)]) -> Result<bool, String> {
        match self.run(variables)? {
            Cel::Bool(b) => Ok(b),
            other => Err(format!("gives {}, not true or false", other.type_of())),
        }
    }

    fn run(&self, variables: &[(&str, &Value)]) -> Result<Cel, String> {
        let mut context = cel::Context::with_env(LIBRARY.clone());
        let mut longest = 1u64;
        for (name, value) in variables {
            if self.mentions(name) {
                context.add_variable_from_value(*name, to_cel(value, &mut longest));
            }
        }
        if self.loops > 0 && longest.saturating_pow(self.loops) > MAX_STEPS {
            return Err(format!("would loop over {longest} elements, {} deep", self.loops));
        }
        self.program.execute(&context).map_err(|e| plain(&e))
    }
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
        Value::Object(members) => {
            *longest = (*longest).max(members.len() as u64);
            let map: HashMap<Key, Cel> =
                members.iter().map(|(k, v)| (Key::String(Arc::new(k.clone())), to_cel(v, longest))).collect();
            Cel::from(map)
        }
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
