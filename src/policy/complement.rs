//! What a negated match leaves, written without the negation: Windows has rules for that.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// More nets or ranges than this are no help.
const MOST: usize = 64;

/// The nets of `nets` (none: all addresses) without those of `except`, if they are few and all are IPv4.
pub(super) fn nets(nets: &[String], except: &[String]) -> Option<Vec<String>> {
    let parsed = |list: &[String]| list.iter().map(|net| parse(net)).collect::<Option<Vec<Ipv4Net>>>();
    let mut left = parsed(nets)?;
    if nets.is_empty() {
        left.push(Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a prefix"));
    }
    for hole in parsed(except)? {
        left = left.into_iter().flat_map(|net| without(net, hole)).collect();
        if left.len() > MOST {
            return None;
        }
    }
    left.sort_unstable();
    (!left.is_empty()).then(|| left.iter().map(Ipv4Net::to_string).collect())
}

fn parse(net: &str) -> Option<Ipv4Net> {
    net.parse().ok().or_else(|| net.parse::<Ipv4Addr>().ok().map(Ipv4Net::from)).map(|net| net.trunc())
}

fn without(net: Ipv4Net, hole: Ipv4Net) -> Vec<Ipv4Net> {
    if hole.contains(&net) {
        return Vec::new();
    }
    if !net.contains(&hole) {
        return vec![net];
    }
    let halves = net.subnets(net.prefix_len() + 1).expect("a net that contains a smaller one has halves");
    halves.flat_map(|half| without(half, hole)).collect()
}

/// The ports of `ports` (none: all) without those of `except`, if none of them is a name.
pub(super) fn ports(ports: &[String], except: &[String]) -> Option<Vec<String>> {
    let parsed = |list: &[String]| list.iter().map(|port| range(port)).collect::<Option<Vec<(u16, u16)>>>();
    let mut left = parsed(ports)?;
    if ports.is_empty() {
        left.push((1, u16::MAX));
    }
    for (first, last) in parsed(except)? {
        left = left
            .into_iter()
            .flat_map(|(from, to)| {
                let below = (first > from).then(|| (from, to.min(first.saturating_sub(1))));
                let above = (last < to).then(|| (from.max(last.saturating_add(1)), to));
                below.into_iter().chain(above)
            })
            .collect();
    }
    let text = |(from, to): (u16, u16)| if from == to { from.to_string() } else { format!("\"{from}:{to}\"") };
    (!left.is_empty() && left.len() <= MOST).then(|| left.into_iter().map(text).collect())
}

fn range(port: &str) -> Option<(u16, u16)> {
    match port.split_once(':') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last)| first <= last),
        None => port.parse().ok().map(|port| (port, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_net_without_a_hole_is_the_nets_around_it() {
        for (from, except, wanted) in [
            ("10.0.0.0/8", "10.128.0.0/9", "10.0.0.0/9"),
            ("10.0.0.0/30", "10.0.0.1", "10.0.0.0/32 10.0.0.2/31"),
            ("10.0.0.0/24 192.168.0.0/16", "10.0.0.0/8", "192.168.0.0/16"),
            ("", "0.0.0.0/1", "128.0.0.0/1"),
            ("10.0.0.0/24", "172.16.0.0/12", "10.0.0.0/24"),
        ] {
            assert_eq!(nets(&list(from), &list(except)), Some(list(wanted)), "{from} without {except}");
        }
        assert_eq!(nets(&list("10.0.0.0/24"), &list("10.0.0.0/8")), None, "nothing is left");
        assert_eq!(nets(&list("10.0.0.0/8"), &list("fd00::/8")), None, "IPv6");
        let holes: Vec<String> = (0..100).map(|n| format!("10.{n}.0.1")).collect();
        assert_eq!(nets(&[], &holes), None, "too many");
    }

    #[test]
    fn ports_without_some_are_the_ranges_around_them() {
        for (from, except, wanted) in [
            ("", "80", "\"1:79\" \"81:65535\""),
            ("1:100", "1:99", "100"),
            ("80 443", "443", "80"),
            ("8000:8100", "8050 8100", "\"8000:8049\" \"8051:8099\""),
            ("80", "443", "80"),
        ] {
            assert_eq!(ports(&list(from), &list(except)), Some(list(wanted)), "{from} without {except}");
        }
        assert_eq!(ports(&list("80"), &list("1:65535")), None);
        assert_eq!(ports(&[], &list("http")), None);
    }
}
