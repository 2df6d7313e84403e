//! Breakpoints in the memory of a followed process, written through `/proc/PID/mem`, which also
//! writes to code and leaves the file as it is.

use super::layout::Module;
use crate::PAGE;
use crate::order::code::{Code, Point};
use headstart_sys::ptrace::BREAKPOINT;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Pages that are written at once.
const AT_ONCE: u64 = 256;

/// The memory of a process.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// That of a process that is followed.
    ///
    /// # Errors
    /// It has ended, or may not be written.
    pub fn of(process: i32) -> io::Result<Self> {
        File::options().read(true).write(true).open(format!("/proc/{process}/mem")).map(Self)
    }

    /// Sets a breakpoint at each function of a module. Where the memory is not as the file is,
    /// none is set.
    ///
    /// # Errors
    /// It can't be written.
    pub fn set(&self, module: &Module, code: &Code) -> io::Result<()> {
        self.replace(module, code, |byte, point| (byte == point.original).then_some(BREAKPOINT))
    }

    /// Takes away all that are left in a module.
    ///
    /// # Errors
    /// It can't be written.
    pub fn clear(&self, module: &Module, code: &Code) -> io::Result<()> {
        self.replace(module, code, |byte, point| (byte == BREAKPOINT).then_some(point.original))
    }

    /// Takes away one.
    ///
    /// # Errors
    /// It can't be written.
    pub fn clear_one(&self, address: u64, point: &Point) -> io::Result<()> {
        self.0.write_all_at(&[point.original], address)
    }

    /// Whether there is a breakpoint.
    pub fn has(&self, address: u64) -> bool {
        let mut byte = [0];
        self.0.read_exact_at(&mut byte, address).is_ok() && byte == [BREAKPOINT]
    }

    /// Replaces the first bytes of functions, pages with such at a time.
    fn replace(
        &self,
        module: &Module,
        code: &Code,
        new: impl Fn(u8, &Point) -> Option<u8>,
    ) -> io::Result<()> {
        let end = module.offset.saturating_add(module.bytes);
        let points = code.points_in(module.offset, end);
        let page = |point: &Point| point.offset / PAGE;
        let mut rest = points;
        while let Some(first) = rest.first() {
            let joined = rest.windows(2).take_while(|pair| match pair {
                [a, b] => page(b) - page(a) <= 1 && page(b) - page(first) < AT_ONCE,
                _ => false,
            });
            let (part, others) = rest.split_at(joined.count() + 1);
            rest = others;
            let last = part.last().map_or(page(first), page);
            let mut bytes = vec![0; ((last - page(first) + 1) * PAGE) as usize];
            let begin = page(first) * PAGE;
            self.0.read_exact_at(&mut bytes, module.address_of(begin))?;
            let mut is_changed = false;
            for point in part {
                let Some(byte) = bytes.get_mut((point.offset - begin) as usize) else { continue };
                if let Some(new) = new(*byte, point) {
                    *byte = new;
                    is_changed = true;
                }
            }
            if is_changed {
                self.0.write_all_at(&bytes, module.address_of(begin))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::document::Function;

    #[test]
    fn breakpoints_are_set_and_cleared_at_functions_only() {
        // The memory of this process, which is data and not code here.
        let data = vec![0x55u8; 5 * PAGE as usize];
        let address = data.as_ptr() as u64;
        let module = Module { file: 0, address, bytes: 5 * PAGE, offset: 0 };
        let point = |offset, original| Point {
            offset,
            original,
            function: Function { name: "f".into(), aliases: vec![], address: 0, size: 0 },
        };
        // Adjacent pages, a gap, and a byte that is not as in the file.
        let points =
            vec![point(3, 0x55), point(PAGE, 0x55), point(3 * PAGE, 0x55), point(3 * PAGE + 1, 7)];
        let code = Code { points, ..Code::default() };
        let memory = Memory::of(std::process::id() as i32).unwrap();
        let set = |offset: u64| memory.has(address + offset);
        memory.set(&module, &code).unwrap();
        assert_eq!([3, 4, PAGE, 3 * PAGE, 3 * PAGE + 1].map(set), [true, false, true, true, false]);
        memory.clear_one(address + 3, &code.points[0]).unwrap();
        assert!(!set(3) && set(PAGE));
        memory.clear(&module, &code).unwrap();
        assert!(std::hint::black_box(&data).iter().all(|byte| *byte == 0x55));
    }
}
