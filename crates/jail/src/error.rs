//! Errors that name the step. They cross process boundaries, so they carry an error number rather than a source object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One step of setting up a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it; Display has the sentence")]
pub enum Step {
    HoldCapabilities,
    PrepareCgroup,
    JoinCgroup,
    CreateDisk,
    CreateChannel,
    Clone,
    EnterImage,
    MapIds,
    AwaitParent,
    FollowParent,
    OpenImage,
    BecomeUser,
    PrivateMounts,
    MountRoot,
    PopulateRoot,
    MountProc,
    MountDev,
    MountDisk,
    RaiseLoopback,
    SetHostname,
    PivotRoot,
    CgroupNamespace,
    ReportSetUp,
    SetLimits,
    Freeze,
    ForkProgram,
    StartZygote,
    ForkZygote,
    EnterSandbox,
    ArrangeDescriptors,
    AwaitGate,
    EnterDirectory,
    NewSession,
    DropCapabilities,
    Keyring,
    NoNewPrivileges,
    Landlock,
    Seccomp,
    Exec,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HoldCapabilities => "find the capabilities that root is to have",
            Self::PrepareCgroup => "prepare the cgroup",
            Self::JoinCgroup => "join the cgroup",
            Self::CreateDisk => "create the disk",
            Self::CreateChannel => "create a channel to the sandbox",
            Self::Clone => "create the namespaces",
            Self::EnterImage => "enter the image",
            Self::MapIds => "map user and group ids",
            Self::AwaitParent => "wait for the jailer",
            Self::FollowParent => "tie the sandbox to the jailer's life",
            Self::OpenImage => "open the image",
            Self::BecomeUser => "become the sandbox's user",
            Self::PrivateMounts => "make mounts private",
            Self::MountRoot => "mount the root",
            Self::PopulateRoot => "populate the root",
            Self::MountProc => "mount /proc",
            Self::MountDev => "mount /dev",
            Self::MountDisk => "mount the disk",
            Self::RaiseLoopback => "raise the loopback interface",
            Self::SetHostname => "set the host name",
            Self::PivotRoot => "pivot into the root",
            Self::CgroupNamespace => "enter a cgroup namespace",
            Self::ReportSetUp => "report that set-up is done",
            Self::SetLimits => "set resource limits",
            Self::Freeze => "freeze the sandbox",
            Self::ForkProgram => "fork the program",
            Self::StartZygote => "start the preloaded interpreter",
            Self::ForkZygote => "fork the preloaded interpreter",
            Self::EnterSandbox => "enter the prepared sandbox",
            Self::ArrangeDescriptors => "arrange descriptors",
            Self::AwaitGate => "wait at the gate",
            Self::EnterDirectory => "enter the working directory",
            Self::NewSession => "start a session",
            Self::DropCapabilities => "drop capabilities",
            Self::Keyring => "join a new keyring",
            Self::NoNewPrivileges => "set no_new_privs",
            Self::Landlock => "restrict with Landlock",
            Self::Seccomp => "install the seccomp filter",
            Self::Exec => "execute the program",
        })
    }
}

/// A step that failed, with what it was about and the system's reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailError {
    /// The step.
    pub step: Step,
    /// The path or name at hand, possibly empty.
    pub subject: String,
    /// The system's reason or a sentence of ours.
    pub cause: String,
}

impl JailError {
    pub(crate) fn new(step: Step, subject: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { step, subject: subject.into(), cause: cause.to_string() }
    }
}

impl fmt::Display for JailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}", self.step)?;
        if !self.subject.is_empty() {
            write!(f, " ({})", self.subject)?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl std::error::Error for JailError {}

/// Adds the step to a result.
pub(crate) trait At<T> {
    /// The step, about `subject`.
    fn at(self, step: Step, subject: impl Into<String>) -> Result<T, JailError>;
}

impl<T, E: fmt::Display> At<T> for Result<T, E> {
    fn at(self, step: Step, subject: impl Into<String>) -> Result<T, JailError> {
        self.map_err(|cause| JailError::new(step, subject, cause))
    }
}
