//! Who wrote while who led, by the audit log. Pure.
//!
//! Whoever had a Lease of the operator accepted leads from the moment at which that arrived, until somebody else's arrives or
//! it is given back. Whatever another process had accepted after that moment was written by a second writer; so was what had
//! arrived before, but was answered after.

use std::collections::BTreeSet;

use jiff::Timestamp;
use openshift_upgrade_operator::leader::LEASE;
use serde_json::Value;

use super::audit_log::{Line, OPERATOR, ObjectRef};

/// A write of the operator that the API server accepted.
#[derive(Clone, Debug)]
pub struct Write {
    /// Which process, by its name in the Lease.
    pub by: String,
    /// When it arrived.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
    /// Verb and path.
    pub what: String,
    /// Whether it is one of the Lease, and what it makes of it.
    pub lease: Option<Claim>,
}

/// What a write makes of the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Taken or renewed.
    Held,
    /// Given back.
    Given,
}

/// From when on a process led, or nobody did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Who led.
    pub holder: Option<String>,
    /// When its claim arrived.
    pub from: Timestamp,
}

fn is_write(verb: &str) -> bool {
    ["create", "update", "patch", "delete", "deletecollection"].contains(&verb)
}

impl Write {
    fn of(line: &Line) -> Option<Self> {
        let object = line.object_ref.as_ref()?;
        let changes_nothing = object.api_group == "authorization.k8s.io" || line.asks("dryRun=All");
        if line.user.username != OPERATOR || !is_write(&line.verb) || !line.was_accepted() || changes_nothing
        {
            return None;
        }
        let body = &line.request_object;
        let name = match object.name.as_str() {
            "" => body
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default(),
            name => name,
        };
        let is_lease = object.resource == "leases" && (name == LEASE || name.is_empty());
        Some(Self {
            by: line.process().to_owned(),
            received: line.request_received_timestamp,
            answered: line.stage_timestamp,
            what: format!("{} {}", line.verb, line.path()),
            lease: is_lease.then(|| claim(line)),
        })
    }
}

/// The body tells; there is none where the log was made at another level.
fn claim(line: &Line) -> Claim {
    let spec = line.request_object.pointer("/spec");
    let spec =
        spec.expect("the audit log has no bodies of Leases: bring the cluster up with TESTBED_AUDIT=ours");
    match spec["holderIdentity"].as_str() {
        Some(holder) if !holder.is_empty() => Claim::Held,
        Some(_) | None => Claim::Given,
    }
}

/// All writes of the operator that were accepted, in the order of their arrival.
pub fn writes(log: &[Line]) -> Vec<Write> {
    let mut writes: Vec<Write> = log.iter().filter_map(Write::of).collect();
    writes.sort_by_key(|w| w.received);
    writes
}

/// Who led, one after the other.
pub fn terms(writes: &[Write]) -> Vec<Term> {
    let mut terms: Vec<Term> = Vec::new();
    for write in writes {
        let holder = match write.lease {
            None => continue,
            Some(Claim::Held) => Some(write.by.clone()),
            Some(Claim::Given) => None,
        };
        if terms.last().is_none_or(|t| t.holder != holder) {
            terms.push(Term {
                holder,
                from: write.received,
            });
        }
    }
    terms
}

/// Writes of processes that did not lead, one line each.
pub fn strangers(writes: &[Write]) -> Vec<String> {
    let terms = terms(writes);
    let others = writes.iter().filter(|w| w.lease.is_none());
    others.filter_map(|write| stranger(write, &terms)).collect()
}

fn stranger(write: &Write, terms: &[Term]) -> Option<String> {
    let begun = terms.partition_point(|t| t.from <= write.received);
    let leader = begun.checked_sub(1).and_then(|at| terms[at].holder.as_deref());
    let Write {
        by,
        received,
        answered,
        what,
        lease: _,
    } = write;
    if leader != Some(by) {
        let leader = leader.unwrap_or("nobody");
        return Some(format!("{received} {by} wrote while {leader} led: {what}"));
    }
    let next = terms.get(begun).filter(|next| next.from < *answered)?;
    let next = next.holder.as_deref().unwrap_or("nobody");
    Some(format!(
        "{received} {by} wrote, answered {answered}, when {next} led already: {what}"
    ))
}

