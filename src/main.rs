//! The program `readback`.

fn main() {}
