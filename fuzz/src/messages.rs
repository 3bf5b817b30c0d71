use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use fumehood_jail::fuzzing::{Kind, tell, understand};
use fumehood_jail::protocol::{MAX_MESSAGE, packet_pair};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::Source;

const KINDS: [Kind; 6] = [Kind::Request, Kind::Reply, Kind::Report, Kind::Order, Kind::Fork, Kind::ZygoteReport];

/// A message between server, jailer, process 1 and zygote: understood and then the same when it is said again, or refused; and no descriptor stays behind.
pub fn messages(data: &[u8]) {
    let (pipe, to_pipe) = rustix::pipe::pipe().expect("a pipe");
    // Counted by what they are, since other threads have descriptors too.
    let name = std::fs::read_link(format!("/proc/self/fd/{}", pipe.as_raw_fd())).expect("proc");
    exchange(Source::new(data), &pipe);
    drop((pipe, to_pipe));
    let left =
        || std::fs::read_dir("/proc/self/fd").expect("proc").filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    assert!(left().all(|open| open != name && open != Path::new(MESSAGE)));
}

/// What a descriptor of the file of a message is called.
const MESSAGE: &str = "/memfd:message (deleted)";

fn exchange(mut source: Source<'_>, pipe: &OwnedFd) {
    let kind = source.choose(&KINDS);
    let beside = usize::from(source.byte() % 8);
    let form = source.byte() % 4;
    let (left, right) = packet_pair().expect("a pair of sockets");
    let bytes = source.rest();

    let mut fds: Vec<OwnedFd> = (0..beside).map(|_| pipe.try_clone().expect("a descriptor")).collect();
    let packet = match form {
        // In a file, as long messages are.
        2 => {
            let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC).expect("a file"));
            file.write_all(bytes).expect("memory");
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).expect("a file");
            fds.push(file.into());
            &[0][..]
        }
        // As if in a file, where there is none.
        3 => &[0][..],
        _ => &bytes[..bytes.len().min(64 << 10)],
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(24))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    if !borrowed.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)));
    }
    sendmsg(&left, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL).expect("a packet goes out");

    let Ok(understood) = understand(kind, right.as_fd()) else { return };
    let Some((said, received)) = understood else {
        assert!(packet.is_empty());
        return;
    };
    // The file of a message is the message, not beside it.
    assert_eq!(received.len(), fds.len() - usize::from(packet == [0]));
    let value: serde_json::Value = serde_json::from_str(&said).expect("what was written can be read");
    if said.len() <= MAX_MESSAGE {
        tell(&left, &value, &[]).expect("what was understood can be said");
        let (again, none) = understand(kind, right.as_fd()).expect("it is understood again").expect("a message");
        assert_eq!((again, none.len()), (said, 0));
    }
}
