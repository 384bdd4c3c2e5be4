//! The house rules of `src/docs/architecture.md`, as far as a program can see them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Modules in reading order: a module may use those before it, never those after. Vocabulary comes first and may use itself.
const ORDER: &[&str] = &[
    "error",
    "ids",
    "offset",
    "time",
    "record",
    "events",
    "config",
    "serdes",
    "intents",
    "http",
    "trace",
    "contract",
    "probe",
    "policy",
    "kafka",
    "state",
    "task",
    "processor",
    "topology",
    "outbox",
    "agent",
    "dsl",
    "declare",
    "registry",
    "runtime",
    "effects",
    "webhooks",
    "app",
    "driver",
    "admin",
    "console",
    "demo",
    "bench",
    "cli",
    "testing",
];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("src is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Whether a file holds tests only.
fn is_test(path: &Path) -> bool {
    let inside = path.strip_prefix(src()).expect("under src").to_string_lossy().replace('\\', "/");
    inside.contains("/tests/") || inside.ends_with("tests.rs") || inside.ends_with("/harness.rs")
}

/// The lines of a file before its tests; none of a test file.
fn code(path: &Path) -> Vec<String> {
    if is_test(path) {
        return Vec::new();
    }
    let text = std::fs::read_to_string(path).expect("source is readable");
    text.lines().take_while(|l| !l.starts_with("#[cfg(test)]")).map(str::to_owned).collect()
}

fn module_of(path: &Path) -> String {
    let inside = path.strip_prefix(src()).expect("under src");
    let first = inside.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// If this broke, a part low in the house would lean on one above it, and nobody could read it top-down any more.
#[test]
fn modules_use_only_what_stands_above_them() {
    let rank: BTreeMap<&str, usize> = ORDER.iter().enumerate().map(|(i, m)| (*m, i)).collect();
    let mut wrong = Vec::new();
    for path in sources(&src()) {
        let module = module_of(&path);
        let Some(&own) = rank.get(module.as_str()) else {
            assert!(["lib", "main", "docs"].contains(&module.as_str()), "module {module} has no place in the order");
            continue;
        };
        for (n, line) in code(&path).iter().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for (at, _) in line.match_indices("crate::") {
                let used: String = line[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if rank.get(used.as_str()).is_some_and(|&r| r > own && own > 5) {
                    wrong.push(format!("{}:{}: {module} uses {used}", path.display(), n + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// If this broke, files would grow until nobody reads them.
#[test]
fn files_and_functions_stay_small() {
    let mut wrong = Vec::new();
    for path in sources(&src()) {
        let lines = code(&path);
        if lines.len() > 450 {
            wrong.push(format!("{}: {} lines before its tests", path.display(), lines.len()));
        }
        let mut open: Option<(usize, usize)> = None;
        for (n, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let t = line.trim_start();
            let starts = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "async fn ", "pub async fn "]
                .iter()
                .any(|s| t.starts_with(s));
            if open.is_none() && starts {
                open = Some((n, indent));
            }
            if let Some((from, at)) = open
                && (t == "}" || t.ends_with(" }") || t.ends_with(';'))
                && indent == at
            {
                if n - from > 85 {
                    wrong.push(format!("{}:{}: a function of {} lines", path.display(), from + 1, n - from + 1));
                }
                open = None;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// If this broke, a second HTTP or Kafka client would creep in beside the one that the protocol was proved for.
#[test]
fn one_importer_for_each_edge() {
    let edges: [(&str, &[&str]); 7] = [
        ("rdkafka::", &["kafka/rdkafka"]),
        // The client; how connections of the one server are taken, and the frames of a stream that it answers.
        ("hyper::", &["http", "admin/listen.rs", "console/live.rs"]),
        ("h2::", &["http"]),
        ("reqwest::", &["http"]),
        ("schema_registry_converter::", &["registry"]),
        ("fjall::", &["state"]),
        ("opentelemetry", &["trace/export"]),
    ];
    let mut wrong = Vec::new();
    for path in sources(&src()) {
        let inside = path.strip_prefix(src()).expect("under src").to_string_lossy().into_owned();
        for (n, line) in code(&path).iter().enumerate() {
            let t = line.trim_start();
            if t.starts_with("//") {
                continue;
            }
            for (needle, homes) in edges {
                let imports =
                    t.match_indices(needle).any(|(at, _)| !t[..at].ends_with("::") && !t[..at].ends_with(char::is_alphanumeric));
                if imports && !homes.iter().any(|h| inside.starts_with(h)) {
                    wrong.push(format!("{}:{}: {needle} outside {homes:?}", path.display(), n + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// If this broke, a panic or an unfinished corner could reach a user.
#[test]
fn forbidden_calls_stay_out() {
    let mut wrong = Vec::new();
    for path in sources(&src()) {
        if path.to_string_lossy().contains("/testing/") {
            continue;
        }
        for (n, line) in code(&path).iter().enumerate() {
            let t = line.trim_start();
            if t.starts_with("//") {
                continue;
            }
            for call in [".unwrap()", "todo!(", "unimplemented!(", "dbg!("] {
                if t.contains(call) {
                    wrong.push(format!("{}:{}: {call}", path.display(), n + 1));
                }
            }
            if t.contains("unsafe ") && !path.ends_with("kafka/rdkafka/raw.rs") {
                wrong.push(format!("{}:{}: unsafe", path.display(), n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The tests of the crate by their names: `effects::tests::stage::…` of the library, `kills::…` of another target.
fn tests_in(dir: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let mut names = Vec::new();
    for path in sources(&root) {
        let inside = path.strip_prefix(&root).expect("under it").with_extension("").to_string_lossy().replace('/', "::");
        let module = inside.trim_end_matches("::mod").trim_start_matches("main");
        let text = std::fs::read_to_string(&path).expect("source is readable");
        let mut within = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("mod ").and_then(|l| l.strip_suffix(" {")) {
                within = format!("::{rest}");
            }
            let bare = line.trim_start().trim_start_matches("pub ").trim_start_matches("async ");
            let name = bare.strip_prefix("fn ");
            if let Some((name, _)) = name.and_then(|n| n.split_once('(')) {
                names.push(format!("{module}{within}::{name}").trim_start_matches(':').to_owned());
            }
        }
    }
    names
}

/// If this broke, a promise would name a test that nobody can run.
#[test]
fn tests_named_in_the_pages_exist() {
    let (lib, others) = (tests_in("src"), tests_in("tests"));
    let docs = src().join("docs");
    let mut missing = Vec::new();
    for page in std::fs::read_dir(&docs).expect("docs").flatten().map(|e| e.path()).filter(|p| p.extension().is_some()) {
        let text = std::fs::read_to_string(&page).expect("page is readable");
        for quoted in text.split('`').skip(1).step_by(2) {
            let other = quoted.strip_prefix("broker: ").or_else(|| quoted.strip_prefix("simulator: "));
            let name = other.unwrap_or(quoted);
            let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == ':');
            let is_test = other.is_some() || name.contains("::");
            let known = |all: &[String]| {
                all.iter().any(|t| t == name || t.ends_with(&format!("::{name}")) || t.starts_with(&format!("{name}::")))
            };
            if plain && is_test && !known(if other.is_some() { &others } else { &lib }) {
                missing.push(format!("{}: {quoted}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Licences under which this may be given on, and which ask for no more than to be named.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be met with [`LICENCES`].
fn permits(expression: &str) -> bool {
    let spaced = expression.replace(" WITH LLVM-exception", "").replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    any_of(&mut words) && words.is_empty()
}

fn any_of(words: &mut Vec<&str>) -> bool {
    let mut met = all_of(words);
    while words.pop_if(|w| *w == "OR").is_some() {
        met |= all_of(words);
    }
    met
}

fn all_of(words: &mut Vec<&str>) -> bool {
    let mut met = true;
    loop {
        let word = words.pop().unwrap_or_default();
        let this = match word {
            "(" => {
                let inner = any_of(words);
                words.pop() == Some(")") && inner
            }
            licence => LICENCES.contains(&licence),
        };
        met &= this;
        if words.pop_if(|w| *w == "AND").is_none() {
            return met;
        }
    }
}

/// If this broke, the program could not be given on under Apache-2.0 or MIT because of something that it is built from.
#[test]
fn dependencies_may_be_given_on() {
    assert!(permits("(MIT OR GPL-3.0) AND Unicode-3.0") && permits("MIT/Apache-2.0") && !permits("MIT AND GPL-3.0"));
    let run = |program: &str, args: &[&str]| {
        let done = std::process::Command::new(program).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect(program);
        String::from_utf8(done.stdout).expect("text")
    };
    let about = run("rustc", &["-vV"]);
    let host = about.lines().find_map(|l| l.strip_prefix("host: ")).expect("rustc names its host");
    let metadata = run(env!("CARGO"), &["metadata", "--format-version", "1", "--offline", "--filter-platform", host]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("cargo tells its packages");
    let packages = metadata["packages"].as_array().expect("packages");
    let refused: Vec<_> = packages.iter().filter(|p| !permits(p["license"].as_str().unwrap_or_default())).collect();
    assert!(packages.len() > 100 && refused.is_empty(), "{:?}", refused.iter().map(|p| &p["name"]).collect::<Vec<_>>());
}
