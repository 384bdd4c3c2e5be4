//! The few calls of the C client that the wrapper does not offer, or offers too slowly. The only file with `unsafe`.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use rdkafka::bindings as c;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::context::Context;
use crate::ids::TopicName;
use crate::record::{Headers, OutRecord};

const NO_ERROR: c::rd_kafka_resp_err_t = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

fn millis(d: Duration) -> i32 {
    i32::try_from(d.as_millis()).unwrap_or(i32::MAX)
}

/// What became of one produced record.
pub(super) struct Report<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    pub error: Option<RDKafkaErrorCode>,
    /// The number the record was sent with.
    pub tag: usize,
}

/// The event queue of a producer, served by the thread that owns it: no polling thread, no spinning, no locks.
pub(super) struct Reports {
    queue: *mut c::rd_kafka_queue_t,
    context: Arc<Context>,
}

impl Reports {
    /// To be dropped before the client.
    pub fn of(client: &Client<Context>) -> Self {
        // SAFETY: the client lives; the queue is counted and given back in `drop`.
        Self { queue: unsafe { c::rd_kafka_queue_get_main(client.native_ptr()) }, context: client.context().clone() }
    }

    /// Takes one event, waiting at most `wait`, and hands out the reports in it. Tells whether there was one.
    pub fn serve(&self, wait: Duration, on: &mut dyn FnMut(Report<'_>)) -> bool {
        // SAFETY: the queue lives as long as self; the event is owned here and destroyed once, after its last use; messages and
        // topic handles belong to the event.
        unsafe {
            let event = c::rd_kafka_queue_poll(self.queue, millis(wait));
            if event.is_null() {
                return false;
            }
            match c::rd_kafka_event_type(event) {
                c::RD_KAFKA_EVENT_DR => loop {
                    let message = c::rd_kafka_event_message_next(event);
                    if message.is_null() {
                        break;
                    }
                    let message = &*message;
                    let topic = CStr::from_ptr(c::rd_kafka_topic_name(message.rkt)).to_str().unwrap_or_default();
                    let error = (message.err != NO_ERROR).then(|| message.err.into());
                    on(Report {
                        topic,
                        partition: message.partition,
                        offset: message.offset,
                        error,
                        tag: message._private as usize,
                    });
                },
                c::RD_KAFKA_EVENT_ERROR => {
                    let text = CStr::from_ptr(c::rd_kafka_event_error_string(event)).to_string_lossy();
                    tracing::debug!(target: "kafka", "{text}");
                }
                c::RD_KAFKA_EVENT_STATS => {
                    let report = c::rd_kafka_event_stats(event);
                    if !report.is_null() {
                        self.context.statistics(CStr::from_ptr(report).to_bytes());
                    }
                }
                c::RD_KAFKA_EVENT_LOG => {
                    let (mut facility, mut text, mut level) = (std::ptr::null(), std::ptr::null(), 0);
                    if c::rd_kafka_event_log(event, &mut facility, &mut text, &mut level) == 0 {
                        let (facility, text) = (CStr::from_ptr(facility).to_string_lossy(), CStr::from_ptr(text).to_string_lossy());
                        self.context.log(level_of(level), &facility, &text);
                    }
                }
                _ => {}
            }
            c::rd_kafka_event_destroy(event);
            true
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        // SAFETY: got in `of`, given back once.
        unsafe { c::rd_kafka_queue_destroy(self.queue) }
    }
}

/// What a producer sends by: its handles of topics, kept, so that no record looks its topic up by name.
pub(super) struct Outlet {
    client: *mut c::rd_kafka_t,
    topics: HashMap<TopicName, *mut c::rd_kafka_topic_t, RandomState>,
}

/// Leaves the partition to the partitioner.
const UNASSIGNED: i32 = -1;
/// Handles kept at most; beyond that, where topics are computed, all are made anew.
const TOPICS: usize = 1_000;

impl Outlet {
    /// To be dropped before the client.
    pub fn of(client: &Client<Context>) -> Self {
        Self { client: client.native_ptr(), topics: HashMap::default() }
    }

    /// Queues a copy of one record; the number comes back with its report.
    pub fn send(&mut self, record: &OutRecord<'_>, tag: usize) -> Result<(), RDKafkaErrorCode> {
        let topic = self.topic(record.topic)?;
        let headers = native(record.headers)?;
        let (value, value_len) = place(record.value);
        let (key, key_len) = place(record.key);
        // SAFETY: client and topic live; each pointer goes with its length and is read during the call only, which copies both;
        // the headers become the client's where it takes the record, and stay ours where it does not.
        unsafe {
            use c::rd_kafka_vtype_t as Is;
            let refused = c::rd_kafka_producev(
                self.client,
                Is::RD_KAFKA_VTYPE_RKT,
                topic,
                Is::RD_KAFKA_VTYPE_PARTITION,
                record.partition.map_or(UNASSIGNED, |p| p.0),
                Is::RD_KAFKA_VTYPE_MSGFLAGS,
                c::RD_KAFKA_MSG_F_COPY,
                Is::RD_KAFKA_VTYPE_VALUE,
                value,
                value_len,
                Is::RD_KAFKA_VTYPE_KEY,
                key,
                key_len,
                Is::RD_KAFKA_VTYPE_OPAQUE,
                tag as *mut std::ffi::c_void,
                Is::RD_KAFKA_VTYPE_TIMESTAMP,
                record.timestamp.map_or(0, |t| t.0),
                Is::RD_KAFKA_VTYPE_HEADERS,
                headers,
                Is::RD_KAFKA_VTYPE_END,
            );
            if refused == NO_ERROR {
                return Ok(());
            }
            if !headers.is_null() {
                c::rd_kafka_headers_destroy(headers);
            }
            Err(refused.into())
        }
    }

    fn topic(&mut self, name: &TopicName) -> Result<*mut c::rd_kafka_topic_t, RDKafkaErrorCode> {
        if let Some(topic) = self.topics.get(name) {
            return Ok(*topic);
        }
        if self.topics.len() == TOPICS {
            self.forget();
        }
        let text = CString::new(name.as_str()).map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
        // SAFETY: client and name live during the call; without settings of its own the topic has the client's.
        let topic = unsafe { c::rd_kafka_topic_new(self.client, text.as_ptr(), std::ptr::null_mut()) };
        if topic.is_null() {
            return Err(RDKafkaErrorCode::InvalidTopic);
        }
        self.topics.insert(name.clone(), topic);
        Ok(topic)
    }

    fn forget(&mut self) {
        for (_, topic) in self.topics.drain() {
            // SAFETY: got in `topic`, given back once; records under way have handles of their own.
            unsafe { c::rd_kafka_topic_destroy(topic) }
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.forget();
    }
}

/// Where bytes lie; null for none, which is not the same as empty.
fn place(bytes: Option<&[u8]>) -> (*mut std::ffi::c_void, usize) {
    bytes.map_or((std::ptr::null_mut(), 0), |b| (b.as_ptr().cast_mut().cast(), b.len()))
}

/// A copy of headers for one record; null where there are none.
fn native(headers: Option<&Headers>) -> Result<*mut c::rd_kafka_headers_t, RDKafkaErrorCode> {
    let Some(headers) = headers.filter(|h| !h.is_empty()) else { return Ok(std::ptr::null_mut()) };
    // SAFETY: the list is made here; each name and value is read during the call only, with its length, which fits since both are in
    // memory.
    unsafe {
        let list = c::rd_kafka_headers_new(headers.0.len());
        for header in &headers.0 {
            let (value, len) = place(header.value.as_deref());
            let refused =
                c::rd_kafka_header_add(list, header.name.as_ptr().cast(), header.name.len() as isize, value, len as isize);
            if refused != NO_ERROR {
                c::rd_kafka_headers_destroy(list);
                return Err(refused.into());
            }
        }
        Ok(list)
    }
}

/// Of syslog; what is worse than an error is told at once.
fn level_of(level: i32) -> RDKafkaLogLevel {
    match level {
        ..=2 => RDKafkaLogLevel::Critical,
        3 => RDKafkaLogLevel::Error,
        4 => RDKafkaLogLevel::Warning,
        _ => RDKafkaLogLevel::Info,
    }
}

/// From now on connections are signed in with this password; those that are signed in stay so.
pub(super) fn set_password<C: ClientContext>(client: &Client<C>, user: &str, password: &str) -> Result<(), String> {
    let text = |s: &str| CString::new(s).map_err(|_| "it holds a zero byte".to_owned());
    let (user, password) = (text(user)?, text(password)?);
    // SAFETY: all pointers live during the call, which copies both texts; the error is given back once.
    unsafe {
        let error = c::rd_kafka_sasl_set_credentials(client.native_ptr(), user.as_ptr(), password.as_ptr());
        if error.is_null() {
            return Ok(());
        }
        let why = CStr::from_ptr(c::rd_kafka_error_string(error)).to_string_lossy().into_owned();
        c::rd_kafka_error_destroy(error);
        Err(why)
    }
}

/// From now on connections are signed in with this token, which ends at `until_ms` since the epoch.
pub(super) fn set_token<C: ClientContext>(client: &Client<C>, token: &str, until_ms: i64, principal: &str) -> Result<(), String> {
    let text = |s: &str| CString::new(s).map_err(|_| "it holds a zero byte".to_owned());
    let (token, principal) = (text(token)?, text(principal)?);
    let mut why = [0; 512];
    // SAFETY: all pointers live during the call, which copies the texts and writes no more than it is told into `why`.
    let done = unsafe {
        let (extensions, count) = (std::ptr::null_mut(), 0);
        let (to, room) = (why.as_mut_ptr(), why.len());
        c::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            token.as_ptr(),
            until_ms,
            principal.as_ptr(),
            extensions,
            count,
            to,
            room,
        )
    };
    match done {
        NO_ERROR => Ok(()),
        // SAFETY: the call ended the text with a zero.
        _ => Err(unsafe { CStr::from_ptr(why.as_ptr()) }.to_string_lossy().into_owned()),
    }
}

/// Sends all that lingers and waits until nothing is queued or under way, at most `limit`. A record counts as under way until its
/// report is served.
pub(super) fn flush<C: ClientContext>(client: &Client<C>, limit: Duration) -> bool {
    // SAFETY: the client lives; the call is thread-safe.
    unsafe { c::rd_kafka_flush(client.native_ptr(), millis(limit)) == NO_ERROR }
}

/// Where the application's reading stands, control records passed; no I/O.
pub(super) fn position<C: ClientContext>(client: &Client<C>, topic: &str, partition: i32) -> Option<i64> {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(topic, partition);
    // SAFETY: both pointers live during the call, which only fills the list's elements.
    let done = unsafe { c::rd_kafka_position(client.native_ptr(), list.ptr()) == NO_ERROR };
    match list.elements().first().map(|e| e.offset()) {
        Some(Offset::Offset(at)) if done => Some(at),
        _ => None,
    }
}

/// The high watermark as of the last fetch; no I/O.
pub(super) fn known_end<C: ClientContext>(client: &Client<C>, topic: &str, partition: i32) -> Option<i64> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: all pointers live during the call.
    let done = unsafe {
        c::rd_kafka_get_watermark_offsets(client.native_ptr(), topic.as_ptr(), partition, &mut low, &mut high) == NO_ERROR
    };
    (done && high >= 0).then_some(high)
}

/// The member id that the group knows the consumer by now; empty between two memberships.
pub(super) fn member_id<C: ClientContext>(client: &Client<C>) -> String {
    // SAFETY: the client lives; the text is owned here and given back once.
    unsafe {
        let text = c::rd_kafka_memberid(client.native_ptr());
        if text.is_null() {
            return String::new();
        }
        let id = CStr::from_ptr(text).to_string_lossy().into_owned();
        c::rd_kafka_mem_free(client.native_ptr(), text.cast());
        id
    }
}

/// Whose permissions are asked for.
pub(super) enum Asked<'a> {
    /// Of a topic.
    Topic(&'a str),
    /// Of a consumer group.
    Group(&'a str),
    /// Of the cluster.
    Cluster,
}

/// What a broker says to that.
pub(super) struct Told {
    /// What this login may do there, by Kafka's numbers; `None` where the broker doesn't say.
    pub operations: Option<Vec<u32>>,
    /// The cluster's id, where it was asked about the cluster.
    pub cluster: Option<String>,
}

/// Asks a broker what this login may do, waiting at most `limit`.
pub(super) fn may<C: ClientContext>(client: &Client<C>, asked: &Asked<'_>, limit: Duration) -> Result<Told, RDKafkaErrorCode> {
    use c::rd_kafka_admin_op_t as Op;
    let (name, op) = match asked {
        Asked::Topic(name) => (*name, Op::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS),
        Asked::Group(name) => (*name, Op::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS),
        Asked::Cluster => ("", Op::RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER),
    };
    let name = CString::new(name).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let mut names = [name.as_ptr()];
    // SAFETY: the client and the name live during the call; options, list, queue and event are made here and given back once, each after
    // its last use. The request holds copies of all that it needs.
    unsafe {
        let client = client.native_ptr();
        let options = c::rd_kafka_AdminOptions_new(client, op);
        c::rd_kafka_AdminOptions_set_request_timeout(options, millis(limit), std::ptr::null_mut(), 0);
        let unfit = c::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        if !unfit.is_null() {
            c::rd_kafka_error_destroy(unfit);
        }
        let queue = c::rd_kafka_queue_new(client);
        match asked {
            Asked::Topic(_) => {
                let list = c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
                c::rd_kafka_DescribeTopics(client, list, options, queue);
                c::rd_kafka_TopicCollection_destroy(list);
            }
            Asked::Group(_) => c::rd_kafka_DescribeConsumerGroups(client, names.as_mut_ptr(), names.len(), options, queue),
            Asked::Cluster => c::rd_kafka_DescribeCluster(client, options, queue),
        }
        // The request's own limit ends it first.
        let event = c::rd_kafka_queue_poll(queue, millis(limit + Duration::from_secs(1)));
        let told = if event.is_null() { Err(RDKafkaErrorCode::OperationTimedOut) } else { told(event, asked) };
        if !event.is_null() {
            c::rd_kafka_event_destroy(event);
        }
        c::rd_kafka_queue_destroy(queue);
        c::rd_kafka_AdminOptions_destroy(options);
        told
    }
}

/// The answer in an event. Safe to call with a living event of the request that asks this.
unsafe fn told(event: *mut c::rd_kafka_event_t, asked: &Asked<'_>) -> Result<Told, RDKafkaErrorCode> {
    let fine = |error: c::rd_kafka_resp_err_t| if error == NO_ERROR { Ok(()) } else { Err(RDKafkaErrorCode::from(error)) };
    let mut count = 0;
    // SAFETY: everything that is read here belongs to the event, which lives; lists have as many elements as is told, and null is asked
    // for before it is read.
    unsafe {
        fine(c::rd_kafka_event_error(event))?;
        let (found, cluster) = match asked {
            Asked::Topic(_) => {
                let result = c::rd_kafka_event_DescribeTopics_result(event);
                let all = c::rd_kafka_DescribeTopics_result_topics(result, &mut count);
                let Some(topic) = (count > 0).then(|| *all) else { return Ok(Told { operations: None, cluster: None }) };
                fine(c::rd_kafka_error_code(c::rd_kafka_TopicDescription_error(topic)))?;
                (c::rd_kafka_TopicDescription_authorized_operations(topic, &mut count), None)
            }
            Asked::Group(_) => {
                let result = c::rd_kafka_event_DescribeConsumerGroups_result(event);
                let all = c::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
                let Some(group) = (count > 0).then(|| *all) else { return Ok(Told { operations: None, cluster: None }) };
                fine(c::rd_kafka_error_code(c::rd_kafka_ConsumerGroupDescription_error(group)))?;
                (c::rd_kafka_ConsumerGroupDescription_authorized_operations(group, &mut count), None)
            }
            Asked::Cluster => {
                let result = c::rd_kafka_event_DescribeCluster_result(event);
                let id = c::rd_kafka_DescribeCluster_result_cluster_id(result);
                let id = (!id.is_null()).then(|| CStr::from_ptr(id).to_string_lossy().into_owned());
                (c::rd_kafka_DescribeCluster_result_authorized_operations(result, &mut count), id)
            }
        };
        let operations = (!found.is_null()).then(|| std::slice::from_raw_parts(found, count).iter().map(|o| *o as u32).collect());
        Ok(Told { operations, cluster })
    }
}
