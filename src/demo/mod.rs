//! The story of the demo: target and model server with books of their own, fault schedule, verdict.
