//! What comes from outside in the demo: requests (some delivered twice), and an approver who reads the results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApprovalId, OperationId, TopicName, Tp};
use crate::intents::{Approval, Decision, ResultRecord, Status, headers};
use crate::kafka::{Cluster, Isolation, KafkaFault, Reader};
use crate::offset::NextOffset;
use crate::record::{Headers, OutRecord};
use crate::serdes::internal::{self, Wire};
use crate::time::WallTime;

use super::cases::{Case, Class};

/// A topic with its schema's id.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// The topic.
    pub topic: TopicName,
    /// The registry's id; `None` on the in-process log.
    pub schema_id: Option<u32>,
}

/// A Kafka fault as an error that people see.
pub fn unreachable(fault: KafkaFault) -> Error {
    Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, "feeding the demo").because(fault)
}

/// Writes public records, all in one call: a producer is made for each.
fn publish<C: Cluster, T: Wire>(cluster: &C, outlet: &Outlet, records: &[(OperationId, T)]) -> Result<()> {
    let headers = match outlet.schema_id {
        Some(_) => Headers::new(),
        None => Headers::new().with(headers::SCHEMA, T::SCHEMA),
    };
    let mut values = Vec::with_capacity(records.len());
    for (_, record) in records {
        let bytes = internal::encode(record)?;
        values.push(outlet.schema_id.map_or_else(|| bytes.clone(), |id| internal::frame(id, &bytes)));
    }
    let out: Vec<OutRecord<'_>> = records
        .iter()
        .zip(&values)
        .map(|((key, _), value)| OutRecord {
            topic: &outlet.topic,
            partition: None,
            timestamp: None,
            key: Some(key.as_str().as_bytes()),
            value: Some(value),
            headers: Some(&headers),
        })
        .collect();
    cluster.publish(&out, Duration::from_secs(30)).map(|_| ()).map_err(unreachable)
}

/// Sends the requests of these cases; every eighth is delivered a second time under another message ID, as producers do.
pub fn requests<C: Cluster>(cluster: &C, outlet: &Outlet, cases: &[Case], now: WallTime) -> Result<()> {
    let mut records = Vec::new();
    for case in cases {
        let first = case.request(now, 1);
        if case.index % 8 == 0 {
            records.push((case.operation(), case.request(now, 2)));
        }
        records.push((case.operation(), first));
    }
    publish(cluster, outlet, &records)
}

/// Reads the results topic from its start, and answers what waits for an approval.
pub struct Approver {
    reader: Box<dyn Reader>,
    outlet: Outlet,
    cases: BTreeMap<OperationId, Class>,
    answered: BTreeSet<OperationId>,
    /// Everything read so far, in topic order.
    pub results: Vec<ResultRecord>,
}

impl Approver {
    /// Starts at the beginning of `results`.
    pub fn new<C: Cluster>(cluster: &C, results: &TopicName, partitions: u32, outlet: Outlet, cases: &[Case]) -> Result<Self> {
        let mut reader = cluster.reader(Isolation::Committed).map_err(unreachable)?;
        let start: Vec<_> = (0..partitions).map(|p| (Tp::new(results.clone(), p as i32), NextOffset(0))).collect();
        reader.assign(&start).map_err(unreachable)?;
        let cases = cases.iter().map(|c| (c.operation(), c.class)).collect();
        Ok(Self { reader, outlet, cases, answered: BTreeSet::new(), results: Vec::new() })
    }

    /// Reads for at most `limit`, answering what asks for it.
    pub fn turn<C: Cluster>(&mut self, cluster: &C, limit: Duration, now: WallTime) -> Result<()> {
        let until = std::time::Instant::now() + limit;
        let mut approvals = Vec::new();
        while std::time::Instant::now() < until {
            match self.reader.poll(Duration::from_millis(50)) {
                Ok(Some(record)) => {
                    let Some(value) = record.value else { continue };
                    let bytes = if self.outlet.schema_id.is_some() { value.slice(5.min(value.len())..) } else { value };
                    let result: ResultRecord = internal::decode(&bytes)?;
                    approvals.extend(self.answer(&result, now));
                    self.results.push(result);
                }
                Ok(None) => {}
                Err(fault) => tracing::debug!(%fault, "reading results"),
            }
        }
        if approvals.is_empty() { Ok(()) } else { publish(cluster, &self.outlet, &approvals) }
    }

    /// What the approver says to a result, once.
    fn answer(&mut self, result: &ResultRecord, now: WallTime) -> Option<(OperationId, Approval)> {
        if result.status != Status::AwaitingApproval || self.answered.contains(&result.operation_id) {
            return None;
        }
        let decision = match self.cases.get(&result.operation_id) {
            Some(Class::Approved | Class::Refused) => Decision::Approve,
            Some(Class::DeniedByApprover) => Decision::Deny,
            _ => return None,
        };
        let plan_hash = result.plan_hash.clone()?;
        let approval = Approval {
            approval_id: ApprovalId::from(format!("approval-{}", result.operation_id)),
            tenant: result.tenant.clone(),
            operation_id: result.operation_id.clone(),
            plan_hash,
            approver: "approver@acme".into(),
            decision,
            expires_at: now.plus(Duration::from_secs(300)),
            policy_version: "demo".into(),
            reason: Some("demo".into()),
        };
        self.answered.insert(result.operation_id.clone());
        Some((result.operation_id.clone(), approval))
    }
}
