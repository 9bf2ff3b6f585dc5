//! Hostile peers and inputs, in the simulator.

#[path = "../simulator/mod.rs"]
mod simulator;

mod attacks;
mod fuzz;
