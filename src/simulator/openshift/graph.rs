//! The update graph: releases that are there from and until a time, in channels, reachable from certain versions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use semver::Version;

use super::{
    Step,
    faults::{self, Fault},
};

/// The update graph, besides the releases that are simply offered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    releases: Vec<Node>,
    /// Known risks, by version.
    risks: BTreeMap<String, Vec<Fault>>,
    /// Where nothing is recommended, the next patch of what is installed is.
    pub always_an_update: bool,
}

/// A release in the graph.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    version: Version,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    /// Empty = those of its own minor and of the next one.
    channels: Vec<String>,
    /// Empty = every older version of its own minor and of the one before.
    from: Vec<Version>,
}

impl Graph {
    /// Reads lines `<version> [since=<time>] [until=<time>] [channels=<a>,<b>] [from=<version>,<version>]`.
    pub(super) fn set_releases(&mut self, text: &str) -> Result<(), String> {
        self.releases = faults::subjects(text)
            .map(|(version, words)| Node::read(version, words))
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Reads lines `<version> <name> [<message>]`; a version may have several.
    pub(super) fn set_risks(&mut self, text: &str) -> Result<(), String> {
        let mut risks: BTreeMap<String, Vec<Fault>> = BTreeMap::new();
        for (version, rest) in faults::subjects(text) {
            let version = faults::version(version)?.to_owned();
            risks
                .entry(version)
                .or_default()
                .push(faults::fault(rest, "SimulatedRisk"));
        }
        self.risks = risks;
        Ok(())
    }

    /// The known risks of updating to a version.
    pub fn risks_of(&self, version: &str) -> &[Fault] {
        self.risks.get(version).map_or(&[], Vec::as_slice)
    }

    /// Whether the update service finds the installed version in the channel. Without a graph everything is found.
    pub fn knows(&self, current: &str, channel: &str) -> bool {
        let Ok(current) = Version::parse(current) else {
            return true;
        };
        let names_it = self
            .releases
            .iter()
            .any(|r| r.channels.iter().any(|c| c == channel));
        self.releases.is_empty() || self.always_an_update || names_it || is_usual(channel, &current)
    }

    /// The releases that can be reached from the installed version at this instant; asks to be woken when that changes.
    pub(super) fn updates(
        &self,
        channel: &str,
        current: &str,
        now: Timestamp,
        step: &mut Step,
    ) -> Vec<String> {
        let Ok(current) = Version::parse(current) else {
            return Vec::new();
        };
        for at in self.releases.iter().flat_map(|r| [r.since, r.until]).flatten() {
            if at > now {
                step.wake(at);
            }
        }
        let reachable = self
            .releases
            .iter()
            .filter(|r| r.is_there(now) && r.is_in(channel) && r.is_reached_from(&current));
        reachable.map(|r| r.version.to_string()).collect()
    }
}

impl Node {
    fn read(version: &str, words: &str) -> Result<Self, String> {
        let parse = |text: &str| {
            faults::version(text)?;
            Version::parse(text).map_err(|e| e.to_string())
        };
        let instant = |text: &str| {
            let read = text.parse::<Timestamp>();
            read.map_err(|_| format!("{text:?} is no time in RFC 3339"))
        };
        let mut node = Self {
            version: parse(version)?,
            since: None,
            until: None,
            channels: Vec::new(),
            from: Vec::new(),
        };
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some(("since", at)) => node.since = Some(instant(at)?),
                Some(("until", at)) => node.until = Some(instant(at)?),
                Some(("channels", all)) => node.channels = all.split(',').map(str::to_owned).collect(),
                Some(("from", all)) => node.from = all.split(',').map(parse).collect::<Result<_, _>>()?,
                Some(_) | None => {
                    return Err(format!(
                        "{version}: {word:?} is none of since=, until=, channels=, from="
                    ));
                }
            }
        }
        Ok(node)
    }

    fn is_there(&self, now: Timestamp) -> bool {
        self.since.is_none_or(|at| at <= now) && self.until.is_none_or(|at| now < at)
    }

    fn is_in(&self, channel: &str) -> bool {
        if self.channels.is_empty() {
            return is_usual(channel, &self.version);
        }
        self.channels.iter().any(|c| c == channel)
    }

    fn is_reached_from(&self, current: &Version) -> bool {
        if *current >= self.version {
            return false;
        }
        if !self.from.is_empty() {
            return self.from.contains(current);
        }
        let steps = self.version.minor.checked_sub(current.minor);
        self.version.major == current.major && matches!(steps, Some(0 | 1))
    }
}

