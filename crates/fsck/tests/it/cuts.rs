//! Plans that are cut off at one of their writes: the device fails from there on.

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_fsck::repair::{Plan, revert, write_undo};
use extant_testkit::crash::{Fault, FaultDevice, FaultRule, IoKind};
use std::sync::Arc;

/// Copies what a device in memory holds.
pub(crate) fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Fails all writes after so many.
pub(crate) fn stop(device: &FaultDevice, after: u64) {
    device.inject(FaultRule {
        kind: IoKind::Write,
        within: None,
        after,
        times: u64::MAX,
        fault: Fault::Error(5),
    });
}

/// A plan, and what it makes of an image.
pub(crate) struct Cuts {
    pub(crate) memory: Arc<MemoryDevice>,
    device: Arc<FaultDevice>,
    plan: Plan,
    undo: Vec<u8>,
    /// The image before.
    pub(crate) start: Vec<u8>,
    /// The image afterwards.
    pub(crate) done: Vec<u8>,
    /// Writes of the whole plan.
    pub(crate) writes: u64,
}

impl Cuts {
    /// Carries a plan out once, as a whole.
    pub(crate) fn new(image: &[u8], plan: impl FnOnce(Arc<dyn BlockDevice>) -> Plan) -> Self {
        let memory = Arc::new(MemoryDevice::from_image(image));
        let device = Arc::new(FaultDevice::new(memory.clone()));
        let plan = plan(device.clone());
        // Some plans make the device larger.
        let start = bytes_of(&memory);
        let mut undo = Vec::new();
        write_undo(&plan.changes, &mut undo).unwrap();
        device.reset_counts();
        plan.apply().unwrap();
        Self {
            writes: device.counts().writes,
            done: bytes_of(&memory),
            memory,
            device,
            plan,
            undo,
            start,
        }
    }

    /// Cuts over all of the writes, about so many, and those at both ends.
    pub(crate) fn some(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let step = (self.writes / count).max(1) as usize;
        (0..self.writes).step_by(step).chain([1, self.writes - 1])
    }

    /// Returns what is left of the plan when it is cut off after so many writes.
    pub(crate) fn left_after(&self, cut: u64) -> Vec<u8> {
        self.memory.write_at(0, &self.start).unwrap();
        stop(&self.device, cut);
        self.plan.apply().unwrap_err();
        self.device.heal();
        bytes_of(&self.memory)
    }

    /// Takes back what was left last, and is cut off after so many writes unless it has fewer.
    pub(crate) fn taken_back_until(&self, cut: u64) -> Vec<u8> {
        stop(&self.device, cut);
        let _ = revert(&*self.device, || Ok(&self.undo[..]));
        self.device.heal();
        bytes_of(&self.memory)
    }

    /// Takes back what lies there now.
    pub(crate) fn taken_back(&self) -> Result<Vec<u8>, String> {
        revert(&*self.device, || Ok(&self.undo[..])).map_err(|e| e.to_string())?;
        Ok(bytes_of(&self.memory))
    }
}
