//! The program `readback`.

fn main() -> std::process::ExitCode {
    readback::cli::main()
}
