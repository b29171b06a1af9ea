//! Making everything durable.

use crate::Result;
use crate::fs::Fs;

impl Fs {
    /// Makes all changes durable that were complete when this was called: on a file system open for
    /// reading there are none.
    ///
    /// # Errors
    /// [`Error::Device`] and what else stopped the journal.
    pub fn sync(&self) -> Result<()> {
        self.write_lazy_times();
        self.sync_but_lazy_times()
    }

    /// Makes all changes durable but for times that only memory has, which a caller writes that may
    /// change something.
    ///
    /// # Errors
    /// As for [`Fs::sync`].
    pub(crate) fn sync_but_lazy_times(&self) -> Result<()> {
        let Ok(journal) = self.journal() else {
            return Ok(());
        };
        let written = self.write_back_all();
        let data = self.data_ticket();
        self.commit(journal.running())?;
        self.flush_data(data)?;
        written
    }
}
