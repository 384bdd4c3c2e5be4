//! Health, metrics, views; commands.rs writes commands.
