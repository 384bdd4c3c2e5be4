//! CEL expressions of topologies and contracts, with bounds of our own: the engine has none on evaluation, and a long chain of
//! operators would overflow its stack. Expressions come from reviewed files only, never from a record.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr};
use cel::objects::Key;
use cel::{ExecutionError, IdedExpr, Program, Value as Cel};
use serde_json::Value;

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
    /// Compiles `source`, which may read the variables named in `known`. The error is one line for people.
    pub fn compile(source: &str, known: &[&str]) -> Result<CelExpr, String> {
        check_size(source)?;
        let program = Program::compile(source)
            .map_err(|e| e.errors.first().map_or_else(|| "does not parse".to_owned(), |first| first.msg.replace('\n', " ")))?;
        let mut found = Found::default();
        let loops = found.walk(program.expression(), &mut Vec::new());
        if loops > MAX_LOOPS {
            return Err(format!("has {loops} loops inside each other; at most {MAX_LOOPS} are taken"));
        }
        if let Some(unknown) = found.free.iter().find(|v| !known.contains(&v.as_str())) {
            return Err(format!("reads `{unknown}`, which is not known here; there are {}", known.join(", ")));
        }
        Ok(CelExpr { program: Arc::new(program), source: source.into(), reads: found.free.into_iter().collect(), loops })
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
        out.json().map_err(|_| "gives a value that JSON has no form for".to_owned())
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
        if !c.is_whitespace() && !(word && in_word) {
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
    free: BTreeSet<String>,
}

impl Found {
    /// Collects free variables; returns how deep loops nest below `e`.
    fn walk(&mut self, e: &IdedExpr, bound: &mut Vec<String>) -> u32 {
        match &e.expr {
            Expr::Ident(name) => {
                if !bound.contains(name) && !TYPE_NAMES.contains(&name.as_str()) {
                    self.free.insert(name.clone());
                }
                0
            }
            Expr::Select(s) => self.walk(&s.operand, bound),
            Expr::Call(c) => {
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

    fn entry(&mut self, e: &EntryExpr, bound: &mut Vec<String>) -> u32 {
        match e {
            EntryExpr::StructField(f) => self.walk(&f.value, bound),
            EntryExpr::MapEntry(m) => self.walk(&m.key, bound).max(self.walk(&m.value, bound)),
        }
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
        let e = CelExpr::compile("boddy.n == 1", &["body"]).expect_err("unknown");
        assert!(e.contains("boddy") && e.contains("body"), "{e}");
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
