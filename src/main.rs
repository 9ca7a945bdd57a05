//! Parse, run, report, exit number.

fn main() {
    #[cfg(windows)]
    calicoctl_win::node::windows::dll::restrict_search();
    std::process::exit(calicoctl_win::cli::main(std::env::args_os()));
}
