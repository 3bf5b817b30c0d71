use fumehood_engine::backend::{Ended, ExitReport, FailedStep};
use fumehood_engine::execution::{Outcome, Status};
use fumehood_engine::fuzzing::{Seen, verdict};
use fumehood_wire::{GuestDecoder, GuestFrame, GuestResult, HEADER_LEN, WireError};

use crate::Source;

/// Bytes of a guest as frames: however they are cut the same come out, no more is held than allowed, and what they claim makes no failure a success.
pub fn frames(data: &[u8]) {
    let mut source = Source::new(data);
    let bound = 1 << (source.byte() % 13);
    let cut = 1 + usize::from(source.byte());
    let seen = seen(&mut source);
    let stream = source.rest();

    let whole = decode(stream.chunks(stream.len().max(1)), bound);
    let pieces = decode(stream.chunks(cut), bound);
    assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
    let (frames, error) = whole;
    assert_eq!((frames.len(), error.as_ref().map(kind_of)), walked(stream, bound, frames.len()));

    for frame in frames {
        if let GuestFrame::Result(claim) = frame {
            judged(&seen, &claim);
            let plain = fumehood_server::fuzzing::flatten(&claim.result);
            serde_json::to_vec(&plain).expect("plain JSON can be written");
        }
    }
}

type Decoded = (Vec<GuestFrame>, Option<WireError>);

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>, bound: usize) -> Decoded {
    let mut decoder = GuestDecoder::new(bound);
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

#[derive(Debug, PartialEq)]
enum Fault {
    TooLarge,
    Content,
}

fn kind_of(error: &WireError) -> Fault {
    if matches!(error, WireError::TooLarge { .. }) { Fault::TooLarge } else { Fault::Content }
}

/// How many frames there are and how they end, from the lengths alone; content that is wrong is taken from the decoder, which stopped after `good`.
fn walked(mut stream: &[u8], bound: usize, good: usize) -> (usize, Option<Fault>) {
    for count in 0.. {
        let Some((header, rest)) = stream.split_first_chunk::<HEADER_LEN>() else { return (count, None) };
        let length = usize::try_from(u32::from_be_bytes([header[0], header[1], header[2], header[3]])).unwrap();
        if length > bound {
            return (count, Some(Fault::TooLarge));
        }
        if rest.len() < length {
            return (count, None);
        }
        if count == good {
            return (count, Some(Fault::Content));
        }
        assert!(matches!(header[4], 16 | 18..=21), "a frame of kind {}", header[4]);
        stream = &rest[length..];
    }
    unreachable!("the loop has no end of its own")
}

fn seen(source: &mut Source<'_>) -> Seen {
    let flags = source.byte();
    let code = i32::from(source.byte());
    let ended = match flags & 3 {
        0 => Some(Ended::Exited(0)),
        1 => Some(Ended::Exited(code)),
        2 => Some(Ended::Signaled(code)),
        _ => None,
    };
    let more = source.byte();
    let step = FailedStep { step: "mount".to_owned(), cause: "busy".to_owned(), caller: more & 1 != 0 };
    Seen {
        killed: source.byte() % 6,
        exit: ExitReport {
            ended,
            failed_step: (more & 6 == 6).then_some(step),
            oom_kills: u64::from(flags >> 2 & 1),
            process_limit_hits: u64::from(flags >> 3 & 1),
            lost: more & 0x18 == 0x18,
            ..ExitReport::default()
        },
        runner: flags & 0x10 == 0,
        begun: flags & 0x20 == 0,
        disk_full: flags & 0x40 != 0,
    }
}

/// What a claim may change: the word for a program that ended by itself with a code that is not 0. Nothing else.
fn judged(seen: &Seen, claim: &GuestResult) {
    let (status, outcome, code) = verdict(seen, Some(claim));
    let (silent_status, silent_outcome, silent_code) = verdict(seen, None);
    let exit = &seen.exit;
    let alone = seen.killed == 0 && !exit.lost && exit.failed_step.is_none() && (seen.begun || !seen.runner);
    assert_eq!(status == Status::Completed, alone && exit.ended == Some(Ended::Exited(0)), "{seen:?} {claim:?}");
    assert_eq!(status, silent_status, "{seen:?} {claim:?}");
    let by_itself = alone && matches!(exit.ended, Some(Ended::Exited(code)) if code != 0);
    if !by_itself {
        assert_eq!((outcome, code), (silent_outcome, silent_code), "{seen:?} {claim:?}");
    }
    match outcome {
        Outcome::ProcessLimit => assert!(exit.process_limit_hits > 0 && by_itself),
        Outcome::OomKilled => assert!(exit.oom_kills > 0),
        Outcome::Exception | Outcome::DiskLimit => assert!(by_itself || exit.ended == Some(Ended::Signaled(25))),
        _ => {}
    }
}
