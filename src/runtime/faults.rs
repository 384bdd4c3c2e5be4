//! From a client's fault to an error for people.

use crate::error::{Code, Error, Fault, codes};
use crate::kafka::{Class, KafkaFault, Refusal};

/// What people see of a client's fault that nothing here could mend.
pub fn error_of(fault: KafkaFault) -> Error {
    if let Some(refusal) = fault.refusal.as_ref().filter(|_| matches!(fault.class, Class::Retry | Class::Blocked | Class::Config)) {
        let (code, next) = refused(refusal);
        return with(code, Fault::Unreachable, next, fault);
    }
    let (code, whose, next) = match fault.class {
        Class::SlotTaken => (codes::SLOT_TAKEN, Fault::SlotTaken, "stop the other process, or give this one another slot"),
        Class::Fenced => (codes::SLOT_TAKEN, Fault::SlotTaken, "another process uses this slot's name; give each its own slots"),
        Class::Config => (codes::NOT_AUTHORIZED, Fault::Configuration, permission(&fault.detail)),
        Class::Gone => (codes::TOPIC_MISSING, Fault::Configuration, "look at the topic that the client names"),
        Class::Retry => (codes::BROKER_UNREACHABLE, Fault::Unreachable, "check that the brokers answer, then start again"),
        Class::Blocked => (codes::OFFSETS_BLOCKED, Fault::Unreachable, "find the open transaction that blocks the group's offsets"),
        Class::OutcomeUnknown => (codes::COMMIT_UNCLEAR, Fault::Unreachable, "start again: the committed offsets decide"),
        Class::Abort => (codes::TRANSACTION_ABORTED, Fault::Unreachable, "the inputs are read again; see the cause"),
        Class::Rebuild => (codes::CLIENT_FAILED, Fault::Unreachable, "start again: a new client takes over the slot"),
    };
    with(code, whose, next, fault)
}

/// What somebody has to mend before a broker can be talked to. What is read from files is taken up without a restart.
fn refused(refusal: &Refusal) -> (Code, &'static str) {
    match refusal {
        Refusal::Tls(why) if why.contains("expired") => (codes::TLS_REFUSED, "renew the certificate that has expired"),
        Refusal::Tls(why) if why.contains("another host") => (
            codes::TLS_REFUSED,
            "use the host name that the broker's certificate holds under brokers:, and in what the broker advertises",
        ),
        Refusal::Tls(why) if why.contains("not trusted") => {
            (codes::TLS_REFUSED, "name the authority of the broker's certificate under security.ca")
        }
        Refusal::Tls(why) if why.contains("alert") => {
            (codes::TLS_REFUSED, "the broker refuses our certificate: check security.certificate and security.key")
        }
        Refusal::Tls(_) => (codes::TLS_REFUSED, "check security.protocol, and certificates under security:"),
        Refusal::Login(_) => (
            codes::LOGIN_REFUSED,
            "check the login under security.sasl; for a token its issuer, audience, scope and end, and the clocks",
        ),
        Refusal::Token(_) => {
            (codes::TOKEN_REFUSED, "check token_endpoint, client_id, client_secret, scope and ca under security.sasl.oauth")
        }
        Refusal::Name(_) => (codes::BROKER_UNREACHABLE, "check the host names under brokers:, and the name service"),
    }
}

/// What to allow, by the refusal that the client tells of (C046).
fn permission(detail: &str) -> &'static str {
    let refusals = [
        ("TransactionalIdAuthorizationFailed", "allow Write and Describe on this transactional id, by its prefix"),
        ("GroupAuthorizationFailed", "allow Read and Describe on this group"),
        ("TopicAuthorizationFailed", "allow Read, Write and Describe on this topic, as far as it is read or written"),
        ("ClusterAuthorizationFailed", "allow Describe on the cluster, and Create where topics are made"),
    ];
    let of = |(sign, _): &&(&str, &str)| detail.contains(sign);
    refusals.iter().find(of).map_or("check the setting or name that the client names", |(_, next)| next)
}

fn with(code: Code, whose: Fault, next: &str, fault: KafkaFault) -> Error {
    let next =
        if next.starts_with("allow ") { format!("{next}; `readback check --permissions` lists all") } else { next.to_owned() };
    Error::new(code, whose, format!("{} {}", fault.doing, fault.to)).because(fault).next(next)
}
