//! What the HTTP interface promises, against the router with scripted sandboxes.

mod access;
mod executions;
mod fake;
mod kit;
mod operations;
mod refusals;
mod tablemind;
mod templates;
mod tenants;
mod wire;
