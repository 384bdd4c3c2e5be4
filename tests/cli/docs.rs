//! What the pages say beside what there is: commands and flags, codes, metrics, settings, alerts. That the commands also *work* is
//! `dev/surfaces/docs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use readback::cli::Cli;
use readback::error::codes;
use readback::events;
use regex::Regex;

use crate::{readback, root};

/// README.md and every page of src/docs but those that tell of the past.
fn pages() -> Vec<(String, String)> {
    fn inside(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("is readable").flatten() {
            match entry.path() {
                path if path.is_dir() && !path.ends_with("decisions") => inside(&path, found),
                path if path.extension().is_some_and(|e| e == "md") => found.push(path),
                _ => {}
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    inside(&root().join("src/docs"), &mut found);
    let read =
        |p: PathBuf| (p.strip_prefix(root()).expect("inside").display().to_string(), std::fs::read_to_string(&p).expect("text"));
    found.into_iter().map(read).collect()
}

/// The commands in a page's blocks of `sh` and `console`, continued lines joined.
fn commands(page: &str) -> Vec<String> {
    let block = Regex::new(r"(?ms)^ *```(sh|console)[^\n]*\n(.*?)^ *```").expect("a good pattern");
    let mut all = Vec::new();
    for found in block.captures_iter(page) {
        let joined = found[2].replace("\\\n", " ");
        for line in joined.lines().map(str::trim) {
            let line = if &found[1] == "console" { line.strip_prefix("$ ") } else { Some(line) };
            all.extend(line.filter(|l| !l.is_empty()).map(str::to_owned));
        }
    }
    all
}

/// The arguments of each call of the program in a line of shell; none where another program stands there.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    // A substitution is a value of some kind; what it runs is no argument here.
    let substitution = Regex::new(r#"\$\((?:[^()]|\([^()]*\))*\)"#).expect("a good pattern");
    let flat = substitution.replace_all(line, "7");
    for part in split(&flat) {
        let mut words = part.into_iter().skip_while(|w| w.contains('=') || matches!(w.as_str(), "until" | "while" | "if" | "exec"));
        match (words.next().as_deref(), words.next()) {
            (Some("readback"), first) => all.push(first.into_iter().chain(words).collect()),
            (Some("cargo"), Some(run)) if run == "run" => all.push(words.skip_while(|w| w != "--").skip(1).collect()),
            _ => {}
        }
    }
    all
}

/// A line's commands as words; quotes are taken off, comments and redirections end one.
fn split(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word, mut quote, mut open) = (Vec::new(), Vec::new(), String::new(), None, false);
    let mut ended = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => (quote, open) = (Some(c), true),
            (None, '#') if word.is_empty() => break,
            (None, '|' | ';' | '&' | '>' | '<' | ' ') => {
                // `2>` is no word.
                let stream = c == '>' && !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
                if (open || !word.is_empty()) && !ended && !stream {
                    words.push(std::mem::take(&mut word));
                }
                (open, word) = (false, String::new());
                ended |= matches!(c, '>' | '<');
                if matches!(c, '|' | ';' | '&') {
                    all.push(std::mem::take(&mut words));
                    ended = false;
                }
            }
            (_, c) => word.push(c),
        }
    }
    if (open || !word.is_empty()) && !ended {
        words.push(word);
    }
    all.push(words);
    all
}

/// If this broke, somebody would copy a command from a page, and be told that it does not exist.
#[test]
fn every_command_of_the_pages_is_taken() {
    let mut seen = 0;
    for (page, text) in pages() {
        for line in commands(&text) {
            for call in calls(&line) {
                seen += 1;
                // `--by` comes from USER, which a test has not.
                let by = (call.first().is_some_and(|c| c == "ops" || c == "dlq")
                    && line.contains("--reason")
                    && !line.contains("--by "))
                .then(|| ["--by", "kim"].map(str::to_owned));
                // What a command puts in is a version.
                let words = call.iter().map(|w| if w.starts_with("$(") { "1".to_owned() } else { w.clone() });
                let args = std::iter::once("readback".to_owned()).chain(words).chain(by.into_iter().flatten());
                let taken = Cli::command().try_get_matches_from(args);
                assert!(taken.is_ok(), "{page}: `{line}`\n{}", taken.err().map(|e| e.to_string()).unwrap_or_default());
            }
        }
    }
    assert!(seen > 40, "{seen} commands were found");
}

/// If this broke, a page would name a command or flag that was renamed.
#[test]
fn commands_in_the_text_exist() {
    let code = Regex::new(r"`readback ([^`\n]+)`").expect("a good pattern");
    let mut seen = 0;
    for (page, text) in pages() {
        for found in code.captures_iter(&text) {
            seen += 1;
            names(&found[1]).unwrap_or_else(|wrong| panic!("{page}: `readback {}`: {wrong}", &found[1]));
        }
    }
    assert!(seen > 60, "{seen} commands were found");
}

