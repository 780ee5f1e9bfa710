//! What `/metrics` tells: gauges that are computed from the copies of the cluster's objects at each scrape. So a series goes
//! with its object, and nothing has to be kept up to date.
//!
//! Names and labels are those of the specification and of appuio/openshift-upgrade-controller, whose dashboards and alerts go
//! on working.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// What the text is, for the header `Content-Type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Series that are one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name of the metric.
    pub name: &'static str,
    /// What its value means, one sentence with a full stop.
    pub help: &'static str,
    /// How its value moves.
    pub type_: Type,
    /// Its series.
    pub series: Vec<Series>,
}

/// How the value of a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Up and down.
    Gauge,
    /// Up, from 0 at the start of the process. `_total` is added to the name.
    Counter,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

/// Computes the families at each scrape.
struct Gauges<F>(F);

impl<F> fmt::Debug for Gauges<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

impl<F: Fn() -> Vec<Family> + Send + Sync + 'static> Collector for Gauges<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in (self.0)() {
            let Family {
                name,
                help,
                type_,
                series,
            } = family;
            let metric_type = match type_ {
                Type::Gauge => MetricType::Gauge,
                Type::Counter => MetricType::Counter,
            };
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for Series { labels, value } in series {
                let encoder = family.encode_family(&labels)?;
                match type_ {
                    Type::Gauge => ConstGauge::new(value).encode(encoder)?,
                    Type::Counter => ConstCounter::new(value).encode(encoder)?,
                }
            }
        }
        Ok(())
    }
}

/// Writes what is told now, again and again.
pub struct Exposition(Registry);

impl Exposition {
    /// Of what `families` answers at each scrape.
    pub fn new(families: impl Fn() -> Vec<Family> + Send + Sync + 'static) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Gauges(families)));
        Self(registry)
    }

    /// The text of a scrape.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_text_that_prometheus_reads() {
        let exposition = Exposition::new(|| {
            let series = |channel: &str, value| Series {
                labels: vec![("channel", channel.to_owned()), ("cluster_id", "x".to_owned())],
                value,
            };
            vec![
                Family {
                    name: "a_timestamp_seconds",
                    help: "When it is.",
                    type_: Type::Gauge,
                    series: vec![series("stable-4.15", 1_670_162_400.0), series("a \"b\"\n", 1.5)],
                },
                Family {
                    name: "nothing",
                    help: "There is none.",
                    type_: Type::Gauge,
                    series: Vec::new(),
                },
            ]
        });
        let expected = "# HELP a_timestamp_seconds When it is.\n\
                        # TYPE a_timestamp_seconds gauge\n\
                        a_timestamp_seconds{channel=\"stable-4.15\",cluster_id=\"x\"} 1670162400.0\n\
                        a_timestamp_seconds{channel=\"a \\\"b\\\"\\n\",cluster_id=\"x\"} 1.5\n\
                        # HELP nothing There is none.\n\
                        # TYPE nothing gauge\n\
                        # EOF\n";
        assert_eq!(exposition.text().unwrap(), expected);
    }
}
