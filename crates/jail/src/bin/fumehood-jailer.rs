//! The jailer as a program of its own, for this crate's tests. The product starts it as a hidden subcommand of `fumehood`.

fn main() -> std::io::Result<()> {
    fumehood_jail::jailer::run()
}
