//! Parse, run, report, exit number.

fn main() {
    std::process::exit(0);
}
