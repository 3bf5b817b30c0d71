//! Memory for the interpreter's objects, out of one block.
//!
//! The interpreter asks the kernel for arenas of 256 KiB or 1 MiB, one by one, and the libraries loaded in between scatter them: too small and
//! crooked for huge pages. Here they come from one aligned block. Beyond it, and for arenas from before, everything is as it was.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::symbol;

/// Address space set aside; memory is taken only as it is touched. Twice what the default image's libraries need.
const BLOCK: usize = 512 << 20;
/// The interpreter asks for smaller things too, such as pieces of its stack; those stay where they would be.
const SMALLEST_ARENA: usize = 256 << 10;
/// A huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// `PyObjectArenaAllocator`
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    alloc: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: extern "C" fn(*mut c_void, *mut c_void, usize),
}

struct Block {
    start: usize,
    used: usize,
    /// What was given back: place and size.
    free: Vec<(usize, usize)>,
}

static BLOCK_IN_USE: Mutex<Option<Block>> = Mutex::new(None);

/// The part of the block that has been used.
pub(crate) fn used() -> Option<(usize, usize)> {
    let block = BLOCK_IN_USE.lock().ok()?;
    block.as_ref().map(|block| (block.start, block.start + block.used))
}

/// Whether the interpreter takes its arenas from here now.
pub(crate) fn install() -> bool {
    let set = symbol(c"PyObject_SetArenaAllocator");
    let Some(start) = reserve(BLOCK + HUGE).filter(|_| !set.is_null()) else { return false };
    let Ok(mut block) = BLOCK_IN_USE.lock() else { return false };
    *block = Some(Block { start: start.next_multiple_of(HUGE), used: 0, free: Vec::new() });
    drop(block);
    let mut allocator = Allocator { context: null_mut(), alloc: allocate, free: release };
    // SAFETY: a symbol of this name takes a pointer to such a structure, which it copies. The functions keep what it demands: memory
    // that is zeroed, aligned to pages and nobody else's; `release` takes arenas of the allocator before too.
    unsafe {
        let set = std::mem::transmute::<*mut c_void, extern "C" fn(*mut Allocator)>(set);
        set(&raw mut allocator);
    }
    true
}

fn reserve(bytes: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let start = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start as usize)
}

extern "C" fn allocate(_: *mut c_void, bytes: usize) -> *mut c_void {
    let from_block = BLOCK_IN_USE.lock().ok().and_then(|mut block| block.as_mut()?.take(bytes));
    from_block.or_else(|| reserve(bytes)).map_or(null_mut(), |start| start as *mut c_void)
}

extern "C" fn release(_: *mut c_void, arena: *mut c_void, bytes: usize) {
    let ours = |block: &Block| (block.start..block.start + block.used).contains(&(arena as usize));
    let Ok(mut block) = BLOCK_IN_USE.lock() else { return };
    match block.as_mut().filter(|block| ours(block)) {
        Some(block) => {
            // SAFETY: the interpreter has given the arena back; zeroed again when it is next touched.
            let emptied: c_int = unsafe { libc::madvise(arena, bytes, libc::MADV_DONTNEED) };
            // Memory that could not be emptied must not be given out as empty.
            if emptied == 0 {
                block.free.push((arena as usize, bytes));
            }
        }
        None => {
            // SAFETY: a mapping of its own, by `reserve` or by the allocator before, which the interpreter has given back.
            unsafe { libc::munmap(arena, bytes) };
        }
    }
}

impl Block {
    fn take(&mut self, bytes: usize) -> Option<usize> {
        if bytes < SMALLEST_ARENA {
            return None;
        }
        if let Some(index) = self.free.iter().position(|(_, size)| *size == bytes) {
            return Some(self.free.swap_remove(index).0);
        }
        let arena = self.start + self.used;
        let used = self.used + bytes;
        (used <= BLOCK).then(|| {
            self.used = used;
            arena
        })
    }
}
