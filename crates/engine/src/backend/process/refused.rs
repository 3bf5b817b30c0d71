//! Answers the calls that programs of a sandbox are refused, and takes note of them first.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use fumehood_jail::refusal::{Heard, Listener};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::execution::Denial;
use crate::refusals::Refusals;

/// Calls of one program that are answered at once.
const AT_ONCE: u32 = 256;
/// Later ones wait so long: what a program loses that way it loses alone, and how many come in is bounded.
const PACE: Duration = Duration::from_millis(5);

/// Until no process is left that could call. Must be called on the runtime.
pub(super) fn attend(listener: OwnedFd, refusals: Arc<Refusals>) {
    tokio::spawn(async move {
        if let Err(error) = answer(listener, &refusals).await {
            // Without a listener the kernel refuses by itself.
            tracing::warn!(%error, "refused system calls of a sandbox are not heard of any more");
        }
    });
}

async fn answer(listener: OwnedFd, refusals: &Refusals) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe; a listener owns its descriptor and always names the same one, which is what is asked of it"
    )]
    let listener = AsyncFd::with_interest(Listener::new(listener), Interest::READABLE)?;
    let mut answered = 0;
    loop {
        let mut ready = listener.readable().await?;
        match ready.get_inner().next()? {
            Heard::Refused(call) => {
                let explained = call.explain();
                refusals.note(Denial {
                    kind: "syscall".to_owned(),
                    what: explained.what,
                    rule: format!("closed to sandboxes: it {}", explained.why),
                    remedy: explained.instead.to_owned(),
                });
                if answered < AT_ONCE {
                    answered += 1;
                } else {
                    tokio::time::sleep(PACE).await;
                }
                ready.get_inner().refuse(&call)?;
            }
            Heard::Nothing => ready.clear_ready(),
            Heard::Ended => return Ok(()),
        }
    }
}
