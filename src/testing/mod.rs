//! Fakes, simulator, checkers. Feature test-util.
