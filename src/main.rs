//! Parses the command line, runs it, and exits with its code.

fn main() {
    #[cfg(windows)]
    calicoctl_win::node::windows::dll::restrict_search();
    std::process::exit(calicoctl_win::cli::main(std::env::args_os()));
}
