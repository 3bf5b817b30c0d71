//! Huge pages: one entry of the page table for 512, in everything that a fork copies.

use std::fs;

use crate::arenas::{self, HUGE};

/// `MADV_COLLAPSE`, Linux 6.1.
const COLLAPSE: libc::c_int = 25;

/// Packs the heap and the interpreter's objects into huge pages, as far as they fill such a page. How many there are now.
pub(crate) fn collapse() -> usize {
    let heap = fs::read_to_string("/proc/self/maps").ok().and_then(|maps| heap(&maps));
    let places = [arenas::used(), heap];
    places.into_iter().flatten().map(|(start, end)| collapse_within(start, end)).sum()
}

/// Where the C library's heap is.
fn heap(maps: &str) -> Option<(usize, usize)> {
    let line = maps.lines().find(|line| line.ends_with("[heap]"))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

fn collapse_within(start: usize, end: usize) -> usize {
    let starts = (start.next_multiple_of(HUGE)..end).step_by(HUGE).filter(|start| start + HUGE <= end);
    // One by one: what cannot be packed, being mostly unused, leaves the others alone.
    // SAFETY: changes how memory is kept, not what is in it; the range is this process's own.
    starts.filter(|start| unsafe { libc::madvise(*start as *mut libc::c_void, HUGE, COLLAPSE) } == 0).count()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_heap_is_found() {
        let maps = "55-66 r-xp 0 0 0 /bin/x\n00a000-00c000 rw-p 00000000 00:00 0      [heap]\n7f-80 rw-p 0 0 0\n";
        assert_eq!(super::heap(maps), Some((0xa000, 0xc000)));
        assert_eq!(super::heap(""), None);
    }
}
