//! Huge pages: one entry of the page table for 512, in everything that a fork copies.

use std::fs;

use crate::arenas::{self, HUGE};

/// `MADV_COLLAPSE`, Linux 6.1.
const COLLAPSE: libc::c_int = 25;

/// Packs the heap and the interpreter's objects into huge pages, as far as they fill such a page, and joins the pieces that libraries are mapped
/// in. How many huge pages there are now.
pub(crate) fn collapse() -> usize {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return 0 };
    for (start, end, protection) in to_join(&maps) {
        // One that stays as it is costs each fork a microsecond, and nothing else.
        // SAFETY: gives rights to pages that were mapped without them on purpose of the linker, and takes none away; nobody relies on a fault.
        unsafe { libc::mprotect(start as *mut libc::c_void, end - start, protection) };
    }
    let places = [arenas::used(), heap(&maps)];
    places.into_iter().flatten().map(|(start, end)| collapse_within(start, end)).sum()
}

/// One line of `/proc/self/maps` that is about a file.
struct Piece<'a> {
    start: usize,
    end: usize,
    rights: &'a str,
    offset: usize,
    file: &'a str,
}

impl<'a> Piece<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(4, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (start, end, offset) = (number(start)?, number(end)?, number(fields.next()?)?);
        // Device, inode and path: the same for all pieces of one file.
        let file = fields.next()?;
        file.contains('/').then_some(Self { start, end, rights, offset, file })
    }

    /// Whether `next` goes on where this ends, in memory and in the file.
    fn leads_to(&self, next: &Self) -> bool {
        self.end == next.start && self.file == next.file && self.offset + (self.end - self.start) == next.offset
    }
}

/// A library is mapped in up to five pieces: headers, code, constants, and data of which a part is closed after relocation. Every fork copies each
/// of some thousand pieces. Given the rights of its neighbour a piece becomes one with it. That undoes a hardening of the linker's against
/// faulty programs; here any program may run anyway, and the sandbox does not rest on it.
fn to_join(maps: &str) -> Vec<(usize, usize, libc::c_int)> {
    let pieces: Vec<_> = maps.lines().filter_map(Piece::parse).collect();
    let mut joined = Vec::new();
    for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.rights == "r--p") {
        let before = index.checked_sub(1).map(|index| &pieces[index]).filter(|before| before.leads_to(piece));
        let after = pieces.get(index + 1).filter(|after| piece.leads_to(after));
        let neighbour = |rights| [before, after].into_iter().flatten().any(|other| other.rights == rights);
        if neighbour("r-xp") {
            joined.push((piece.start, piece.end, libc::PROT_READ | libc::PROT_EXEC));
        } else if neighbour("rw-p") {
            joined.push((piece.start, piece.end, libc::PROT_READ | libc::PROT_WRITE));
        }
    }
    joined
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
    fn pieces_of_a_library_are_joined_with_what_they_lie_next_to() {
        let maps = "\
1000-2000 r--p 00000000 08:01 7    /lib/x
2000-5000 r-xp 00001000 08:01 7    /lib/x
5000-6000 r--p 00004000 08:01 7    /lib/x
6000-7000 r--p 00004000 08:01 7    /lib/x
7000-8000 rw-p 00005000 08:01 7    /lib/x
8000-9000 r--p 00000000 08:01 8    /lib/y
a000-b000 rw-p 00000000 00:00 0 
";
        let (code, data) = (libc::PROT_READ | libc::PROT_EXEC, libc::PROT_READ | libc::PROT_WRITE);
        let joined = super::to_join(maps);
        assert_eq!(joined, [(0x1000, 0x2000, code), (0x5000, 0x6000, code), (0x6000, 0x7000, data)]);
    }

    #[test]
    fn the_heap_is_found() {
        let maps = "55-66 r-xp 0 0 0 /bin/x\n00a000-00c000 rw-p 00000000 00:00 0      [heap]\n7f-80 rw-p 0 0 0\n";
        assert_eq!(super::heap(maps), Some((0xa000, 0xc000)));
        assert_eq!(super::heap(""), None);
    }
}
