//! `readback explain RB0103`: the page of an error code.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::{Error, Fault, Result, codes};

use super::Format;

/// Every page, in `## RB0103 · NAME` sections.
const PAGES: &str = include_str!("../docs/errors.md");

/// Explain an error code.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback explain RB0103    what it means and what to do next
  readback explain           every code")]
pub struct ExplainArgs {
    /// The code, `RB0103`; without one all are listed.
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
    let code = code.to_ascii_uppercase();
    let Some((title, text)) = page(&code) else {
        return Err(Error::new(codes::USAGE, Fault::Configuration, format!("explaining {code}: there is no such code"))
            .next("`readback explain` lists all codes"));
    };
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
