//! `readback explain RB0103`: the page of an error code.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::{Code, Error, Fault, Result, codes};

use super::Format;

/// Every page, in `## RB0103 · NAME` sections.
const PAGES: &str = include_str!("../docs/errors.md");

/// Explain an error code.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback explain RB0103    what it means and what to do next
  readback explain           every code")]
pub struct ExplainArgs {
    /// The code (`RB0103`, `103`) or its name (`unknown_key`); without one all are listed.
    code: Option<String>,
}

/// The page of a code: its title and text.
fn page(code: &str) -> Option<(&'static str, &'static str)> {
    let head = format!("## {code} ");
    let at = PAGES.find(&head)?;
    let rest = &PAGES[at + 3..];
    let end = rest.find("\n## ").unwrap_or(rest.len());
    let (title, text) = rest[..end].split_once('\n')?;
    Some((title.trim(), text.trim()))
}

/// The code that is meant: `RB0231`, `231`, or its name.
fn meant(given: &str) -> Option<String> {
    let upper = given.to_ascii_uppercase();
    let number = upper.trim_start_matches("RB").parse::<u16>();
    let is = |(code, name): &&(Code, &str)| number.as_ref().map_or(upper.replace(['-', ' '], "_") == *name, |n| code.0 == *n);
    codes::ALL.iter().find(is).map(|(code, _)| code.to_string())
}

/// Prints one page, or the list of codes.
pub fn run(args: &ExplainArgs, format: Format) -> Result<ExitCode> {
    let Some(code) = &args.code else {
        for (code, name) in codes::ALL {
            match format {
                Format::Json => println!("{}", json!({ "schema": "readback.code/1", "code": code.to_string(), "name": name })),
                Format::Table => println!("{code}  {}", name.to_lowercase().replace('_', " ")),
            }
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some((code, (title, text))) = meant(code).and_then(|code| page(&code).map(|page| (code, page))) else {
        return Err(Error::new(codes::USAGE, Fault::Configuration, format!("explaining {code}: there is no such code"))
            .next("`readback explain` lists all codes"));
    };
    let text = text.replace("*Next:*", "Next:");
    match format {
        Format::Json => println!("{}", json!({ "schema": "readback.explanation/1", "code": code, "title": title, "text": text })),
        Format::Table => println!("{title}\n\n{text}"),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, an operator at night would get a code without a page.
    #[test]
    fn every_code_has_a_page() {
        let missing: Vec<String> = codes::ALL.iter().map(|(c, _)| c.to_string()).filter(|c| page(c).is_none()).collect();
        assert!(missing.is_empty(), "no page in src/docs/errors.md for {missing:?}");
    }
}