/// Whether a version is usually in a channel: `stable-4.19` has 4.19 and 4.18, `eus-4.20` also 4.18.
fn is_usual(channel: &str, version: &Version) -> bool {
    let Some((kind, minor)) = channel.rsplit_once('-') else {
        return false;
    };
    let Some((major, minor)) = minor.split_once('.') else {
        return false;
    };
    let (Ok(major), Ok(minor)) = (major.parse::<u64>(), minor.parse::<u64>()) else {
        return false;
    };
    let most = if kind == "eus" { 2 } else { 1 };
    let ahead = minor.checked_sub(version.minor);
    major == version.major && ahead.is_some_and(|ahead| ahead <= most)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn updates(lines: &str, channel: &str, current: &str, now: &str) -> (Vec<String>, Option<String>) {
        let mut graph = Graph::default();
        graph.set_releases(lines).unwrap();
        let mut step = Step::default();
        let found = graph.updates(channel, current, now.parse().unwrap(), &mut step);
        (found, step.wake_at.map(|at| at.to_string()))
    }

    #[rstest]
    #[case::nothing_else("4.18.5", "stable-4.18", "4.18.3", true)]
    #[case::the_same("4.18.5", "stable-4.18", "4.18.5", false)]
    #[case::older("4.18.5", "stable-4.18", "4.18.6", false)]
    #[case::next_minors_channel("4.18.5", "fast-4.19", "4.18.3", true)]
    #[case::next_minor("4.19.1", "stable-4.19", "4.18.3", true)]
    #[case::next_minor_in_the_old_channel("4.19.1", "stable-4.18", "4.18.3", false)]
    #[case::two_minors("4.20.1", "eus-4.20", "4.18.3", false)]
    #[case::on_the_way("4.19.1", "eus-4.20", "4.18.3", true)]
    #[case::own_channels("4.18.5 channels=a,b", "b", "4.18.3", true)]
    #[case::own_channels("4.18.5 channels=a,b", "stable-4.18", "4.18.3", false)]
    #[case::edges("4.18.5 from=4.18.4,4.18.3", "stable-4.18", "4.18.3", true)]
    #[case::edges("4.18.5 from=4.18.4", "stable-4.18", "4.18.3", false)]
    #[case::no_channel_of_a_minor("4.18.5", "mine", "4.18.3", false)]
    fn a_release_is_offered_by_channel_and_edge(
        #[case] line: &str,
        #[case] channel: &str,
        #[case] current: &str,
        #[case] expected: bool,
    ) {
        let (found, _) = updates(line, channel, current, "2026-11-24T21:00:00Z");
        assert_eq!(!found.is_empty(), expected);
    }

    #[rstest]
    #[case("2026-11-30T00:00:00Z", false, Some("2026-12-01T00:00:00Z"))]
    #[case("2026-12-01T00:00:00Z", true, Some("2026-12-08T00:00:00Z"))]
    #[case("2026-12-08T00:00:00Z", false, None)]
    fn a_release_appears_and_is_withdrawn(
        #[case] now: &str,
        #[case] expected: bool,
        #[case] wake: Option<&str>,
    ) {
        let line = "4.18.5 since=2026-12-01T00:00:00Z until=2026-12-08T00:00:00Z";
        let (found, told) = updates(line, "stable-4.18", "4.18.3", now);
        assert_eq!(!found.is_empty(), expected);
        assert_eq!(told.as_deref(), wake);
    }

    #[rstest]
    #[case("stable-4.18", true)]
    #[case("stable-4.19", true)]
    #[case("stable-4.20", false)]
    #[case("eus-4.20", true)]
    #[case("mine", true)]
    #[case("yours", false)]
    fn the_installed_version_must_be_in_the_channel(#[case] channel: &str, #[case] expected: bool) {
        let mut graph = Graph::default();
        assert!(graph.knows("4.18.3", channel), "without a graph");
        graph.set_releases("4.18.5 channels=mine").unwrap();
        assert_eq!(graph.knows("4.18.3", channel), expected);
    }
}
