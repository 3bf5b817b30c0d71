//! Images: a mount namespace for each, built once, that every sandbox of the image starts from.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{At, JailError, Step};
use crate::identity;
use crate::layer::Without;
use crate::mounts;
use crate::protocol::{RootEntry, packet_pair, receive, send};
use crate::spawn::reap;
use crate::sys::{self, Side};

/// Most images kept; the one used longest ago goes first. Sandboxes keep what they have.
const MOST: usize = 16;

/// The namespaces of images used lately.
pub(crate) struct Images {
    /// The jailer's own.
    own: OwnedFd,
    /// Latest last.
    built: Vec<(Vec<RootEntry>, OwnedFd)>,
    without: Without,
}

impl Images {
    pub(crate) fn new(without: Without) -> Result<Self, JailError> {
        Ok(Self { own: namespace_of(std::process::id(), "mnt")?, built: Vec::new(), without })
    }

    /// Clones this process with a copy of an image's mounts, among the new `namespaces`. The image is built if it is not there. `owner` is who is
    /// to own a new user namespace, when that is not this process's own uid.
    pub(crate) fn clone_within(
        &mut self,
        entries: &[RootEntry],
        namespaces: u64,
        owner: Option<u32>,
    ) -> Result<Side, JailError> {
        let image = self.built(entries)?;
        sys::enter_namespace(image).at(Step::EnterImage, "")?;
        let side = match owner.map_or(Ok(()), identity::act_as) {
            Ok(()) => sys::clone_into(namespaces).at(Step::Clone, ""),
            Err(error) => Err(error),
        };
        if !matches!(side, Ok(Side::Child)) {
            // Whoever stayed as somebody else, or in there, would fail at everything that follows.
            if owner.is_some() {
                sys::act_as(0).at(Step::Clone, "act for itself again")?;
                // Lost with the change of credentials.
                sys::die_with_parent().at(Step::FollowParent, "jailer")?;
            }
            sys::enter_namespace(self.own.as_fd()).at(Step::EnterImage, "and leave it")?;
        }
        side
    }

    fn built(&mut self, entries: &[RootEntry]) -> Result<BorrowedFd<'_>, JailError> {
        match self.built.iter().rposition(|(built, _)| built == entries) {
            Some(index) if index + 1 == self.built.len() => {}
            Some(index) => {
                let image = self.built.remove(index);
                self.built.push(image);
            }
            None => {
                let namespace = build(entries, &self.without)?;
                if self.built.len() == MOST {
                    self.built.remove(0);
                }
                self.built.push((entries.to_vec(), namespace));
            }
        }
        Ok(self.built.last().expect("it was put there").1.as_fd())
    }
}

/// A descriptor of a namespace of a process.
pub(crate) fn namespace_of(pid: impl std::fmt::Display, kind: &str) -> Result<OwnedFd, JailError> {
    let path = format!("/proc/{pid}/ns/{kind}");
    fs::File::open(&path).map(OwnedFd::from).at(Step::EnterImage, path)
}

/// Has a process of its own build the namespace, and keeps that.
fn build(entries: &[RootEntry], without: &Without) -> Result<OwnedFd, JailError> {
    let (near, far) = packet_pair().at(Step::CreateChannel, "image")?;
    match sys::clone_into(sys::MOUNTS).at(Step::Clone, "image")? {
        Side::Child => {
            drop(near);
            let built = mounts::build_image(entries, without);
            // The answer to it means that the namespace has been taken.
            let taken = send(&far, &built, &[]).and_then(|()| receive::<()>(&far));
            sys::exit_now(if taken.is_ok() { 0 } else { 1 })
        }
        Side::Parent { pid, pidfd } => {
            drop(far);
            let built = match receive::<Result<(), JailError>>(&near) {
                Ok(Some((built, _))) => built,
                _ => Err(JailError::new(Step::OpenImage, "", "the process that builds it ended")),
            };
            let namespace = built.and_then(|()| namespace_of(pid, "mnt"));
            drop(near);
            reap(&pidfd);
            namespace
        }
    }
}
