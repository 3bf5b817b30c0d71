//! The real binary with real clients: every promise of a single execution, from outside.
//!
//! Needs the default image (`fumehood image build`); where this host cannot confine processes each test says so and passes, and CI
//! fails on that line.

mod attack;
mod bench;
mod cli;
mod client;
#[path = "../../crates/server/tests/store/servers.rs"]
mod databases;
mod denials;
mod doctor;
mod forks;
mod hostile;
mod jobs;
mod life;
mod limits;
mod outages;
mod programs;
mod retention;
mod seeds;
mod server;
mod sessions;
mod sockets;
mod templates;
mod tenants;
mod user;
