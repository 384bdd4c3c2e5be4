//! TopologyTestDriver on the in-process log; recorded input against expected output.
