//! What nothing else may run beside: the broker goes away, its answers are lost, or the clock counts. The names of these tests sort
//! first, so that the others never wait for one of them.

mod faults;
mod processes;
mod scenarios;
