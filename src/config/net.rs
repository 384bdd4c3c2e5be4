//! Networks: one address, or all that begin with the same bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Net {
    address: IpAddr,
    bits: u32,
}

impl Net {
    /// Whether an address is of it. An IPv4 address is itself, also where a socket shows it as IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        let prefix = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => (32, u128::from(ip.to_bits()) >> (32 - self.bits.min(32))),
            IpAddr::V6(ip) => (128, ip.to_bits().checked_shr(128 - self.bits.min(128)).unwrap_or(0)),
        };
        prefix(self.address) == prefix(address.to_canonical())
    }
}

impl FromStr for Net {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse::<IpAddr>().map_err(|_| ())?.to_canonical();
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |b| b.parse().ok().filter(|b| *b <= all)).ok_or(())?;
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this broke, somebody who is no proxy would be believed, or the proxy would not.
    #[test]
    fn a_network_has_what_begins_as_it_does() {
        let has = |net: &str, ip: &str| net.parse::<Net>().expect(net).contains(ip.parse().expect(ip));
        for (net, ip, is) in [
            ("10.0.0.0/8", "10.200.3.4", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.4.7", "10.1.4.7", true),
            ("10.1.4.7", "10.1.4.8", false),
            ("10.1.4.7", "::ffff:10.1.4.7", true),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:9::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("::1", "::1", true),
        ] {
            assert_eq!(has(net, ip), is, "{net} {ip}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "proxy.internal", "::1/129", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Net>().is_err(), "{wrong}");
        }
    }
}
