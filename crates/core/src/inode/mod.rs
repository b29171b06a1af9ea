//! Inodes: loading, the live table, bulkstat.
