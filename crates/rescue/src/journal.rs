//! The log, and the file system as recovery would leave it.

use crate::error::{Error, Result};
use crate::maps::{Piece, runs_in_place};
use crate::volume::Volume;
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::Tid;
use extant_format::inode::FileType;
use extant_jbd2::{Log, LogRun, Recovery, ReplayedDevice, external_log};
use std::cell::OnceCell;
use std::sync::Arc;

/// The log of a file system.
#[derive(Debug)]
pub(crate) struct Journal {
    device: SharedDevice,
    runs: Vec<LogRun>,
    block_size: extant_format::BlockSize,
    recovery: Recovery,
    pub(crate) is_external: bool,
    /// What keeps a part of the log from being replayed.
    pub(crate) damage: Option<String>,
    history: OnceCell<extant_jbd2::LogHistory>,
}

impl Journal {
    /// Finds the log of `volume`, and what recovery would replay of it. `None` if there is none.
    pub(crate) fn open(volume: &Volume, external: Option<SharedDevice>) -> Result<Option<Self>> {
        let is_external = volume.sb.has_external_journal();
        let (device, runs) = match (is_external, external) {
            (true, None) => return Err(Error::ExternalJournal),
            (true, Some(device)) => {
                let runs = external_log(&*device, &volume.sb).map_err(Error::of_journal)?;
                (device, runs)
            }
            (false, _) => (Arc::clone(volume.device()), log_runs(volume)?),
        };
        if runs.is_empty() {
            return Ok(None);
        }
        let log = Log::open(&*device, &runs, volume.block_size()).map_err(Error::of_journal)?;
        let (recovery, damage) = log
            .recover_before_damage(volume.geo.blocks_count())
            .map_err(Error::of_journal)?;
        Ok(Some(Self {
            block_size: volume.block_size(),
            recovery,
            is_external,
            damage: damage.map(|e| e.to_string()),
            history: OnceCell::new(),
            runs,
            device,
        }))
    }

    /// The file system on `device` with what the log has to replay laid over it.
    pub(crate) fn replayed(&self, device: SharedDevice) -> SharedDevice {
        let log = Arc::clone(&self.device);
        let blocks = self.recovery.blocks.clone();
        Arc::new(ReplayedDevice::with_log(device, log, blocks))
    }

    pub(crate) fn log(&self) -> Result<Log<'_>> {
        let device: &dyn BlockDevice = &*self.device;
        Log::open(device, &self.runs, self.block_size).map_err(Error::of_journal)
    }

    /// All transactions of which the log has something.
    pub(crate) fn history(&self) -> Result<&extant_jbd2::LogHistory> {
        if let Some(history) = self.history.get() {
            return Ok(history);
        }
        let history = self.log()?.history().map_err(Error::of_journal)?;
        Ok(self.history.get_or_init(|| history))
    }

    /// First and last of the transactions that wait to be written home.
    pub(crate) fn waiting(&self) -> Option<(Tid, Tid)> {
        self.recovery.transactions
    }

    /// Whether fast commits wait to be replayed, which is not done here.
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.recovery.fast_commits.is_some()
    }

    /// Whether a block of the file system is one of the log.
    pub(crate) fn contains(&self, block: u64) -> bool {
        let holds = |run: &LogRun| {
            let start = run.start.get();
            (start..start.saturating_add(u64::from(run.len))).contains(&block)
        };
        !self.is_external && self.runs.iter().any(holds)
    }
}

/// Where the blocks of the journal inside the file system lie.
fn log_runs(volume: &Volume) -> Result<Vec<LogRun>> {
    let Some(ino) = volume.sb.journal_ino() else {
        return Ok(Vec::new());
    };
    let Some((slot, _)) = volume.slot(ino)? else {
        return Ok(Vec::new());
    };
    let Some(inode) = volume.parse(&slot, ino) else {
        return Ok(Vec::new());
    };
    if inode.file_type() != Some(FileType::Regular) {
        return Ok(Vec::new());
    }
    let end = inode.size >> volume.block_size().log2();
    let mut runs = Vec::new();
    let seed = volume.inode_seed(ino, inode.generation);
    runs_in_place(volume, &inode, seed, &mut |piece| {
        if let Piece::Data(run) = piece
            && u64::from(run.lblk) < end
        {
            runs.push(LogRun {
                first: run.lblk,
                len: run.len,
                start: extant_format::Pblk::new(run.pblk),
            });
        }
    })?;
    Ok(runs)
}
