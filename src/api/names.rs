//! Names and label values that always fit: truncated with a hash, never cut blindly.

use sha2::{Digest, Sha256};

/// Longest label value and longest name of objects whose name becomes one.
pub const MAX: usize = 63;

/// First `n` hex digits of the SHA-256 of `text`.
pub fn hash(text: &str, n: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let digits = digest.iter().flat_map(|b| [b >> 4, b & 15]);
    digits
        .filter_map(|d| char::from_digit(u32::from(d), 16))
        .take(n)
        .collect()
}

/// `text` where it fits into `max` bytes, else its beginning and 10 hex digits of its hash.
pub fn fit(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let keep = max.saturating_sub(11);
    let end = (0..=keep).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let head = text.get(..end).unwrap_or_default();
    joined(head.trim_end_matches(['-', '.', '_']), &hash(text, 10))
}

/// A valid name of at most 63 characters out of any text: lower case, `-` for what a DNS label may not have.
pub fn dns_label(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let clean = clean.trim_matches('-');
    if clean == text && !clean.is_empty() {
        fit(clean, MAX)
    } else {
        fit(&joined(clean, &hash(text, 5)), MAX)
    }
}

/// A name may not begin with the hyphen.
fn joined(head: &str, hash: &str) -> String {
    if head.is_empty() {
        hash.to_owned()
    } else {
        format!("{head}-{hash}")
    }
}

/// A label value out of a name: names may have 253 characters, label values 63.
pub fn label_value(name: &str) -> String {
    fit(name, MAX)
}

/// Name of the UpgradeJob of one run: `<config>-<unix start>-<7 hex of the config's hash>`.
pub fn upgrade_job(config: &str, unix_start: i64, config_hash: &str) -> String {
    let tail = format!(
        "-{unix_start}-{}",
        config_hash.chars().take(7).collect::<String>()
    );
    format!("{}{tail}", fit(config, MAX.saturating_sub(tail.len())))
}

/// Whether a text can be the name of most kinds of objects, or the prefix of the key of a label.
pub fn is_dns_subdomain(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 253
        && text.split('.').all(|part| {
            edge(part.chars().next())
                && edge(part.chars().next_back())
                && part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn is_dns_label(text: &str) -> bool {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        text.len() <= MAX
            && edge(text.chars().next())
            && edge(text.chars().next_back())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    }

    #[rstest]
    fn any_text_has_a_valid_name(
        #[values("", "-", "ä", "日本語", "é-pool", "A", "a.b", "-a-", "\u{0}")] text: &str,
    ) {
        assert!(is_dns_label(&dns_label(text)), "{text:?}: {}", dns_label(text));
        let long = text.repeat(100);
        assert!(is_dns_label(&dns_label(&long)), "{}", dns_label(&long));
    }

    proptest! {
        #[test]
        fn names_of_any_text_are_valid_and_fit(text in "\\PC{0,90}", max in 12..80usize) {
            prop_assert!(is_dns_label(&dns_label(&text)), "{}", dns_label(&text));
            prop_assert!(fit(&text, max).len() <= max);
        }
    }

    #[test]
    fn long_names_fit_and_stay_apart() {
        let (a, b) = ("x".repeat(253), format!("{}y", "x".repeat(252)));
        for f in [label_value, dns_label, |s: &str| {
            upgrade_job(s, 1_609_531_200, "ef11c47aa")
        }] {
            assert!(f(&a).len() <= MAX);
            assert_ne!(f(&a), f(&b));
        }
        assert_eq!(
            upgrade_job("cluster-upgrade", 1_609_531_200, "ef11c47"),
            "cluster-upgrade-1609531200-ef11c47"
        );
        assert_eq!(dns_label("My.Hook"), format!("my-hook-{}", hash("My.Hook", 5)));
    }
}
