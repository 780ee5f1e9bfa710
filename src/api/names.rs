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

/// `text` where it fits into `max` characters, else its beginning and 10 hex digits of its hash.
///
/// Assumes ASCII, which Kubernetes names and label values are.
pub fn fit(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let keep = max.saturating_sub(11);
    let head: String = text.chars().take(keep).collect();
    format!("{}-{}", head.trim_end_matches(['-', '.', '_']), hash(text, 10))
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
    if clean == text {
        fit(clean, MAX)
    } else {
        fit(&format!("{clean}-{}", hash(text, 5)), MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

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
