//! `readback metrics`: every metric that a member exposes, from the list that it registers them by.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::Result;
use crate::events::{self, Kind, Metric};

use super::Format;

/// List the metrics that a running member exposes at `/metrics`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  readback metrics                                      name, kind, unit, labels and what it tells
  readback metrics --output json | jq -r .name          for a recording rule or a test of a dashboard
A member adds the label `application` to each. `src/docs/operating.md` says what to alert on; deploy/ has the rules and a dashboard.")]
pub struct MetricsArgs {}

/// What a metric counts in: the last word of its name before `_total`.
fn unit(metric: &Metric) -> &'static str {
    let bare = metric.name.trim_end_matches("_total");
    ["seconds", "offsets", "bytes"].into_iter().find(|unit| bare.ends_with(&format!("_{unit}"))).unwrap_or("count")
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

/// Lists them.
pub fn run(_: &MetricsArgs, format: Format) -> Result<ExitCode> {
    for metric in events::ALL.iter().copied().flatten() {
        match format {
            Format::Table => println!(
                "{}  {} of {} by {}\n    {}",
                metric.name,
                kind(metric),
                unit(metric),
                metric.labels.join(", "),
                metric.help
            ),
            Format::Json => println!(
                "{}",
                json!({
                    "schema": "readback.metric/1", "name": metric.name, "kind": kind(metric), "unit": unit(metric),
                    "labels": metric.labels, "help": metric.help,
                })
            ),
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{IntCounterVec, Opts, Registry};

    /// If this broke, the catalogue would name a metric that no member has. The other way, a running member against the catalogue, is
    /// a test on a real broker.
    #[test]
    fn a_member_registers_every_metric_of_the_catalogue() {
        let registry = Registry::new();
        crate::runtime::Metrics::new(&registry).expect("registers");
        crate::effects::Metrics::new(&registry, Default::default()).expect("registers");
        crate::kafka::Metrics::new(&registry).expect("registers");
        crate::agent::Metrics::new(&registry, Default::default()).expect("registers");
        crate::trace::Metrics::new(&registry).expect("registers");
        crate::app::register_settings(&registry).expect("registers");
        crate::webhooks::Listener::register(&registry).expect("registers");
        for m in events::ALL.iter().copied().flatten() {
            let again = IntCounterVec::new(Opts::new(m.name, m.help), m.labels).expect("a good name");
            let refused = registry.register(Box::new(again)).expect_err(m.name);
            assert!(matches!(refused, prometheus::Error::AlreadyReg), "{}: {refused}", m.name);
        }
    }

    /// If this broke, a scrape of a busy member would miss series, or take so long that a scraper gives up. How long it takes is printed:
    /// `cargo test --lib a_scrape_of_many_series -- --nocapture`.
    #[test]
    fn a_scrape_of_many_series_is_whole() {
        use prometheus::core::Collector;
        let registry = Registry::new();
        let labels = |m: &Metric, n: usize| m.labels.iter().map(|l| format!("{l}-{n}")).collect::<Vec<_>>();
        let (each, mut series) = (100, 0);
        for m in events::ALL.iter().copied().flatten() {
            let made: Box<dyn Collector> = match m.kind {
                Kind::Histogram => {
                    let buckets = prometheus::exponential_buckets(0.001, 2.0, 15).expect("buckets");
                    let opts = prometheus::HistogramOpts::new(m.name, m.help).buckets(buckets);
                    let all = prometheus::HistogramVec::new(opts, m.labels).expect("a good name");
                    (0..each).for_each(|n| all.with_label_values(&labels(m, n)).observe(1.0));
                    series += each * 18;
                    Box::new(all)
                }
                _ => {
                    let all = IntCounterVec::new(Opts::new(m.name, m.help), m.labels).expect("a good name");
                    (0..each).for_each(|n| all.with_label_values(&labels(m, n)).inc());
                    series += each;
                    Box::new(all)
                }
            };
            registry.register(made).expect("registers");
        }
        let began = std::time::Instant::now();
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("encodes");
        println!("{series} series in {:?}, {} bytes", began.elapsed(), text.len());
        assert_eq!(text.lines().filter(|l| !l.starts_with('#')).count(), series);
    }
}
