//! Our error as serde wants it.

use std::fmt;

use super::undecodable;
use crate::error::Error;

/// Why a record could not be written or read.
#[derive(Debug)]
pub(super) struct Failed(pub(super) Error);

impl From<Error> for Failed {
    fn from(e: Error) -> Self {
        Self(e)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

impl serde::de::Error for Failed {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(undecodable(why))
    }
}

impl serde::ser::Error for Failed {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(super::unencodable(why))
    }
}
