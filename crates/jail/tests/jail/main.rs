//! The jail against this machine's kernel. Where a kernel feature is missing each test says so and passes; CI fails on that line.

mod confinement;
mod ends;
/// The same for programs that are forked from a zygote.
#[expect(clippy::duplicate_mod, reason = "the same promises, held by forks")]
#[path = "ends.rs"]
mod ends_of_forks;
mod kept;
mod lifecycle;
mod limits;
#[expect(clippy::duplicate_mod, reason = "the same promises, held by forks")]
#[path = "limits.rs"]
mod limits_of_forks;
mod rig;
mod zygotes;

/// A rig, or a printed reason why there is none and the end of the test.
macro_rules! jail {
    () => {
        match $crate::rig::Rig::new() {
            Ok(rig) if module_path!().ends_with("_of_forks") => rig.forking(),
            Ok(rig) => rig,
            Err(reason) => {
                println!("SKIPPED process level: {reason}");
                return;
            }
        }
    };
}
pub(crate) use jail;
