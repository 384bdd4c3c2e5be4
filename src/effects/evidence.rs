//! Evidence is kept as digests: enough to compare with what the target shows, never the content.

use sha2::{Digest, Sha256};

use crate::http::Answer;
use crate::intents::hex;

/// Hex SHA-256 over status and body of each answer, length-prefixed.
pub fn digest<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> String {
    let mut h = Sha256::new();
    for a in answers {
        h.update(a.status.to_be_bytes());
        h.update((a.body.len() as u64).to_be_bytes());
        h.update(&a.body);
    }
    hex(&h.finalize())
}
