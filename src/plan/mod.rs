//! What is to be done: from settings to a wanted world, and from there to ordered steps. Pure.

pub mod item;