/// What of these kinds `process` listed from `from` until `until`: a follower whose watches are warm lists none of them when it
/// takes over.
pub fn lists(
    log: &[Line],
    process: &str,
    kinds: &[&str],
    from: Timestamp,
    until: Timestamp,
) -> BTreeSet<String> {
    log.iter()
        .filter(|l| l.user.username == OPERATOR && l.process() == process)
        .filter(|l| (from..until).contains(&l.request_received_timestamp))
        .filter(|l| l.verb == "list" || l.verb == "watch" && l.asks("sendInitialEvents=true"))
        .filter_map(|l| l.object_ref.as_ref().map(ObjectRef::kind))
        .filter(|kind| kinds.contains(&kind.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// `second process verb path [holder]`, answered after 10 ms, or `second+seconds`.
    fn line(text: &str) -> Line {
        let words: Vec<&str> = text.split(' ').collect();
        let (second, took) = words[0].split_once('+').unwrap_or((words[0], "0.010"));
        let base: Timestamp = "2026-11-22T01:00:00Z".parse().unwrap();
        let milliseconds = |seconds: &str| {
            let seconds: f64 = seconds.parse().unwrap();
            jiff::SignedDuration::from_secs_f64(seconds)
        };
        let received = base + milliseconds(second);
        let mut path = words[3].split('/');
        let (group, resource) = (path.next().unwrap(), path.next().unwrap());
        let resource = resource.split('?').next().unwrap();
        let holder = words.get(4).map(|h| if *h == "-" { "" } else { h });
        let code: u16 = words.get(5).map_or(200, |c| c.parse().unwrap());
        serde_json::from_value(json!({
            "verb": words[2],
            "user": {"username": OPERATOR},
            "userAgent": format!("upgrade-operator/0.1.0 ({})", words[1]),
            "objectRef": {"apiGroup": group, "resource": resource, "name": LEASE},
            "responseStatus": {"code": code},
            "requestObject": holder.map(|h| json!({"spec": {"holderIdentity": h}})),
            "requestReceivedTimestamp": received,
            "stageTimestamp": received + milliseconds(took),
            "requestURI": words[3],
        }))
        .unwrap()
    }

    fn log(text: &[&str]) -> Vec<Line> {
        text.iter().map(|t| line(t)).collect()
    }

    const TAKEN_OVER: [&str; 3] = [
        "0 a update co/leases a",
        "2 a update co/leases a",
        "19 b update co/leases b",
    ];

    #[rstest]
    #[case::one_after_the_other(&["1 a patch x/pools", "18 a patch x/pools", "20 b patch x/pools"], &[])]
    #[case::before_anybody_led(&["-1 a patch x/pools"], &["a wrote while nobody led"])]
    #[case::a_follower(&["1 b patch x/pools"], &["b wrote while a led"])]
    #[case::who_was_thawed(&["19.5 a patch x/pools"], &["a wrote while b led"])]
    #[case::and_was_refused(&["19.5 a patch x/pools - 409"], &[])]
    #[case::who_only_read(&["19.5 a get x/pools", "19.5 a watch x/pools"], &[])]
    #[case::who_only_tried(&["19.5 a create x/pools?dryRun=All"], &[])]
    #[case::under_way_for_long(&["18.5+1 a patch x/pools"], &["when b led already"])]
    #[case::given_back(&["30 b update co/leases -", "31 b patch x/pools", "33 a update co/leases a", "34 a patch x/pools"],
        &["b wrote while nobody led"])]
    #[case::a_claim_that_was_refused(&["25 a update co/leases a 409", "26 b patch x/pools"], &[])]
    fn whoever_does_not_lead_writes_nothing(#[case] more: &[&str], #[case] expected: &[&str]) {
        let all = log(&[&TAKEN_OVER[..], more].concat());
        let found = strangers(&writes(&all));
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, part) in found.iter().zip(expected) {
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn terms_are_told_by_claims_that_went_through() {
        let more = [
            "30 b update co/leases -",
            "31 b get co/leases",
            "33 b update co/leases b",
        ];
        let writes = writes(&log(&[&TAKEN_OVER[..], &more].concat()));
        let holders: Vec<_> = terms(&writes).into_iter().map(|t| t.holder).collect();
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(holders, [some("a"), some("b"), None, some("b")]);
    }

    #[test]
    fn a_list_at_a_takeover_is_a_cold_start() {
        let all = log(&[
            "0 a list x/nodes",
            "0 b list x/nodes",
            // Of another kind, a watch that goes on, another's, and later.
            "11 a list x/pools",
            "11 a watch x/nodes?resourceVersion=5",
            "11 b list x/nodes",
            "30 a list x/nodes?limit=50",
            "31 a watch x/nodes?sendInitialEvents=true",
        ]);
        let at = |second: i64| Timestamp::from_second(1_795_309_200 + second).unwrap();
        assert_eq!(at(0), all[0].request_received_timestamp);
        let listed = |from, until| lists(&all, "a", &["nodes"], at(from), at(until)).len();
        assert_eq!([listed(10, 30), listed(30, 31), listed(31, 32)], [0, 1, 1]);
    }
}
