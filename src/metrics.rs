//! What `/metrics` tells: gauges that are computed from the copies of the cluster's objects at each scrape. So a series goes
//! with its object, and nothing has to be kept up to date.
//!
//! Names and labels are those of the specification and of appuio/openshift-upgrade-controller, whose dashboards and alerts go
//! on working.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text},
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
    /// How many values of which size there were since the start of the process. `_bucket`, `_sum` and `_count` are added.
    Histogram,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Names and values of its labels.
    pub labels: Labels,
    /// The value.
    pub value: Value,
}

/// Names and values of labels.
pub type Labels = Vec<(&'static str, String)>;

/// The value of a series: numbers in gauges and counters, distributions in histograms.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Many of them.
    Distribution(Distribution),
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Distribution(_) => None,
        }
    }
}

/// Values by size.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Their sum.
    sum: f64,
    /// Upper bounds, the last one infinite, and how many values there were up to each and above the one before.
    buckets: Vec<(f64, u64)>,
}

impl Distribution {
    /// None yet, with these upper bounds, which rise.
    pub fn new(bounds: &[f64]) -> Self {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        Self {
            sum: 0.0,
            buckets: bounds.map(|bound| (bound, 0)).collect(),
        }
    }

    /// One more.
    pub fn observe(&mut self, value: f64) {
        self.sum += value;
        if let Some((_, count)) = self.buckets.iter_mut().find(|(bound, _)| value <= *bound) {
            *count += 1;
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let count = self.buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum, count, &self.buckets, None)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// 1 or 0.
impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Number(f64::from(flag))
    }
}

/// Seconds since 1970.
impl From<Timestamp> for Value {
    fn from(t: Timestamp) -> Self {
        // Exact for any date: f64 has 53 bits.
        #[allow(clippy::cast_precision_loss)]
        let seconds = t.as_second() as f64;
        Self::Number(seconds)
    }
}

/// Seconds.
impl From<SignedDuration> for Value {
    fn from(duration: SignedDuration) -> Self {
        Self::Number(duration.as_secs_f64())
    }
}

impl Series {
    /// One series.
    pub fn new(labels: Labels, value: impl Into<Value>) -> Self {
        let value = value.into();
        Self { labels, value }
    }
}

impl Family {
    /// A gauge of these series.
    pub fn gauge(name: &'static str, help: &'static str, series: impl IntoIterator<Item = Series>) -> Self {
        let series = series.into_iter().collect();
        Self {
            name,
            help,
            type_: Type::Gauge,
            series,
        }
    }
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
                Type::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
            for Series { labels, value } in series {
                let encoder = family.encode_family(&labels)?;
                match (value, type_) {
                    (Value::Distribution(values), _) => values.encode(encoder)?,
                    (Value::Number(n), Type::Gauge) => ConstGauge::new(n).encode(encoder)?,
                    (Value::Number(n), Type::Counter) => ConstCounter::new(n).encode(encoder)?,
                    // A distribution of one value.
                    (Value::Number(n), Type::Histogram) => {
                        let mut values = Distribution::new(&[]);
                        values.observe(n);
                        values.encode(encoder)?;
                    }
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

/// Names, label values and number of every series that has one, such as `step_seconds j,await-pools 60`. The prefix of the name
/// is left out.
#[cfg(test)]
pub(crate) fn told(families: &[Family]) -> Vec<String> {
    let lines = families.iter().flat_map(|family| {
        let name = family.name.strip_prefix("openshift_upgrade_controller_").unwrap();
        family.series.iter().filter_map(move |series| {
            let labels: Vec<&str> = series.labels.iter().map(|(_, value)| value.as_str()).collect();
            Some(format!("{name} {} {}", labels.join(","), series.value.number()?))
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_text_that_prometheus_reads() {
        let exposition = Exposition::new(|| {
            let series = |channel: &str, value: f64| {
                let labels = vec![("channel", channel.to_owned()), ("cluster_id", "x".to_owned())];
                Series::new(labels, value)
            };
            let mut took = Distribution::new(&[0.5, 2.0]);
            for seconds in [0.25, 1.0, 2.0, 4.0] {
                took.observe(seconds);
            }
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
                Family {
                    name: "took_seconds",
                    help: "How long.",
                    type_: Type::Histogram,
                    series: vec![Series::new(
                        vec![("a", "b".to_owned())],
                        Value::Distribution(took),
                    )],
                },
            ]
        });
        let expected = "# HELP a_timestamp_seconds When it is.\n\
                        # TYPE a_timestamp_seconds gauge\n\
                        a_timestamp_seconds{channel=\"stable-4.15\",cluster_id=\"x\"} 1670162400.0\n\
                        a_timestamp_seconds{channel=\"a \\\"b\\\"\\n\",cluster_id=\"x\"} 1.5\n\
                        # HELP nothing There is none.\n\
                        # TYPE nothing gauge\n\
                        # HELP took_seconds How long.\n\
                        # TYPE took_seconds histogram\n\
                        took_seconds_sum{a=\"b\"} 7.25\n\
                        took_seconds_count{a=\"b\"} 4\n\
                        took_seconds_bucket{le=\"0.5\",a=\"b\"} 1\n\
                        took_seconds_bucket{le=\"2.0\",a=\"b\"} 3\n\
                        took_seconds_bucket{le=\"+Inf\",a=\"b\"} 4\n\
                        # EOF\n";
        assert_eq!(exposition.text().unwrap(), expected);
    }
}
