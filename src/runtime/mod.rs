//! Stream threads, task manager, transactions, rebalance, restore, slots.
