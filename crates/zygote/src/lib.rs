//! What a preloaded Python interpreter needs from below to be forked into sandboxes. It loads this library with `ctypes`, which holds the
//! interpreter's lock during each call.
//!
//! Functions of the interpreter are looked up by name, so the library fits every version that has them; all are part of its public C interface.

mod arenas;
mod pages;

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use fumehood_jail::forked::{self, Served};

/// Before anything else is imported: has the interpreter take memory for its objects from one block, which can then be made of huge pages.
/// 0 when done, 1 when this interpreter offers no way to.
#[unsafe(no_mangle)]
pub extern "C" fn fumehood_zygote_init() -> c_int {
    c_int::from(!arenas::install())
}

/// When everything is loaded: packs what is there into huge pages, so that a fork has few page-table entries to copy. Returns how many there
/// are; 0 where the kernel cannot.
#[unsafe(no_mangle)]
pub extern "C" fn fumehood_zygote_settle() -> c_int {
    c_int::try_from(pages::collapse()).unwrap_or(c_int::MAX)
}

/// Serves the jailer on this descriptor. Returns 0 in every fork; the zygote itself it ends, with its host.
#[unsafe(no_mangle)]
pub extern "C" fn fumehood_zygote_serve(jailer: c_int) -> c_int {
    // SAFETY: the caller hands over a descriptor that the jailer passed to this process for this call, and uses it no more.
    let jailer = unsafe { OwnedFd::from_raw_fd(jailer) };
    // Found here, since every look-up writes.
    let (before, after) = (function(c"PyOS_BeforeFork"), function(c"PyOS_AfterFork_Child"));
    match forked::serve(jailer) {
        Ok(Served::InFork) => {
            // Both in the fork. There was no other thread, so nothing has happened in between that the first one should have kept away; and
            // the zygote writes to nothing that forks share with it.
            call(before);
            call(after);
            0
        }
        // Its exit handlers are nobody's business: whatever they would save belongs to no one.
        Ok(Served::ToTheEnd) => std::process::exit(0),
        Err(error) => {
            eprintln!("zygote: {error}");
            std::process::exit(1)
        }
    }
}

fn call(function: Option<unsafe extern "C" fn()>) {
    if let Some(function) = function {
        // SAFETY: one of the interpreter's fork handlers, called in the order it demands, by its only thread, which holds its lock.
        unsafe { function() }
    }
}

/// A function of the program that has loaded this library.
fn function(name: &CStr) -> Option<unsafe extern "C" fn()> {
    let found = symbol(name);
    // SAFETY: a symbol of this name is a function without arguments and result; null becomes `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn()>>(found) }
}

fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: looks a name up among what is loaded; null when it is not there.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}
