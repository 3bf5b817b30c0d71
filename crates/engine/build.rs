//! Has cargo notice files that appear in the embedded runner, which the embedding macro alone does not.

fn main() {
    println!("cargo::rerun-if-changed=../../guest/runner/start.py");
    println!("cargo::rerun-if-changed=../../guest/runner/fumehood_runner");
}
