//! `readback completions SHELL` and `readback man`: made from the commands themselves, so that they never lag behind.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::error::{Error, Fault, Result, codes};

use super::{Cli, Format};

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback completions bash > ~/.local/share/bash-completion/completions/readback
  readback completions zsh > ~/.zfunc/_readback          with fpath+=~/.zfunc before compinit in ~/.zshrc
  readback completions fish > ~/.config/fish/completions/readback.fish")]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Print the manual page, or write one for each command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback man | man -l -
  readback man --dir ~/.local/share/man/man1             readback.1, readback-run.1, readback-ops-show.1 …")]
pub struct ManArgs {
    /// Write a page for each command into this directory.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Prints the script that a shell reads.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "readback", &mut script);
    print!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Prints the page of the program, or writes all of them.
pub fn man(args: &ManArgs, format: Format) -> Result<ExitCode> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
        rendered.map_err(|e| Error::new(codes::BUG, Fault::Bug, "writing the manual").because(e))?;
        print!("{}", String::from_utf8_lossy(&page));
        return Ok(ExitCode::SUCCESS);
    };
    let pages = write(dir).map_err(|e| {
        let doing = format!("writing manual pages to {}", dir.display());
        Error::new(codes::FILE_UNREADABLE, Fault::Configuration, doing).because(e).next("name a directory that can be written")
    })?;
    match format {
        Format::Table => println!("wrote {pages} pages to {}", dir.display()),
        Format::Json => println!("{}", json!({ "schema": "readback.man/1", "directory": dir, "pages": pages })),
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    Ok(std::fs::read_dir(dir)?.flatten().filter(|f| f.file_name().to_string_lossy().starts_with("readback")).count())
}
