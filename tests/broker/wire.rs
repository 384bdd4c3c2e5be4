//! Requests that the product never makes, in Kafka's own protocol.

use std::io::{Read, Write};
use std::net::TcpStream;

use readback::kafka::Cluster as _;

use crate::{stack, until};

const CREATE_PARTITIONS: i16 = 37;
const DELETE_TOPICS: i16 = 20;
const DESCRIBE_ACLS: i16 = 29;
const CREATE_ACLS: i16 = 30;
const LIMIT_MS: i32 = 30_000;

/// Deletes a topic.
pub fn delete_topic(name: &str) {
    let body = [&1i32.to_be_bytes()[..], &text(name), &LIMIT_MS.to_be_bytes()].concat();
    assert_eq!(code(&call(DELETE_TOPICS, 1, &body)), 0, "deleting {name}");
}

/// Deletes what a test is done with. A broker that restarts among thousands of partitions takes longer than a transaction may last.
pub fn delete_topics_of(prefix: &str) {
    let admin = crate::cluster_at(stack().brokers()).admin().expect("admin");
    let all = admin.topics().expect("topics");
    all.iter().filter(|t| t.name.as_str().starts_with(prefix)).for_each(|t| delete_topic(t.name.as_str()));
}

/// Gives a topic more partitions.
pub fn add_partitions(name: &str, count: i32) {
    let nobody = (-1i32).to_be_bytes();
    let body = [&1i32.to_be_bytes()[..], &text(name), &count.to_be_bytes(), &nobody, &LIMIT_MS.to_be_bytes(), &[0]].concat();
    assert_eq!(code(&call(CREATE_PARTITIONS, 0, &body)), 0, "adding partitions to {name}");
}

/// Forbids one principal an operation on whatever resource has this prefix. Kinds and operations by Kafka's numbers.
pub fn deny(principal: &str, resource: i8, prefix: &str, operation: i8) {
    acl(principal, resource, prefix, operation, 2);
}

/// Allows one principal everything on whatever resource has this prefix; with it nobody else may do anything there.
pub fn allow_alone(principal: &str, resource: i8, prefix: &str) {
    acl(principal, resource, prefix, 2, 3);
}

fn acl(principal: &str, resource: i8, prefix: &str, operation: i8, permission: u8) {
    const PREFIXED: u8 = 4;
    let entry =
        [&[resource as u8][..], &text(prefix), &[PREFIXED], &text(principal), &text("*"), &[operation as u8, permission]].concat();
    let answer = call(CREATE_ACLS, 1, &[&1i32.to_be_bytes()[..], &entry].concat());
    // After correlation, throttle time and count.
    assert_eq!(i16::from_be_bytes([answer[12], answer[13]]), 0, "the permission of {principal} on {prefix}");
    // The controller has it; whoever starts now asks the broker.
    until("the broker knows of a permission", || {
        let known = call(DESCRIBE_ACLS, 1, &entry);
        known.windows(prefix.len()).any(|part| part == prefix.as_bytes()).then_some(())
    });
}

/// Gives a user a password for SCRAM-SHA-512, or another one than before.
pub fn scram(user: &str, password: &str) {
    const ALTER_SCRAM: i16 = 51;
    const SHA_512: u8 = 2;
    const ITERATIONS: i32 = 4096;
    let salt = uuid::Uuid::new_v4();
    // Counts and lengths are one more than they are; a zero ends each structure.
    let compact = |bytes: &[u8]| [&[bytes.len() as u8 + 1], bytes].concat();
    let salted = salted(password.as_bytes(), salt.as_bytes(), ITERATIONS);
    let one =
        [&compact(user.as_bytes())[..], &[SHA_512], &ITERATIONS.to_be_bytes(), &compact(salt.as_bytes()), &compact(&salted), &[0]];
    let answer = call(ALTER_SCRAM, 0, &[&[0, 1, 2][..], &one.concat(), &[0]].concat());
    // After correlation, tag, throttle time, count and the user.
    let at = 4 + 1 + 4 + 1 + 1 + user.len();
    assert_eq!(i16::from_be_bytes([answer[at], answer[at + 1]]), 0, "the password of {user}: {answer:?}");
}

/// PBKDF2 with HMAC-SHA-512; one block is all that is needed.
fn salted(password: &[u8], salt: &[u8], iterations: i32) -> Vec<u8> {
    use hmac::{Hmac, Mac as _};
    let mac = |data: &[u8]| {
        let mut mac = Hmac::<sha2::Sha512>::new_from_slice(password).expect("any length");
        mac.update(data);
        mac.finalize().into_bytes().to_vec()
    };
    let mut last = mac(&[salt, &1i32.to_be_bytes()].concat());
    let mut all = last.clone();
    for _ in 1..iterations {
        last = mac(&last);
        all.iter_mut().zip(&last).for_each(|(a, b)| *a ^= b);
    }
    all
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as i16).to_be_bytes()[..], s.as_bytes()].concat()
}

/// The error code of the first topic: after correlation, throttle time, count and name.
fn code(answer: &[u8]) -> i16 {
    let name = i16::from_be_bytes([answer[12], answer[13]]) as usize;
    i16::from_be_bytes([answer[14 + name], answer[15 + name]])
}

fn call(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let head = [&api.to_be_bytes()[..], &version.to_be_bytes(), &7i32.to_be_bytes(), &text("tests")].concat();
    let size = (head.len() + body.len()) as i32;
    let broker = stack().brokers().split(',').next().expect("a broker");
    let mut to = TcpStream::connect(broker).expect("the broker answers");
    to.write_all(&[&size.to_be_bytes()[..], &head, body].concat()).expect("is sent");
    let mut length = [0; 4];
    to.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; i32::from_be_bytes(length) as usize];
    to.read_exact(&mut answer).expect("all of it");
    answer
}
