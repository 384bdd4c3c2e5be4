//! The guarded schema registry client.
