//! Tests of the effect stage: its table row by row, its task on a scripted network, and the guided traces that must go wrong
//! when a rule is switched off.
#![allow(clippy::unwrap_used)]

mod bench;
mod cases;
mod compensate;
mod conditions;
mod decide;
mod fences;
mod judge;
mod network;
mod people;
mod permission;
mod proposals;
mod spans;
mod stage;
mod traces;
mod undo;
mod webhook;
mod world;
