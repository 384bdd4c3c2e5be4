//! Where a request came from. Before a proxy everybody has the proxy's address, and what it says of theirs is believed of proxies that
//! are declared alone: anybody else could write what they like.

use std::net::IpAddr;

use axum::http::HeaderMap;

use crate::config::Net;

/// Who passed a request on, and for whom: a list that every proxy adds to.
const FORWARDED: &str = "x-forwarded-for";

/// The address that a request came from: the last one in the list that no declared proxy has.
pub fn client(proxies: &[Net], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let lines = headers.get_all(FORWARDED).iter().filter_map(|v| v.to_str().ok());
    let hops: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    let mut at = peer.to_canonical();
    for hop in hops.iter().rev() {
        if !proxies.iter().any(|net| net.contains(at)) {
            break;
        }
        let Some(before) = address(hop) else { break };
        at = before;
    }
    at
}

/// An address, as proxies write it: some add a port.
fn address(hop: &str) -> Option<IpAddr> {
    let bare = hop.trim_start_matches('[').trim_end_matches(']');
    let found = bare.parse::<IpAddr>().ok();
    found.or_else(|| hop.parse::<std::net::SocketAddr>().ok().map(|a| a.ip())).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    /// If this broke, the audit topic would name the proxy for everybody behind it, or whatever address a stranger wrote.
    #[test]
    fn only_declared_proxies_are_believed() {
        let proxies: Vec<Net> = ["10.0.0.0/8", "192.0.2.7"].iter().map(|n| n.parse().expect("a network")).collect();
        let of = |proxies: &[Net], peer: &str, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED, HeaderValue::from_str(line).expect("a value"));
            }
            client(proxies, peer.parse().expect("an address"), &headers).to_string()
        };
        for (peer, lines, from) in [
            ("10.0.0.1", &[][..], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            // What stands before the proxy's own entry was written by whoever asked.
            ("10.0.0.1", &["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, 192.0.2.7"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.4", "203.0.113.9"], "203.0.113.9"),
            ("203.0.113.9", &["127.0.0.1"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db8::9]:4711"], "2001:db8::9"),
            ("10.0.0.1", &["2001:db8::9"], "2001:db8::9"),
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3"], "10.0.0.3"),
            ("::ffff:10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
        ] {
            assert_eq!(of(&proxies, peer, lines), from, "{peer} {lines:?}");
        }
        assert_eq!(of(&[], "10.0.0.1", &["203.0.113.9"]), "10.0.0.1");
    }
}
