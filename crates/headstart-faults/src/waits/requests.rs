//! Pairs the starts and ends of requests of block devices: by device and first sector, since a device
//! has one request for a sector at a time.

use super::Request;
use headstart::host::id::Dev;
use std::collections::HashMap;

/// All requests, and those that are not done.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    all: Vec<Request>,
    open: HashMap<(Dev, u64), usize>,
    /// Ends without a start: of requests that were given to the device before the recording.
    pub without_start: u64,
}

impl Requests {
    /// A request is given to a device. The same one again, where the device had refused it, is still one.
    pub fn issue(&mut self, request: Request) {
        let key = (request.device, request.sector);
        if let Some(refused) = self.open.get(&key).and_then(|at| self.all.get_mut(*at))
            && (refused.bytes, refused.operation) == (request.bytes, request.operation)
            && request.bytes > 0
        {
            refused.issue = request.issue;
            return;
        }
        self.open.insert(key, self.all.len());
        self.all.push(request);
    }

    /// A device has done a request.
    pub fn complete(&mut self, time: u64, device: Dev, sector: u64) {
        let request = self.open.remove(&(device, sector)).and_then(|at| self.all.get_mut(at));
        match request {
            Some(request) => request.complete = Some(time),
            None => self.without_start += 1,
        }
    }

    /// Records were lost: what is open may be done.
    pub fn lose(&mut self) {
        self.open.clear();
    }

    /// All, by the time of their issue.
    pub fn finish(mut self) -> Vec<Request> {
        self.all.sort_by_key(|request| request.issue);
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::Operation;

    #[test]
    fn an_end_belongs_to_the_request_of_its_device_and_sector() {
        let request = |minor, sector, issue| Request {
            device: Dev::new(8, minor),
            sector,
            bytes: 4096,
            operation: Operation::Read,
            is_readahead: false,
            issue,
            complete: None,
            thread: None,
        };
        let mut requests = Requests::default();
        requests.issue(request(0, 8, 1));
        requests.issue(request(1, 8, 2));
        // It was refused.
        requests.issue(request(0, 8, 3));
        requests.complete(5, Dev::new(8, 1), 8);
        requests.complete(6, Dev::new(8, 1), 8);
        requests.issue(request(0, 16, 7));
        requests.lose();
        requests.complete(8, Dev::new(8, 0), 16);
        assert_eq!(requests.without_start, 2);
        let all = requests.finish();
        let ends: Vec<_> = all.iter().map(|request| (request.issue, request.complete)).collect();
        assert_eq!(ends, [(2, Some(5)), (3, None), (7, None)]);
    }
}
