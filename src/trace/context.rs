//! W3C trace context, as headers and records have it. IDs of our own are derived, not drawn: whoever works on an operation, in whichever
//! process and however often, names its spans alike.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::ids::OperationKey;

/// A sampled `traceparent`: which trace, and which span of it is the parent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TraceContext {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
}

impl TraceContext {
    /// Reads a header whose flags say that the trace is sampled; `None` for all others, and for one that is no `traceparent`. That one
    /// is not sampled is seen by its last character.
    pub fn sampled(text: &str) -> Option<Self> {
        let flags = text.get(53..55).and_then(|f| u8::from_str_radix(f, 16).ok())?;
        if flags & 1 == 0 {
            return None;
        }
        let bytes = text.as_bytes();
        let dashes = [2, 35, 52].iter().all(|i| bytes[*i] == b'-');
        // Version ff is forbidden; what a later version adds follows after a dash.
        let length = text.len() == 55 || (text.get(55..56) == Some("-") && !text.starts_with("00"));
        if !dashes || !length || text.starts_with("ff") || bytes[..55].iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        unhex(&bytes[3..35], &mut trace)?;
        unhex(&bytes[36..52], &mut span)?;
        (trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span })
    }

    /// The trace that an operation begins where its request came with none.
    pub(super) fn root(key: &OperationKey) -> Self {
        let digest = Sha256::digest(format!("trace\u{1f}{}", key.joined()));
        let mut trace = [0; 16];
        trace.copy_from_slice(&digest[..16]);
        Self { trace, span: [0; 8] }.child(&key.joined())
    }

    /// A span of the same trace that is told from others by `name`.
    pub fn child(self, name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.trace);
        hash.update(self.span);
        hash.update(name);
        let mut span = [0; 8];
        span.copy_from_slice(&hash.finalize()[..8]);
        Self { trace: self.trace, span }
    }

    /// Whether a root with this trace is among the sampled share, by the lower 56 bits of its ID as the specification has it.
    pub(super) fn within(self, ratio: f64) -> bool {
        let mut low = [0; 8];
        low[1..].copy_from_slice(&self.trace[9..]);
        (u64::from_be_bytes(low) as f64) < ratio * (1_u64 << 56) as f64
    }
}

fn unhex(text: &[u8], into: &mut [u8]) -> Option<()> {
    for (byte, pair) in into.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(())
}

/// As a `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-01")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn key(op: &str) -> OperationKey {
        OperationKey { tenant: "acme".into(), operation: op.into(), step: "place".into() }
    }

    /// If this broke, spans would hang in traces that nobody else knows, or a bad header would fail a request.
    #[test]
    fn only_sampled_and_well_formed_headers_are_read() {
        let context = TraceContext::sampled(GIVEN).expect("sampled");
        assert_eq!(context.to_string(), GIVEN);
        assert!(TraceContext::sampled(&format!("01{}-x", &GIVEN[2..])).is_some(), "of a later version");
        for bad in [
            "",
            "00",
            "é-",
            &GIVEN.replace("-01", "-00"),
            &GIVEN.to_uppercase(),
            &GIVEN.replace("00-", "ff-"),
            &format!("{GIVEN}-x"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c8031+c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::sampled(bad), None, "{bad}");
        }
    }

    /// If this broke, a request that is delivered twice would be two traces, and two spans of one trace could be taken for one.
    #[test]
    fn ids_follow_from_what_they_stand_for() {
        let (one, two) = (TraceContext::root(&key("op-1")), TraceContext::root(&key("op-2")));
        assert_eq!(one, TraceContext::root(&key("op-1")));
        assert!(one.trace != two.trace && one.child("a") != one.child("b") && one.child("a").trace == one.trace);
        assert_eq!(TraceContext::sampled(&one.to_string()), Some(one));
    }

    /// If this broke, a tenth of the traces would be none or all of them.
    #[test]
    fn a_share_is_sampled() {
        let within = |ratio| (0..2_000).filter(|n| TraceContext::root(&key(&format!("op-{n}"))).within(ratio)).count();
        assert_eq!((within(0.0), within(1.0)), (0, 2_000));
        assert!((120..280).contains(&within(0.1)), "{}", within(0.1));
    }
}
