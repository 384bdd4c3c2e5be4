//! Reading an application for a command.

use std::path::Path;

use crate::declare::Declared;
use crate::dsl::Application;
use crate::error::{Error, Result};

/// What stands in a topology's files, or every error of all of them.
pub fn declared(given: &Path) -> Result<Declared> {
    crate::declare::load(given).map_err(Error::from)
}

/// As [`declared`], without asking for addresses that stand in the environment: for commands that call nothing.
pub fn offline(given: &Path) -> Result<Declared> {
    crate::config::yaml::offline(|| declared(given))
}

/// As [`declared`]; warnings go to stderr.
pub fn told(given: &Path) -> Result<Declared> {
    let declared = declared(given)?;
    if !declared.warnings.is_empty() {
        eprintln!("{}", declared.warnings);
    }
    Ok(declared)
}

/// The application of a topology; warnings go to stderr.
pub fn application(given: &Path) -> Result<Application> {
    Ok(told(given)?.application)
}
