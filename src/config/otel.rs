//! The standard variables of OpenTelemetry, as far as they mean a setting of ours. They stand between file and `READBACK_…`, which says
//! more exactly whom it is for.

/// What a variable sets: `(setting, value)`. A value under [`REFERENCE`] is not the value but the name of the variable that holds it.
pub(super) type Meaning = Vec<(&'static str, String)>;

/// Marks a setting that is a reference to a secret.
pub(super) const REFERENCE: &str = "traces.headers";

/// The variables, the more exact one after the one that it overrides.
const KNOWN: &[&str] = &[
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SDK_DISABLED",
    "OTEL_SERVICE_NAME",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
];
/// What the sampler's name needs besides.
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Whether this is a variable of OpenTelemetry that is looked at.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || name == ARGUMENT
}

/// What the variables of `env` set, with the name of each; an empty one counts as not there, as the specification has it.
pub(super) fn settings(env: &[(String, String)]) -> Vec<(&'static str, Meaning)> {
    let of = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.trim()).filter(|v| !v.is_empty());
    let meant = KNOWN.iter().filter_map(|name| Some((*name, meaning(name, of(name)?, of(ARGUMENT)))));
    meant.collect()
}

fn meaning(name: &str, value: &str, argument: Option<&str>) -> Meaning {
    let one = |key: &'static str, value: &str| vec![(key, value.to_owned())];
    match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => one("traces.endpoint", &format!("{}/v1/traces", value.trim_end_matches('/'))),
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" => one("traces.endpoint", value),
        "OTEL_EXPORTER_OTLP_HEADERS" | "OTEL_EXPORTER_OTLP_TRACES_HEADERS" => one(REFERENCE, name),
        "OTEL_EXPORTER_OTLP_PROTOCOL" | "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" => one("traces.protocol", value),
        "OTEL_EXPORTER_OTLP_TIMEOUT" | "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT" => one("traces.timeout", &format!("{value}ms")),
        "OTEL_RESOURCE_ATTRIBUTES" => one("traces.resource", value),
        "OTEL_SERVICE_NAME" => one("traces.service", value),
        "OTEL_SDK_DISABLED" => one("traces.enabled", if value.eq_ignore_ascii_case("true") { "false" } else { "true" }),
        "OTEL_TRACES_EXPORTER" if value == "none" => one("traces.enabled", "false"),
        "OTEL_TRACES_SAMPLER" => sampler(value, argument.unwrap_or("1.0")),
        _ => Vec::new(),
    }
}

fn sampler(name: &str, argument: &str) -> Meaning {
    let set = |share: &str, follow: bool| vec![("traces.sample", share.to_owned()), ("traces.follow", follow.to_string())];
    match name {
        "always_on" => set("1", false),
        "always_off" => set("0", false),
        "traceidratio" => set(argument, false),
        "parentbased_always_on" => set("1", true),
        "parentbased_always_off" => set("0", true),
        "parentbased_traceidratio" => set(argument, true),
        // Refused where the setting is read, with the variable's name.
        other => vec![("traces.sample", other.to_owned())],
    }
}
