//! What people do with the executable on a Windows machine, and what happens to it there.

mod sandboxed;
mod standins;