/// Looks each word of a command line with placeholders up.
fn names(line: &str) -> Result<(), String> {
    let mut at = Cli::command();
    at.build();
    // Behind the first flag its value may stand.
    let mut flags = false;
    let words = line.split(|c: char| c.is_whitespace() || "[]…".contains(c)).filter(|w| !w.is_empty());
    for word in words {
        // `list\|show\|watch` stands for each of them; what does not lead on is an argument.
        let all: Vec<&str> = word.split(['|', '\\']).filter(|w| !w.is_empty()).collect();
        if let Some(flag) = all[0].strip_prefix("--") {
            let flag = flag.split('=').next().unwrap_or(flag);
            if !flag.is_empty() && !at.get_arguments().any(|a| a.get_long() == Some(flag)) {
                return Err(format!("{} has no --{flag}", at.get_name()));
            }
            flags = true;
        } else if word.contains('<') || word.chars().all(|c| c.is_ascii_uppercase()) {
            return Ok(());
        } else if at.has_subcommands() && !flags {
            let named: Vec<_> = all.iter().map(|w| at.find_subcommand(w).cloned().ok_or(*w)).collect();
            match named.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(mut found) if found.len() == 1 => at = found.remove(0),
                Ok(_) => return Ok(()),
                Err(wrong) => return Err(format!("there is no {wrong}")),
            }
        }
    }
    Ok(())
}

/// If this broke, a page would send people to a code, metric or setting that does not exist.
#[test]
fn codes_metrics_and_settings_of_the_pages_exist() {
    let known: BTreeSet<String> = codes::ALL.iter().map(|(code, _)| code.to_string()).collect();
    let metrics: BTreeSet<&str> = events::ALL.iter().copied().flatten().map(|m| m.name).collect();
    let shown = readback(&["config", "show", "--output", "json"]);
    let settings: BTreeSet<String> = String::from_utf8_lossy(&shown.stdout)
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok()?["key"].as_str().map(str::to_owned))
        .collect();
    assert!(settings.contains("topics.watch"), "{settings:?}");
    let sections: BTreeSet<&str> = settings.iter().filter_map(|k| k.split_once('.')).map(|(section, _)| section).collect();
    let code = Regex::new(r"\bRB\d{4}\b").expect("a good pattern");
    let metric = Regex::new(r"`(readback_[a-z_]+)").expect("a good pattern");
    let setting = Regex::new(r"`([a-z]+)\.([a-z_]+)(?::[^`]*)?`").expect("a good pattern");
    let variable = Regex::new(r"\bREADBACK_([A-Z]+)__([A-Z_]+)\b").expect("a good pattern");
    for (page, text) in pages() {
        for found in code.find_iter(&text) {
            assert!(known.contains(found.as_str()), "{page}: there is no {}", found.as_str());
        }
        for found in metric.captures_iter(&text) {
            let bare = ["_bucket", "_sum", "_count"].iter().find_map(|s| found[1].strip_suffix(s)).unwrap_or(&found[1]);
            assert!(metrics.contains(bare), "{page}: there is no metric {bare}");
        }
        // `effects.max_open`, but neither a contract's `policy.timeout` nor a file's `orders.yaml`.
        for found in
            setting.captures_iter(&text).filter(|f| sections.contains(&f[1]) && !["yaml", "rs", "md", "id"].contains(&&f[2]))
        {
            // A setting, or a section of some: `security.sasl`.
            let key = format!("{}.{}", &found[1], &found[2]);
            let is = |known: &String| *known == key || known.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.'));
            assert!(settings.iter().any(is), "{page}: there is no setting {}", &found[0]);
        }
        for found in variable.captures_iter(&text).filter(|f| !["SECTION", "KAFKA"].contains(&&f[1])) {
            let key = format!("{}.{}", found[1].to_lowercase(), found[2].to_lowercase().replace("__", "."));
            // A secret is named by where it stands.
            let key = [".file", ".env", ".command"].iter().find_map(|s| key.strip_suffix(s)).unwrap_or(&key).to_owned();
            assert!(settings.contains(&key), "{page}: {} sets nothing", &found[0]);
        }
    }
}

/// If this broke, somebody would be woken by an alert that no page tells what to do at.
#[test]
fn every_alert_has_its_section_in_the_handbook() {
    let rules = std::fs::read_to_string(root().join("deploy/alerts.yml")).expect("the alerts");
    let handbook = std::fs::read_to_string(root().join("src/docs/handbook.md")).expect("the handbook");
    let names: Vec<&str> = rules.lines().filter_map(|l| l.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        let section = handbook.split("\n## ").find(|s| s.lines().next() == Some(name));
        let section = section.unwrap_or_else(|| panic!("no section `## {name}` in src/docs/handbook.md"));
        for part in ["**Means.**", "**First look.**", "**Do.**", "**Wake somebody**"] {
            assert!(section.contains(part), "{name}: no {part}");
        }
    }
}

/// If this broke, a page would stand in no table of contents.
#[test]
fn every_page_stands_in_the_book() {
    let summary = std::fs::read_to_string(root().join("src/docs/SUMMARY.md")).expect("the table of contents");
    for (page, _) in pages().iter().filter(|(p, _)| p.starts_with("src/docs/") && !p.ends_with("SUMMARY.md")) {
        let name = page.trim_start_matches("src/docs/");
        assert!(summary.contains(&format!("({name})")), "{name} is not in src/docs/SUMMARY.md");
    }
}
