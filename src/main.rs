//! Parse, run, report, exit number.

fn main() {
    std::process::exit(calicoctl_win::cli::main(std::env::args_os()));
}
