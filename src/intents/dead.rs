//! What a dead letter says of its death, in headers; the same from every part that gives a record up.

use crate::error::Code;
use crate::record::Headers;
use crate::time::WallTime;

use super::headers as names;

/// A record's headers with the reason. One from an earlier round is replaced, so that a record that is replayed and fails again does
/// not grow (C100). `reason` holds no payload.
pub fn headers(mut headers: Headers, code: Code, reason: &str, origin: &str, at: WallTime) -> Headers {
    headers.0.retain(|h| !names::DEAD.contains(&&*h.name));
    headers
        .with(names::DEAD_CODE, code.to_string())
        .with(names::DEAD_REASON, reason.to_owned())
        .with(names::DEAD_ORIGIN, origin.to_owned())
        .with(names::DEAD_AT, at.0.to_string())
}
