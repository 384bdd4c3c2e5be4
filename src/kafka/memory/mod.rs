//! The in-process log: transactions, fencing, read_committed.
